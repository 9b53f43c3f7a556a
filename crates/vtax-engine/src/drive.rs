//! What a workload asks of the engine that it runs on.
//!
//! A workload is an `async fn`, straight-line code for one flow: send, receive, sleep. What makes it
//! wait is an [`Poller`]: on [`blocking`] every call is the system call itself and no future is ever
//! pending, so that the compiler leaves a plain loop; on [`ready`] a call that would block hands the
//! thread to another flow; on [`uring`] each call is a request to the kernel. There is no runtime and
//! no waker: the engine knows which flow it polls.
//!
//! Message bodies are never looked at and are all alike, so each thread has one buffer to send from
//! and one to receive into, unless the kernel keeps them while others run; a flow holds nothing but
//! its [head](crate::wire::Head). Results are raw error numbers, `EAGAIN` for a wait that was too
//! long; [`Flow`](crate::flow::Flow) names them.

pub(crate) mod blocking;
mod flows;
pub(crate) mod ready;
pub(crate) mod stamped;
pub(crate) mod uring;
mod waits;

use std::{
    cell::RefCell,
    io,
    ops::{Deref, DerefMut},
    time::Duration,
};

use rustix::{
    io::{Errno, retry_on_intr},
    net::{RecvFlags, SendFlags, recv, send},
};
use socket2::{SockAddr, Socket};
use vtax_model::workload::{TestSpec, Workload};

use crate::segments::segments;

/// What waits for the sockets of one thread.
pub(crate) trait Poller {
    type Io<'a>: Io
    where
        Self: 'a;

    /// A socket of the flow that has this place on the thread, which may have several one after
    /// the other, but not at once. It goes before the socket is closed.
    fn io<'a>(&'a self, slot: usize, socket: &'a Socket, habit: Habit) -> Self::Io<'a>;

    /// What the flow in this slot waits for with [`WaitUntil::Patience`] is over at once. An engine with
    /// a thread for each flow can't do that.
    fn give_up(&self, _slot: usize) {}
}

/// How a flow's receive calls fall, which tells whether trying at once saves a call or wastes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Habit {
    /// There is nothing yet when it asks: it has just sent what is to be answered.
    Turns,
    /// There is probably more.
    Flood,
}

/// A socket on an engine.
#[allow(async_fn_in_trait, reason = "nothing here is sent to another thread")]
pub(crate) trait Io {
    /// Hands over a part of the message, at least a byte of it; a datagram is taken whole.
    async fn send(&self, message: Message<'_>) -> Result<usize, Errno>;

    /// Takes up to `most` bytes and shows them; none at the end of a connection.
    async fn receive<R>(&self, most: usize, until: WaitUntil, look: impl FnOnce(&[u8]) -> R) -> Result<R, Errno>;

    /// Sends by a system call of the workload's own, which gets the thread's buffer to send from and
    /// is made again when there is room, as long as it says `EAGAIN`. One that takes no flags needs a
    /// socket that doesn't block where the flags say so. An engine that hands its requests to the
    /// kernel has no such calls.
    async fn send_by<R>(&self, _call: impl SendCall<R>) -> Result<R, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Receives by a system call of the workload's own, as [`send_by`](Self::send_by) sends.
    async fn receive_by<R>(&self, _until: WaitUntil, _call: impl ReceiveCall<R>) -> Result<R, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// A transaction is over, and whether it counts: for an engine that looks back at each. True if
    /// that took time, which is of no transaction then.
    fn look_back(&self, _counts: bool) -> bool {
        false
    }

    /// Sends as [`send`](Self::send) does, or if there is no room for it, takes what has come. A wrapper whose
    /// workloads have one message under way has no such call, nor one to connect.
    async fn send_or_receive<R>(
        &self,
        _message: Message<'_>,
        _most: usize,
        _look: impl FnOnce(&[u8]) -> R,
    ) -> Result<Either<R>, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Waits for a moment of [`now_ns`](vtax_sys::clock::now_ns), as exactly as spinning through
    /// the last [`SPIN`] makes it.
    async fn sleep(&self, until: u64) -> Result<(), Errno>;

    /// Connects, on a socket that is new.
    async fn connect(&self, _target: &SockAddr) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Takes in a connection, on a socket that listens and that all flows of the thread share. An engine with
    /// a thread for each flow has no such call, nor the next: see [`accept`](crate::task::accept).
    async fn accept(&self) -> Result<Socket, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Waits until the patience that was set is over.
    async fn nap(&self) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// How long calls with [`WaitUntil::Patience`] may take from now on; coarse, never less than that.
    fn set_patience(&self, patience: Duration);
}

/// A system call that sends, from the thread's buffer if it likes.
pub(crate) trait SendCall<R>: FnMut(&Socket, &mut [u8], SendFlags) -> Result<R, Errno> {}

impl<R, F: FnMut(&Socket, &mut [u8], SendFlags) -> Result<R, Errno>> SendCall<R> for F {}

/// A system call that receives into the thread's buffer.
pub(crate) trait ReceiveCall<R>: FnMut(&Socket, &mut [u8], RecvFlags) -> Result<R, Errno> {}

impl<R, F: FnMut(&Socket, &mut [u8], RecvFlags) -> Result<R, Errno>> ReceiveCall<R> for F {}

/// What became of [`Io::send_or_receive`].
pub(crate) enum Either<R> {
    Sent(usize),
    Received(R),
}

/// When a wait is over.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WaitUntil {
    /// When the patience that was set is over: costs nothing.
    Patience,
    /// At a moment of [`now_ns`](vtax_sys::clock::now_ns): costs system calls. One in the past asks
    /// for what is there already.
    Moment(u64),
}

