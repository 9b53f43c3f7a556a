//! Where a disk is that somebody names: on this machine, or in a guest.

use std::{fmt, path::PathBuf, str::FromStr};

use serde_with::{DeserializeFromStr, SerializeDisplay};

use crate::topology::Name;

/// A disk as a command line names it: `/dev/vdb`, `ldm:web/data`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
pub enum DiskPlace {
    /// A file or a block device of this machine.
    Here(PathBuf),
    /// A virtual disk of a logical domain, which runs.
    Domain {
        /// The domain.
        domain: Name,
        /// The disk's name in the domain.
        disk: Name,
    },
}

/// The disks of a row: one, or several that are measured at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Default, SerializeDisplay, DeserializeFromStr)]
pub struct DiskSet(pub Vec<DiskPlace>);

/// A text that names no disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum DiskPlaceError {
    #[error("a name is missing in `{0}`: give the path of a disk; several are separated by commas")]
    #[diagnostic(code("bad-disk-name"))]
    Empty(String),
    #[error("`{0}` names no disk of a domain: write ldm:DOMAIN/DISK, as ldm:web/data")]
    #[diagnostic(code("bad-disk-name"))]
    Domain(String),
}

const DOMAIN: &str = "ldm:";

impl FromStr for DiskPlace {
    type Err = DiskPlaceError;

    fn from_str(text: &str) -> Result<DiskPlace, DiskPlaceError> {
        if text.is_empty() {
            return Err(DiskPlaceError::Empty(text.to_owned()));
        }
        let Some(rest) = text.strip_prefix(DOMAIN) else { return Ok(DiskPlace::Here(text.into())) };
        let names = rest.split_once('/').and_then(|(domain, disk)| Some((domain.parse().ok()?, disk.parse().ok()?)));
        let (domain, disk) = names.ok_or_else(|| DiskPlaceError::Domain(text.to_owned()))?;
        Ok(DiskPlace::Domain { domain, disk })
    }
}

impl fmt::Display for DiskPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskPlace::Here(path) => write!(f, "{}", path.display()),
            DiskPlace::Domain { domain, disk } => write!(f, "{DOMAIN}{domain}/{disk}"),
        }
    }
}

impl DiskSet {
    /// Whether no disk is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for DiskSet {
    type Err = DiskPlaceError;

    fn from_str(text: &str) -> Result<DiskSet, DiskPlaceError> {
        let names: Result<Vec<DiskPlace>, DiskPlaceError> = text.split(',').map(str::parse).collect();
        names.map(DiskSet).map_err(|error| match error {
            DiskPlaceError::Empty(_) => DiskPlaceError::Empty(text.to_owned()),
            error => error,
        })
    }
}

impl fmt::Display for DiskSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(DiskPlace::to_string).collect();
        f.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_read_as_they_are_written() {
        for text in ["/dev/vdb", "image", "ldm:web/data", "/dev/vdb,/dev/vdc,ldm:web/data"] {
            assert_eq!(text.parse::<DiskSet>().map(|set| set.to_string()), Ok(text.to_owned()));
        }
        let refused = |text: &str| text.parse::<DiskSet>().expect_err(text).to_string();
        assert!(refused("").contains("a name is missing"));
        assert!(refused("/dev/vdb,").contains("`/dev/vdb,`"));
        for text in ["ldm:web", "ldm:web/", "ldm:Web/data"] {
            assert!(refused(text).contains("ldm:DOMAIN/DISK"), "{text}");
        }
    }
}
