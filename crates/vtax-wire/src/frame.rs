//! Frames: a length in four bytes, little-endian, then that many bytes of JSON.
//!
//! The peer may be anything: a login shell that prints a greeting, another program in the agent's place, or an
//! attacker. So a length is only a claim. It is compared with a limit first. Memory grows with the bytes that have
//! actually arrived, never with the claim.

use std::io::{self, BufReader, Read};

use serde::{Serialize, de::DeserializeOwned};
use vtax_model::{foreign::ForeignText, units::ByteSize};

/// The first bytes from each side, before any frame. They distinguish an agent from a login banner.
pub const MAGIC: [u8; 8] = *b"VTAXCTL\n";
/// The largest hello frame in either direction, in every version of the protocol.
pub const HELLO_MOST: ByteSize = ByteSize(64 << 10);
/// The largest frame to an agent.
pub const REQUEST_MOST: ByteSize = ByteSize(1 << 20);
/// The largest frame from an agent; reports carry histograms.
pub const REPLY_MOST: ByteSize = ByteSize(16 << 20);

const LENGTH_BYTES: usize = 4;

/// An error of a control stream.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum FrameError {
    #[error(
        "the control stream does not start like vtax's but with \"{found}\"; something else writes to it (output of a login script, a wrong program?)"
    )]
    #[diagnostic(code("unexpected-output"))]
    NotVtax { found: String },
    #[error("a frame of {length} on the control stream exceeds the limit of {most}")]
    #[diagnostic(code("garbled-stream"))]
    TooLong { length: ByteSize, most: ByteSize },
    #[error("the control stream was truncated inside a frame: {got} of {expected} received")]
    #[diagnostic(code("agent-lost"))]
    Truncated { expected: ByteSize, got: ByteSize },
    #[error("invalid frame on the control stream: {0}")]
    #[diagnostic(code("garbled-stream"))]
    Malformed(ForeignText),
    #[error("the agent sent more of a program's output than requested")]
    #[diagnostic(code("garbled-stream"))]
    BeyondWindow,
    #[error("the control stream failed: {0}")]
    #[diagnostic(code("agent-lost"))]
    Io(#[from] io::Error),
}

/// Reads the bytes before the first frame, one by one, because an unknown peer may never send a second byte. `None` if
/// the stream ended before any.
pub fn read_magic<R: Read>(reader: &mut BufReader<R>) -> Result<Option<()>, FrameError> {
    for (position, expected) in MAGIC.into_iter().enumerate() {
        let next = read_upto(reader, 1)?;
        match next[..] {
            [byte] if byte == expected => {}
            [] if position == 0 => return Ok(None),
            _ => return Err(not_vtax(&MAGIC[..position], &next, reader.buffer())),
        }
    }
    Ok(Some(()))
}

/// Quotes everything received so far: the best hint at who the sender is.
fn not_vtax(right: &[u8], wrong: &[u8], buffered: &[u8]) -> FrameError {
    let shown = &buffered[..buffered.len().min(64)];
    let found = [right, wrong, shown].concat();
    FrameError::NotVtax { found: found.escape_ascii().to_string() }
}

/// Reads the body of the next frame. `None` if the stream ends between two frames.
pub fn read_frame(reader: &mut impl Read, most: ByteSize) -> Result<Option<Vec<u8>>, FrameError> {
    let head = read_upto(reader, LENGTH_BYTES as u64)?;
    if head.is_empty() {
        return Ok(None);
    }
    let length = match <[u8; LENGTH_BYTES]>::try_from(&head[..]) {
        Ok(head) => u64::from(u32::from_le_bytes(head)),
        Err(_) => return Err(truncated(LENGTH_BYTES as u64, head.len())),
    };
    if length > most.0 {
        return Err(FrameError::TooLong { length: ByteSize(length), most });
    }
    let body = read_upto(reader, length)?;
    if (body.len() as u64) < length {
        return Err(truncated(length, body.len()));
    }
    Ok(Some(body))
}

/// Frames that arrive in pieces. Memory grows with the bytes received, never with the claimed length of a frame.
#[derive(Debug, Default)]
pub struct FrameBuffer {
    bytes: Vec<u8>,
    /// Bytes at the beginning that are already consumed.
    taken: usize,
}

/// Capacity that an empty buffer keeps.
const KEPT_CAPACITY: usize = 64 << 10;

