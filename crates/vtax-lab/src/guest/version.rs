//! Versions of QEMU, as far as they matter here.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A version of QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version {
    /// The first number. There is a new one each year.
    pub major: u32,
    /// The second.
    pub minor: u32,
}

impl Version {
    /// The oldest that guests are started with: the first that knows `on` and `off` for all
    /// options of a socket.
    pub const LEAST: Version = Version { major: 6, minor: 0 };
    /// The first whose q35 can have no keyboard and mouse.
    pub(super) const NO_I8042: Version = Version { major: 7, minor: 1 };
    /// The first whose virtio-net knows segmentation of UDP.
    pub(super) const USO: Version = Version { major: 8, minor: 2 };

    /// Reads what `--version` prints: "QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)".
    pub(super) fn parse(text: &str) -> Option<Version> {
        let (_, behind) = text.split_once("version ")?;
        let mut numbers = behind.split(|c: char| !c.is_ascii_digit());
        let mut next = || numbers.next()?.parse().ok();
        Some(Version { major: next()?, minor: next()? })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_the_distributions_write_them() {
        let read = |text| Version::parse(text).map(|version| version.to_string());
        assert_eq!(read("QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)\nCopyright").as_deref(), Some("10.0"));
        assert_eq!(read("QEMU emulator version 9.2.50 (v9.2.0-123-gabc)").as_deref(), Some("9.2"));
        assert_eq!(read("QEMU emulator version 8.2-rc1").as_deref(), Some("8.2"));
        assert_eq!(read("hello"), None);
        assert_eq!(read("version x.y"), None);
    }
}
