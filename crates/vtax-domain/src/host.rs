//! Host of the domains: this machine, or a host of a lab.

use std::{fs, path::Path, process::Command, sync::Arc};

use vtax_model::{endpoint::LabHost, topology::Name};
use vtax_step::{StepSite, mark_process};
use vtax_sys::{Result, netns::NetNs};

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

/// Network of such a host. Its links, programs and ports are in this namespace, wherever vtax itself runs.
#[derive(Debug, Clone)]
pub struct HostNet {
    namespace: Arc<NetNs>,
    /// Lab that the host's programs end with.
    lab: Option<Name>,
}

impl HostNet {
    /// Returns the network of this machine, as this thread sees it.
    pub fn here() -> Result<HostNet> {
        Ok(HostNet { namespace: Arc::new(NetNs::current()?), lab: None })
    }

    /// Returns the network of a host of a lab.
    pub fn of_lab(lab: &Name, namespace: NetNs) -> HostNet {
        HostNet { namespace: Arc::new(namespace), lab: Some(lab.clone()) }
    }

    pub fn namespace(&self) -> &Arc<NetNs> {
        &self.namespace
    }

    /// Returns where steps of domains work. The connection to it is made when it is needed.
    pub(crate) fn site(&self) -> StepSite {
        StepSite::of_host(&self.namespace, self.lab.as_ref())
    }

    /// Runs `work` in this network, including the programs that it starts. If necessary, a thread enters it.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let is_here = NetNs::current()?.id() == self.namespace.id();
        if is_here { Ok(work()) } else { self.namespace.run(work) }
    }

    /// Makes a program that is about to be started end with the lab.
    pub(crate) fn mark(&self, command: &mut Command) {
        self.lab.iter().for_each(|lab| mark_process(command, lab));
    }
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
    fn each_host_has_separate_directories() {
        let here = DomainHost { within: None };
        let sut = DomainHost { within: Some("rack/sut".parse().expect("a host")) };
        assert_eq!((here.folder(), sut.folder()), ("domains".to_owned(), "domains.rack.sut".to_owned()));
        assert!(sut.folder().starts_with(&DomainHost::folders_of(&"rack".parse().expect("a name"))));
        assert_eq!(sut.store(Path::new("/state")).folder(), Path::new("/state/ldm.rack.sut"));
        assert_eq!(sut.id(), "rack/sut");
    }
}
