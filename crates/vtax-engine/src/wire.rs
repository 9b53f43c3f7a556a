//! Data on the wire other than payload: stamps, marks, greetings and the token.
//!
//! Connections: the initiator shows the token and the flow's index ([`hello`]). When all flows have done so,
//! the responder answers each with [`READY`]. Datagrams: the same, but each side repeats itself until it is
//! answered ([`FlowGreeting`]). The responder sends nothing to anyone else.

use strum::FromRepr;
use vtax_sys::token::{TOKEN_LEN, Token};

/// Token and index of the flow: the first bytes of each connection.
pub(crate) const HELLO_LEN: usize = TOKEN_LEN + 4;

/// Responder, on a connection: all flows have arrived.
pub(crate) const READY: u8 = 0x06;
/// Initiator, on a connection whose bytes come from the responder: begin.
pub(crate) const GO: u8 = 0x07;
/// Receiver of a stream, on its connection: I have enough.
pub(crate) const DONE: u8 = 0x08;
/// Receiver of a stream, on its connection: the whole slice has arrived.
pub(crate) const PAUSED: u8 = 0x09;

pub(crate) fn hello(token: &Token, index: u32) -> [u8; HELLO_LEN] {
    let mut hello = [0; HELLO_LEN];
    hello[..TOKEN_LEN].copy_from_slice(token.bytes());
    hello[TOKEN_LEN..].copy_from_slice(&index.to_le_bytes());
    hello
}

/// The index that a hello shows, if the token is right.
pub(crate) fn read_hello(hello: &[u8; HELLO_LEN], token: &Token) -> Option<u32> {
    let (shown, index) = hello.split_at(TOKEN_LEN);
    let index = u32::from_le_bytes(index.try_into().expect("a hello ends with 4 bytes"));
    token.is(shown).then_some(index)
}

/// Datagrams of the handshakes: token, index of the flow, kind.
pub(crate) const GREETING_LEN: usize = TOKEN_LEN + 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRepr)]
#[repr(u8)]
pub(crate) enum FlowGreeting {
    /// Initiator: I am this flow.
    Hello = 1,
    /// Responder: all flows have arrived.
    Ready = 2,
    /// Receiver of a stream: I have enough.
    Done = 3,
    /// Responder: I have received this flow's hello, but others are missing. Receiver of a stream: its datagrams
    /// arrive.
    Heard = 4,
    /// Initiator of a stream sent by the responder: begin.
    Go = 5,
    /// Sender of a stream: nothing follows.
    End = 6,
    /// Receiver of a stream: end acknowledged.
    Ended = 7,
    /// Sender of a stream: this slice ends here. It has the slice's number instead of the flow's index, and so has the
    /// answer: a repetition may arrive late.
    Pause = 8,
    /// Receiver of a stream: end of the slice acknowledged, with everything before it received.
    Paused = 9,
}

impl FlowGreeting {
    pub(crate) fn write(self, token: &Token, index: u32) -> [u8; GREETING_LEN] {
        let mut datagram = [self as u8; GREETING_LEN];
        datagram[..HELLO_LEN].copy_from_slice(&hello(token, index));
        datagram
    }

    /// The index and the kind, if the token is right.
    pub(crate) fn read(datagram: &[u8], token: &Token) -> Option<(u32, FlowGreeting)> {
        let (hello, [kind]) = datagram.split_first_chunk::<HELLO_LEN>()? else { return None };
        let kind = FlowGreeting::from_repr(*kind)?;
        Some((read_hello(hello, token)?, kind))
    }
}

/// A request with a mark asks the responder to read its counters. So the windows of the two ends hold the
/// same transactions, without a clock at the responder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRepr)]
#[repr(u8)]
pub(crate) enum Mark {
    /// A request like any other.
    None = 0,
    /// The measured time begins after this transaction.
    Open = 1,
    /// The measured time has ended, and with it the flow.
    Close = 2,
    /// A slice of the measured time has ended; another one follows.
    Pause = 3,
}

const MARK_BITS: u32 = 2;

/// The first bytes of each request: its sequence number and its [`Mark`], little endian, cut to the size of
/// the request. In a request of one byte, six bits are left for the sequence number. That is enough with one
/// request in flight: a late answer is taken for a newer one only if it is 64 timeouts late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp(u64);

impl Stamp {
    pub(crate) const LEN: usize = 8;

    #[inline]
    pub(crate) fn new(sequence: u64, mark: Mark) -> Stamp {
        Stamp(sequence << MARK_BITS | mark as u64)
    }

    /// Returns true if `message` starts with this stamp; a short message is compared up to its length.
    #[inline]
    pub(crate) fn leads(self, message: &[u8]) -> bool {
        let len = message.len().min(Stamp::LEN);
        message[..len] == self.0.to_le_bytes()[..len]
    }

