//! Methods of passing a stream's bytes to the kernel.

use std::{fs::File, mem, time::Duration};

use rustix::{
    fs::sendfile,
    io::Errno,
    net::{SendFlags, send},
};
use socket2::Socket;
use vtax_model::{
    options::{Engine, Sending},
    workload::Transport,
};
use vtax_sys::{
    clock::now_ns,
    sock::{offload::set_udp_segment, zerocopy::ZeroCopySender},
};

use super::FlowOnPoller;
use crate::{
    account::after,
    drive::{Io, Message, errno_of},
    error::{EngineError, Result},
    flow::Flow,
    segments::segments,
    wire::Head,
};

/// Number of sends after which completions are read. Reading them singly would cost a system call per send; with a
/// larger number they would fill the kernel's space for them.
const REAP_EVERY: u64 = 32;

/// Time until a sender retries if the kernel accepts no more pages.
const LENT_WAIT: Duration = Duration::from_micros(200);

/// Time that a finished sender waits for the kernel to release its pages. The kernel keeps them until the peer has
/// received everything.
const FAREWELL: Duration = Duration::from_secs(1);

/// Passes a message to the kernel, or as much of it as the kernel accepts at once.
pub(super) enum Handover<'a> {
    /// send(2), which copies bytes.
    Copied,
    /// send(2) of one datagram, or of several that the kernel splits (UDP_SEGMENT).
    Datagrams(Datagrams),
    /// MSG_ZEROCOPY.
    Lent(Lent<'a>),
    /// sendfile(2).
    File(&'a File),
}

impl<'a> Handover<'a> {
    /// The method requested by the test. Prepares the socket for it.
    pub(super) fn new(flow: &'a Flow, message: usize) -> Result<Handover<'a>> {
        if flow.transport() == Transport::Udp {
            return Ok(Handover::Datagrams(Datagrams::new(flow, message)?));
        }
        let session = &flow.session;
        let options = &session.spec.options;
        if options.sending != Sending::Copy && options.engine != Engine::Blocking {
            // sendfile(2) has no flag for a non-blocking call.
            flow.option("O_NONBLOCK", flow.socket.set_nonblocking(true))?;
        }
        Ok(match options.sending {
            Sending::Copy => Handover::Copied,
            Sending::ZeroCopy => Handover::Lent(Lent::new(flow, message)?),
            Sending::SendFile => {
                let file = session.supply.file(message);
                Handover::File(file.map_err(|error| EngineError::socket("memfd_create", &flow.peer, error))?)
            }
        })
    }

    #[inline]
    pub(super) async fn send<I: Io>(&mut self, line: &FlowOnPoller<'a, I>, message: usize) -> Result<usize> {
        match self {
            Handover::Copied => {
                line.io.send(Message::whole(&[], message)).await.map_err(|errno| line.failed("send", errno))
            }
            Handover::Datagrams(datagrams) => datagrams.send(line, message).await,
            Handover::Lent(lent) => lent.send(line, message).await,
            Handover::File(file) => send_file(line, file, message).await,
        }
    }

    /// Ends the stream: no more messages follow. Disables UDP segmentation, or the kernel would split a greeting longer
    /// than a segment.
    pub(super) fn end(&mut self, flow: &Flow) -> Result<()> {
        match self {
            Handover::Datagrams(Datagrams { count: 2.., .. }) => Ok(set_udp_segment(&*flow.socket, 0)?),
            _ => Ok(()),
        }
    }

    /// Returns the number of datagrams that were sent so far.
    pub(super) fn datagrams(&self) -> u64 {
        if let Handover::Datagrams(datagrams) = self { datagrams.sequence } else { 0 }
    }

    /// Briefly waits for the kernel to release the pages. Returns the number of sends, and how many of them were copied
    /// by the kernel.
    pub(super) async fn settle<I: Io>(&mut self, line: &FlowOnPoller<'a, I>) -> (u64, u64) {
        match self {
            Handover::Lent(lent) => lent.settle(line).await,
            _ => (0, 0),
        }
    }
}

/// Numbered datagrams.
pub(super) struct Datagrams {
    head: Head,
    sequence: u64,
    /// Number of datagrams per send call.
    count: usize,
}

impl Datagrams {
    fn new(flow: &Flow, message: usize) -> Result<Datagrams> {
        let count = segments(&flow.session.spec);
        if let (2.., Ok(segment)) = (count, u16::try_from(message)) {
            set_udp_segment(&*flow.socket, segment)?;
        }
        Ok(Datagrams { head: Head::with_token(message, &flow.session.token), sequence: 0, count })
    }

    #[inline]
    async fn send<I: Io>(&mut self, line: &FlowOnPoller<'_, I>, message: usize) -> Result<usize> {
        if self.count > 1 {
            return self.send_several(line, message).await;
        }
        self.head.number(self.sequence);
        line.send_datagram("message", self.head.bytes(), message).await?;
        self.sequence += 1;
        Ok(message)
    }

    async fn send_several<I: Io>(&mut self, line: &FlowOnPoller<'_, I>, message: usize) -> Result<usize> {
        let (head, first, len) = (&mut self.head, self.sequence, self.count * message);
        let call = |socket: &Socket, buffer: &mut [u8], flags| {
            for (datagram, number) in buffer[..len].chunks_exact_mut(message).zip(first..) {
                head.number(number);
                datagram[..head.bytes().len()].copy_from_slice(head.bytes());
            }
            send(socket, &buffer[..len], flags | SendFlags::NOSIGNAL)
        };
        match line.io.send_by(call).await {
            Ok(_) => {
                self.sequence += self.count as u64;
                Ok(len)
            }
            Err(errno) => Err(not_segmented(line, message, errno)),
        }
    }
}

/// udp(7): the kernel reports EINVAL for a segment that exceeds the path's MTU.
#[cold]
fn not_segmented<I: Io>(line: &FlowOnPoller<'_, I>, message: usize, errno: Errno) -> EngineError {
    match errno {
        Errno::IO => EngineError::Unsupported {
            what: "UDP segmentation (gso)",
            why: "requires checksum offload, which is disabled on the device; enable it (ethtool -K DEV tx on) or \
                  omit gso",
        },
        Errno::INVAL => match line.datagram_failed("message", message, Errno::MSGSIZE) {
            oversize @ EngineError::Oversize { .. } => oversize,
            _ => line.failed("send", errno),
        },
        _ => line.datagram_failed("message", message, errno),
    }
}

/// Sends pages without a copy; the kernel reads them when it needs them.
pub(super) struct Lent<'a> {
    /// None once this is dropped.
    sender: Option<ZeroCopySender<&'a Socket>>,
    sends: u64,
    /// True if the thread may block here, because the engine is the blocking one.
    blocks: bool,
}

impl<'a> Lent<'a> {
    fn new(flow: &'a Flow, message: usize) -> Result<Lent<'a>> {
        let sender = Some(ZeroCopySender::new(&*flow.socket, flow.session.supply.memory(message))?);
        Ok(Lent { sender, sends: 0, blocks: flow.session.spec.options.engine == Engine::Blocking })
    }

    fn sender(&mut self) -> &mut ZeroCopySender<&'a Socket> {
        self.sender.as_mut().expect("it is taken only when this is dropped")
    }

    #[inline]
    async fn send<I: Io>(&mut self, line: &FlowOnPoller<'a, I>, message: usize) -> Result<usize> {
        let mut latest = None;
        loop {
            match line.io.send_by(|_, _, _| self.call(message)).await {
                Ok(len) => return Ok(len),
                Err(Errno::NOBUFS) => {}
                Err(errno) => return Err(line.failed("send", errno)),
            }
            let session = &line.flow.session;
            session.check_stopped()?;
            if now_ns() >= *latest.get_or_insert_with(|| after(now_ns(), session.patience.silence)) {
                return Err(line.failed("send", Errno::AGAIN));
            }
            self.wait(line).await?;
        }
    }

    #[inline]
    fn call(&mut self, message: usize) -> Result<usize, Errno> {
        if self.sends.is_multiple_of(REAP_EVERY) {
            self.sender().reap().map_err(errno_of)?;
        }
        match self.sender().send(0..message).map_err(errno_of) {
            Ok(len) => {
                self.sends += 1;
                Ok(len)
            }
            Err(errno) => {
                // epoll keeps reporting completions until they are read.
                self.sender().reap().map_err(errno_of)?;
                Err(errno)
            }
        }
    }

    /// Waits until the kernel may have released some pages.
    #[cold]
    async fn wait<I: Io>(&mut self, line: &FlowOnPoller<'a, I>) -> Result<()> {
        if !self.blocks {
            return line.sleep(after(now_ns(), LENT_WAIT)).await;
        }
        let waited = self.sender().wait(LENT_WAIT).map_err(errno_of);
        waited.map(drop).map_err(|errno| line.failed("wait for a completion", errno))
    }

    async fn settle<I: Io>(&mut self, line: &FlowOnPoller<'a, I>) -> (u64, u64) {
        let latest = after(now_ns(), FAREWELL);
        while self.sender().reap().is_ok() && self.sender().in_flight() > 0 && now_ns() < latest {
            if self.wait(line).await.is_err() {
                break;
            }
        }
        (self.sends, self.sender().copied())
    }
}

/// A zero-copy sender waits for its memory when it is dropped. Many flows whose peer no longer reads would wait one
/// after another. So the memory is left to the kernel instead: one message, which all flows share.
impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let Some(mut sender) = self.sender.take() else { return };
        // If completions can't be read, the pages count as still in use.
        let _ = sender.reap();
        if sender.in_flight() > 0 {
            mem::forget(sender);
        }
    }
}

/// sendfile(2) has no flag to suppress SIGPIPE, which is caused by the peer's exit; Rust programs ignore that signal.
async fn send_file<I: Io>(line: &FlowOnPoller<'_, I>, file: &File, message: usize) -> Result<usize> {
    let call = |socket: &Socket, _: &mut [u8], _| sendfile(socket, file, Some(&mut 0), message);
    line.io.send_by(call).await.map_err(|errno| line.failed("sendfile", errno))
}
