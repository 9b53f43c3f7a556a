//! Thread of a session: a client's socket, and its time limits.

use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, SocketAddr, SocketAddrV4, TcpStream},
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

use rustix::event::PollFlags;
use socket2::SockRef;
use vtax_sys::netlink::{UserId, owner_of_peer};

use crate::{console::is_momentary, dialogue::Dialogue, event::ServerEvent, registry::Ticket, table::GroupName};

/// Maximum number of bytes in one read from a client.
const KEYS: usize = 4 << 10;

/// Maximum number of bytes in one write to a client.
const PIECE: usize = 16 << 10;
/// Number of such writes after which the client's keystrokes are handled; otherwise nobody could interrupt a guest that
/// never pauses.
const PIECES: usize = 8;
const KERNEL_SPACE: usize = 64 << 10;

/// Message to a user who may not use a group.
pub(crate) const NOT_ALLOWED: &str = "\nYou may not use this console group.\n";

/// Time that a client has to read its last messages.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(1);

/// Client and its state.
pub(crate) struct ConsoleSession {
    stream: TcpStream,
    dialogue: Dialogue,
    group: GroupName,
    user: Option<UserId>,
    unsent: Vec<u8>,
    last_key: Instant,
    /// Number of keystrokes that wait for the guest, and the time since which it has accepted none.
    held: Option<(usize, Instant)>,
    over_since: Option<Instant>,
    table: u64,
}

