//! io_uring(7): one system call for a whole transaction, or for those of thousands
//! of flows.
//!
//! The kernel reads and writes the buffers of a request after the call that
//! submits it has returned. This module has no way to say so: [`Ring::exchange`]
//! borrows buffers and returns only when the kernel is done with them; [`Slots`]
//! owns the buffers of all its flows and hands them out only while the kernel does
//! not use them.
//!
//! A ring belongs to the thread that made it. The kernel then does the work of
//! completions when that thread asks for them and not in the midst of something
//! else (`IORING_SETUP_DEFER_TASKRUN`, Linux 6.1).

mod connections;
mod refusal;
mod slots;

use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};

pub use refusal::NoRing;
pub use slots::{Completion, Operation, Slots};

/// How long the kernel may refuse to take requests before this process is ended.
const STUBBORN: Duration = Duration::from_secs(10);

/// How often a request is cancelled that the last attempt did not reach.
const CANCEL_EVERY: Duration = Duration::from_millis(5);

/// The longest wait that is told to the kernel.
const FOREVER: Duration = Duration::from_secs(1 << 30);

const SEND: u64 = 0;
const RECEIVE: u64 = 1;
const CANCEL: u64 = 2;

/// A ring for one transaction at a time, with buffers of the caller.
pub struct Ring {
    uring: Uring,
}

/// When a receive is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Something has come: a datagram, or any part of a stream.
    Any,
    /// The buffer is full (`MSG_WAITALL`), or the stream has ended. Kernels before 5.19 may
    /// stop earlier: compare the lengths.
    Full,
}

/// How far a transaction came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    /// Bytes of the request that the kernel took.
    pub sent: usize,
    /// Bytes of the response. Zero without `timed_out`, of a whole request: the
    /// peer has ended the stream (or sent an empty datagram).
    pub received: usize,
    /// The time ran out, and what was not done by then was cancelled.
    pub timed_out: bool,
}

impl Ring {
    /// Makes one for the calling thread.
    ///
    /// # Errors
    /// Why this process can have no io_uring, and what to do.
    pub fn new() -> Result<Self, NoRing> {
        Uring::new(8, 16).map(|uring| Self { uring })
    }

    /// Whether this process can have one.
    ///
    /// # Errors
    /// As [`Ring::new`].
    pub fn probe() -> Result<(), NoRing> {
        Self::new().map(drop)
    }

    /// Sends `request` and then receives into `response`, with one system call
    /// where nothing has to be said twice. Either may be empty and is left out then;
    /// so a responder sends its response and receives the next request, and the rest
    /// of a short response is waited for by calling again without a request.
    ///
    /// # Errors
    /// The kernel's, of either part. Nothing is known then of how much was sent.
    pub fn exchange(
        &mut self,
        socket: impl AsFd,
        request: &[u8],
        response: &mut [u8],
        until: Until,
        timeout: Duration,
    ) -> io::Result<Exchange> {
        let fd = Fd(socket.as_fd().as_raw_fd());
        let mut flight = Flight::new(!request.is_empty(), !response.is_empty());
        // SAFETY: `Flight::land` returns only after the kernel has answered all requests, and
        // ends the process if that can't be had; until then both buffers are borrowed, the
        // socket is open, and nothing else touches them.
        unsafe {
            if flight.send.is_pending() {
                let link = if response.is_empty() { squeue::Flags::empty() } else { squeue::Flags::IO_LINK };
                let send = opcode::Send::new(fd, request.as_ptr(), length(request.len()));
                self.uring.push_now(&send.flags(SEND_FLAGS).build().flags(link).user_data(SEND));
            }
            if flight.receive.is_pending() {
                let receive = opcode::Recv::new(fd, response.as_mut_ptr(), length(response.len()));
                self.uring.push_now(&receive.flags(until.flags()).build().user_data(RECEIVE));
            }
        }
        flight.land(&mut self.uring, timeout);
        let (sent, received) = (flight.send.bytes()?, flight.receive.bytes()?);
        // A response that came while it was being cancelled is no less a response.
        let wanted = if until == Until::Full { response.len() } else { 1.min(response.len()) };
        let timed_out = flight.timed_out && (sent < request.len() || received < wanted);
        Ok(Exchange { sent, received, timed_out })
    }
}

/// A whole request or an error, since what is linked to a short one is cancelled anyway.
const SEND_FLAGS: libc::c_int = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;

impl Until {
    fn flags(self) -> libc::c_int {
        match self {
            Self::Any => 0,
            Self::Full => libc::MSG_WAITALL,
        }
    }
}

/// A result is a signed integer, and so is the longest length that makes sense.
fn length(bytes: usize) -> u32 {
    bytes.min(i32::MAX as usize) as u32
}

/// The requests of one exchange.
struct Flight {
    send: Part,
    receive: Part,
    cancels: u32,
    timed_out: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Absent,
    Pending,
    Done(i32),
}

impl Part {
    fn new(there: bool) -> Self {
        if there { Self::Pending } else { Self::Absent }
    }

