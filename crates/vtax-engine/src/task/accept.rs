//! The responder of connections that carry one transaction or none. [`connections`](super::connections) has
//! the initiator.
//!
//! Anybody can connect to the responder's port. Until a connection has shown the token, it counts as an unauthenticated
//! peer's. Each connection takes one of the thread's places, and no thread waits for a single connection, whatever the
//! engine of the test. So an unauthenticated peer that sends nothing only occupies a place; it doesn't slow down the
//! measured connections. When few places are left, the thread closes the connections of the oldest unauthenticated
//! peers. It sends nothing before the token was shown. Unauthenticated peers are counted.
//!
//! One task of each thread, its *keeper*, serves no connection: it opens and closes the thread's window, and
//! releases unauthenticated peers.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    time::Duration,
};

use rustix::{
    io::Errno,
    process::{Resource, getrlimit},
};
use socket2::Socket;
use vtax_model::{options::Engine as Kind, station::Target, workload::TestSpec};
use vtax_sys::clock::now_ns;

use super::MessageSizes;
use crate::{
    account::{FlowRecorder, Sender},
    drive::{Habit, Io, Message, Poller, WaitUntil},
    error::Result,
    flow::failed,
    wire::{HELLO_LEN, read_hello},
};

/// The slot of a thread's keeper.
pub(crate) const KEEPER: usize = 0;

/// Places for unauthenticated peers, over all threads of an end: as many as may wait at the start of a test.
const STRANGERS: usize = 1024;
/// The same with io_uring, where each place needs separate buffers in the kernel.
const STRANGERS_URING: usize = 256;

/// Minimum number of a thread's places for the test's own connections, if the test has that many. This is more than the
/// thread's share, because the kernel doesn't distribute connections evenly.
const OWN_LEAST: usize = 64;

/// File descriptors of the process that stay free for other uses.
const OTHERS: u64 = 256;

/// In nanoseconds. A connection younger than this isn't released as an unauthenticated peer's: the token arrives in the
/// segment after the handshake.
const GIVE_UP_AFTER: u64 = 20_000_000;

/// Maximum number of concurrent connections of a thread.
pub(crate) fn places(spec: &TestSpec, threads: usize) -> usize {
    let (streams, threads) = (spec.streams as usize, threads.max(1));
    let own = streams.min(OWN_LEAST.max(4 * streams.div_ceil(threads)));
    let most = if spec.options.engine == Kind::IoUring { STRANGERS_URING } else { STRANGERS };
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX).saturating_sub(OTHERS);
    let allowed = usize::try_from(allowed).unwrap_or(usize::MAX).saturating_sub(streams);
    own + most.min(allowed).div_ceil(threads).max(1)
}

/// The places of one thread.
#[derive(Default)]
pub(crate) struct FlowPlaces {
    all: Cell<usize>,
    /// Number of places that wait for a connection.
    idle: Cell<usize>,
    /// Places whose connection hasn't shown the token yet, with its start time; the oldest first.
    unproven: RefCell<VecDeque<(usize, u64)>>,
}

impl FlowPlaces {
    fn take(&self, slot: usize, now: u64, engine: &impl Poller) {
        self.idle.set(self.idle.get() - 1);
        self.unproven.borrow_mut().push_back((slot, now));
        if self.idle.get() == 0 {
            self.make_room(engine, now);
        }
    }

    /// The connection has shown the token, or has ended. The search starts at the newest, because the test's
    /// own connections show the token soon.
    fn settle(&self, slot: usize) {
        let mut unproven = self.unproven.borrow_mut();
        if let Some(place) = unproven.iter().rposition(|(of, _)| *of == slot) {
            unproven.remove(place);
        }
    }

    /// If less than a quarter of the places are free, releases enough unauthenticated peers to free a quarter.
    fn make_room(&self, engine: &impl Poller, now: u64) {
        let missing = (self.all.get() / 4).saturating_sub(self.idle.get());
        let unproven = self.unproven.borrow();
        let late = unproven.iter().take_while(|(_, since)| now.saturating_sub(*since) >= GIVE_UP_AFTER);
        late.take(missing).for_each(|(slot, _)| engine.give_up(*slot));
    }
}