impl FrameBuffer {
    /// Appends a piece of the stream.
    pub fn push(&mut self, piece: &[u8]) {
        if self.taken > self.bytes.len() / 2 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
            self.bytes.shrink_to(KEPT_CAPACITY.max(self.bytes.len()));
        }
        self.bytes.extend_from_slice(piece);
    }

    /// Takes the bytes before the first frame. Returns false if some of them haven't arrived yet. A wrong byte is
    /// reported immediately.
    pub fn take_magic(&mut self) -> Result<bool, FrameError> {
        let come = &self.bytes[self.taken..];
        let right = come.iter().zip(&MAGIC).take_while(|(byte, expected)| byte == expected).count();
        match right {
            _ if right == MAGIC.len() => {
                self.taken += right;
                Ok(true)
            }
            _ if right == come.len() => Ok(false),
            _ => Err(not_vtax(&come[..right], &come[right..=right], &come[right + 1..])),
        }
    }

    /// Takes the body of the next frame, if it is complete.
    pub fn take_frame(&mut self, most: ByteSize) -> Result<Option<Vec<u8>>, FrameError> {
        let Some((length, rest)) = self.claimed() else { return Ok(None) };
        if length > most.0 {
            return Err(FrameError::TooLong { length: ByteSize(length), most });
        }
        let length = length as usize;
        let Some(body) = rest.get(..length).map(<[u8]>::to_vec) else { return Ok(None) };
        self.taken += LENGTH_BYTES + length;
        Ok(Some(body))
    }

    /// Returns an error if the stream ends inside a frame here.
    pub fn check_end(&self) -> Result<(), FrameError> {
        match self.claimed() {
            Some((length, rest)) => Err(truncated(length, rest.len())),
            None if self.is_empty() => Ok(()),
            None => Err(truncated(LENGTH_BYTES as u64, self.bytes.len() - self.taken)),
        }
    }

    /// Returns an error if the stream ends inside the bytes before the first frame here.
    pub fn check_magic_end(&self) -> Result<(), FrameError> {
        if self.is_empty() { Ok(()) } else { Err(not_vtax(&self.bytes[self.taken..], &[], &[])) }
    }

    /// Returns true if all received bytes are consumed.
    pub fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }

    /// The claimed length of the next frame, and the bytes received after it.
    fn claimed(&self) -> Option<(u64, &[u8])> {
        let (head, rest) = self.bytes[self.taken..].split_first_chunk::<LENGTH_BYTES>()?;
        Some((u32::from_le_bytes(*head).into(), rest))
    }
}

/// Reads up to `count` bytes, fewer at the end of the stream. `Read::read_to_end` grows its buffer with what it has
/// read, not to the limit.
fn read_upto(reader: &mut impl Read, count: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.by_ref().take(count).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn truncated(expected: u64, got: usize) -> FrameError {
    FrameError::Truncated { expected: ByteSize(expected), got: ByteSize(got as u64) }
}

/// serde_json quotes what the peer sent.
fn malformed(error: serde_json::Error) -> FrameError {
    FrameError::Malformed(error.to_string().into())
}

/// Parses the body of a frame. serde_json limits nesting to a depth of 128.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    serde_json::from_slice(body).map_err(malformed)
}

