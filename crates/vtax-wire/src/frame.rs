//! Frames: a length in four bytes, little-endian, then that many bytes of JSON.
//!
//! The other side may be anything: a login shell that prints a greeting, another program in the agent's
//! place, or an attacker. So a length is only a claim. It is compared with a limit first. Memory grows with
//! the bytes that have really come, never with the claim.

use std::io::{self, BufReader, Read};

use serde::{Serialize, de::DeserializeOwned};
use vtax_model::{foreign::ForeignText, units::ByteSize};

/// The first bytes of each side, before any frame. They distinguish an agent from a login banner.
pub const MAGIC: [u8; 8] = *b"VTAXCTL\n";
/// The largest hello in either direction, in every version of the protocol.
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

/// Reads the bytes before the first frame, one by one, because a stranger may never send a second byte.
/// `None` if the stream ended without any.
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

/// Quotes all that has come already, because it is the best hint at the sender.
fn not_vtax(right: &[u8], wrong: &[u8], buffered: &[u8]) -> FrameError {
    let shown = &buffered[..buffered.len().min(64)];
    let found = [right, wrong, shown].concat();
    FrameError::NotVtax { found: found.escape_ascii().to_string() }
}

/// The body of the next frame. `None` if the stream ends between two frames.
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

/// Reads up to `count` bytes, fewer at the end of the stream. `Read::read_to_end` grows its buffer by what it
/// has read, not by the limit.
fn read_upto(reader: &mut impl Read, count: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.by_ref().take(count).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn truncated(expected: u64, got: usize) -> FrameError {
    FrameError::Truncated { expected: ByteSize(expected), got: ByteSize(got as u64) }
}

/// serde_json quotes what the other side wrote.
fn malformed(error: serde_json::Error) -> FrameError {
    FrameError::Malformed(error.to_string().into())
}

/// Parses the body of a frame. serde_json limits nesting to a depth of 128.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    serde_json::from_slice(body).map_err(malformed)
}

/// A whole frame, which one call can write.
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

    /// Counts the bytes that it is asked for, and never ends.
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
    fn memory_follows_the_bytes_and_not_the_claim() {
        let short = read_upto(&mut &b"only this"[..], u64::from(u32::MAX)).expect("no error");
        assert!(short.capacity() < 1024, "{} bytes held for 9", short.capacity());
    }

    #[test]
    fn a_cut_inside_a_frame_is_told_from_the_end() {
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
