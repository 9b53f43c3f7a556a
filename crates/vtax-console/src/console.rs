//! One console: its sessions, and the thread that holds the guest's serial socket for them.

use std::{
    collections::VecDeque,
    io::{self, Read as _, Write as _},
    os::{fd::AsFd as _, unix::net::UnixStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::event::PollFlags;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::{
    bounds::Bounds,
    event::{Attendant, ServerEvent},
    lock::locked,
    log::ConsoleLog,
    outbox::Outbox,
    patience::GuestPatience,
    table::Console,
    telnet::encode,
    waker::Waker,
};

/// Interval between attempts to connect to a missing serial socket.
const RETRY: Duration = Duration::from_millis(200);

/// Maximum number of bytes in one read from a guest.
const CHUNK: usize = 16 << 10;

/// Minimum space for a session; below it, the guest waits, because reading byte by byte would only cost time.
const ROOM_LEAST: usize = 2048;

/// Number that identifies a session on a console.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SeatId(pub(crate) u64);

/// Console and its sessions.
#[derive(Debug)]
pub(crate) struct Hub {
    state: Mutex<State>,
    waker: Waker,
    /// Set while the thread waits until sessions read.
    waits: AtomicBool,
    sessions_most: usize,
    input_most: usize,
    /// Maximum size of one read from the guest.
    chunk: usize,
    room_least: usize,
}

#[derive(Debug)]
struct State {
    console: Console,
    /// Sessions in order of arrival. The first one writes.
    seats: Vec<Seat>,
    /// Keystrokes for the guest.
    input: VecDeque<u8>,
    online: bool,
    /// Set when the serial socket has changed.
    moved: bool,
    closed: bool,
}

#[derive(Debug)]
struct Seat {
    session: SeatId,
    outbox: Arc<Outbox>,
}

/// Returned if the console has its maximum number of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AllTaken(pub(crate) usize);

/// Result of sending keystrokes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// This many of them go to the guest; there is no space for the others.
    Taken(usize),
    /// Another session has write access.
    ReadOnly,
}

pub(crate) const READ_ONLY: &str = "\nYou do not have write access; type ~w to take it.\n";
const INHERITED: &str = "\n[vtax: you now have write access]\n";
const TAKEN_AWAY: &str = "\n[vtax: another session has taken write access]\n";
const OFFLINE: &str =
    "\n[vtax: the domain's console is unavailable; its output appears as soon as the console is back]\n";
const ONLINE: &str = "\n[vtax: the domain's console is available now]\n";

impl Hub {
    pub(crate) fn new(console: Console, bounds: &Bounds) -> io::Result<Hub> {
        let state =
            State { console, seats: Vec::new(), input: VecDeque::new(), online: false, moved: false, closed: false };
        Ok(Hub {
            state: Mutex::new(state),
            waker: Waker::new()?,
            waits: AtomicBool::new(false),
            sessions_most: bounds.sessions_of_console,
            input_most: bounds.input,
            chunk: CHUNK.min(bounds.output / 2).max(1),
            room_least: ROOM_LEAST.min(bounds.output / 4).max(1),
        })
    }

    /// Returns `true` if the guest's serial socket is available.
    pub(crate) fn is_online(&self) -> bool {
        locked(&self.state).online
    }

    /// Changes the paths of this console's socket and log.
    pub(crate) fn change(&self, console: &Console) {
        let mut state = locked(&self.state);
        if state.console != *console {
            state.moved = true;
            state.console = console.clone();
            self.waker.wake();
        }
    }

    /// Stops serving the console.
    pub(crate) fn close(&self) {
        locked(&self.state).closed = true;
        self.waker.wake();
    }

    /// Adds a session. `greeting` is the last text that it receives before the guest's output.
    pub(crate) fn attach(&self, session: SeatId, outbox: &Arc<Outbox>, greeting: &str) -> Result<(), AllTaken> {
        let mut state = locked(&self.state);
        if state.seats.len() >= self.sessions_most {
            return Err(AllTaken(state.seats.len()));
        }
        outbox.say(greeting);
        if !state.seats.is_empty() {
            outbox.say(READ_ONLY);
        }
        if !state.online {
            outbox.say(OFFLINE);
        }
        state.seats.push(Seat { session, outbox: Arc::clone(outbox) });
        Ok(())
    }

    /// Removes a session. If it had write access, the next one in the queue inherits it.
    pub(crate) fn detach(&self, session: SeatId) {
        let mut state = locked(&self.state);
        let wrote = state.writes(session);
        state.seats.retain(|seat| seat.session != session);
        if let (true, Some(next)) = (wrote, state.seats.first()) {
            next.outbox.say(INHERITED);
        }
        drop(state);
        // The thread may be waiting for this session.
        self.waker.wake();
    }

    pub(crate) fn is_writer(&self, session: SeatId) -> bool {
        locked(&self.state).writes(session)
    }

    /// Moves the session to the front of the queue, so that the previous writer is next in line.
    pub(crate) fn take_writing(&self, session: SeatId) {
        let mut state = locked(&self.state);
        let Some(place) = state.seats.iter().position(|seat| seat.session == session) else { return };
        let seat = state.seats.remove(place);
        seat.outbox.say(INHERITED);
        if let (true, Some(before)) = (place > 0, state.seats.first()) {
            before.outbox.say(TAKEN_AWAY);
        }
        state.seats.insert(0, seat);
    }

    /// Accepts a session's keystrokes for the guest.
    pub(crate) fn send(&self, session: SeatId, keys: &[u8]) -> Sent {
        let mut state = locked(&self.state);
        if !state.writes(session) {
            return Sent::ReadOnly;
        }
        // Discarded, because a guest that is started later must not receive keystrokes meant for this one.
        if !state.online {
            return Sent::Taken(keys.len());
        }
        let count = keys.len().min(self.input_most.saturating_sub(state.input.len()));
        state.input.extend(&keys[..count]);
        drop(state);
        if count > 0 {
            self.waker.wake();
        }
        Sent::Taken(count)
    }

    /// Notes that a session has read some of its output.
    pub(crate) fn has_read(&self) {
        if self.waits.load(Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// Holds the guest's serial socket until the console is closed.
    pub(crate) fn run(&self, bounds: &Bounds, attendant: &dyn Attendant) {
        let mut told = false;
        while let Some(console) = self.wanted() {
            match connect(&console) {
                Ok(stream) => {
                    told = false;
                    let log = open_log(&console, bounds, attendant);
                    self.set_online(true);
                    // Whatever ended the connection, the socket is looked for again.
                    let _ = Thread { hub: self, stream, log, patience: GuestPatience::new(bounds), attendant }.serve();
                    self.set_online(false);
                }
                Err(why) if !is_absent(&why) && !told => {
                    told = true;
                    attendant.hear(&ServerEvent::NoSerial { domain: console.domain.clone(), why });
                }
                Err(_) => {}
            }
            let _ = self.waker.wait(&[], Some(RETRY));
        }
    }

    /// Returns the console whose socket to connect to; `None` when the console is closed.
    fn wanted(&self) -> Option<Console> {
        let mut state = locked(&self.state);
        state.moved = false;
        (!state.closed).then(|| state.console.clone())
    }

    fn set_online(&self, online: bool) {
        let mut state = locked(&self.state);
        state.online = online;
        if !online {
            state.input.clear();
        }
        let text = if online { ONLINE } else { OFFLINE };
        state.seats.iter().for_each(|seat| seat.outbox.say(text));
    }
}

impl State {
    fn writes(&self, session: SeatId) -> bool {
        self.seats.first().is_some_and(|seat| seat.session == session)
    }

    /// Returns the number of the guest's bytes that fit for every session, even if all of them must be doubled.
    fn room(&self) -> usize {
        self.seats.iter().filter_map(Seat::room).min().unwrap_or(usize::MAX)
    }

    fn give_up_the_full(&self, room_least: usize) {
        let full = |seat: &&Seat| seat.room().is_some_and(|room| room < room_least);
        self.seats.iter().filter(full).for_each(|seat| seat.outbox.give_up());
    }
}

impl Seat {
    fn room(&self) -> Option<usize> {
        Some(self.outbox.room()? / 2)
    }
}

/// Returns `true` if the guest doesn't run, or currently serves another client.
fn is_absent(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotFound, WouldBlock};
    matches!(error.kind(), NotFound | ConnectionRefused | WouldBlock)
}

/// Connects without waiting: a socket whose program doesn't accept connections would block forever.
fn connect(console: &Console) -> io::Result<UnixStream> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    socket.connect(&SockAddr::unix(&console.serial)?)?;
    Ok(std::os::fd::OwnedFd::from(socket).into())
}

fn open_log(console: &Console, bounds: &Bounds, attendant: &dyn Attendant) -> Option<ConsoleLog> {
    let file = console.log.as_ref()?;
    let opened = ConsoleLog::open(file, bounds.log);
    opened.map_err(|why| attendant.hear(&ServerEvent::NoLog { file: file.clone(), why })).ok()
}

/// Console's thread while the guest runs.
struct Thread<'a> {
    hub: &'a Hub,
    stream: UnixStream,
    log: Option<ConsoleLog>,
    patience: GuestPatience,
    attendant: &'a dyn Attendant,
}