    fn is_pending(self) -> bool {
        self == Self::Pending
    }

    /// Bytes. What was cancelled has none.
    fn bytes(self) -> io::Result<usize> {
        match self {
            Self::Absent | Self::Pending => Ok(0),
            Self::Done(result) if result == -libc::ECANCELED => Ok(0),
            Self::Done(result) => usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result)),
        }
    }
}

impl Flight {
    fn new(send: bool, receive: bool) -> Self {
        Self { send: Part::new(send), receive: Part::new(receive), cancels: 0, timed_out: false }
    }

    fn pending(&self) -> usize {
        usize::from(self.send.is_pending()) + usize::from(self.receive.is_pending()) + self.cancels as usize
    }

    /// Submits, and waits until the kernel is done with every request. Must not
    /// panic: that would end the buffers' borrows.
    fn land(&mut self, uring: &mut Uring, timeout: Duration) {
        let begun = Instant::now();
        let mut patience = timeout;
        while self.pending() > 0 {
            let entered = uring.enter(self.pending(), Some(patience));
            self.take_completions(uring);
            if self.pending() == 0 {
                return;
            }
            let waited = begun.elapsed();
            if entered.is_err_and(|error| !is_passing(&error)) || waited > timeout.saturating_add(STUBBORN) {
                give_up();
            }
            patience = match timeout.checked_sub(waited) {
                Some(left) if !left.is_zero() => left,
                // Again and again: a send that was just being retried is reached by no
                // cancellation, and then its receive begins.
                _ => self.cancel(uring),
            };
        }
    }

    fn cancel(&mut self, uring: &mut Uring) -> Duration {
        self.timed_out = true;
        if self.cancels == 0 {
            for (part, name) in [(self.send, SEND), (self.receive, RECEIVE)] {
                if part.is_pending() {
                    // SAFETY: it has no buffer.
                    unsafe { uring.push_now(&opcode::AsyncCancel::new(name).build().user_data(CANCEL)) };
                    self.cancels += 1;
                }
            }
        }
        CANCEL_EVERY
    }

    fn take_completions(&mut self, uring: &mut Uring) {
        for completion in uring.ring.completion() {
            match completion.user_data() {
                SEND => self.send = Part::Done(completion.result()),
                RECEIVE => self.receive = Part::Done(completion.result()),
                _ => self.cancels = self.cancels.saturating_sub(1),
            }
        }
    }
}

/// The kernel took requests on borrowed buffers and answers no more. Going on would let it write
/// to memory that is somebody else's by then.
fn give_up() -> ! {
    eprintln!("vtax: io_uring has stopped answering with requests in flight; ended, to keep memory whole");
    std::process::abort()
}

/// What `io_uring_enter` answers when it was interrupted, timed out, or is short
/// of memory or of room for completions, for now.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY))
}

/// The queues, and who may use them.
struct Uring {
    ring: IoUring,
    /// How often the kernel was entered.
    enters: Cell<u64>,
    /// Requests are taken only from the thread that made the ring.
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
            // EINVAL of a kernel that does not know the flags.
            if refused.as_ref().is_some_and(|error| error.raw_os_error() != Some(libc::EINVAL)) {
                break;
            }
        }
        Err(refused.map_or(NoRing::Absent, |error| NoRing::of(&error)))
    }

    /// Room there is: the queue is empty when an exchange begins, and longer than
    /// what it holds.
    ///
    /// # Safety
    /// As of [`squeue::push`](io_uring::SubmissionQueue::push): what the request
    /// points to must stay until it is complete.
    unsafe fn push_now(&mut self, request: &squeue::Entry) {
        // SAFETY: the caller's promise.
        if unsafe { self.ring.submission().push(request) }.is_err() {
            give_up();
        }
    }

    /// Hands over what is queued and waits for `want` completions. `Ok` may also
    /// mean that something was handed over and the wait timed out or was
    /// interrupted.
    fn enter(&self, want: usize, timeout: Option<Duration>) -> io::Result<()> {
        let submitter = self.ring.submitter();
        self.enters.set(self.enters.get() + 1);
        match timeout {
            Some(timeout) if want > 0 => {
                // The kernel takes a time that overflows its type for one that is past.
                let time = Timespec::from(timeout.min(FOREVER));
                submitter.submit_with_args(want, &SubmitArgs::new().timespec(&time))
            }
            _ => submitter.submit_and_wait(want),
        }
        .map(drop)
    }
}

/// A timeout of the wait itself (Linux 5.11), and completions that are never dropped (5.5).
fn has_all(ring: &IoUring) -> bool {
    ring.params().is_feature_ext_arg() && ring.params().is_feature_nodrop()
}

/// How the kernel does the work of completions.
#[derive(Clone, Copy)]
enum Mode {
    /// When this thread waits for them: Linux 6.1.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::UdpSocket;
    use std::os::unix::net::UnixStream;
    use std::thread;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn done(sent: usize, received: usize) -> Exchange {
        Exchange { sent, received, timed_out: false }
    }

