//! Interface between a workload and its engine.
//!
//! A workload is an `async fn`, straight-line code for one flow: send, receive, sleep. A [`Poller`] makes it wait. On
//! [`blocking`] every call is the system call itself and no future is ever pending, so it compiles to a plain loop. On
//! [`ready`] the thread switches to another flow when a call would block. On [`uring`] each call is a request to the
//! kernel. There is no runtime and no waker: the engine knows which flow it polls.
//!
//! Message bodies are identical and never inspected. So each thread has one send and one receive buffer, unless the
//! kernel keeps buffers while other flows run. A flow holds only its [head](crate::wire::Head). Results are raw error
//! numbers; `EAGAIN` means a timeout. [`Flow`](crate::flow::Flow) converts them into named errors.

pub(crate) mod any;
pub(crate) mod blocking;
pub(crate) mod exact;
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
use vtax_model::workload::{TestSpec, WorkloadSizes};

use crate::segments::segments;

/// Readiness poller for the sockets of one thread.
pub(crate) trait Poller {
    type Io<'a>: Io
    where
        Self: 'a;

    /// The calls of a flow's socket. The flow has this slot on the thread. It may use several sockets one after
    /// another, never two at the same time, and drops this value before it closes the socket.
    fn io<'a>(&'a self, slot: usize, socket: &'a Socket, habit: Habit) -> Self::Io<'a>;

    /// Immediately ends the wait of the flow in this slot with [`WaitUntil::Patience`]. Not supported by an engine with
    /// a thread per flow.
    fn give_up(&self, _slot: usize) {}
}

/// Expected arrival of data for a flow's receive calls: whether trying immediately saves or wastes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Habit {
    /// A receive call finds nothing at first: the flow has just sent the message to be answered.
    Turns,
    /// A receive call probably finds more data.
    Flood,
}

/// A socket on an engine.
#[allow(async_fn_in_trait, reason = "nothing here is sent to another thread")]
pub(crate) trait Io {
    /// Hands a part of the message to the kernel, at least one byte; a datagram as a whole.
    async fn send(&self, message: Message<'_>) -> Result<usize, Errno>;

    /// Takes up to `most` bytes and passes them to `look`; no bytes mean the end of the connection.
    async fn receive<R>(&self, most: usize, until: WaitUntil, look: impl FnOnce(&[u8]) -> R) -> Result<R, Errno>;

    /// Sends with the workload's own system call, which receives the thread's send buffer. While it returns `EAGAIN`,
    /// it is repeated as soon as the socket has space. A call without flags requires a nonblocking socket where flags
    /// would request that. Not supported by an engine that queues requests to the kernel.
    async fn send_by<R>(&self, _call: impl SendCall<R>) -> Result<R, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Receives with the workload's own system call, like [`send_by`](Self::send_by).
    async fn receive_by<R>(&self, _until: WaitUntil, _call: impl ReceiveCall<R>) -> Result<R, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Tells the engine that a transaction is over and whether it counts; some engines examine each one afterwards.
    /// Returns true if that took time, which then belongs to no transaction.
    fn look_back(&self, _counts: bool) -> bool {
        false
    }

    /// Sends like [`send`](Self::send). If the socket has no space, it receives. A wrapper whose workloads have only
    /// one message in flight has neither this call nor `connect`.
    async fn send_or_receive<R>(
        &self,
        _message: Message<'_>,
        _most: usize,
        _look: impl FnOnce(&[u8]) -> R,
    ) -> Result<Either<R>, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Waits for a moment of [`now_ns`](vtax_sys::clock::now_ns). For accuracy, it spins for the last
    /// [`SPIN`](exact::SPIN).
    async fn sleep(&self, until: u64) -> Result<(), Errno>;

    /// Connects a new socket.
    async fn connect(&self, _target: &SockAddr) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Accepts a connection on a listening socket that all flows of the thread share. An engine with a thread
    /// for each flow has neither this call nor the next: see [`accept`](crate::task::accept).
    async fn accept(&self) -> Result<Socket, Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Waits until the configured patience is over.
    async fn nap(&self) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// Sets the time limit of calls with [`WaitUntil::Patience`] from now. It is coarse: a call may wait longer, never
    /// shorter.
    fn set_patience(&self, patience: Duration);
}

/// A system call that sends; it may use the thread's buffer.
pub(crate) trait SendCall<R>: FnMut(&Socket, &mut [u8], SendFlags) -> Result<R, Errno> {}

impl<R, F: FnMut(&Socket, &mut [u8], SendFlags) -> Result<R, Errno>> SendCall<R> for F {}

/// A system call that receives into the thread's buffer.
pub(crate) trait ReceiveCall<R>: FnMut(&Socket, &mut [u8], RecvFlags) -> Result<R, Errno> {}

impl<R, F: FnMut(&Socket, &mut [u8], RecvFlags) -> Result<R, Errno>> ReceiveCall<R> for F {}

/// Result of [`Io::send_or_receive`].
pub(crate) enum Either<R> {
    Sent(usize),
    Received(R),
}

/// The end of a wait.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WaitUntil {
    /// When the configured patience is over. Costs no system call.
    Patience,
    /// At a time of [`now_ns`](vtax_sys::clock::now_ns). Costs system calls. A time in the past only checks for
    /// available data.
    Moment(u64),
}