/// Events to wait for.
enum Turn {
    /// The guest may write this many bytes. `has_input` is set if keystrokes are waiting for it.
    Open { room: usize, has_input: bool },
    /// The guest must wait for sessions, at most for this time.
    Held { most: Duration, has_input: bool },
    /// The connection is no longer required.
    Over,
}

impl Thread<'_> {
    fn serve(mut self) -> io::Result<()> {
        let mut buffer = vec![0; CHUNK];
        loop {
            let (room, flags, timeout) = match self.turn() {
                Turn::Over => return Ok(()),
                Turn::Open { room, has_input } => (room, PollFlags::IN | output(has_input), None),
                Turn::Held { most, has_input } => (0, output(has_input), Some(most)),
            };
            // Without flags the socket isn't polled, because `poll` would always report that the guest has
            // disconnected.
            let asked = [(self.stream.as_fd(), flags)];
            let happened = self.hub.waker.wait(if flags.is_empty() { &[] } else { &asked }, timeout)?;
            let happened = happened.first().copied().unwrap_or(PollFlags::empty());
            self.hub.waits.store(false, Ordering::SeqCst);
            if happened.contains(PollFlags::OUT) {
                self.write()?;
            }
            if room > 0 && happened.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                self.read(&mut buffer[..room])?;
            }
        }
    }

    fn turn(&mut self) -> Turn {
        let state = locked(&self.hub.state);
        if state.closed || state.moved {
            return Turn::Over;
        }
        let has_input = !state.input.is_empty();
        if state.room() < self.hub.room_least {
            // Set before the space is checked again; otherwise a session could read without waking this thread.
            self.hub.waits.store(true, Ordering::SeqCst);
            match self.patience.wait(Instant::now()) {
                Some(most) if state.room() < self.hub.room_least => return Turn::Held { most, has_input },
                Some(_) => {}
                None => state.give_up_the_full(self.hub.room_least),
            }
        }
        Turn::Open { room: state.room().min(self.hub.chunk), has_input }
    }

    fn write(&mut self) -> io::Result<()> {
        let mut state = locked(&self.hub.state);
        let was_full = state.input.len() >= self.hub.input_most;
        let written = match self.stream.write(state.input.as_slices().0) {
            Err(error) if is_momentary(&error) => 0,
            written => written?,
        };
        state.input.drain(..written);
        if let (true, Some(writer)) = (was_full && written > 0, state.seats.first()) {
            writer.outbox.waker().wake();
        }
        Ok(())
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let count = match self.stream.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if is_momentary(&error) => return Ok(()),
            count => count?,
        };
        self.patience.said(count, Instant::now());
        let encoded = encode(&buffer[..count]);
        locked(&self.hub.state).seats.iter().for_each(|seat| seat.outbox.put(&encoded, count));
        self.keep(&buffer[..count]);
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) {
        let Some(log) = &mut self.log else { return };
        if let Err(why) = log.add(bytes) {
            self.attendant.hear(&ServerEvent::NoLog { file: log.path().to_owned(), why });
            self.log = None;
        }
    }
}

fn output(has_input: bool) -> PollFlags {
    if has_input { PollFlags::OUT } else { PollFlags::empty() }
}

/// Returns `true` if the call only needs to be repeated.
pub(crate) fn is_momentary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
