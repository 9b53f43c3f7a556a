//! The path of one object: a NIC, another link or a guest.

use std::collections::BTreeSet;

use vtax_host::inspect::{HostFacts, HostGuest, HostLink};
use vtax_model::foreign::ForeignText;

/// Links and guests of a host that the packets of one object traverse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TuningPath {
    links: BTreeSet<ForeignText>,
    guests: GuestsOnPath,
}

/// Relevant guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestsOnPath {
    /// All: each may use a NIC.
    All,
    /// The guest with this process.
    One(u32),
    /// None: a zone's packets do not come from guests.
    None,
}

/// The host does not have the object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("{host} has no link or guest `{name}`; it has {there}")]
#[diagnostic(code("no-such-link"))]
pub struct NoSuchObject {
    name: ForeignText,
    host: ForeignText,
    there: String,
}

impl TuningPath {
    /// Returns the path of a link, or of a guest given by name or QEMU's process id.
    pub fn of(host: &HostFacts, name: &str) -> Result<TuningPath, NoSuchObject> {
        if host.links.iter().any(|link| link.name == name) {
            return Ok(TuningPath::under(host, [name.into()], GuestsOnPath::All));
        }
        let is_named = |guest: &&HostGuest| guest.name == name || name.parse() == Ok(guest.pid);
        match host.guests.iter().find(is_named) {
            Some(guest) => Ok(TuningPath::under(host, guest.links.iter().cloned(), GuestsOnPath::One(guest.pid))),
            None => Err(NoSuchObject { name: name.into(), host: host.hostname.clone(), there: there(host) }),
        }
    }

    /// Returns these links, their bridges, and the NICs below.
    pub fn under(host: &HostFacts, links: impl IntoIterator<Item = ForeignText>, guests: GuestsOnPath) -> TuningPath {
        let mut path = BTreeSet::new();
        let mut next: Vec<ForeignText> = links.into_iter().collect();
        while let Some(name) = next.pop() {
            let Some(link) = host.links.iter().find(|link| link.name == name) else { continue };
            if path.insert(name) {
                // Packets leave the host at a NIC, so the bridge above a NIC is not followed.
                next.extend(link.master.iter().filter(|_| link.device.is_none()).cloned());
                next.extend(link.lower.iter().filter(|lower| leads_out(host, lower)).cloned());
            }
        }
        TuningPath { links: path, guests }
    }

    pub(crate) fn has_link(&self, link: &HostLink) -> bool {
        self.links.contains(&link.name)
    }

    pub(crate) fn has_guest(&self, guest: &HostGuest) -> bool {
        match self.guests {
            GuestsOnPath::All => true,
            GuestsOnPath::One(pid) => guest.pid == pid,
            GuestsOnPath::None => false,
        }
    }
}

/// Returns true if a link is a NIC or has one below it. Other ports of a bridge lead to other guests and zones.
fn leads_out(host: &HostFacts, name: &ForeignText) -> bool {
    let link = host.links.iter().find(|link| link.name == *name);
    link.is_some_and(|link| link.device.is_some() || !link.lower.is_empty())
}

fn there(host: &HostFacts) -> String {
    let links = host.links.iter().map(|link| link.name.to_string());
    let guests = host.guests.iter().map(|guest| format!("guest {}", guest.name));
    links.chain(guests).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use vtax_host::inspect::LinkDevice;

    use super::*;

    fn link(name: &str, master: &str, lower: &[&str], is_nic: bool) -> HostLink {
        HostLink {
            name: name.into(),
            master: (!master.is_empty()).then(|| master.into()),
            lower: lower.iter().map(|name| ForeignText::from(*name)).collect(),
            device: is_nic.then(LinkDevice::default),
            ..HostLink::default()
        }
    }

    fn guest(name: &str, pid: u32, tap: &str) -> HostGuest {
        let (vcpus, vhost, nic_queues) = Default::default();
        HostGuest { name: name.into(), pid, start_ticks: 1, vcpus, vhost, nic_queues, links: vec![tap.into()] }
    }

    /// Returns a host with two guests on one bridge, above a VLAN on a bond of two NICs. A third NIC is separate.
    fn host() -> HostFacts {
        let links = vec![
            link("tap0", "br0", &[], false),
            link("tap1", "br0", &[], false),
            link("br0", "", &["tap0", "tap1", "bond0.7"], false),
            link("bond0.7", "br0", &["bond0"], false),
            link("bond0", "", &["eth0", "eth1"], false),
            link("eth0", "bond0", &[], true),
            link("eth1", "bond0", &[], true),
            link("eth2", "", &[], true),
        ];
        HostFacts { links, guests: vec![guest("db", 7, "tap0"), guest("web", 8, "tap1")], ..HostFacts::default() }
    }

    fn on_path(name: &str) -> (Vec<String>, Vec<String>) {
        let host = host();
        let path = TuningPath::of(&host, name).expect("it is there");
        let links = host.links.iter().filter(|link| path.has_link(link)).map(|link| link.name.to_string());
        let guests = host.guests.iter().filter(|guest| path.has_guest(guest)).map(|guest| guest.name.to_string());
        (links.collect(), guests.collect())
    }

    #[test]
    fn under_a_guest_are_its_tap_its_bridge_and_the_nics_below() {
        let below = ["br0", "bond0.7", "bond0", "eth0", "eth1"];
        assert_eq!(
            on_path("db"),
            ([&["tap0"], &below[..]].concat().iter().map(ToString::to_string).collect(), vec!["db".into()])
        );
        assert_eq!(on_path("db"), on_path("7"));
        assert_eq!(on_path("8").1, ["web"]);
    }

    #[test]
    fn a_nic_is_its_own_path_and_a_bridge_has_its_nics() {
        assert_eq!(on_path("eth0").0, ["eth0"]);
        assert_eq!(on_path("br0").0, ["br0", "bond0.7", "bond0", "eth0", "eth1"]);
        assert_eq!(on_path("eth2").1.len(), 2);
    }

    #[test]
    fn a_missing_name_is_reported_with_the_existing_ones() {
        let told = TuningPath::of(&host(), "eth9").expect_err("missing").to_string();
        assert!(told.contains("`eth9`") && told.contains("eth2, guest db"), "{told}");
    }

    /// A host may report anything, even a cycle.
    #[test]
    fn links_in_a_circle_end() {
        let links = vec![link("a", "b", &["b"], false), link("b", "a", &["a"], false)];
        let host = HostFacts { links, ..HostFacts::default() };
        assert_eq!(TuningPath::of(&host, "a").expect("there").links.len(), 2);
    }
}
