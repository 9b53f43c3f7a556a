//! A stream that carries one conversation after another.
//!
//! A serial port has no connections. So bytes that were sent to or by an earlier coordinator may still be in the
//! stream, truncated anywhere. But each conversation begins with the [`MAGIC`], which ends with a newline. A frame
//! never contains the magic: its JSON has no newline, and the length before the JSON is shorter than the magic.

use std::io::{self, Read};

use crate::frame::MAGIC;

/// Bytes per read of the underlying stream.
const CHUNK: usize = 32 << 10;

/// Reads one conversation after another; [`Read`] reports an end after each.
#[derive(Debug)]
pub struct Conversations<R> {
    inner: R,
    /// Bytes read from the stream but not yet returned.
    pending: Vec<u8>,
    /// Bytes of `pending` that certainly belong to this conversation.
    ours: usize,
    /// True if the next conversation begins in `pending`, right after these bytes.
    over: bool,
    chunk: Box<[u8]>,
}

impl<R: Read> Conversations<R> {
    /// Starts before the first conversation.
    pub fn new(inner: R) -> Self {
        Conversations { inner, pending: Vec::new(), ours: 0, over: false, chunk: vec![0; CHUNK].into() }
    }

    /// The underlying stream.
    pub(crate) fn stream(&self) -> &R {
        &self.inner
    }

    pub(crate) fn stream_mut(&mut self) -> &mut R {
        &mut self.inner
    }

    /// Skips everything up to the beginning of the next conversation. Returns false if the underlying stream ends
    /// before it.
    pub fn next_one(&mut self) -> io::Result<bool> {
        loop {
            self.pending.drain(..self.ours);
            self.ours = 0;
            if self.over {
                // The pending bytes begin with this conversation's own magic.
                self.measure(MAGIC.len());
                return Ok(true);
            }
            if !self.fill()? {
                return Ok(false);
            }
        }
    }

    /// Reads available bytes. Returns false at the end of the underlying stream, and drops the pending bytes, because
    /// their conversation is over.
    fn fill(&mut self) -> io::Result<bool> {
        match self.inner.read(&mut self.chunk)? {
            0 => {
                self.pending.clear();
                Ok(false)
            }
            count => {
                self.pending.extend(&self.chunk[..count]);
                self.measure(0);
                Ok(true)
            }
        }
    }

    /// Determines how many bytes belong to this conversation: up to the next magic, or up to what may be the beginning
    /// of one.
    fn measure(&mut self, from: usize) {
        let rest = &self.pending[from..];
        let next = rest.windows(MAGIC.len()).position(|window| window == MAGIC);
        self.over = next.is_some();
        self.ours = from + next.unwrap_or_else(|| rest.len() - begun(rest));
    }
}

/// Returns how many of the last bytes may be the beginning of a magic. This is 0 after whole frames: the last byte of
/// JSON isn't part of the magic.
fn begun(bytes: &[u8]) -> usize {
    let most = bytes.len().min(MAGIC.len() - 1);
    (1..=most).rev().find(|count| bytes.ends_with(&MAGIC[..*count])).unwrap_or(0)
}

impl<R: Read> Read for Conversations<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.ours == 0 && !self.over && !buffer.is_empty() {
            if !self.fill()? {
                return Ok(0);
            }
        }
        let count = self.ours.min(buffer.len());
        buffer[..count].copy_from_slice(&self.pending[..count]);
        self.pending.drain(..count);
        self.ours -= count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns its pieces one by one. An empty piece is an end of stream after which more follows.
    struct Pieces(Vec<Vec<u8>>);

    impl Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            let piece = self.0.remove(0);
            buffer[..piece.len()].copy_from_slice(&piece);
            Ok(piece.len())
        }
    }

    fn pieces(pieces: &[&str]) -> Conversations<Pieces> {
        Conversations::new(Pieces(pieces.iter().map(|piece| piece.as_bytes().to_vec()).collect()))
    }

    fn rest(conversations: &mut Conversations<impl Read>) -> String {
        let mut text = String::new();
        conversations.read_to_string(&mut text).expect("text");
        text
    }

    #[test]
    fn stale_bytes_before_a_conversation_are_skipped() {
        let mut stream = pieces(&["half a frame}VTAXC", "TL\nhello", " you"]);
        assert!(stream.next_one().expect("no error"));
        assert_eq!(rest(&mut stream), "VTAXCTL\nhello you");
        assert!(!stream.next_one().expect("no error"));
    }

    #[test]
    fn a_magic_ends_the_conversation_before_it() {
        let mut stream = pieces(&["VTAXCTL\noneVTAXCTL\ntwoVTAX", "CTL", "\nthree"]);
        for said in ["one", "two", "three"] {
            assert!(stream.next_one().expect("no error"));
            assert_eq!(rest(&mut stream), format!("VTAXCTL\n{said}"));
        }
    }

    #[test]
    fn unread_bytes_of_a_conversation_are_discarded() {
        let mut stream = pieces(&["VTAXCTL\none", "and onVTAXCTL\ntwo"]);
        assert!(stream.next_one().expect("no error"));
        stream.read_exact(&mut [0; 3]).expect("there");
        assert!(stream.next_one().expect("no error"));
        assert_eq!(rest(&mut stream), "VTAXCTL\ntwo");
    }

    #[test]
    fn the_end_of_the_stream_discards_pending_bytes() {
        let mut stream = pieces(&["VTAXCTL\none", "VTAX", "", "CTL\nVTAXCTL\ntwo"]);
        assert!(stream.next_one().expect("no error"));
        assert_eq!(rest(&mut stream), "VTAXCTL\none");
        assert!(stream.next_one().expect("no error"));
        assert_eq!(rest(&mut stream), "VTAXCTL\ntwo");
    }

    /// Otherwise an order would be delayed until the next one arrives.
    #[test]
    fn a_whole_frame_is_never_delayed() {
        let mut stream = pieces(&["VTAXCTL\n", "\u{b}\0\0\0{\"V\":\"VTAX\"}", "more"]);
        assert!(stream.next_one().expect("no error"));
        let mut buffer = [0; 64];
        assert_eq!(stream.read(&mut buffer).expect("there"), 8);
        assert_eq!(stream.read(&mut buffer).expect("there"), 16);
    }

    proptest! {
        #[test]
        fn split_points_do_not_matter(mut talks: Vec<Vec<u8>>, cuts: Vec<u8>) {
            talks.iter_mut().for_each(|talk| talk.push(b'}'));
            let stream: Vec<u8> = talks.iter().flat_map(|talk| [&MAGIC[..], talk].concat()).collect();
            let mut pieces = Vec::new();
            let (mut left, mut cuts) = (&stream[..], cuts.iter().cycle());
            while !left.is_empty() {
                let length = usize::from(*cuts.next().unwrap_or(&7)).clamp(1, left.len());
                pieces.push(left[..length].to_vec());
                left = &left[length..];
            }
            let mut conversations = Conversations::new(Pieces(pieces));
            for talk in talks {
                prop_assert!(conversations.next_one().expect("no error"));
                let mut said = Vec::new();
                conversations.read_to_end(&mut said).expect("no error");
                prop_assert_eq!(said, [&MAGIC[..], &talk].concat());
            }
            prop_assert!(!conversations.next_one().expect("no error"));
        }
    }
}
