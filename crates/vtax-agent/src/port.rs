//! Service of successive coordinators on a virtio-serial port.
//!
//! A guest learns late that a coordinator has left, or never if the next one connects immediately. So the beginning of
//! a conversation ends the previous one (see [`Conversations`]).
//!
//! One thread reads the port continuously and passes on the bytes of each conversation; the calling thread serves them.
//! It writes through a gate that is shut when the conversation is over, so no late answer gets into the next one.

mod device;

use std::{
    io::{self, Read, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{self, Receiver, SyncSender},
    },
    thread,
    time::{Duration, Instant},
};

use vtax_wire::{conversations::Conversations, frame::FrameError};

pub use device::{PortReader, PortWriter, open};

use crate::server::{self, AgentRights, Parting, ServeError, TestEngine};

/// Name of the port that vtax gives its guests.
pub const PORT: &str = "org.vtax.agent.0";
/// Limit on the bytes of a conversation that wait for the agent: many times the orders of any test. The port itself
/// never waits, because the beginning of the next conversation would have to wait, too.
const WAITING_MOST: usize = 8 << 20;
const PIECE: usize = 64 << 10;

/// Time limit for the beginning of an answer to wait for room. A port with a new coordinator has room, unless it has
/// lost its buffers.
const ROOM_SOON: Duration = Duration::from_secs(2);

/// The writing side of a port.
pub trait Renew: Write {
    /// Makes a port usable again that has lost its buffers. The other side stays connected.
    fn renew(&mut self) -> io::Result<()>;
}

/// Reasons why a port cannot be opened or was lost.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum PortError {
    #[error(
        "no virtio-serial port {name} after {waited:?} (ports: {present}); add it to the machine, and load the module virtio_console"
    )]
    #[diagnostic(code("no-agent-port"))]
    Missing { name: String, waited: std::time::Duration, present: String },
    #[error("cannot open the virtio-serial port {name} ({device}): {source}{}", busy(source))]
    #[diagnostic(code("agent-port-unusable"))]
    Unusable { name: String, device: String, source: io::Error },
    #[error("can no longer read the virtio-serial port: {0}")]
    #[diagnostic(code("agent-port-unusable"))]
    Lost(#[from] io::Error),
}

fn busy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::ResourceBusy => "; it is in use by another process, perhaps another vtax-agent",
        io::ErrorKind::PermissionDenied => "; start the agent as root",
        _ => "",
    }
}

/// Serves successive coordinators, each with its own engine, until one requests a power-off. Calls `complain` for
/// failed conversations, but not for a coordinator that was merely cut off.
///
/// `reader` returns 0 bytes when nobody is connected on the other side. The next read then waits for a connection.
/// `writer` may fail with `WouldBlock` after a short time.
pub fn serve<E: TestEngine>(
    reader: impl Read + Send + 'static,
    mut writer: impl Renew,
    engine: impl Fn() -> E,
    standing: AgentRights,
    mut complain: impl FnMut(&ServeError),
) -> Result<(), PortError> {
    let current = Arc::new(AtomicU64::new(0));
    let (introduce, conversations) = mpsc::sync_channel(1);
    let relay = Relay { conversations: Conversations::new(reader), current: current.clone(), introduce };
    let relay = thread::Builder::new().name("port".into()).spawn(move || relay.run())?;
    for Conversation { number, bytes } in conversations {
        let gate = Gate { writer: &mut writer, current: &current, number, beginning: Beginning::default() };
        match server::serve(bytes, gate, engine(), standing) {
            Ok(Parting::Over) => {}
            Ok(Parting::PowerOff) => return Ok(()),
            Err(error) if is_departure(&error) => {}
            Err(error) => complain(&error),
        }
    }
    let Err(lost) = relay.join().unwrap_or_else(|_| Err(io::Error::other("its thread panicked")));
    Err(PortError::Lost(lost))
}

/// Returns whether the error only means that the coordinator has left, possibly cut off in the middle of a frame.
fn is_departure(error: &ServeError) -> bool {
    match error {
        ServeError::Stream(FrameError::Io(error)) => error.kind() == io::ErrorKind::BrokenPipe,
        ServeError::Stream(FrameError::Truncated { .. }) | ServeError::Nobody => true,
        _ => false,
    }
}

/// The conversation with one coordinator.
struct Conversation {
    number: u64,
    bytes: Pieces,
}

/// The reader of the port.
struct Relay<R> {
    conversations: Conversations<R>,
    /// Number of the current conversation.
    current: Arc<AtomicU64>,
    introduce: SyncSender<Conversation>,
}

impl<R: Read> Relay<R> {
    fn run(mut self) -> io::Result<std::convert::Infallible> {
        loop {
            if self.conversations.next_one()? {
                self.relay_one()?;
                self.current.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// Reads a conversation to its end, even if nobody takes its bytes any more. Cuts it off if far too many bytes are
    /// waiting.
    fn relay_one(&mut self) -> io::Result<()> {
        let (pieces, taken) = mpsc::channel();
        let waiting = Arc::<AtomicUsize>::default();
        let bytes = Pieces { taken, piece: io::Cursor::default(), waiting: waiting.clone() };
        let _ = self.introduce.send(Conversation { number: self.current.load(Ordering::SeqCst), bytes });
        let mut buffer = vec![0; PIECE];
        loop {
            let count = self.conversations.read(&mut buffer)?;
            if count == 0 || waiting.fetch_add(count, Ordering::SeqCst) > WAITING_MOST {
                return Ok(());
            }
            if pieces.send(buffer[..count].to_vec()).is_err() {
                waiting.store(0, Ordering::SeqCst);
            }
        }
    }
}

/// The reading side of a conversation.
struct Pieces {
    taken: Receiver<Vec<u8>>,
    piece: io::Cursor<Vec<u8>>,
    /// Number of bytes that nobody has taken yet.
    waiting: Arc<AtomicUsize>,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.piece.read(buffer)? {
                0 if !buffer.is_empty() => match self.taken.recv() {
                    Ok(piece) => {
                        self.waiting.fetch_sub(piece.len(), Ordering::SeqCst);
                        self.piece = io::Cursor::new(piece);
                    }
                    Err(_) => return Ok(0),
                },
                count => return Ok(count),
            }
        }
    }
}

/// The writing side, shut when its conversation is over.
struct Gate<'a, W> {
    writer: &'a mut W,
    current: &'a AtomicU64,
    number: u64,
    beginning: Beginning,
}

/// The beginning of an answer to a coordinator.
#[derive(Debug, Default)]
enum Beginning {
    #[default]
    Unwritten,
    /// The port has had no room since then.
    Waits(Instant),
    Written,
}

impl Beginning {
    /// Notes that there was no room. Returns true if there should have been room long ago.
    fn waits_too_long(&mut self) -> bool {
        match self {
            Beginning::Unwritten => *self = Beginning::Waits(Instant::now()),
            Beginning::Waits(since) if since.elapsed() > ROOM_SOON => {
                *self = Beginning::Unwritten;
                return true;
            }
            Beginning::Waits(_) | Beginning::Written => {}
        }
        false
    }
}

impl<W: Renew> Write for Gate<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            if self.current.load(Ordering::SeqCst) != self.number {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            match self.writer.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.beginning.waits_too_long() {
                        self.writer.renew()?;
                    }
                }
                written => {
                    self.beginning = Beginning::Written;
                    return written;
                }
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

#[cfg(test)]
mod tests;
