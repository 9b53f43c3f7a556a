//! Location of a disk: on this machine, in a zone, or in a guest.

use std::{fmt, path::PathBuf, str::FromStr};

use serde_with::{DeserializeFromStr, SerializeDisplay};

use crate::{endpoint::LabHost, topology::Name};

/// A disk on a command line: `/dev/vdb`, `zone:web/dev/vdb`, `ldm:web/data`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
pub enum DiskPlace {
    /// A file or a block device of this machine.
    Here(PathBuf),
    /// A file or a block device, used by a zone or a host of a lab.
    Zone {
        /// The lab; if absent, the only one that has such a zone.
        lab: Option<Name>,
        /// The zone or host.
        zone: Name,
        /// The absolute path there.
        path: PathBuf,
    },
    /// A virtual disk of a running logical domain.
    Domain {
        /// The host of a lab that has the domain. None if this machine does.
        within: Option<LabHost>,
        /// Name of the domain: the `web` of `ldm:web/data`.
        domain: Name,
        /// The disk's name in the domain.
        disk: Name,
    },
}

/// The disks of a row: one, or several that are measured simultaneously.
#[derive(Debug, Clone, PartialEq, Eq, Default, SerializeDisplay, DeserializeFromStr)]
pub struct DiskSet(pub Vec<DiskPlace>);

/// Invalid name of a disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum DiskPlaceError {
    #[error("a name is missing in `{0}`: use paths of disks, separated by commas")]
    #[diagnostic(code("bad-disk-name"))]
    Empty(String),
    #[error(
        "invalid domain disk `{0}`: use ldm:DOMAIN/DISK, e.g. ldm:web/data, or ldm:LAB/HOST/DOMAIN/DISK for a host of a lab"
    )]
    #[diagnostic(code("bad-disk-name"))]
    Domain(String),
    #[error(
        "invalid zone disk `{0}`: use zone:NAME/PATH, e.g. zone:web/dev/vdb, or with its lab zone:LAB/NAME//PATH, e.g. \
         zone:rack/web//dev/vdb"
    )]
    #[diagnostic(code("bad-disk-name"))]
    Zone(String),
}

const DOMAIN: &str = "ldm:";
const ZONE: &str = "zone:";

impl DiskPlace {
    /// Assigns a disk of a logical domain without a host to this host. Returns whether it was one.
    pub fn place_in(&mut self, host: &LabHost) -> bool {
        let DiskPlace::Domain { within, .. } = self else { return false };
        within.get_or_insert_with(|| host.clone()) == host
    }
}

impl FromStr for DiskPlace {
    type Err = DiskPlaceError;

    fn from_str(text: &str) -> Result<DiskPlace, DiskPlaceError> {
        if text.is_empty() {
            return Err(DiskPlaceError::Empty(text.to_owned()));
        }
        if let Some(rest) = text.strip_prefix(DOMAIN) {
            return of_domain(rest).ok_or_else(|| DiskPlaceError::Domain(text.to_owned()));
        }
        if let Some(rest) = text.strip_prefix(ZONE) {
            return of_zone(rest).ok_or_else(|| DiskPlaceError::Zone(text.to_owned()));
        }
        Ok(DiskPlace::Here(text.into()))
    }
}

fn of_domain(text: &str) -> Option<DiskPlace> {
    let names = text.split('/').map(str::parse).collect::<Result<Vec<Name>, _>>().ok()?;
    let (within, domain, disk) = match names.as_slice() {
        [domain, disk] => (None, domain, disk),
        [lab, host, domain, disk] => (Some(LabHost { lab: lab.clone(), host: host.clone() }), domain, disk),
        _ => return None,
    };
    Some(DiskPlace::Domain { within, domain: domain.clone(), disk: disk.clone() })
}

