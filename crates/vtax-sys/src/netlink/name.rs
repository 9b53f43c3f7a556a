//! Identification of links: by name, index or hardware address.

use std::fmt;
use std::str::FromStr;

use serde_with::{DeserializeFromStr, SerializeDisplay};

use crate::error::{Result, SysError};

/// `IFNAMSIZ` without the zero at the end.
const LONGEST: usize = 15;

/// Name of a link: 1 to 15 bytes. It has no slash, colon or white space and isn't `.` or `..`, as required by the
/// kernel (`dev_valid_name`). It has no percent sign either, which would make the kernel generate a name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IfName(String);

impl IfName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Converts a name reported by the kernel. Another program may have chosen bytes that vtax would refuse; they are
    /// shown as `?`.
    pub(super) fn reported(bytes: &[u8]) -> Self {
        let letters = bytes.iter().take_while(|byte| **byte != 0);
        Self(letters.map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '?' }).collect())
    }
}

/// Returns an ioctl request for the link with this name. The name has at most 15 bytes, so a zero follows it.
pub(crate) fn ioctl_request(name: &str) -> libc::ifreq {
    // SAFETY: the structure consists of integers, and of pointers that may be null.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    request
}

impl fmt::Display for IfName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for IfName {
    type Err = SysError;

    fn from_str(text: &str) -> Result<Self> {
        let why = match text {
            "" => "it is empty",
            "." | ".." => "this name is reserved for directories",
            _ if text.len() > LONGEST => "it is longer than 15 bytes",
            _ if !text.bytes().all(|byte| byte.is_ascii_graphic()) => "only visible ASCII characters are allowed",
            _ if text.contains(['/', ':', '%']) => "it contains a slash, colon or percent sign",
            _ => return Ok(Self(text.to_owned())),
        };
        Err(SysError::invalid("link name", text, why))
    }
}

/// The kernel's number of a link, unique within a network namespace. The kernel doesn't reuse a number for a long time,
/// so deleting a link by its number is safer than by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IfIndex(pub u32);

impl fmt::Display for IfIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A link by its name or its index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkRef {
    Name(IfName),
    Index(IfIndex),
}

impl From<&IfName> for LinkRef {
    fn from(name: &IfName) -> Self {
        Self::Name(name.clone())
    }
}

impl From<IfIndex> for LinkRef {
    fn from(index: IfIndex) -> Self {
        Self::Index(index)
    }
}

impl fmt::Display for LinkRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Index(index) => write!(f, "number {index}"),
        }
    }
}

/// An Ethernet address, written `02:00:5e:10:00:01`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
pub struct MacAddr(pub [u8; 6]);

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for MacAddr {
    type Err = SysError;

    fn from_str(text: &str) -> Result<Self> {
        let octet = |part: &str| {
            let plain = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
            plain.then(|| u8::from_str_radix(part, 16).ok())?
        };
        let octets: Option<Vec<u8>> = text.split(':').map(octet).collect();
        octets.and_then(|octets| octets.try_into().ok()).map(Self).ok_or_else(|| {
            SysError::invalid("Ethernet address", text, "use six pairs of hexadecimal digits, separated by colons")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_that_the_kernel_would_change_or_refuse_are_refused() {
        let long = "a".repeat(16);
        for text in ["", ".", "..", "a/b", "a b", "a\tb", "a:1", "veth%d", "é", "a\0", &long] {
            assert!(text.parse::<IfName>().is_err(), "{text:?}");
        }
        assert_eq!("eth0.100".parse::<IfName>().unwrap().as_str(), "eth0.100");
        assert!(long[1..].parse::<IfName>().is_ok());
    }

    #[test]
    fn a_reported_name_ends_at_its_zero() {
        assert_eq!(IfName::reported(b"lo\0x").as_str(), "lo");
        assert_eq!(IfName::reported(b"a\xff b\0").as_str(), "a??b");
    }

    #[test]
    fn malformed_hardware_addresses_are_refused() {
        for text in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:0",
            "2:0:0:0:0:0",
            "+1:00:00:00:00:00",
            "02-00-00-00-00-00",
            "02:00:00:00:00:00:00",
        ] {
            assert!(text.parse::<MacAddr>().is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn hardware_addresses_survive_being_written(octets: [u8; 6]) {
            let mac = MacAddr(octets);
            prop_assert_eq!(mac.to_string().parse::<MacAddr>().unwrap(), mac);
        }

        #[test]
        fn hostile_names_never_panic(text in "\\PC{0,20}", bytes: Vec<u8>) {
            let _ = (text.parse::<IfName>(), text.parse::<MacAddr>());
            let _ = IfName::reported(&bytes);
        }
    }
}