    #[test]
    fn two_rings_hold_a_conversation() {
        let (one, other) = UnixStream::pair().unwrap();
        let responder = thread::spawn(move || {
            let mut ring = Ring::new().unwrap();
            let mut request = [0; 64];
            let mut got = ring.exchange(&other, &[], &mut request, Until::Full, PATIENCE).unwrap();
            while got.received > 0 {
                assert_eq!(got.received, 64);
                let response = [request[0] + 1; 16];
                got = ring.exchange(&other, &response, &mut request, Until::Full, PATIENCE).unwrap();
            }
        });
        let mut ring = Ring::new().unwrap();
        for round in 0..100 {
            let mut response = [0; 16];
            let got = ring.exchange(&one, &[round; 64], &mut response, Until::Full, PATIENCE).unwrap();
            assert_eq!(got, done(64, 16));
            assert_eq!(response, [round + 1; 16]);
        }
        drop(one);
        responder.join().unwrap();
    }

    /// More than the socket's buffers hold, so that both parts have to be taken up again.
    #[test]
    fn a_request_of_a_megabyte_is_sent_whole() {
        let (one, mut other) = UnixStream::pair().unwrap();
        let peer = thread::spawn(move || {
            let mut request = vec![0; 1 << 20];
            other.read_exact(&mut request).unwrap();
            other.write_all(&request).unwrap();
        });
        let request: Vec<u8> = (0..1_u32 << 20).map(|at| (at % 251) as u8).collect();
        let mut response = vec![0; request.len()];
        let got = Ring::new().unwrap().exchange(&one, &request, &mut response, Until::Full, PATIENCE).unwrap();
        assert_eq!(got, done(1 << 20, 1 << 20));
        assert!(request == response);
        peer.join().unwrap();
    }

    #[test]
    fn a_lost_datagram_times_out_and_the_next_one_is_its_own() {
        let one = UdpSocket::bind("127.0.0.1:0").unwrap();
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        one.connect(other.local_addr().unwrap()).unwrap();
        let mut ring = Ring::new().unwrap();
        let mut response = [0; 8];
        let begun = Instant::now();
        let got = ring.exchange(&one, b"ask", &mut response, Until::Any, Duration::from_millis(80)).unwrap();
        assert_eq!(got, Exchange { sent: 3, received: 0, timed_out: true });
        assert!(begun.elapsed() >= Duration::from_millis(80));

        other.send_to(b"late", one.local_addr().unwrap()).unwrap();
        assert_eq!(ring.exchange(&one, &[], &mut response, Until::Any, PATIENCE).unwrap(), done(0, 4));
        assert_eq!(&response[..4], b"late");
    }

    #[test]
    fn a_send_that_can_make_no_progress_times_out_and_takes_its_receive_along() {
        let (one, _other) = UnixStream::pair().unwrap();
        let mut ring = Ring::new().unwrap();
        let request = vec![0; 4 << 20];
        let limit = Duration::from_millis(80);
        let got = ring.exchange(&one, &request, &mut [0; 8], Until::Any, limit).unwrap();
        assert!(got.timed_out && got.sent < request.len(), "{got:?}");
        // The ring is empty again.
        let got = ring.exchange(&one, &[], &mut [0; 8], Until::Any, limit).unwrap();
        assert_eq!(got, Exchange { sent: 0, received: 0, timed_out: true });
    }

    #[test]
    fn the_part_of_a_response_that_came_in_time_is_told() {
        let (one, mut other) = UnixStream::pair().unwrap();
        other.write_all(b"half").unwrap();
        let mut response = [0; 8];
        let mut ring = Ring::new().unwrap();
        let got = ring.exchange(&one, &[], &mut response, Until::Full, Duration::from_millis(80)).unwrap();
        assert_eq!(got, Exchange { sent: 0, received: 4, timed_out: true });
        assert_eq!(&response[..4], b"half");
    }

    #[test]
    fn a_peer_that_is_gone_is_an_error() {
        let (one, other) = UnixStream::pair().unwrap();
        drop(other);
        let mut ring = Ring::new().unwrap();
        let error = ring.exchange(&one, b"x", &mut [0; 1], Until::Full, PATIENCE).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPIPE));
        assert_eq!(ring.exchange(&one, &[], &mut [0; 1], Until::Full, PATIENCE).unwrap(), done(0, 0));
    }

    #[test]
    fn a_socket_that_does_not_block_is_waited_for_too() {
        let (one, mut other) = UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        let peer = thread::spawn(move || {
            thread::sleep(Duration::from_millis(80));
            other.write_all(b"x").unwrap();
        });
        let got = Ring::new().unwrap().exchange(&one, &[], &mut [0; 1], Until::Any, PATIENCE).unwrap();
        assert_eq!(got, done(0, 1));
        peer.join().unwrap();
    }

    #[test]
    fn nothing_to_do_is_done() {
        let (one, _other) = UnixStream::pair().unwrap();
        let mut ring = Ring::new().unwrap();
        assert_eq!(ring.exchange(&one, &[], &mut [], Until::Any, PATIENCE).unwrap(), done(0, 0));
    }
}
