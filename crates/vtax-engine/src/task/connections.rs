//! The initiator of connections that carry one transaction or none. [`accept`](super::accept) has the responder.
//!
//! *crr*: a flow connects, sends the token, the flow's index and the request in one call, receives the response, and
//! closes. *cc*: a flow connects, sends the token and the index, waits for the end of the connection, and closes. The
//! responder neither answers nor promptly closes a connection without the token, so these 20 bytes are part of cc's
//! figures. In both tests the responder closes first, with the last segment of the response. So closed connections stay
//! in TIME_WAIT on its side, where they don't occupy a port needed by another connection. The time of a transaction
//! runs from before socket(2) until the socket is closed, as in netperf's TCP_CRR: so the mean of these times is the
//! inverse of a flow's rate, and percentiles are of the same times.
//!
//! The window opens for all flows at the same time, and the responder serves until all of them have finished their
//! windows: see [`conduct`](crate::conduct).

use rustix::io::Errno;
use socket2::SockAddr;
use vtax_model::{
    station::{Station, Target},
    workload::Transport,
};
use vtax_sys::clock::now_ns;

use super::{
    MessageSizes,
    transactions::{self, Transactions},
};
use crate::{
    account::FlowRecorder,
    drive::{Habit, Io, Message, Poller, WaitUntil},
    error::{EngineError, Result},
    flow::{Session, ended, failed},
    socket,
    wire::{HELLO_LEN, hello},
};

/// Nanoseconds until the next try if the queue of a Unix domain listener is full.
const RETRY: u64 = 200_000;

/// State that an initiator needs to connect.
pub(crate) struct Dial<'a> {
    pub(crate) session: &'a Session,
    pub(crate) station: &'a Station,
    pub(crate) target: &'a Target,
    pub(crate) address: SockAddr,
    /// Both 0 for connections without a transaction.
    pub(crate) sizes: MessageSizes,
}

/// Makes one connection after another: see [`transactions`].
pub(crate) async fn initiate<E: Poller>(engine: &E, desk: FlowRecorder<'_>, index: u32, dial: &Dial<'_>) -> Result<()> {
    transactions::run(desk, &mut Connecting { engine, slot: desk.slot, index, dial }).await
}

/// The connections of one flow.
struct Connecting<'a, E> {
    engine: &'a E,
    slot: usize,
    index: u32,
    dial: &'a Dial<'a>,
}

impl<E: Poller> Transactions for Connecting<'_, E> {
    async fn next(&mut self) -> Result<bool> {
        self.dial.transact(self.engine, self.slot, self.index).await.map(|()| true)
    }
}

impl Dial<'_> {
    /// Connects, and returns when the transaction is over and the socket closed.
    async fn transact<E: Poller>(&self, engine: &E, slot: usize, index: u32) -> Result<()> {
        let socket = socket::dialling(&self.session.spec, self.station, self.target)?;
        {
            let io = engine.io(slot, &socket, Habit::Turns);
            io.set_patience(self.session.patience.silence);
            self.connect(&io).await?;
            self.request(&io, index).await?;
            self.receive(&io, self.sizes.response).await?;
        }
        drop(socket);
        Ok(())
    }

    async fn connect(&self, io: &impl Io) -> Result<()> {
        loop {
            match io.connect(&self.address).await {
                Err(Errno::NOBUFS) if self.session.spec.transport == Transport::Unix => {
                    io.sleep(now_ns() + RETRY).await.map_err(|errno| self.failed("connect", errno))?;
                }
                other => return other.map_err(|errno| self.not_connected(errno)),
            }
        }
    }

    /// During a test, a refusal means that the responder has exited.
    #[cold]
    fn not_connected(&self, errno: Errno) -> EngineError {
        match errno {
            Errno::ADDRNOTAVAIL => EngineError::connecting(self.target, errno.into()),
            Errno::NOENT => self.failed("connect", Errno::CONNREFUSED),
            _ => self.failed("connect", errno),
        }
    }

    #[cold]
    fn failed(&self, operation: &'static str, errno: Errno) -> EngineError {
        failed(self.target, operation, errno, self.session.patience.silence)
    }

    /// Sends the token, without which the connection counts as an unauthenticated peer's, and the request in one call.
    async fn request(&self, io: &impl Io, index: u32) -> Result<()> {
        let head = hello(&self.session.token, index);
        let mut message = Message::whole(&head, HELLO_LEN + self.sizes.request);
        while message.from < message.len {
            message.from += io.send(message).await.map_err(|errno| self.failed("send", errno))?;
        }
        Ok(())
    }

    /// Receives the response; if none is expected, the end of the connection.
    async fn receive(&self, io: &impl Io, expected: usize) -> Result<()> {
        let mut left = expected;
        loop {
            let len = io.receive(left.max(1), WaitUntil::Patience, <[u8]>::len).await;
            match len.map_err(|errno| self.failed("receive", errno))? {
                0 if expected == 0 => return Ok(()),
                0 => return Err(ended(self.target, "receive")),
                _ if expected == 0 => {
                    let what = "data where the connection should have been closed";
                    return Err(EngineError::Protocol { peer: self.target.clone(), what });
                }
                len => left -= len,
            }
            if left == 0 {
                return Ok(());
            }
        }
    }
}
