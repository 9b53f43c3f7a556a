//! One console: who is connected to it, who of them may write, and the thread that reads its domain's serial port.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::Duration,
};

use crate::{log::ConsoleLog, outbox::Outbox};

/// The pause between two attempts to connect to a domain that isn't there.
const PAUSE: Duration = Duration::from_millis(200);
/// A domain takes what is typed within this time, or the byte is lost.
const PATIENCE: Duration = Duration::from_secs(1);
/// The most sessions of one console.
pub(crate) const MOST_VIEWERS: usize = 32;

/// A console with its sessions.
#[derive(Debug)]
pub(crate) struct ConsoleHub {
    socket: PathBuf,
    state: Mutex<HubState>,
}

#[derive(Debug, Default)]
struct HubState {
    serial: Option<Arc<UnixStream>>,
    /// In the order in which they came. The first is the writer.
    viewers: Vec<Viewer>,
    last: u64,
}

#[derive(Debug)]
struct Viewer {
    number: u64,
    outbox: Arc<Outbox>,
}

/// What became of a byte that was typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Typed {
    Sent,
    NoWriteAccess,
    NoDomain,
}

impl ConsoleHub {
    /// Begins to read the domain's serial port. That ends when nobody has the hub any more.
    pub(crate) fn start(socket: &Path, log: &Path) -> io::Result<Arc<ConsoleHub>> {
        let hub = Arc::new(ConsoleHub { socket: socket.to_owned(), state: Mutex::default() });
        let (weak, log) = (Arc::downgrade(&hub), ConsoleLog::new(log));
        thread::Builder::new().name("console".to_owned()).spawn(move || read(&weak, log))?;
        Ok(hub)
    }

    /// A new session gets all that the domain prints from now on. None if there are too many.
    pub(crate) fn join(&self, outbox: &Arc<Outbox>) -> Option<u64> {
        let mut state = self.lock();
        if state.viewers.len() >= MOST_VIEWERS {
            return None;
        }
        state.last += 1;
        let number = state.last;
        state.viewers.push(Viewer { number, outbox: Arc::clone(outbox) });
        Some(number)
    }

    /// Ends a session. If it could write, the one that came next can now, and is told so.
    pub(crate) fn leave(&self, number: u64) {
        let mut state = self.lock();
        let was_writer = state.viewers.first().is_some_and(|viewer| viewer.number == number);
        state.viewers.retain(|viewer| viewer.number != number);
        if let Some(next) = state.viewers.first().filter(|_| was_writer) {
            next.outbox.push(b"\r\nYou have write access now.\r\n");
        }
    }

    pub(crate) fn is_writer(&self, number: u64) -> bool {
        self.lock().viewers.first().is_some_and(|viewer| viewer.number == number)
    }

    /// Makes a session the one that can write, and tells the one that could.
    pub(crate) fn take_writing(&self, number: u64) {
        let mut state = self.lock();
        let Some(place) = state.viewers.iter().position(|viewer| viewer.number == number).filter(|place| *place > 0)
        else {
            return;
        };
        state.viewers[0].outbox.push(b"\r\nAnother session has taken your write access.\r\n");
        let viewer = state.viewers.remove(place);
        state.viewers.insert(0, viewer);
    }

    /// Sends the domain what a session has typed.
    pub(crate) fn type_byte(&self, number: u64, byte: u8) -> Typed {
        let serial = {
            let state = self.lock();
            if state.viewers.first().is_none_or(|viewer| viewer.number != number) {
                return Typed::NoWriteAccess;
            }
            state.serial.clone()
        };
        // Without the lock: a domain that doesn't read its port must not stop the others from seeing it.
        match serial.map(|serial| (&*serial).write_all(&[byte])) {
            Some(Ok(())) => Typed::Sent,
            _ => Typed::NoDomain,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HubState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the serial port as long as there is a hub, also when the domain comes and goes.
fn read(hub: &Weak<ConsoleHub>, mut log: ConsoleLog) {
    let mut buffer = [0; 4096];
    while let Some(living) = hub.upgrade() {
        let connected = UnixStream::connect(&living.socket);
        let Ok(serial) = connected.and_then(prepared) else {
            drop(living);
            thread::sleep(PAUSE);
            continue;
        };
        let serial = Arc::new(serial);
        living.lock().serial = Some(Arc::clone(&serial));
        drop(living);
        loop {
            match (&*serial).read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => {
                    let Some(living) = hub.upgrade() else { return };
                    log.write(&buffer[..length]);
                    living.lock().viewers.iter().for_each(|viewer| viewer.outbox.push(&buffer[..length]));
                }
                // Time to see whether anybody still has the hub.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if hub.strong_count() == 0 {
                        return;
                    }
                }
                Err(_) => break,
            }
        }
        if let Some(living) = hub.upgrade() {
            living.lock().serial = None;
        }
    }
}

fn prepared(serial: UnixStream) -> io::Result<UnixStream> {
    serial.set_read_timeout(Some(PATIENCE))?;
    serial.set_write_timeout(Some(PATIENCE))?;
    Ok(serial)
}