/// State that a thread needs to accept connections.
pub(crate) struct Door<'a> {
    pub(crate) listener: &'a Socket,
    /// The keeper's recorder, which counts all answers of the thread.
    pub(crate) desk: FlowRecorder<'a>,
    pub(crate) places: &'a FlowPlaces,
    pub(crate) sizes: MessageSizes,
}

impl Door<'_> {
    /// The keeper's task. When it ends, the thread's other tasks do, too.
    pub(crate) async fn keep<E: Poller>(&self, engine: &E) -> Result<()> {
        let io = engine.io(KEEPER, self.listener, Habit::Turns);
        io.set_patience(Duration::ZERO);
        loop {
            io.nap().await.map_err(|errno| failed(&Target::NOWHERE, "wait", errno, Duration::ZERO))?;
            self.open_in_time()?;
            let (_, closes) = self.desk.shared.window();
            if closes != u64::MAX {
                self.desk.ends(closes);
                self.desk.report().strangers += self.places.unproven.borrow().len() as u64;
                return self.desk.close();
            }
            self.places.make_room(engine, now_ns());
        }
    }

    fn open_in_time(&self) -> Result<()> {
        if !self.is_open() && self.desk.shared.window().0 != u64::MAX {
            self.desk.open(Sender::Here)?;
        }
        Ok(())
    }

    fn is_open(&self) -> bool {
        self.desk.window().0 > 0
    }

    /// A place's task: serves one connection after another.
    pub(crate) async fn serve<E: Poller>(&self, engine: &E, slot: usize) -> Result<()> {
        let io = engine.io(slot, self.listener, Habit::Flood);
        self.places.all.set(self.places.all.get() + 1);
        loop {
            self.places.idle.set(self.places.idle.get() + 1);
            io.set_patience(Duration::MAX);
            let socket = match io.accept().await {
                Ok(socket) => socket,
                Err(errno) => return self.ended(engine, errno),
            };
            let now = now_ns();
            self.places.take(slot, now, engine);
            self.desk.begun(now);
            self.open_in_time()?;
            let answered = self.answer(engine, slot, &socket).await.is_some();
            drop(socket);
            if answered && self.is_open() {
                self.desk.answered()?;
            }
        }
    }

    /// accept(2) failed: the test is over if its window is closed, because the listener is then shut down.
    fn ended(&self, engine: &impl Poller, errno: Errno) -> Result<()> {
        if self.desk.shared.window().1 == u64::MAX {
            return Err(failed(&Target::NOWHERE, "accept", errno, Duration::ZERO));
        }
        engine.give_up(KEEPER);
        Ok(())
    }

    /// None if the client didn't show the token, or the connection broke.
    async fn answer<E: Poller>(&self, engine: &E, slot: usize, socket: &Socket) -> Option<()> {
        let io = engine.io(slot, socket, Habit::Flood);
        io.set_patience(self.desk.shared.session.patience.silence);
        let shown = self.token(&io).await;
        self.places.settle(slot);
        let Some(mut more) = shown else {
            self.desk.report().strangers += 1;
            return None;
        };
        while more > 0 {
            more -= self.receive(&io, more, <[u8]>::len).await?;
        }
        let mut message = Message { more: true, ..Message::whole(&[], self.sizes.response) };
        while message.from < message.len {
            message.from += io.send(message).await.ok()?;
        }
        Some(())
    }

    /// Waits for the token. Returns the number of outstanding bytes of the request.
    async fn token(&self, io: &impl Io) -> Option<usize> {
        let mut shown = [0; HELLO_LEN];
        let (mut received, wanted) = (0, HELLO_LEN + self.sizes.request);
        while received < HELLO_LEN {
            let look = |bytes: &[u8]| {
                let place = &mut shown[received..];
                let len = place.len().min(bytes.len());
                place[..len].copy_from_slice(&bytes[..len]);
                bytes.len()
            };
            received += self.receive(io, wanted - received, look).await?;
        }
        read_hello(&shown, &self.desk.shared.session.token).map(|_| wanted - received)
    }

    async fn receive(&self, io: &impl Io, most: usize, look: impl FnOnce(&[u8]) -> usize) -> Option<usize> {
        io.receive(most, WaitUntil::Patience, look).await.ok().filter(|len| *len > 0)
    }
}
