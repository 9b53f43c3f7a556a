//! Why a guest can't be made, started or talked to.

use std::{fmt, io, os::unix::process::ExitStatusExt, path::PathBuf, process::ExitStatus, time::Duration};

use vtax_model::topology::Name;
use vtax_sys::{SysError, process::Signal};

use super::{last_words::LastWords, missing::MissingForGuests};

/// Why a guest can't be made, started or talked to.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// This machine lacks something that guests need.
    #[error("{why}; {}", why.remedy())]
    Missing {
        /// What it lacks.
        #[from]
        why: MissingForGuests,
    },
    /// A file or directory of ours can't be used.
    #[error("cannot {operation} {path}: {error}")]
    File {
        /// A verb phrase.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// A socket's path is longer than the kernel allows.
    #[error(
        "guest `{guest}`: {path} is longer than the {longest} bytes that a socket's path can have; set XDG_RUNTIME_DIR to a shorter one"
    )]
    SocketPath {
        /// The guest.
        guest: Name,
        /// The socket.
        path: PathBuf,
        /// The limit, unix(7).
        longest: usize,
    },
    /// QEMU could not be started.
    #[error("guest `{guest}`: {error}")]
    Start {
        /// The guest.
        guest: Name,
        /// The kernel's answer.
        error: Box<SysError>,
    },
    /// QEMU ended.
    #[error("guest `{guest}` is gone: QEMU {}{}{words}", End(*.status), words.cause())]
    Ended {
        /// The guest.
        guest: Name,
        /// How it ended. This is known only to the parent of QEMU's process.
        status: Option<ExitStatus>,
        /// What it said last.
        words: Box<LastWords>,
    },
    /// The guest runs, but didn't do in time what vtax waited for.
    #[error("guest `{guest}` {missing} within {waited:?}{words}")]
    Late {
        /// The guest.
        guest: Name,
        /// What it didn't do, such as "has no agent that answers".
        missing: &'static str,
        /// How long it had.
        waited: Duration,
        /// What it said last.
        words: Box<LastWords>,
    },
    /// QEMU has stopped the guest's processors by itself.
    #[error("guest `{guest}` stands still: its state is `{state}` to QEMU{words}")]
    Stopped {
        /// The guest.
        guest: Name,
        /// The state in QEMU's words, as `internal-error`.
        state: String,
        /// What it said last.
        words: Box<LastWords>,
    },
    /// QEMU could not be ended.
    #[error(
        "guest `{guest}`: QEMU (process {pid}) is still there after SIGKILL: the kernel holds it; look at /proc/{pid}/stack"
    )]
    Unkillable {
        /// The guest.
        guest: Name,
        /// QEMU's process number.
        pid: u32,
    },
    /// A process or thread of a guest can't be looked at or changed.
    #[error("guest `{guest}`: {error}")]
    Process {
        /// The guest.
        guest: Name,
        /// The kernel's answer.
        error: Box<SysError>,
    },
    /// A thread can't be pinned.
    #[error(
        "guest `{guest}`: cannot pin {thread} to CPU {cpus}: {error}; name CPUs that are online and in this process's cpuset"
    )]
    Pin {
        /// The guest.
        guest: Name,
        /// The thread, as "vCPU 0".
        thread: String,
        /// The CPUs, with commas.
        cpus: String,
        /// The kernel's answer.
        error: io::Error,
    },
    /// The user wants vhost's threads pinned, and there are too few of them.
    #[error(
        "guest `{guest}`: its vhost threads can't be pinned: {found} of {wanted} are there; remove `vhost_cpus`, or use backend = \"userspace\""
    )]
    NoVhost {
        /// The guest.
        guest: Name,
        /// How many there should be.
        wanted: usize,
        /// How many there are.
        found: usize,
    },
    /// QEMU got the wrong number of open queues for a NIC.
    #[error("guest `{guest}`: {nic} has {wanted} queues to be opened for it and was given {given}")]
    OpenQueues {
        /// The guest.
        guest: Name,
        /// The NIC, as `nic0`.
        nic: String,
        /// How many it needs.
        wanted: usize,
        /// How many there are.
        given: usize,
    },
    /// QEMU's monitor is closed, or its answer makes no sense.
    #[error("guest `{guest}`: QEMU's monitor {why} at `{command}`")]
    Monitor {
        /// The guest.
        guest: Name,
        /// The command, or "greeting".
        command: String,
        /// What happened.
        why: String,
    },
    /// QEMU refuses a command.
    #[error("guest `{guest}`: QEMU refuses `{command}`: {description} ({class})")]
    Refused {
        /// The guest.
        guest: Name,
        /// The command.
        command: String,
        /// QEMU's class of the error.
        class: String,
        /// QEMU's words.
        description: String,
    },
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
}

impl GuestError {
    /// Whether QEMU crashed: an assertion failed, or it accessed memory that it must not.
    pub fn is_crash(&self) -> bool {
        const FAULTS: [Signal; 5] = [Signal::ABORT, Signal::SEGV, Signal::BUS, Signal::ILL, Signal::FPE];
        let GuestError::Ended { status: Some(status), .. } = self else { return false };
        status.signal().is_some_and(|ended| FAULTS.iter().any(|fault| fault.as_raw() == ended))
    }
}

struct End(Option<ExitStatus>);

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.map(|status| (status.code(), status.signal())) {
            // When a guest panics or powers itself off, QEMU ends without an error.
            Some((Some(0), _)) => f.write_str("has ended, because the guest has stopped"),
            Some((Some(code), _)) => write!(f, "has ended with status {code}"),
            Some((_, Some(signal))) => write!(f, "was ended by signal {signal}"),
            _ => f.write_str("has ended"),
        }
    }
}