impl ConsoleSession {
    pub(crate) fn new(
        stream: TcpStream,
        ticket: Ticket,
        group: GroupName,
        user: Option<UserId>,
    ) -> io::Result<ConsoleSession> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let socket = SockRef::from(&stream);
        // A client marks a break as urgent data. If it were read out of band, the mark would be missing among the
        // commands.
        socket.set_out_of_band_inline(true)?;
        socket.set_send_buffer_size(KERNEL_SPACE)?;
        socket.set_recv_buffer_size(KERNEL_SPACE)?;
        let table = ticket.registry.table_number();
        let dialogue = Dialogue::new(ticket, group.clone());
        let now = Instant::now();
        let unsent = Vec::new();
        Ok(ConsoleSession { stream, dialogue, group, user, unsent, last_key: now, held: None, over_since: None, table })
    }

    /// Serves the client until either side ends the session.
    pub(crate) fn run(mut self) {
        if self.check_access() {
            self.dialogue.begin();
        }
        while let Ok(true) = self.turn() {}
    }

    /// Waits once and handles the events. Returns `false` when the session has ended.
    fn turn(&mut self) -> io::Result<bool> {
        self.flush()?;
        if self.dialogue.is_over() && self.over_since.is_none() {
            self.over_since = Some(Instant::now());
        }
        if self.over_since.is_some() && self.is_sent() {
            // The client notices this and closes its side. A hard disconnect could lose unread output.
            let _ = self.stream.shutdown(Shutdown::Write);
        }
        let flags = self.flags();
        let asked = [(self.stream.as_fd(), flags)];
        let happened = self.dialogue.outbox().waker().wait(&asked, self.timeout())?[0];
        if happened.contains(PollFlags::IN) {
            if !self.read()? {
                return Ok(false);
            }
        } else if happened.intersects(PollFlags::HUP | PollFlags::ERR) {
            return Ok(false);
        }
        self.look_around();
        Ok(self.over_since.is_none_or(|since| since.elapsed() < LAST_WORDS))
    }

    fn flags(&self) -> PollFlags {
        let (mut flags, reads) = (PollFlags::empty(), self.dialogue.is_over() || !self.dialogue.is_held());
        flags.set(PollFlags::IN, reads);
        flags.set(PollFlags::OUT, !self.is_sent());
        flags
    }

    /// Writes the output that the client accepts now.
    fn flush(&mut self) -> io::Result<()> {
        for _ in 0..PIECES {
            if self.unsent.is_empty() {
                self.dialogue.outbox().take(&mut self.unsent, PIECE);
                self.dialogue.has_read();
            }
            if self.unsent.is_empty() {
                return Ok(());
            }
            match self.stream.write(&self.unsent) {
                Err(error) if is_momentary(&error) => return Ok(()),
                written => drop(self.unsent.drain(..written?)),
            }
        }
        Ok(())
    }

    fn is_sent(&self) -> bool {
        self.unsent.is_empty() && self.dialogue.outbox().is_empty()
    }

    /// Returns `false` if the client has disconnected.
    fn read(&mut self) -> io::Result<bool> {
        let mut keys = [0; KEYS];
        match self.stream.read(&mut keys) {
            Ok(0) => Ok(false),
            Err(error) if is_momentary(&error) => Ok(true),
            count => {
                self.last_key = Instant::now();
                if !self.dialogue.is_over() {
                    self.dialogue.receive(&keys[..count?]);
                }
                Ok(true)
            }
        }
    }

    /// Checks for a new table, and for expired time limits.
    fn look_around(&mut self) {
        self.dialogue.send_held();
        self.look_at_held();
        if self.dialogue.is_over() {
            return;
        }
        let table = self.dialogue.registry().table_number();
        if table != self.table {
            self.table = table;
            self.check_access();
            self.dialogue.look_around();
        }
        let now = Instant::now();
        let is_past = |by: Option<Instant>| by.is_some_and(|by| by <= now);
        if is_past(self.held_by()) {
            self.held = None;
            self.dialogue.give_up_keys();
        }
        if self.dialogue.is_ended() {
            self.dialogue.end("\nToo many sessions without a console; this one waited longest, and is closed.\n");
        } else if is_past(self.choosing_by()) {
            self.dialogue.end("\nNo console was selected in time.\n");
        } else if is_past(self.idle_by()) {
            self.dialogue.end("\nIdle timeout: no key was pressed.\n");
        }
    }

    fn look_at_held(&mut self) {
        let keys = self.dialogue.held_keys();
        let before = self.held.filter(|(before, _)| *before == keys);
        self.held = self.dialogue.is_held().then(|| before.unwrap_or_else(|| (keys, Instant::now())));
    }

    fn held_by(&self) -> Option<Instant> {
        Some(self.held?.1 + self.dialogue.registry().bounds.input_patience)
    }

    fn choosing_by(&self) -> Option<Instant> {
        Some(self.dialogue.choosing_since()? + self.dialogue.registry().bounds.choosing_time)
    }

    fn idle_by(&self) -> Option<Instant> {
        Some(self.last_key + self.dialogue.registry().bounds.idle?)
    }

    fn timeout(&self) -> Option<Duration> {
        let last_words = self.over_since.map(|since| since + LAST_WORDS);
        let times = [last_words, self.held_by(), self.choosing_by(), self.idle_by()];
        let first = if last_words.is_some() { last_words } else { times.into_iter().flatten().min() };
        first.map(|first| first.saturating_duration_since(Instant::now()))
    }

    /// Ends the session of a user who may no longer use the group. Returns `true` if the user still may.
    fn check_access(&mut self) -> bool {
        if self.dialogue.registry().allows(&self.group, self.user) {
            return true;
        }
        if let Ok(peer) = self.stream.peer_addr() {
            let event = ServerEvent::NotAllowed { peer, user: self.user, group: self.group.name.clone() };
            self.dialogue.registry().attendant.hear(&event);
        }
        self.dialogue.end(NOT_ALLOWED);
        false
    }
}

/// Returns the client's user, if the kernel knows it.
pub(crate) fn user(stream: &TcpStream) -> Option<UserId> {
    let own = v4(stream.local_addr().ok()?)?;
    let peer = v4(stream.peer_addr().ok()?)?;
    owner_of_peer(own, peer).ok()?
}

fn v4(address: SocketAddr) -> Option<SocketAddrV4> {
    if let SocketAddr::V4(address) = address { Some(address) } else { None }
}

/// Sends a client the reason why it is refused. It gets no thread, so nothing waits for it.
pub(crate) fn refuse(stream: &TcpStream, words: &str) {
    let _ = stream.set_nonblocking(true);
    let mut stream = stream;
    let _ = stream.write(words.replace('\n', "\r\n").as_bytes());
    let _ = stream.shutdown(Shutdown::Write);
}
