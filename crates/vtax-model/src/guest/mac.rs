//! The addresses of guests' NICs.

use std::{fmt, str::FromStr};

use serde_with::{DeserializeFromStr, SerializeDisplay};

/// Ethernet address of a guest's NIC: a unicast address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
pub struct Mac([u8; 6]);

/// A text or address that isn't valid for a NIC.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("invalid MAC address `{0}`; use six hexadecimal numbers, the first even, e.g. 02:00:5e:10:00:01")]
#[diagnostic(code("bad-address"))]
pub struct BadMac(String);

impl Mac {
    /// Returns a locally administered address (IEEE 802: the bit of value 2 in its first octet), the same for the same
    /// words.
    pub fn of(words: &[&str]) -> Mac {
        // FNV-1a, 64 bits (draft-eastlake-fnv), of which 40 are used: among a thousand guests, two collide in one of
        // two million labs, and then the lab is refused.
        const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0100_0000_01b3;
        let bytes = words.iter().flat_map(|word| word.bytes().chain([0]));
        let hash = bytes.fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
        let [.., b, c, d, e, f] = hash.to_be_bytes();
        Mac([0x02, b, c, d, e, f])
    }

    /// Returns the octets in writing order; the first is even.
    pub fn octets(self) -> [u8; 6] {
        self.0
    }
}

impl FromStr for Mac {
    type Err = BadMac;

    fn from_str(text: &str) -> Result<Self, BadMac> {
        let octet = |part: &str| {
            let plain = (1..=2).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit());
            plain.then(|| u8::from_str_radix(part, 16).ok())?
        };
        let octets: Option<Vec<u8>> = text.split(':').map(octet).collect();
        let octets = octets.and_then(|octets| <[u8; 6]>::try_from(octets).ok());
        let of_a_station = |octets: &[u8; 6]| octets[0] & 1 == 0 && *octets != [0; 6];
        octets.filter(of_a_station).map(Mac).ok_or_else(|| BadMac(text.to_owned()))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}
