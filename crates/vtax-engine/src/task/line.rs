//! A flow on an engine, with its errors named.

use std::{cell::Cell, time::Duration};

use rustix::io::Errno;
use vtax_model::units::ByteSize;
use vtax_sys::sock::timestamping::enable_stamps;

use crate::{
    account::FlowRecorder,
    drive::{Habit, Io, Message, Poller, WaitUntil, stamped::StampedFlow},
    error::{EngineError, Result, is_outage},
    flow::Flow,
};

/// A flow on an engine.
pub(crate) struct FlowOnPoller<'a, I> {
    pub(crate) io: I,
    pub(crate) flow: &'a Flow,
    pub(crate) desk: FlowRecorder<'a>,
    patience: Cell<Duration>,
}

impl<'a, I: Io> FlowOnPoller<'a, I> {
    /// The flow in its slot of the thread. It waits for its first message with the patience for that.
    pub(crate) fn new<E: Poller<Io<'a> = I>>(
        engine: &'a E,
        flow: &'a Flow,
        desk: FlowRecorder<'a>,
        habit: Habit,
    ) -> FlowOnPoller<'a, I> {
        let io = engine.io(desk.slot, &flow.socket, habit);
        let line = FlowOnPoller { io, flow, desk, patience: Cell::default() };
        line.set_patience(flow.session.patience.first);
        line
    }

    pub(crate) fn with_io<J>(self, wrap: impl FnOnce(I) -> J) -> FlowOnPoller<'a, J> {
        let FlowOnPoller { io, flow, desk, patience } = self;
        FlowOnPoller { io: wrap(io), flow, desk, patience }
    }

    /// The same flow, with kernel timestamps for each message from now on. Call this after the handshake.
    pub(crate) fn stamped(self) -> Result<FlowOnPoller<'a, StampedFlow<'a, I>>> {
        enable_stamps(&*self.flow.socket)?;
        let (flow, desk) = (self.flow, self.desk);
        Ok(self.with_io(|io| StampedFlow::new(io, flow, desk)))
    }

    pub(crate) fn is_datagram(&self) -> bool {
        self.flow.transport().is_datagram()
    }

    pub(crate) fn set_patience(&self, patience: Duration) {
        self.patience.set(patience);
        self.io.set_patience(patience);
    }

    /// The first message has arrived: from now on a silent peer counts as dead.
    pub(crate) fn has_begun(&self) {
        self.set_patience(self.flow.session.patience.silence);
    }

    #[cold]
    pub(crate) fn failed(&self, operation: &'static str, errno: Errno) -> EngineError {
        self.flow.failed(operation, errno, self.patience.get())
    }

    /// Sends a whole message on a connection.
    #[inline]
    pub(crate) async fn send_all(&self, head: &[u8], len: usize) -> Result<()> {
        let mut message = Message::whole(head, len);
        while message.from < len {
            message.from += self.io.send(message).await.map_err(|errno| self.failed("send", errno))?;
        }
        Ok(())
    }

    /// Receives exactly `len` bytes of a connection; returns the first of them.
    #[inline]
    pub(crate) async fn receive_all(&self, len: usize) -> Result<u8> {
        let (mut received, mut first) = (0, 0);
        while received < len {
            let look = |bytes: &[u8]| (bytes.len(), bytes.first().copied());
            let (more, byte) = self.receive(len - received, WaitUntil::Patience, look).await?;
            if received == 0 {
                first = byte.unwrap_or_default();
            }
            received += more;
            if more == 0 {
                return Err(self.flow.ended("receive"));
            }
        }
        Ok(first)
    }

    #[inline]
    pub(crate) async fn receive<R>(&self, most: usize, until: WaitUntil, look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        self.io.receive(most, until, look).await.map_err(|errno| self.failed("receive", errno))
    }

    #[inline]
    pub(crate) async fn send_datagram(&self, what: &'static str, head: &[u8], len: usize) -> Result<()> {
        match self.io.send(Message::whole(head, len)).await {
            Ok(_) => Ok(()),
            Err(errno) if self.may_lose(errno) => Ok(()),
            Err(errno) => Err(self.datagram_failed(what, len, errno)),
        }
    }

    /// Returns true if this error is a sign of an outage that the test tolerates: the link is down, or nobody answers
    /// for the peer's address.
    #[cold]
    pub(crate) fn endures(&self, errno: Errno) -> bool {
        is_outage(errno) && self.is_datagram() && self.flow.session.spec.options.outage.is_some()
    }

    /// Returns true if a datagram that could not be sent for this reason is lost like one that was sent, because the test
    /// endures an outage. The socket has no room while the datagrams before it wait for a next hop that doesn't answer.
    #[cold]
    pub(crate) fn may_lose(&self, errno: Errno) -> bool {
        self.endures(errno) || (errno == Errno::AGAIN && self.endures(Errno::NOBUFS))
    }

    #[cold]
    pub(crate) fn datagram_failed(&self, what: &'static str, len: usize, errno: Errno) -> EngineError {
        match errno {
            Errno::MSGSIZE => self.flow.too_large(what, ByteSize(len as u64)),
            _ => self.failed("send", errno),
        }
    }

    pub(crate) async fn sleep(&self, until: u64) -> Result<()> {
        self.io.sleep(until).await.map_err(|errno| self.failed("sleep", errno))
    }
}