/// A message, of which the first `from` bytes have been sent.
#[derive(Clone, Copy)]
pub(crate) struct Message<'a> {
    /// Its first bytes.
    pub(crate) head: &'a [u8],
    pub(crate) from: usize,
    pub(crate) len: usize,
    /// True if the kernel may hold back the last segment because the end of the connection follows.
    pub(crate) more: bool,
}

/// The errno of an I/O error.
pub(crate) fn errno_of(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

impl<'a> Message<'a> {
    pub(crate) fn whole(head: &'a [u8], len: usize) -> Message<'a> {
        Message { head, from: 0, len, more: false }
    }
}

/// A thread's two buffers.
pub(crate) struct Buffers {
    outgoing: RefCell<Pages>,
    incoming: RefCell<Pages>,
}

/// Page-aligned memory, like an application's own large buffers. The allocator's large memory begins 16 bytes into a
/// page, which slows down the kernel's copies.
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

/// With smaller reads, a stream's receiver would need more calls than there are messages waiting.
const INCOMING_LEAST: usize = 128 << 10;
/// Larger reads are evicted from the CPU's cache before the next one.
const INCOMING_MOST: usize = 1 << 20;
/// Maximum number of message bytes that the threads of an end write to memory, so that sends read real pages.
const WRITTEN_MOST: usize = 256 << 20;
/// The longest handshake that a workload sends or receives, plus one byte to detect a longer one.
const SMALLEST: usize = 64;

impl Buffers {
    /// Writes the send buffer once, so that it has real pages. Memory that was never written is a single zero page in
    /// the kernel, which is always cached. The buffer stays unwritten if those of all threads together would use too
    /// much memory.
    pub(crate) fn new(spec: &TestSpec) -> Buffers {
        let (outgoing, incoming) = Buffers::lengths(spec);
        let fill = if outgoing * spec.streams as usize <= WRITTEN_MOST { 0x55 } else { 0 };
        Buffers { outgoing: RefCell::new(Pages::new(outgoing, fill)), incoming: RefCell::new(Pages::new(incoming, 0)) }
    }

    /// Lengths of the buffers for this test's messages, to send and to receive.
    fn lengths(spec: &TestSpec) -> (usize, usize) {
        let (longest, least) = match spec.workload.sizes() {
            WorkloadSizes::Exchange { request, response } => (request.max(response).0, 0),
            WorkloadSizes::Messages(message) => (message.0 * segments(spec) as u64, INCOMING_LEAST),
            WorkloadSizes::Nothing | WorkloadSizes::File(_) => (0, 0),
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
