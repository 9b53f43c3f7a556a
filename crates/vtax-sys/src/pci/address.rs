//! Location of a device on the PCI buses.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};

use crate::error::SysError;

/// Address of a PCI function, written `0000:3b:00.1`. The bus number may differ at the next boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
pub struct PciAddress {
    /// Group of 256 buses; more than 16 bits behind Intel's VMD.
    pub domain: u32,
    pub bus: u8,
    pub device: u8,
    pub function: u8,
}

/// A root complex, named by its first bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Root {
    /// Group of 256 buses.
    pub domain: u32,
    /// Its first bus.
    pub bus: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

impl FromStr for PciAddress {
    type Err = SysError;

    fn from_str(text: &str) -> Result<Self, SysError> {
        parse(text).ok_or_else(|| {
            SysError::invalid("PCI address", text, "use domain:bus:device.function in hexadecimal, e.g. 0000:3b:00.1")
        })
    }
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}", self.domain, self.bus)
    }
}

impl Root {
    /// Parses the name of a directory, such as `pci0000:80`.
    pub(super) fn of_directory(name: &str) -> Option<Self> {
        let (domain, bus) = name.strip_prefix("pci")?.split_once(':')?;
        Some(Self { domain: hex(domain, 4..=8)?, bus: byte(bus)? })
    }
}

/// Parses an address. The domain has four digits or more. All other parts have the width that the kernel prints.
fn parse(text: &str) -> Option<PciAddress> {
    let (domain, rest) = text.split_once(':')?;
    let (bus, rest) = rest.split_once(':')?;
    let (device, function) = rest.split_once('.')?;
    let address = PciAddress {
        domain: hex(domain, 4..=8)?,
        bus: byte(bus)?,
        device: byte(device)?,
        function: u8::try_from(hex(function, 1..=1)?).ok()?,
    };
    (address.device < 32 && address.function < 8).then_some(address)
}

/// Parses hexadecimal digits only; Rust's own parser would accept a sign.
fn hex(text: &str, length: std::ops::RangeInclusive<usize>) -> Option<u32> {
    let plain = length.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u32::from_str_radix(text, 16).ok())?
}

pub(super) fn byte(text: &str) -> Option<u8> {
    u8::try_from(hex(text, 2..=2)?).ok()
}

/// Parses the address of a bus, such as `0000:01`, or of a device on it, such as `0000:01:00`.
pub(super) fn place(text: &str) -> Option<(Root, Option<u8>)> {
    let mut parts = text.split(':');
    let bus = Root { domain: hex(parts.next()?, 4..=8)?, bus: byte(parts.next()?)? };
    let device = parts.next().map(|device| byte(device).filter(|device| *device < 32));
    match device {
        Some(None) => None,
        other => Some((bus, other.flatten())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn forms_that_the_kernel_does_not_print_are_refused() {
        for text in [
            "",
            "3b:00.1",
            "0000:3b:00",
            "0000:3b:00.8",
            "0000:3b:20.0",
            "+000:3b:00.0",
            "0000:3b:0.0",
            "0000:3b:00.00",
            "0000:3b:00.0\n",
            "000:3b:00.0",
            "0000:3b:00.0.0",
            "é000:3b:00.0",
        ] {
            assert!(text.parse::<PciAddress>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_domain_may_have_more_than_four_digits() {
        let address: PciAddress = "10000:e1:00.0".parse().unwrap();
        assert_eq!((address.domain, address.bus), (0x10000, 0xe1));
        assert_eq!(address.to_string(), "10000:e1:00.0");
        assert_eq!(Root::of_directory("pci10000:e0"), Some(Root { domain: 0x10000, bus: 0xe0 }));
        assert_eq!(Root::of_directory("pci0000:00/"), None);
    }

    #[test]
    fn slots_name_bus_and_device_or_only_the_bus() {
        let bus = Root { domain: 0, bus: 1 };
        assert_eq!(place("0000:01:1f"), Some((bus, Some(0x1f))));
        assert_eq!(place("0000:01"), Some((bus, None)));
        assert_eq!(place("0000:01:20"), None);
        assert_eq!(place("0000"), None);
    }

    proptest! {
        #[test]
        fn addresses_survive_being_written(domain: u32, bus: u8, device in 0..32_u8, function in 0..8_u8) {
            let address = PciAddress { domain, bus, device, function };
            prop_assert_eq!(address.to_string().parse::<PciAddress>().unwrap(), address);
        }

        #[test]
        fn hostile_texts_never_panic(text in "\\PC{0,16}", near in "[0-9a-f:.x+]{0,16}") {
            for text in [text, near] {
                let _ = (text.parse::<PciAddress>(), Root::of_directory(&text), place(&text));
            }
        }
    }
}
