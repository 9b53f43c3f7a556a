//! QEMU's version, and the version of a stored launch.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A version of QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version {
    /// The first number, incremented every year.
    pub major: u32,
    /// The second.
    pub minor: u32,
}

impl Version {
    /// The oldest supported version: the first that accepts `on` and `off` for all options of a socket.
    pub const LEAST: Version = Version { major: 6, minor: 0 };
    /// The first whose q35 can omit keyboard and mouse.
    pub(crate) const NO_I8042: Version = Version { major: 7, minor: 1 };
    /// The first that accepts an open descriptor of `/dev/kvm`.
    pub(crate) const OPEN_KVM: Version = Version { major: 9, minor: 0 };
    /// The first that uses `/dev/userfaultfd`.
    pub(crate) const USERFAULTFD_DEVICE: Version = Version { major: 8, minor: 0 };
    /// The first whose virtio-net supports segmentation of UDP.
    pub(crate) const USO: Version = Version { major: 8, minor: 2 };

    /// Parses the output of `--version`: "QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)".
    pub(crate) fn parse(text: &str) -> Option<Version> {
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

/// Version of a stored [`Launch`](super::Launch). A launch without a version has the first one, in which the machine
/// was QEMU's alias. Versions later than this program's are refused: they may have options that would be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct LaunchVersion(u32);

impl LaunchVersion {
    /// The version that this program writes. Since version 2, machine, CPU and incoming migration are recorded; since
    /// version 3, the firmware.
    pub const CURRENT: LaunchVersion = LaunchVersion(3);

    pub(super) fn first() -> LaunchVersion {
        LaunchVersion(1)
    }

    // By reference, as serde requires.
    pub(super) fn is_first(&self) -> bool {
        *self == LaunchVersion::first()
    }
}

impl From<LaunchVersion> for u32 {
    fn from(version: LaunchVersion) -> u32 {
        version.0
    }
}

impl TryFrom<u32> for LaunchVersion {
    type Error = String;

    fn try_from(number: u32) -> Result<LaunchVersion, String> {
        let (version, current) = (LaunchVersion(number), LaunchVersion::CURRENT);
        match (LaunchVersion::first()..=current).contains(&version) {
            true => Ok(version),
            false => Err(format!(
                "launch of version {number}, and this vtax reads versions 1 to {}; use the vtax that wrote it",
                current.0
            )),
        }
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

    #[test]
    fn a_launch_of_a_later_version_is_refused() {
        let read = |text| serde_json::from_str::<LaunchVersion>(text).map_err(|error| error.to_string());
        assert_eq!(read("3"), Ok(LaunchVersion::CURRENT));
        assert!(read("4").is_err_and(|error| error.contains("launch of version 4")));
        assert!(read("0").is_err());
    }
}
