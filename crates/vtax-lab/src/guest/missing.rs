//! What guests need and this machine lacks.

use std::path::PathBuf;

use vtax_model::method::Unsupported;

use super::version::Version;

/// Something that guests need, and that this machine doesn't have or that doesn't work. The text is the
/// reason alone; [`MissingForGuests::remedy`] says what the user can do.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum MissingForGuests {
    #[error("guests need QEMU, and there is no `qemu-system-x86_64` in {}", paths(.looked))]
    #[diagnostic(code("no-qemu"))]
    NoQemu { looked: Vec<PathBuf> },
    #[error("{path} is QEMU {version}, and guests need {least} or later")]
    #[diagnostic(code("qemu-too-old"))]
    OldQemu { path: PathBuf, version: Version, least: Version },
    #[error("{path} {why}")]
    #[diagnostic(code("qemu-broken"))]
    Qemu { path: PathBuf, why: String },
    #[error("there is no kernel for guests: {}", reasons(.looked))]
    #[diagnostic(code("no-guest-kernel"))]
    NoKernel { looked: Vec<(PathBuf, String)> },
    #[error("kernel {path} {why}")]
    #[diagnostic(code("bad-guest-kernel"))]
    Kernel { path: PathBuf, why: String },
    #[error(
        "kernel {release} has no driver `{module}`, neither built in nor in {}{}",
        directory.display(),
        needed_by.as_ref().map(|by| format!(" (`{by}` needs it)")).unwrap_or_default()
    )]
    #[diagnostic(code("no-guest-driver"))]
    NoModule { module: String, needed_by: Option<String>, release: String, directory: PathBuf },
    #[error("module {path} {why}")]
    #[diagnostic(code("damaged-module"))]
    Module { path: PathBuf, why: String },
    #[error("{path} can't run in a guest: it {why}")]
    #[diagnostic(code("agent-cannot-run"))]
    Agent { path: PathBuf, why: &'static str },
    #[error("the disk image {path} {why}")]
    #[diagnostic(code("bad-disk-image"))]
    Disk { path: PathBuf, why: String, remedy: &'static str },
    #[error("no directory to keep images of guests in")]
    #[diagnostic(code("no-cache-directory"))]
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

fn paths(looked: &[PathBuf]) -> String {
    match looked {
        [] => "PATH, which is empty".to_owned(),
        _ => looked.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "),
    }
}

fn reasons(looked: &[(PathBuf, String)]) -> String {
    looked.iter().map(|(path, why)| format!("{} {why}", path.display())).collect::<Vec<_>>().join(", ")
}