/// Encodes a whole frame, to be sent by one write.
pub fn encode(body: &impl Serialize, most: ByteSize) -> Result<Vec<u8>, FrameError> {
    let mut frame = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut frame, body).map_err(malformed)?;
    let length = (frame.len() - LENGTH_BYTES) as u64;
    match u32::try_from(length) {
        Ok(head) if length <= most.0 => {
            frame[..LENGTH_BYTES].copy_from_slice(&head.to_le_bytes());
            Ok(frame)
        }
        _ => Err(FrameError::TooLong { length: ByteSize(length), most }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Counts the bytes requested, and never ends.
    struct Endless {
        asked: usize,
        largest: usize,
    }

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.asked += 1;
            self.largest = self.largest.max(buffer.len());
            buffer.fill(0xff);
            Ok(buffer.len())
        }
    }

    #[test]
    fn a_claim_of_4_gib_is_refused_before_its_body_is_read() {
        let mut stream = Endless { asked: 0, largest: 0 };
        let refused = read_frame(&mut stream, REPLY_MOST);
        assert!(matches!(refused, Err(FrameError::TooLong { length: ByteSize(0xffff_ffff), .. })));
        assert!(stream.asked <= 2 && stream.largest <= 64, "{} reads of up to {}", stream.asked, stream.largest);
    }

    #[test]
    fn memory_grows_with_the_bytes_and_not_the_claim() {
        let short = read_upto(&mut &b"only this"[..], u64::from(u32::MAX)).expect("no error");
        assert!(short.capacity() < 1024, "{} bytes held for 9", short.capacity());
    }

    #[test]
    fn truncation_inside_a_frame_differs_from_the_end() {
        let frame = encode(&"hello", REQUEST_MOST).expect("fits");
        for cut in 1..frame.len() {
            let read = read_frame(&mut &frame[..cut], REQUEST_MOST);
            assert!(matches!(read, Err(FrameError::Truncated { .. })), "cut at {cut}: {read:?}");
        }
        assert!(matches!(read_frame(&mut &b""[..], REQUEST_MOST), Ok(None)));
    }

    #[test]
    fn a_frame_over_the_limit_isnt_sent() {
        let long = "x".repeat(100);
        assert!(matches!(encode(&long, ByteSize(101)), Err(FrameError::TooLong { length: ByteSize(102), .. })));
        assert!(encode(&long, ByteSize(102)).is_ok());
    }

    #[test]
    fn deep_nesting_is_an_error() {
        let deep = "[".repeat(100_000);
        assert!(matches!(parse::<serde_json::Value>(deep.as_bytes()), Err(FrameError::Malformed(_))));
    }

    #[test]
    fn a_banner_is_quoted() {
        let banner = read_magic(&mut BufReader::new(&b"Welcome to Debian\n"[..])).expect_err("no vtax");
        assert!(banner.to_string().contains("Welcome to Debian"), "{banner}");
        assert!(matches!(read_magic(&mut BufReader::new(&b""[..])), Ok(None)));
        assert!(matches!(read_magic(&mut BufReader::new(&MAGIC[..])), Ok(Some(()))));
        assert!(read_magic(&mut BufReader::new(&MAGIC[..4])).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes: Vec<u8>) {
            let _ = read_magic(&mut BufReader::new(&bytes[..]));
            if let Ok(Some(body)) = read_frame(&mut &bytes[..], REQUEST_MOST) {
                prop_assert!(body.len() + LENGTH_BYTES <= bytes.len());
                let _ = parse::<serde_json::Value>(&body);
            }
        }

        /// However the stream is split, the same frames and the same error result as from reading it whole.
        #[test]
        fn pieces_of_a_stream_are_read_like_the_whole(
            texts in proptest::collection::vec(".{0,40}", 0..6), rest: Vec<u8>, magic: bool, cuts: Vec<u8>,
        ) {
            let frames = texts.iter().flat_map(|text| encode(text, REQUEST_MOST).expect("fits"));
            let start: &[u8] = if magic { &MAGIC } else { b"" };
            let stream: Vec<u8> = start.iter().copied().chain(frames).chain(rest).collect();
            let mut whole = BufReader::new(&stream[..]);
            let mut expected = Vec::new();
            let end = read_magic(&mut whole).and_then(|magic| match magic {
                Some(()) => loop {
                    match read_frame(&mut whole, REQUEST_MOST)? {
                        Some(body) => expected.push(body),
                        None => return Ok(()),
                    }
                },
                None => Ok(()),
            });
            let (mut buffer, mut begun, mut found) = (FrameBuffer::default(), false, Vec::new());
            let (mut left, mut cuts) = (&stream[..], cuts.iter().cycle());
            let mut read = || loop {
                begun = begun || buffer.take_magic()?;
                while begun && let Some(body) = buffer.take_frame(REQUEST_MOST)? {
                    found.push(body);
                }
                if left.is_empty() {
                    return if begun { buffer.check_end() } else { buffer.check_magic_end() };
                }
                let (piece, after) = left.split_at(usize::from(*cuts.next().unwrap_or(&7)).clamp(1, left.len()));
                buffer.push(piece);
                left = after;
            };
            let kind = |end: &Result<(), FrameError>| end.as_ref().err().map(std::mem::discriminant);
            let ended = read();
            prop_assert_eq!(kind(&ended), kind(&end), "{:?} {:?}", ended, end);
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn a_frame_survives_the_stream(texts: Vec<String>) {
            let mut stream = Vec::new();
            for text in &texts {
                stream.extend(encode(text, REQUEST_MOST).expect("fits"));
            }
            let mut reader = &stream[..];
            for text in &texts {
                let body = read_frame(&mut reader, REQUEST_MOST).expect("whole").expect("a frame");
                prop_assert_eq!(&parse::<String>(&body).expect("text"), text);
            }
            prop_assert!(read_frame(&mut reader, REQUEST_MOST).expect("whole").is_none());
        }
    }
}
