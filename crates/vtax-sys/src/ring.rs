//! io_uring(7): one system call for a whole transaction, or for the transactions of thousands of flows.
//!
//! The kernel reads and writes the buffers of a request after the submitting call has returned. So [`Slots`] owns the
//! buffers of all its flows, and hands them out only while the kernel does not use them.
//!
//! A ring belongs to the thread that created it. The kernel processes completions when that thread requests them, and
//! not while it does something else (`IORING_SETUP_DEFER_TASKRUN`, Linux 6.1).

mod connections;
mod refusal;
mod slots;

use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::time::Duration;

use io_uring::IoUring;
use io_uring::types::{SubmitArgs, Timespec};

pub use refusal::NoRing;
pub use slots::{Completion, Operation, Slots};

/// Longest timeout given to the kernel.
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// Checks whether this process can use io_uring.
pub fn probe() -> Result<(), NoRing> {
    Uring::new(8, 16).map(drop)
}

/// Flags to send everything or fail: a short send would cancel the request that is linked to it.
const SEND_FLAGS: libc::c_int = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;

/// Limits a request's length to what its result, a signed integer, can report.
#[inline]
fn length(bytes: usize) -> u32 {
    bytes.min(i32::MAX as usize) as u32
}

/// Returns whether `io_uring_enter` failed only temporarily: it was interrupted or timed out, or it lacks memory or
/// room for completions.
#[inline]
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY))
}

/// The queues, which only the thread that created them may use.
struct Uring {
    ring: IoUring,
    /// Number of times the kernel was entered.
    enters: Cell<u64>,
    /// The kernel accepts requests only from the thread that created the ring.
    _thread: PhantomData<*const ()>,
}

impl Uring {
    fn new(submissions: u32, completions: u32) -> Result<Self, NoRing> {
        let mut refused = None;
        for mode in [Mode::Deferred, Mode::Cooperative, Mode::Plain] {
            match mode.builder(completions).build(submissions) {
                Ok(ring) if has_all(&ring) => return Ok(Self { ring, enters: Cell::new(0), _thread: PhantomData }),
                Ok(_) => return Err(NoRing::TooOld),
                Err(error) => refused = Some(error),
            }
            // EINVAL means that the kernel doesn't support the flags.
            if refused.as_ref().is_some_and(|error| error.raw_os_error() != Some(libc::EINVAL)) {
                break;
            }
        }
        Err(refused.map_or(NoRing::Absent, |error| NoRing::of(&error)))
    }

    /// Submits the queue and waits for `want` completions. `Ok` may also mean that requests were submitted and the wait
    /// then timed out or was interrupted.
    #[inline]
    fn enter(&self, want: usize, timeout: Option<Duration>) -> io::Result<()> {
        let submitter = self.ring.submitter();
        self.enters.set(self.enters.get() + 1);
        match timeout {
            Some(timeout) if want > 0 => {
                // The kernel treats a time that overflows its type as past.
                let time = Timespec::from(timeout.min(FOREVER));
                submitter.submit_with_args(want, &SubmitArgs::new().timespec(&time))
            }
            _ => submitter.submit_and_wait(want),
        }
        .map(drop)
    }
}

/// Returns whether the ring has a timeout for the wait itself (Linux 5.11) and never drops completions (5.5).
fn has_all(ring: &IoUring) -> bool {
    ring.params().is_feature_ext_arg() && ring.params().is_feature_nodrop()
}

/// Time at which the kernel processes completions.
#[derive(Clone, Copy)]
enum Mode {
    /// When this thread waits for completions: Linux 6.1.
    Deferred,
    /// When this thread next enters the kernel: 5.19.
    Cooperative,
    Plain,
}

impl Mode {
    fn builder(self, completions: u32) -> io_uring::Builder {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_clamp().setup_cqsize(completions);
        match self {
            Self::Deferred => builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag(),
            Self::Cooperative => builder.setup_coop_taskrun().setup_taskrun_flag(),
            Self::Plain => &mut builder,
        };
        builder
    }
}
