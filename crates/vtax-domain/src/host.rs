//! Host of the domains: this machine, or a host of a lab.

use std::{fs, path::Path};

use vtax_model::{endpoint::LabHost, topology::Name};

use crate::store::DomainStore;

/// Directory of domains' run-time files.
const DOMAINS: &str = "domains";
/// Directory of domains' constraints.
const CONSTRAINTS: &str = "ldm";

/// Host that the domains run on: this machine or one in a lab.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DomainHost {
    /// Host of a lab; this machine if absent.
    pub within: Option<LabHost>,
}

impl DomainHost {
    /// Returns the host's identifier.
    pub fn id(&self) -> String {
        self.within.as_ref().map_or_else(machine_id, LabHost::to_string)
    }

    /// Returns the store of its domains' constraints, below this directory of the user's results.
    pub fn store(&self, state_dir: &Path) -> DomainStore {
        DomainStore::new(&state_dir.join(self.named(CONSTRAINTS)))
    }

    /// Returns the name of the directory of its domains' run-time files.
    pub fn folder(&self) -> String {
        self.named(DOMAINS)
    }

    /// Returns the prefix of the names of such directories, for the hosts of this lab. The name of the host follows.
    pub fn folders_of(lab: &Name) -> String {
        format!("{DOMAINS}.{lab}.")
    }

    /// Names of labs and hosts contain no dot.
    fn named(&self, base: &str) -> String {
        match &self.within {
            None => base.to_owned(),
            Some(LabHost { lab, host }) => format!("{base}.{lab}.{host}"),
        }
    }
}

/// Returns the ID of this installation (machine-id(5)), or its name if there is none.
fn machine_id() -> String {
    let read = |path| fs::read_to_string(path).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    read("/etc/machine-id").or_else(|| read("/proc/sys/kernel/hostname")).unwrap_or_else(|| "host".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_folders_of_its_own() {
        let here = DomainHost { within: None };
        let sut = DomainHost { within: Some("rack/sut".parse().expect("a host")) };
        assert_eq!((here.folder(), sut.folder()), ("domains".to_owned(), "domains.rack.sut".to_owned()));
        assert!(sut.folder().starts_with(&DomainHost::folders_of(&"rack".parse().expect("a name"))));
        assert_eq!(sut.store(Path::new("/state")).folder(), Path::new("/state/ldm.rack.sut"));
        assert_eq!(sut.id(), "rack/sut");
    }
}
