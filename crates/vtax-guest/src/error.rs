//! Missing requirements for guests, and errors of guests.

use std::{io, os::unix::process::ExitStatusExt, path::PathBuf, process::ExitStatus, time::Duration};

use vtax_model::{foreign::ForeignText, method::Unsupported, topology::Name, units::ByteSize};
use vtax_sys::{SysError, process::Signal, record::RecordError};

use super::{last_words::LastWords, launch::Version};

/// Error of creating, starting or communicating with a guest.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum GuestError {
    #[error("{why}; {}", why.remedy())]
    #[diagnostic(forward(why))]
    Missing {
        #[from]
        why: MissingForGuests,
    },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Record(#[from] RecordError),
    #[error("cannot {operation} {path}: {error}")]
    #[diagnostic(code("file"))]
    File { operation: &'static str, path: PathBuf, error: io::Error },
    #[error(
        "guest `{guest}`: {path} exceeds the limit of {longest} bytes for a socket path; set XDG_RUNTIME_DIR to a shorter directory"
    )]
    #[diagnostic(code("path-too-long"))]
    SocketPath { guest: Name, path: PathBuf, longest: usize },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Directory(#[from] SysError),
    #[error("guest `{guest}`: {error}")]
    #[diagnostic(forward(error))]
    Start { guest: Name, error: Box<SysError> },
    #[error("guest `{guest}` exited: QEMU {}{}{words}", ended(*.status), words.cause())]
    #[diagnostic(code("guest-gone"))]
    Ended { guest: Name, status: Option<ExitStatus>, words: Box<LastWords> },
    #[error(
        "guest `{guest}` exited: it exceeded its memory limit of {} MiB ({by}), i.e. its RAM plus QEMU's overhead{words}",
        limit.0 >> 20
    )]
    #[diagnostic(code("guest-over-memory"))]
    OverMemory { guest: Name, limit: ByteSize, by: &'static str, words: Box<LastWords> },
    #[error("guest `{guest}` {missing} within {waited:?}{words}")]
    #[diagnostic(code("not-in-time"))]
    Late { guest: Name, missing: &'static str, waited: Duration, words: Box<LastWords> },
    #[error("guest `{guest}` is stopped: QEMU state `{state}`{words}")]
    #[diagnostic(code("guest-stopped"))]
    Stopped { guest: Name, state: ForeignText, words: Box<LastWords> },
    #[error(
        "guest `{guest}`: QEMU (process {pid}) still exists after SIGKILL: the kernel holds it, as it does while a disk \
         does not respond; make the disk respond, or see /proc/{pid}/stack for the cause, then remove the rest: \
         vtax lab clean"
    )]
    #[diagnostic(code("qemu-not-ended"))]
    Unkillable { guest: Name, pid: u32 },
    #[error("guest `{guest}`: {error}")]
    #[diagnostic(forward(error))]
    Process { guest: Name, error: Box<SysError> },
    #[error(
        "guest `{guest}`: cannot pin {thread} to CPU {cpus}: {error}; name CPUs that are online and in this process's cpuset"
    )]
    #[diagnostic(code("cpu-not-allowed"))]
    Pin { guest: Name, thread: String, cpus: String, error: io::Error },
    #[error(
        "guest `{guest}`: cannot pin its vhost threads: only {found} of {wanted} exist; remove `vhost_cpus`, or use backend = \"userspace\""
    )]
    #[diagnostic(code("no-vhost-threads"))]
    NoVhost { guest: Name, wanted: usize, found: usize },
    #[error("guest `{guest}`: {nic} needs {wanted} open queues, {given} given")]
    #[diagnostic(code("defect"))]
    OpenQueues { guest: Name, nic: String, wanted: usize, given: usize },
    #[error("guest `{guest}` cannot use the disk {path}: {why}; stop that use first")]
    #[diagnostic(code("backend-in-use"))]
    DiskTaken { guest: Name, path: PathBuf, why: &'static str },
    #[error("guest `{guest}`: the storage daemon of a disk does not start: {said}")]
    #[diagnostic(code("no-storage-daemon"))]
    Storage { guest: Name, said: ForeignText },
    #[error("guest `{guest}`: QEMU's monitor {why} at `{command}`")]
    #[diagnostic(code("qemu-monitor-lost"))]
    Monitor { guest: Name, command: String, why: ForeignText },
    #[error("guest `{guest}`: QEMU refuses `{command}`: {description} ({class})")]
    #[diagnostic(code("qemu-refuses-command"))]
    Refused { guest: Name, command: String, class: ForeignText, description: ForeignText },
}

impl GuestError {
    pub(super) fn file(operation: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> GuestError {
        let path = path.into();
        move |error| GuestError::File { operation, path, error }
    }

    pub(super) fn process(guest: &Name) -> impl FnOnce(SysError) -> GuestError {
        let guest = guest.clone();
        move |error| GuestError::Process { guest, error: Box::new(error) }
    }

    /// Returns whether QEMU crashed: an assertion failed, or it accessed invalid memory.
    pub fn is_crash(&self) -> bool {
        const FAULTS: [Signal; 5] = [Signal::ABORT, Signal::SEGV, Signal::BUS, Signal::ILL, Signal::FPE];
        let GuestError::Ended { status: Some(status), .. } = self else { return false };
        status.signal().is_some_and(|ended| FAULTS.iter().any(|fault| fault.as_raw() == ended))
    }
}

/// A missing requirement for guests: only the reason. [`MissingForGuests::remedy`] has the fix.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum MissingForGuests {
    #[error("guests need QEMU, but `qemu-system-x86_64` was not found in {}", paths(.looked))]
    #[diagnostic(code("no-qemu"))]
    NoQemu { looked: Vec<PathBuf> },
    #[error("{path} is QEMU {version}, and guests need {least} or later")]
    #[diagnostic(code("qemu-too-old"))]
    OldQemu { path: PathBuf, version: Version, least: Version },
    #[error("{path} {why}")]
    #[diagnostic(code("qemu-broken"))]
    Qemu { path: PathBuf, why: ForeignText },
    #[error("no kernel for guests: {}", reasons(.looked))]
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
    #[error("{path} cannot run in a guest: it {why}")]
    #[diagnostic(code("agent-cannot-run"))]
    Agent { path: PathBuf, why: &'static str },
    #[error("the disk image {path} {why}")]
    #[diagnostic(code("bad-disk-image"))]
    Disk { path: PathBuf, why: String, remedy: &'static str },
    #[error("no cache directory for guest images")]
    #[diagnostic(code("no-cache-directory"))]
    NoCache,
}

impl MissingForGuests {
    /// Fix for the user.
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

fn ended(status: Option<ExitStatus>) -> String {
    match status.map(|status| (status.code(), status.signal())) {
        // When a guest panics or powers itself off, QEMU ends without an error.
        Some((Some(0), _)) => "exited because the guest stopped".to_owned(),
        Some((Some(code), _)) => format!("exited with status {code}"),
        Some((_, Some(signal))) => format!("was killed by signal {signal}"),
        _ => "exited".to_owned(),
    }
}
