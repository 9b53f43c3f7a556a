//! Serving one coordinator after another on a virtio-serial port.
//!
//! A guest learns late that a coordinator has left, or never if the next one comes at once. So the beginning
//! of a conversation ends the one before (see [`Conversations`]).
//!
//! One thread reads the port all the time and passes each conversation's bytes on; the calling thread serves
//! them. It writes through a gate that is shut when the conversation is over, so that no late answer gets
//! into the next one.

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

/// The name of the port that vtax gives its guests.
pub const PORT: &str = "org.vtax.agent.0";
/// How many bytes of a conversation may wait for the agent: many times the orders for any test. The port
/// itself never waits, or the beginning of the next conversation would have to wait, too.
const WAITING_MOST: usize = 8 << 20;
const PIECE: usize = 64 << 10;

/// How long the beginning of an answer waits for room. A port that has just got a new coordinator has room, or it has lost its
/// buffers.
const ROOM_SOON: Duration = Duration::from_secs(2);

/// The writing side of a port.
pub trait Renew: Write {
    /// Makes a port usable again that has lost its buffers. Its other end stays connected.
    fn renew(&mut self) -> io::Result<()>;
}

/// Why a port can't be opened or is lost.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum PortError {
    #[error(
        "there is no virtio-serial port {name} after {waited:?} (ports: {present}); does the machine have it, and is the module virtio_console loaded?"
    )]
    #[diagnostic(code("no-agent-port"))]
    Missing { name: String, waited: std::time::Duration, present: String },
    #[error("the virtio-serial port {name} ({device}) can't be opened: {source}{}", busy(source))]
    #[diagnostic(code("agent-port-unusable"))]
    Unusable { name: String, device: String, source: io::Error },
    #[error("the virtio-serial port can't be read any more: {0}")]
    #[diagnostic(code("agent-port-unusable"))]
    Lost(#[from] io::Error),
}

fn busy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::ResourceBusy => "; another process has it, perhaps another vtax-agent",
        io::ErrorKind::PermissionDenied => "; the agent has to be started by root",
        _ => "",
    }
}

/// Serves one coordinator after another, each with its own engine, until one orders to switch the machine
/// off. It calls `complain` for conversations that failed, but not if a coordinator was only cut off.
///
/// `reader` returns 0 bytes when nobody is connected at the other end. The next read then waits until
/// somebody connects. `writer` may fail with `WouldBlock` after a moment.
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

/// Whether the error only says that the coordinator has left. It may have been cut off in the middle of a frame.
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

/// Reads the port.
struct Relay<R> {
    conversations: Conversations<R>,
    /// The number of the conversation that is going on.
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

    /// Reads a conversation to its end, even if nobody takes its bytes any more. If far too many bytes wait,
    /// it cuts the conversation off.
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
    /// How many bytes nobody has taken yet.
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

/// The writing side: shut when its conversation is over.
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
    /// There was no room. True if there should have been long ago.
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
