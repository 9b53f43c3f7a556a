//! Connections that last for one transaction, or for none: the initiator. [`accept`](super::accept)
//! has the responder.
//!
//! *crr*: a connection, the token and the flow's index with the request in one send call, the
//! response, and the end. *cc*: a connection, the token and the index, and the end: whoever shows no
//! token gets nothing, not even the end of a connection in time, so those 20 bytes are in the figures
//! of cc. In both the responder closes first, with the last segment of the response, so that the
//! closed connections linger there (TIME_WAIT), where they hold no port that another one needs. The
//! time of a transaction runs from before connect(2) until the response, or the end, is there; a
//! flow's rate has what comes after in it, too.
//!
//! The window is opened for all flows at once, and the responder serves until all of them have ended
//! theirs: see [`conduct`](crate::conduct).

use rustix::io::Errno;
use socket2::{SockAddr, Socket};
use vtax_model::workload::Transport;
use vtax_sys::{clock::now_ns, sock::set_bind_address_no_port};

use super::MessageSizes;
use crate::{
    account::{Sender, ThreadRecorder},
    drive::{Habit, Io, Message, Poller, WaitUntil},
    error::EngineError,
    flow::{Session, ended, failed},
    options,
    place::{Station, Target},
    socket,
    wire::{HELLO_LEN, hello},
};

/// A listener of the Unix domain whose queue is full is tried again after so many nanoseconds.
const RETRY: u64 = 200_000;

/// Where an initiator's connections go.
pub(crate) struct Dial<'a> {
    pub(crate) session: &'a Session,
    pub(crate) station: &'a Station,
    pub(crate) target: &'a Target,
    pub(crate) address: SockAddr,
    /// Nothing either way for connections without a transaction.
    pub(crate) sizes: MessageSizes,
}

/// One connection after the other, until the thread's window is over. The connection that is under
/// way then is finished and counts like any other, with all of its time, and the flow's time ends
/// with it: an outage that lasts beyond the window is in the figures.
pub(crate) async fn initiate<E: Poller>(
    engine: &E,
    desk: &ThreadRecorder<'_>,
    slot: usize,
    index: u32,
    dial: &Dial<'_>,
) -> Result<(), EngineError> {
    let mut begun = warm_up(engine, desk, slot, index, dial).await?;
    let (_, closes) = desk.window();
    while begun < closes {
        let done = dial.transact(engine, slot, index).await?;
        let now = now_ns();
        desk.transaction(slot, now - begun, now)?;
        drop(done);
        begun = now_ns();
        desk.ends(slot, begun);
        dial.check_stopped()?;
    }
    desk.close()?;
    desk.shared.one_has_finished();
    Ok(())
}

/// Connects until the window is open, and returns when the flow's first connection begins in it. One
/// that was under way all through the window of the thread's other flows is counted nevertheless.
async fn warm_up<E: Poller>(
    engine: &E,
    desk: &ThreadRecorder<'_>,
    slot: usize,
    index: u32,
    dial: &Dial<'_>,
) -> Result<u64, EngineError> {
    let mut begun = now_ns();
    desk.begun(begun);
    while begun < desk.shared.window().0 {
        drop(dial.transact(engine, slot, index).await?);
        let now = now_ns();
        if now >= desk.window().1 {
            desk.open(slot, Sender::Here)?;
            desk.began_before(slot, begun);
            desk.transaction(slot, now - begun, now)?;
            return Ok(now);
        }
        begun = now;
        if !desk.warming(begun, 1) {
            desk.shared.has_warmed_up();
        }
        dial.check_stopped()?;
    }
    desk.open(slot, Sender::Here)
}

impl Dial<'_> {
    fn check_stopped(&self) -> Result<(), EngineError> {
        if self.session.is_stopped() { Err(EngineError::Cancelled) } else { Ok(()) }
    }

    /// Connects, and returns the socket when the transaction is over.
    async fn transact<E: Poller>(&self, engine: &E, slot: usize, index: u32) -> Result<Socket, EngineError> {
        let socket = self.socket()?;
        {
            let io = engine.io(slot, &socket, Habit::Turns);
            io.set_patience(self.session.patience.silence);
            self.connect(&io).await?;
            self.request(&io, index).await?;
            self.receive(&io, self.sizes.response).await?;
        }
        Ok(socket)
    }

    fn socket(&self) -> Result<Socket, EngineError> {
        let socket = socket::create(self.session.spec.transport, self.station)?;
        options::apply(&socket, &self.session.spec, self.target)?;
        if self.session.spec.transport == Transport::Tcp {
            set_bind_address_no_port(&socket)?;
        }
        socket::bind_to(&socket, self.station)?;
        Ok(socket)
    }

    async fn connect(&self, io: &impl Io) -> Result<(), EngineError> {
        loop {
            match io.connect(&self.address).await {
                Err(Errno::NOBUFS) if self.session.spec.transport == Transport::Unix => {
                    io.sleep(now_ns() + RETRY).await.map_err(|errno| self.failed("connect", errno))?;
                }
                other => return other.map_err(|errno| self.not_connected(errno)),
            }
        }
    }

    /// In the midst of a test a refusal means that the responder is gone.
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

    /// The token, without which a connection is a stranger's, and the request, in one call.
    async fn request(&self, io: &impl Io, index: u32) -> Result<(), EngineError> {
        let head = hello(&self.session.token, index);
        let mut message = Message::whole(&head, HELLO_LEN + self.sizes.request);
        while message.from < message.len {
            message.from += io.send(message).await.map_err(|errno| self.failed("send", errno))?;
        }
        Ok(())
    }

    /// Takes the response, or if there is none to come, the end.
    async fn receive(&self, io: &impl Io, expected: usize) -> Result<(), EngineError> {
        let mut left = expected;
        loop {
            let len = io.receive(left.max(1), WaitUntil::Patience, <[u8]>::len).await;
            match len.map_err(|errno| self.failed("receive", errno))? {
                0 if expected == 0 => return Ok(()),
                0 => return Err(ended(self.target, "receive")),
                _ if expected == 0 => {
                    let what = "bytes on a connection that was to be closed";
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
