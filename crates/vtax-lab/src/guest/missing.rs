//! What guests need and this machine lacks.

use std::{fmt, path::PathBuf};

use vtax_model::method::Unsupported;

use super::version::Version;

/// Something that guests need, and that this machine doesn't have or that doesn't work. The text is the
/// reason alone; [`MissingForGuests::remedy`] says what the user can do.
#[derive(Debug, thiserror::Error)]
pub enum MissingForGuests {
    /// There is no QEMU.
    #[error("guests need QEMU, and there is no `qemu-system-x86_64` in {}", Paths(.looked))]
    NoQemu {
        /// The folders that were searched.
        looked: Vec<PathBuf>,
    },
    /// QEMU is older than what guests are started with.
    #[error("{path} is QEMU {version}, and guests need {least} or later")]
    OldQemu {
        /// The program.
        path: PathBuf,
        /// Its version.
        version: Version,
        /// The oldest version that works.
        least: Version,
    },
    /// QEMU doesn't answer a simple question.
    #[error("{path} {why}")]
    Qemu {
        /// The program.
        path: PathBuf,
        /// What it did.
        why: String,
    },
    /// There is no kernel for guests.
    #[error("there is no kernel for guests: {}", Reasons(.looked))]
    NoKernel {
        /// Each place that was searched, and why nothing there can be used.
        looked: Vec<(PathBuf, String)>,
    },
    /// The kernel that the user named can't be used.
    #[error("kernel {path} {why}")]
    Kernel {
        /// The file or tree.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The kernel lacks a driver.
    #[error(
        "kernel {release} has no driver `{module}`, neither built in nor in {}{}",
        directory.display(),
        needed_by.as_ref().map(|by| format!(" (`{by}` needs it)")).unwrap_or_default()
    )]
    NoModule {
        /// The module.
        module: String,
        /// The module that depends on it. It is absent if the guest's devices need it.
        needed_by: Option<String>,
        /// The kernel.
        release: String,
        /// Where the kernel's modules are.
        directory: PathBuf,
    },
    /// A kernel module can't be read.
    #[error("module {path} {why}")]
    Module {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The agent's program can't run in a guest.
    #[error("{path} can't run in a guest: it {why}")]
    Agent {
        /// The program.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The user's disk image can't be booted.
    #[error("the disk image {path} {why}")]
    Disk {
        /// The path as the user wrote it.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
        /// What the user can do.
        remedy: &'static str,
    },
    /// There is no directory for what is kept between runs.
    #[error("no directory to keep images of guests in")]
    NoCache,
}

impl MissingForGuests {
    /// What the user can do.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::NoQemu { .. } => "install it (Debian: qemu-system-x86), or set VTAX_QEMU to it",
            Self::OldQemu { .. } => "set VTAX_QEMU to a newer one",
            Self::Qemu { .. } => "set VTAX_QEMU to a `qemu-system-x86_64` that works",
            Self::NoKernel { .. } => "name one with --kernel, or run `make kernel`",
            Self::Kernel { .. } => "name another with --kernel",
            Self::NoModule { .. } => "use a kernel that has it (--kernel)",
            Self::Module { .. } => "unpack or install the kernel's package again",
            Self::Agent { .. } => "build it with `make`",
            Self::Disk { remedy, .. } => remedy,
            Self::NoCache => "set HOME or XDG_CACHE_HOME",
        }
    }
}

impl From<MissingForGuests> for Unsupported {
    fn from(missing: MissingForGuests) -> Unsupported {
        Unsupported::new(missing.to_string(), missing.remedy())
    }
}

struct Paths<'a>(&'a [PathBuf]);

impl fmt::Display for Paths<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("PATH, which is empty");
        }
        let paths: Vec<String> = self.0.iter().map(|path| path.display().to_string()).collect();
        f.write_str(&paths.join(", "))
    }
}

struct Reasons<'a>(&'a [(PathBuf, String)]);

impl fmt::Display for Reasons<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reasons: Vec<String> = self.0.iter().map(|(path, why)| format!("{} {why}", path.display())).collect();
        f.write_str(&reasons.join(", "))
    }
}