    #[inline]
    pub(crate) fn mark_of(message: &[u8]) -> Option<Mark> {
        Mark::from_repr(message.first()? & ((1 << MARK_BITS) - 1))
    }

    /// Returns the number of sequence numbers that a stamp of `len` bytes can distinguish, as a power of two.
    pub(crate) fn sequence_bits(len: usize) -> u32 {
        8 * len.min(Stamp::LEN) as u32 - MARK_BITS
    }

    /// The sequence number of a stamp that was cut to `message`, modulo the numbers that it can distinguish.
    pub(crate) fn sequence_of(message: &[u8]) -> u64 {
        let len = message.len().min(Stamp::LEN);
        let mut bytes = [0; Stamp::LEN];
        bytes[..len].copy_from_slice(&message[..len]);
        u64::from_le_bytes(bytes) >> MARK_BITS
    }
}

/// Position of the token in a datagram: after the sequence number, if the message has space.
const TOKEN_PLACE: std::ops::Range<usize> = Stamp::LEN..Stamp::LEN + TOKEN_LEN;

/// Length of the shortest message with a stamp and a token.
pub(crate) const TOKEN_END: usize = TOKEN_PLACE.end;

/// Returns true if a datagram shows the token, or is too short for it.
#[inline]
pub(crate) fn shows_token(message: &[u8], token: &Token) -> bool {
    message.get(TOKEN_PLACE).is_none_or(|shown| token.is(shown))
}

/// The first bytes of a message; the others are identical in every message.
#[derive(Clone, Copy)]
pub(crate) struct Head {
    bytes: [u8; TOKEN_PLACE.end],
    len: u8,
}

impl Head {
    /// The head of a message in a connection, which needs no token.
    pub(crate) fn plain(message: usize) -> Head {
        Head { bytes: [0; TOKEN_PLACE.end], len: message.min(Stamp::LEN) as u8 }
    }

    /// The head of a datagram: with the token, if it fits.
    pub(crate) fn with_token(message: usize, token: &Token) -> Head {
        let mut head = Head::plain(message);
        if message >= TOKEN_PLACE.end {
            head.bytes[TOKEN_PLACE].copy_from_slice(token.bytes());
            head.len = TOKEN_PLACE.end as u8;
        }
        head
    }

    #[inline]
    pub(crate) fn stamp(&mut self, stamp: Stamp) {
        self.bytes[..Stamp::LEN].copy_from_slice(&stamp.0.to_le_bytes());
    }

    /// Writes the full sequence number of a stream's datagram.
    #[inline]
    pub(crate) fn number(&mut self, number: u64) {
        self.bytes[..Stamp::LEN].copy_from_slice(&number.to_le_bytes());
    }

    /// Copies the stamp of the answered request, as far as it fits into the response.
    #[inline]
    pub(crate) fn echo(&mut self, request: &[u8]) {
        let len = request.len().min(Stamp::LEN);
        self.bytes[..len].copy_from_slice(&request[..len]);
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_stamp_is_read_back_as_far_as_it_fits(sequence in 0u64..1 << 62, mark in 0usize..4, len in 1usize..40) {
            let mark = [Mark::None, Mark::Open, Mark::Close, Mark::Pause][mark];
            let mut head = Head::plain(len);
            head.stamp(Stamp::new(sequence, mark));
            prop_assert_eq!(head.bytes().len(), len.min(8));
            prop_assert_eq!(Stamp::mark_of(head.bytes()), Some(mark));
            prop_assert!(Stamp::new(sequence, mark).leads(head.bytes()));
            prop_assert!(!Stamp::new(sequence + 1, mark).leads(head.bytes()));
            let told_apart = 1u128 << Stamp::sequence_bits(len);
            prop_assert_eq!(u128::from(Stamp::sequence_of(head.bytes())), u128::from(sequence) % told_apart);
        }

        #[test]
        fn no_datagram_makes_the_reader_panic(datagram in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(FlowGreeting::read(&datagram, &Token::random()), None);
            let _ = (Stamp::mark_of(&datagram), shows_token(&datagram, &Token::random()));
        }
    }

    #[test]
    fn a_greeting_is_read_with_the_token_only() {
        let (token, other) = (Token::random(), Token::random());
        for greeting in (1..=9).filter_map(FlowGreeting::from_repr) {
            let datagram = greeting.write(&token, 9);
            assert_eq!(FlowGreeting::read(&datagram, &token), Some((9, greeting)));
            assert_eq!(FlowGreeting::read(&datagram, &other), None);
            assert_eq!(FlowGreeting::read(&datagram[..20], &token), None);
        }
    }

    #[test]
    fn a_token_is_expected_where_it_fits() {
        let (token, other) = (Token::random(), Token::random());
        let head = Head::with_token(24, &token);
        assert!(shows_token(head.bytes(), &token));
        assert!(!shows_token(head.bytes(), &other));
        assert!(shows_token(Head::with_token(23, &token).bytes(), &other));
    }
}