/// A message, of which the first `from` bytes have been sent.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a> {
    /// Its first bytes.
    pub(crate) head: &'a [u8],
    pub(crate) from: usize,
    pub(crate) len: usize,
    /// Whether the kernel may hold back the last segment, for the end of the connection follows.
    pub(crate) more: bool,
}

/// The number of a call's error.
pub(crate) fn errno_of(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

impl<'a> Message<'a> {
    pub(crate) fn whole(head: &'a [u8], len: usize) -> Message<'a> {
        Message { head, from: 0, len, more: false }
    }
}

/// The timer wakes a thread some tens of µs late: what must be exact is waited for by spinning
/// through the last of it.
pub(crate) const SPIN: u64 = 60_000;

/// A thread's two buffers.
pub(crate) struct Buffers {
    outgoing: RefCell<Pages>,
    incoming: RefCell<Pages>,
}

/// Memory that begins with a page, as an application's own large buffers do. The allocator's begins 16 bytes
/// later, and the kernel's copies from and to it are slower then.
struct Pages {
    bytes: Vec<u8>,
    from: usize,
    len: usize,
}

impl Pages {
    const SIZE: usize = 4096;

    fn new(len: usize, fill: u8) -> Pages {
        let bytes = vec![fill; len + Pages::SIZE];
        let from = bytes.as_ptr().align_offset(Pages::SIZE).min(Pages::SIZE);
        Pages { bytes, from, len }
    }
}

impl Deref for Pages {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[self.from..][..self.len]
    }
}

impl DerefMut for Pages {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..][..self.len]
    }
}

/// Smaller reads would make a stream's receiver pay more calls than there are messages waiting.
const INCOMING_LEAST: usize = 128 << 10;
/// Larger ones fall out of the CPU's cache before the next read.
const INCOMING_MOST: usize = 1 << 20;
/// Bytes of messages that the threads of an end keep in memory for the sake of being like real ones.
const WRITTEN_MOST: usize = 256 << 20;
/// The longest handshake that a workload sends or takes, and a byte that shows what is too long.
const SMALLEST: usize = 64;

impl Buffers {
    /// What is sent is written once, so that it has pages of its
    /// own: those of fresh memory are all the kernel's one page of zeros, which is always in cache.
    /// It isn't where that would take too much memory, all threads together.
    pub(crate) fn new(spec: &TestSpec) -> Buffers {
        let (outgoing, incoming) = Buffers::lengths(spec);
        let fill = if outgoing * spec.streams as usize <= WRITTEN_MOST { 0x55 } else { 0 };
        Buffers { outgoing: RefCell::new(Pages::new(outgoing, fill)), incoming: RefCell::new(Pages::new(incoming, 0)) }
    }

    /// Room for the messages of a test, to send and to receive.
    fn lengths(spec: &TestSpec) -> (usize, usize) {
        let (longest, least) = match spec.workload {
            Workload::Rr { request, response } | Workload::Crr { request, response } => (request.max(response).0, 0),
            Workload::Stream { message, .. } => (message.0 * segments(spec) as u64, INCOMING_LEAST),
            Workload::Cc | Workload::File { .. } => (0, 0),
        };
        let longest = usize::try_from(longest).expect("a message of a checked test is at most 64 MiB");
        (longest + SMALLEST, (longest + SMALLEST).clamp(least.max(SMALLEST), INCOMING_MOST))
    }

    #[inline]
    fn send(&self, socket: &Socket, message: Message<'_>, flags: SendFlags) -> Result<usize, Errno> {
        let mut buffer = self.outgoing.borrow_mut();
        if message.from < message.head.len() {
            buffer[..message.head.len()].copy_from_slice(message.head);
        }
        let flags = if message.more { flags | SendFlags::MORE } else { flags };
        retry_on_intr(|| send(socket, &buffer[message.from..message.len], flags | SendFlags::NOSIGNAL))
    }

    #[inline]
    fn send_by<R>(&self, socket: &Socket, flags: SendFlags, mut call: impl SendCall<R>) -> Result<R, Errno> {
        let mut buffer = self.outgoing.borrow_mut();
        retry_on_intr(|| call(socket, &mut buffer, flags))
    }

    #[inline]
    fn receive_by<R>(&self, socket: &Socket, flags: RecvFlags, mut call: impl ReceiveCall<R>) -> Result<R, Errno> {
        let mut buffer = self.incoming.borrow_mut();
        retry_on_intr(|| call(socket, &mut buffer, flags))
    }

    #[inline]
    fn receive<R>(
        &self,
        socket: &Socket,
        most: usize,
        flags: RecvFlags,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, Errno> {
        let mut buffer = self.incoming.borrow_mut();
        let most = most.min(buffer.len());
        let (len, _) = retry_on_intr(|| recv(socket, &mut buffer[..most], flags))?;
        Ok(look(&buffer[..len.min(most)]))
    }
}