/// The path is absolute: its `/` ends the name. After two names there are two.
fn of_zone(text: &str) -> Option<DiskPlace> {
    let (lab, zone, path) = match text.split_once("//") {
        Some((names, path)) => match names.split_once('/') {
            Some((lab, zone)) => (Some(lab.parse().ok()?), zone, path),
            None => (None, names, path),
        },
        None => text.split_once('/').map(|(zone, path)| (None, zone, path))?,
    };
    let path = PathBuf::from(format!("/{}", path.trim_start_matches('/')));
    path.file_name()?;
    Some(DiskPlace::Zone { lab, zone: zone.parse().ok()?, path })
}

impl fmt::Display for DiskPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskPlace::Here(path) => write!(f, "{}", path.display()),
            DiskPlace::Zone { lab: Some(lab), zone, path } => write!(f, "{ZONE}{lab}/{zone}/{}", path.display()),
            DiskPlace::Zone { lab: None, zone, path } => write!(f, "{ZONE}{zone}{}", path.display()),
            DiskPlace::Domain { within: Some(host), domain, disk } => write!(f, "{DOMAIN}{host}/{domain}/{disk}"),
            DiskPlace::Domain { within: None, domain, disk } => write!(f, "{DOMAIN}{domain}/{disk}"),
        }
    }
}

impl DiskSet {
    /// Returns true if no disk is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if all of them belong to this machine, rather than to a zone or a domain.
    pub fn is_here(&self) -> bool {
        self.0.iter().all(|place| matches!(place, DiskPlace::Here(_)))
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
        for text in [
            "/dev/vdb",
            "image",
            "ldm:web/data",
            "ldm:rack/sut/web/data",
            "zone:web/dev/vdb",
            "zone:rack/web//var/tmp/a",
            "/dev/vdb,/dev/vdc,ldm:web/data",
        ] {
            assert_eq!(text.parse::<DiskSet>().map(|set| set.to_string()), Ok(text.to_owned()));
        }
        let refused = |text: &str| text.parse::<DiskSet>().expect_err(text).to_string();
        assert!(refused("").contains("a name is missing"));
        assert!(refused("/dev/vdb,").contains("`/dev/vdb,`"));
        for text in ["ldm:web", "ldm:web/", "ldm:Web/data", "ldm:rack/web/data", "ldm:a/b/c/d/e"] {
            assert!(refused(text).contains("ldm:DOMAIN/DISK"), "{text}");
        }
        for text in ["zone:web", "zone:web/", "zone:/dev/vdb", "zone:Web/dev/vdb", "zone:a/b/c//d", "zone:web//"] {
            assert!(refused(text).contains("zone:NAME/PATH"), "{text}");
        }
    }

    #[test]
    fn a_path_in_a_zone_is_absolute() {
        let zone = |text: &str| match text.parse() {
            Ok(DiskPlace::Zone { lab, zone, path }) => {
                (lab.map(|lab| lab.to_string()), zone.to_string(), path.display().to_string())
            }
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(zone("zone:web/dev/vdb"), (None, "web".into(), "/dev/vdb".into()));
        assert_eq!(zone("zone:web//dev/vdb"), (None, "web".into(), "/dev/vdb".into()));
        assert_eq!(zone("zone:rack/web//dev/vdb"), (Some("rack".into()), "web".into(), "/dev/vdb".into()));
    }

    #[test]
    fn only_a_domain_without_a_host_gets_one() {
        let host = LabHost { lab: "rack".parse().expect("a name"), host: "sut".parse().expect("a name") };
        let placed = |text: &str| {
            let mut place: DiskPlace = text.parse().expect(text);
            (place.place_in(&host), place.to_string())
        };
        assert_eq!(placed("ldm:web/data"), (true, "ldm:rack/sut/web/data".to_owned()));
        assert_eq!(placed("ldm:rack/other/web/data"), (false, "ldm:rack/other/web/data".to_owned()));
        assert_eq!(placed("/dev/vdb"), (false, "/dev/vdb".to_owned()));
    }
}
