//! Connections that last for one transaction, or for none.
//!
//! *crr*: a connection, the token and the flow's index with the request in one send call, the
//! response, and the end. *cc*: a connection and its end. In both the responder closes first, with
//! the last segment of the response, so that the closed connections linger there (TIME_WAIT), where
//! they hold no port that another one needs. The time of a transaction runs from before connect(2)
//! until the response, or the end, is there; a flow's rate has what comes after in it, too.
//!
//! The window is opened for all flows at once, and the responder serves until all of them have ended
//! theirs: see [`conduct`](crate::conduct).

use std::time::Duration;

use rustix::io::Errno;
use socket2::{SockAddr, Socket};
use vtax_model::workload::Transport;
use vtax_sys::{clock::now_ns, sock::set_bind_address_no_port};

use super::Sizes;
use crate::{
    account::{Desk, Way},
    drive::{Engine, Habit, Io, Message, Until},
    error::EngineError,
    flow::{Session, ended, failed},
    options,
    place::{Station, Target},
    socket,
    wire::{HELLO_LEN, hello, read_hello},
};

/// How long a connection may take to show its token. Longer than a lost packet takes to be sent
/// again, as short as can be for the sake of those behind a silent stranger.
const SHOW_TOKEN: Duration = Duration::from_millis(500);

/// A listener of the Unix domain whose queue is full is tried again after so many nanoseconds.
const RETRY: u64 = 200_000;

/// Where an initiator's connections go.
pub(crate) struct Dial<'a> {
    pub(crate) session: &'a Session,
    pub(crate) station: &'a Station,
    pub(crate) target: &'a Target,
    pub(crate) address: SockAddr,
    /// None for connections without a transaction.
    pub(crate) sizes: Option<Sizes>,
}

/// One connection after the other, until the thread's window is over. The connection that is under
/// way then is finished and counts like any other, with all of its time, and the flow's time ends
/// with it: an outage that lasts beyond the window is in the figures.
pub(crate) async fn initiate<E: Engine>(
    engine: &E,
    desk: &Desk<'_>,
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
async fn warm_up<E: Engine>(
    engine: &E,
    desk: &Desk<'_>,
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
            desk.open(slot, Way::Here)?;
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
    desk.open(slot, Way::Here)
}

impl Dial<'_> {
    fn check_stopped(&self) -> Result<(), EngineError> {
        if self.session.is_stopped() { Err(EngineError::Cancelled) } else { Ok(()) }
    }

    /// Connects, and returns the socket when the transaction is over.
    async fn transact<E: Engine>(&self, engine: &E, slot: usize, index: u32) -> Result<Socket, EngineError> {
        let socket = self.socket()?;
        {
            let io = engine.io(slot, &socket, Habit::Turns);
            io.set_patience(self.session.patience.silence);
            self.connect(&io).await?;
            let expected = match self.sizes {
                Some(sizes) => self.request(&io, sizes, index).await?,
                None => 0,
            };
            self.receive(&io, expected).await?;
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

    /// Returns how many bytes are the answer.
    async fn request(&self, io: &impl Io, sizes: Sizes, index: u32) -> Result<usize, EngineError> {
        let head = hello(&self.session.token, index);
        let mut message = Message::whole(&head, HELLO_LEN + sizes.request);
        while message.from < message.len {
            message.from += io.send(message).await.map_err(|errno| self.failed("send", errno))?;
        }
        Ok(sizes.response)
    }

    /// Takes the response, or if there is none to come, the end.
    async fn receive(&self, io: &impl Io, expected: usize) -> Result<(), EngineError> {
        let mut left = expected;
        loop {
            let len = io.receive(left.max(1), Until::Patience, <[u8]>::len).await;
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

/// Takes in connections one after the other, until the window is over. Strangers, and connections
/// that break, are none of the test's.
pub(crate) async fn respond<E: Engine>(
    engine: &E,
    desk: &Desk<'_>,
    slot: usize,
    listener: &Socket,
    sizes: Option<Sizes>,
) -> Result<(), EngineError> {
    let session = &desk.shared.session;
    let door = engine.io(slot, listener, Habit::Flood);
    door.set_patience(SHOW_TOKEN);
    let mut open = false;
    loop {
        let accepted = door.accept().await;
        let (opens, closes) = desk.shared.window();
        if closes != u64::MAX {
            desk.ends(slot, closes);
            return desk.close();
        }
        if !open && opens != u64::MAX {
            desk.open(slot, Way::Here)?;
            open = true;
        }
        match accepted {
            Ok(socket) => {
                desk.begun(now_ns());
                let served = serve(engine, slot, &socket, session, sizes).await.is_some();
                drop(socket);
                if open && served {
                    desk.answered(slot)?;
                }
            }
            Err(Errno::AGAIN) => {}
            Err(errno) => return Err(failed(&crate::place::NOWHERE, "accept", errno, SHOW_TOKEN)),
        }
        if session.is_stopped() {
            return Err(EngineError::Cancelled);
        }
    }
}

/// Nothing is sent before the token was shown. None if it wasn't, or the connection broke.
async fn serve<E: Engine>(
    engine: &E,
    slot: usize,
    socket: &Socket,
    session: &Session,
    sizes: Option<Sizes>,
) -> Option<()> {
    let Some(sizes) = sizes else { return Some(()) };
    let io = engine.io(slot, socket, Habit::Turns);
    if session.spec.transport != Transport::Tcp {
        // Accepted TCP sockets have inherited it, at no cost.
        io.set_patience(SHOW_TOKEN);
    }
    let mut shown = [0; HELLO_LEN];
    let (mut received, wanted) = (0, HELLO_LEN + sizes.request);
    while received < wanted {
        let look = |bytes: &[u8]| {
            let place = shown.get_mut(received..).unwrap_or_default();
            let len = place.len().min(bytes.len());
            place[..len].copy_from_slice(&bytes[..len]);
            bytes.len()
        };
        let len = io.receive(wanted - received, Until::Patience, look).await.ok().filter(|len| *len > 0)?;
        received += len;
        if received >= HELLO_LEN {
            read_hello(&shown, &session.token)?;
        }
    }
    let mut message = Message { more: true, ..Message::whole(&[], sizes.response) };
    while message.from < message.len {
        message.from += io.send(message).await.ok()?;
    }
    Some(())
}
