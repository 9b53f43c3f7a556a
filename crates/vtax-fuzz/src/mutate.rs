//! Random mutation of inputs.

use rand::{RngExt, seq::IndexedRandom};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::LENGTH_MOST;

/// Bytes and numbers that are likely to change the behaviour of code.
const TOKENS: [&[u8]; 34] = [
    b"0",
    b"1",
    b"-1",
    b"9",
    b"255",
    b"256",
    b"65535",
    b"65536",
    b"4294967295",
    b"4294967296",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"18446744073709551615",
    b"18446744073709551616",
    b"1e308",
    b"1e999",
    b"NaN",
    b"inf",
    b"0.0000001",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b"\"\"",
    b"\n",
    b"\r\n",
    b"\0",
    b"\x1b[2J",
    "é".as_bytes(),
    "\u{202e}".as_bytes(),
    b"\xff\xff\xff\xff",
    b"\0\0\0\0",
    b"\xff\xff\xff\x7f",
    b"\0\0\0\x80",
];

/// Returns one of `inputs` with a few changes.
pub(crate) fn changed(inputs: &[Vec<u8>], random: &mut Xoshiro256PlusPlus) -> Vec<u8> {
    let mut bytes = inputs.choose(random).cloned().unwrap_or_default();
    for _ in 0..1 << random.random_range(0..5) {
        let other = inputs.choose(random).map_or(&[][..], Vec::as_slice);
        change(&mut bytes, other, random);
    }
    bytes.truncate(LENGTH_MOST);
    bytes
}

fn change(bytes: &mut Vec<u8>, other: &[u8], random: &mut Xoshiro256PlusPlus) {
    let at = random.random_range(0..=bytes.len());
    let end = (at + length(random)).min(bytes.len());
    match random.random_range(0..9) {
        0 if at < bytes.len() => bytes[at] ^= 1 << random.random_range(0..8),
        1 if at < bytes.len() => bytes[at] = random.random(),
        2 => drop(bytes.drain(at..end)),
        3 => bytes.insert(at, random.random()),
        4 => bytes.extend_from_within(at..end),
        5 => insert(bytes, at, piece(other, random)),
        6 => drop(bytes.splice(at..end, piece(other, random).iter().copied())),
        7 => insert(bytes, at, TOKENS.choose(random).copied().unwrap_or_default()),
        _ => number(bytes, at, random),
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    bytes.splice(at..at, piece.iter().copied());
}

/// Returns a random length; short lengths are more frequent.
fn length(random: &mut Xoshiro256PlusPlus) -> usize {
    let most = 1 << random.random_range(0..8);
    random.random_range(1..=most)
}

fn piece<'a>(of: &'a [u8], random: &mut Xoshiro256PlusPlus) -> &'a [u8] {
    let at = random.random_range(0..=of.len());
    &of[at..(at + length(random)).min(of.len())]
}

/// Replaces the number at this position, or the next one.
fn number(bytes: &mut Vec<u8>, at: usize, random: &mut Xoshiro256PlusPlus) {
    let Some(begin) = (at..bytes.len()).find(|place| bytes[*place].is_ascii_digit()) else { return };
    let end = (begin..bytes.len()).find(|place| !bytes[*place].is_ascii_digit()).unwrap_or(bytes.len());
    let digits = TOKENS[..14].choose(random).copied().unwrap_or_default();
    bytes.splice(begin..end, digits.iter().copied());
}
