//! From a study to the lab that it needs, and the two endpoints of each row.

use std::{collections::BTreeMap, ops::Range};

use vtax_guest::vdisk::DiskLaunch;
use vtax_model::{
    address_family::AddressFamily,
    cell::Cell,
    disk::{DiskAttach, DiskPlace, DiskSet},
    endpoint::Ends,
    guest::{Attach, Backend, GuestDefaults, VirtioNic},
    method::{IoMethod, Reached},
    study::{DiskRow, GuestPath, IpType, Row, Study, StudyDisks, StudyNetwork, StudySubject},
    topology::{Cable, Guest, GuestDisk, Host, Name, Topology, Wire, Zone},
    units::Mtu,
    vf::VfOptions,
};

use super::cabling::cabling;

/// A study's lab and the ends of its rows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Arrangement {
    pub(crate) topology: Topology,
    /// The pairs of endpoints of each row, measured at the same time; none for a row of disks.
    pub(crate) ends: BTreeMap<Row, Vec<Ends<LabEnd>>>,
    /// The disks of each row that measures disks of a guest.
    pub(crate) disks: BTreeMap<Row, RowPorts>,
}

/// Which of a guest's disks belong to a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowPorts {
    pub(crate) guest: Name,
    /// Indexes of the disks among the guest's.
    pub(crate) disks: Range<usize>,
}

/// One endpoint: a zone, a guest, or a host on one of its wires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LabEnd {
    Host { host: Name, wire: Name },
    Zone(Name),
    Guest(Name),
}

impl LabEnd {
    /// Returns the domain in which the endpoint's agent runs.
    pub(crate) fn domain(&self) -> &Name {
        match self {
            LabEnd::Host { host, .. } => host,
            LabEnd::Zone(domain) | LabEnd::Guest(domain) => domain,
        }
    }
}

/// Returns the lab for `rows` of `study`, under the study's name.
pub fn topology(study: &Study, rows: &[Row]) -> Topology {
    arrange(study, study.id.clone(), rows).topology
}

/// Returns the lab for `rows` of `study`, under `name`.
///
/// Each method has a separate wire between the two hosts, and each row with several pairs a separate switch, so that
/// all of them exist for the whole run. A bridge and a macvlan couldn't share a wire anyway.
pub(crate) fn arrange(study: &Study, name: Name, rows: &[Row]) -> Arrangement {
    let mut builder = Builder::new(study, name);
    match &study.subject {
        StudySubject::Network(network) => builder.rows_of_network(study, network, rows),
        StudySubject::Disks(disks) => builder.rows_of_disks(disks, rows),
        StudySubject::Migrations(_) => builder.rows_of_migrations(rows),
    }
    builder.arrangement
}

struct Builder<'a> {
    arrangement: Arrangement,
    defaults: &'a GuestDefaults,
    /// The cable of the current row, and its index among the study's.
    cable: Option<(usize, Cable)>,
}

impl Builder<'_> {
    fn new(study: &Study, name: Name) -> Builder<'_> {
        let mtu = study.cells.iter().filter_map(Cell::mtu).min().unwrap_or(Mtu::ETHERNET);
        let (hosts, wires, zones, guests) = Default::default();
        let network = study.network();
        let addresses = network.and_then(|network| network.addresses);
        let family = network.map_or_else(AddressFamily::default, |network| network.family);
        let topology = Topology { name, family, addresses, mtu, hosts, wires, zones, guests };
        let arrangement = Arrangement { topology, ends: BTreeMap::new(), disks: BTreeMap::new() };
        Builder { arrangement, defaults: &study.guest, cable: None }
    }

    fn rows_of_network(&mut self, study: &Study, network: &StudyNetwork, rows: &[Row]) {
        let cabling = cabling(network, rows).of;
        for row in rows {
            // The rows of a path's steps use the endpoints of the path.
            let like =
                rows.iter().find(|other| row.untuned() == other.untuned() && self.arrangement.ends.contains_key(other));
            if let Some(pairs) = like.and_then(|like| self.arrangement.ends.get(like)).cloned() {
                self.arrangement.ends.insert(*row, pairs);
                continue;
            }
            self.cable = cabling.get(row).map(|nth| (*nth, network.cables[*nth].clone()));
            let pairs = self.pairs(*row, study.attach(*row), network);
            self.arrangement.ends.insert(*row, pairs);
        }
    }

    fn pairs(&mut self, row: Row, nic: Option<Attach>, network: &StudyNetwork) -> Vec<Ends<LabEnd>> {
        let StudyNetwork { both, pairs, .. } = *network;
        match (row, nic) {
            (Row::Path(path), nic) => vec![self.path(path, nic)],
            // No lab has such a row.
            (Row::Pods(_) | Row::Disk(_) | Row::Migration(_), _) => Vec::new(),
            _ if pairs > 1 => self.behind_switch(row, nic, pairs),
            (_, Some(nic)) => vec![self.guests(row, nic, both)],
            (Row::Method(method), None) => vec![self.back_to_back(method, both)],
            (Row::Queue(_), None) => vec![self.back_to_back(IoMethod::SrIov, false)],
            (Row::Zones { from, to }, None) => vec![self.one_host(from, to)],
            (Row::Tuned { path: Some(path), .. }, nic) => vec![self.path(path, nic)],
            (Row::Engine(_) | Row::Device(_) | Row::Nic(_) | Row::Load(_) | Row::AsIs | Row::Tuned { .. }, None) => {
                vec![self.one_wire()]
            }
        }
    }

    fn rows_of_disks(&mut self, disks: &StudyDisks, rows: &[Row]) {
        for row in rows {
            if let Row::Disk(DiskRow::Guest(attach)) = row {
                self.disks(*row, *attach, disks.of_way(attach));
            }
        }
    }

    /// All guests migrate over one wire. They aren't guests of the lab: each moves from QEMU to QEMU.
    fn rows_of_migrations(&mut self, rows: &[Row]) {
        let ends = self.one_wire();
        self.arrangement.ends.extend(rows.iter().map(|row| (*row, vec![ends.clone()])));
    }

    /// The peer of a method that isn't reached by its address is the host's own stack. It connects if it reaches
    /// published ports, and is connected to if it reaches nothing.
    fn back_to_back(&mut self, method: IoMethod, both: bool) -> Ends<LabEnd> {
        let [mut sut, peer] = self.two_hosts();
        if method.translates() {
            // A host that translates addresses tracks the packets of its whole stack, including those of other rows.
            sut = self.host(&format!("{method}-host"), false);
        }
        let wire = self.wire(&format!("{method}-wire"), &sut, &peer);
        let near = self.end(method, &format!("{method}-sut"), &sut, &wire);
        let far = if both && method.reached() == Reached::Directly { method } else { IoMethod::Native };
        let far = self.end(far, &format!("{method}-{peer}"), &peer, &wire);
        match method.reached() {
            Reached::ByPublishedPorts => Ends { initiator: far, responder: near },
            Reached::Directly | Reached::Never => Ends { initiator: near, responder: far },
        }
    }

    /// The guests of each row have a separate wire, as zones have.
    fn guests(&mut self, row: Row, nic: Attach, both: bool) -> Ends<LabEnd> {
        let [sut, peer] = self.two_hosts();
        let kind = short_name(row);
        let wire = self.wire(&format!("{kind}-wire"), &sut, &peer);
        let initiator = self.guest(&format!("{kind}-{sut}"), &sut, nic, &wire);
        let responder = match both {
            true => self.guest(&format!("{kind}-{peer}"), &peer, nic, &wire),
            false => LabEnd::Host { host: peer, wire },
        };
        Ends { initiator, responder }
    }

    /// Guests are named after the path: one host may have two of them.
    fn path(&mut self, path: GuestPath, nic: Option<Attach>) -> Ends<LabEnd> {
        let [sut, peer] = self.two_hosts();
        let wire = self.wire(&format!("{path}-wire"), &sut, &peer);
        let far = if path == GuestPath::GuestToGuest { &sut } else { &peer };
        let [from, to] = match path {
            GuestPath::HostToHost => [None, None],
            GuestPath::HostToGuest => [None, Some("below-host")],
            GuestPath::GuestToGuest => [Some("same-host-from"), Some("same-host-to")],
            GuestPath::GuestToGuestAcrossHosts => [Some("across-hosts-from"), Some("across-hosts-to")],
        };
        let mut end = |host: &Name, guest: Option<&str>| match guest.zip(nic) {
            Some((name, nic)) => self.guest(name, host, nic, &wire),
            None => LabEnd::Host { host: host.clone(), wire: wire.clone() },
        };
        Ends { initiator: end(&sut, from), responder: end(far, to) }
    }

    /// The row's domains on one host with one wire to a switch, and a client there for each, for all rows.
    fn behind_switch(&mut self, row: Row, nic: Option<Attach>, pairs: u32) -> Vec<Ends<LabEnd>> {
        let kind = short_name(row);
        let (sut, switch) = (self.host("sut", false), self.host(&format!("{kind}-switch"), true));
        let uplink = self.wire(&format!("{kind}-uplink"), &sut, &switch);
        let pair = |nth: u32| {
            let client = self.host(&format!("client-{nth}"), false);
            let wire = self.made_wire(&format!("{kind}-wire-{nth}"), &client, &switch, None);
            let domain = format!("{kind}-{nth}");
            let responder = match (nic, row) {
                (Some(nic), _) => self.guest(&domain, &sut, nic, &uplink),
                (None, Row::Method(method)) => self.end(method, &domain, &sut, &uplink),
                (None, Row::Queue(_)) => self.end(IoMethod::SrIov, &domain, &sut, &uplink),
                (None, _) => LabEnd::Host { host: sut.clone(), wire: uplink.clone() },
            };
            let client = LabEnd::Host { host: client, wire };
            match row.method().map(IoMethod::reached) {
                Some(Reached::Never) => Ends { initiator: responder, responder: client },
                _ => Ends { initiator: client, responder },
            }
        };
        (1..=pairs).map(pair).collect()
    }

    /// The disks of all rows are in one guest, as long as it has ports for them, so that rows differ in nothing else.
    fn disks(&mut self, row: Row, attach: DiskAttach, named: &DiskSet) {
        let path = |place: &DiskPlace| match place {
            DiskPlace::Here(path) => Some(GuestDisk { path: path.clone(), attach }),
            DiskPlace::Zone { .. } | DiskPlace::Domain { .. } => None,
        };
        let disks: Vec<GuestDisk> = named.0.iter().filter_map(path).collect();
        let most = DiskLaunch::MOST as usize;
        let has_room = |guest: &Guest| guest.disks.len() + disks.len() <= most;
        if !self.arrangement.topology.guests.last().is_some_and(has_room) {
            let [sut, peer] = self.two_hosts();
            let wire = self.wire("disk-wire", &sut, &peer);
            let number = self.arrangement.topology.guests.len() + 1;
            // A lab's guest has a NIC. This one sends nothing.
            let nic = Attach::Paravirtual(VirtioNic { backend: Some(Backend::Userspace), ..VirtioNic::default() });
            self.guest(&format!("disks-{number}"), &sut, nic, &wire);
        }
        let Some(guest) = self.arrangement.topology.guests.last_mut() else { return };
        let first = guest.disks.len();
        guest.disks.extend(disks);
        let ports = RowPorts { guest: guest.name.clone(), disks: first..guest.disks.len() };
        self.arrangement.disks.insert(row, ports);
    }

    fn guest(&mut self, guest: &str, host: &Name, attach: Attach, wire: &Name) -> LabEnd {
        let name = built_in_name(guest);
        let GuestDefaults { size, system, .. } = self.defaults.clone();
        let (host, wire) = (host.clone(), wire.clone());
        let masters = Vec::new();
        let (disks, lent) = Default::default();
        let guest = Guest { name: name.clone(), host, wire, attach, mac: None, size, system, masters, disks, lent };
        self.arrangement.topology.guests.push(guest);
        LabEnd::Guest(name)
    }

    /// Engines are compared on one path: the hosts' own stacks and the wire between them.
    fn one_wire(&mut self) -> Ends<LabEnd> {
        let [sut, peer] = self.two_hosts();
        let wire = self.wire("wire", &sut, &peer);
        let [initiator, responder] = [sut, peer].map(|host| LabEnd::Host { host, wire: wire.clone() });
        Ends { initiator, responder }
    }

    fn end(&mut self, method: IoMethod, domain: &str, host: &Name, wire: &Name) -> LabEnd {
        match method {
            IoMethod::Native => LabEnd::Host { host: host.clone(), wire: wire.clone() },
            _ => LabEnd::Zone(self.zone(domain, host, method, wire)),
        }
    }

    /// Two zones of one host. Their traffic leaves the host unless they share its stack.
    fn one_host(&mut self, from: IpType, to: IpType) -> Ends<LabEnd> {
        let (sut, switch) = (self.host("sut", false), self.host("switch", true));
        let initiator = self.instance(from, "from", &sut, &switch);
        let responder = self.instance(to, "to", &sut, &switch);
        Ends { initiator, responder }
    }

    fn instance(&mut self, kind: IpType, role: &str, sut: &Name, switch: &Name) -> LabEnd {
        let (method, wire) = match kind {
            IpType::Shared => (IoMethod::SharedIp, "host-wire".to_owned()),
            IpType::Exclusive => (IoMethod::Exclusive, format!("{role}-wire")),
        };
        // The host keeps its own wire, even if every zone here has one, too.
        self.wire("host-wire", sut, switch);
        let wire = self.wire(&wire, sut, switch);
        LabEnd::Zone(self.zone(&format!("{kind}-{role}"), sut, method, &wire))
    }

    fn two_hosts(&mut self) -> [Name; 2] {
        ["sut", "peer"].map(|host| self.host(host, false))
    }

    fn host(&mut self, host: &str, switch: bool) -> Name {
        let name = built_in_name(host);
        let hosts = &mut self.arrangement.topology.hosts;
        if !hosts.iter().any(|host| host.name == name) {
            hosts.push(Host { name: name.clone(), switch, snooping: None });
        }
        name
    }

    /// Returns the wire of the current row: its cable if it has one. Rows that share a cable are on one wire.
    fn wire(&mut self, wire: &str, from: &Name, to: &Name) -> Name {
        match self.cable.clone() {
            Some((nth, cable)) => self.made_wire(&format!("cable-{nth}"), from, to, Some(cable)),
            None => self.made_wire(wire, from, to, None),
        }
    }

    fn made_wire(&mut self, wire: &str, from: &Name, to: &Name, nics: Option<Cable>) -> Name {
        let name = built_in_name(wire);
        let wires = &mut self.arrangement.topology.wires;
        if !wires.iter().any(|wire| wire.name == name) {
            wires.push(Wire { name: name.clone(), ends: [from.clone(), to.clone()], shape: None, nics });
        }
        name
    }

    fn zone(&mut self, zone: &str, host: &Name, method: IoMethod, wire: &Name) -> Name {
        let name = built_in_name(zone);
        let zones = &mut self.arrangement.topology.zones;
        if !zones.iter().any(|zone| zone.name == name) {
            let vf = if method == IoMethod::SrIov { self.defaults.vf } else { VfOptions::default() };
            let (host, wire) = (host.clone(), wire.clone());
            zones.push(Zone { name: name.clone(), host, method, wire, mac: None, vf });
        }
        name
    }
}

/// Returns the name of a row for its domains and wires. The name of a kind of NIC omits its method.
fn short_name(row: Row) -> String {
    row.flavour().map_or_else(|| row.to_string(), |flavour| flavour.to_string())
}

fn built_in_name(text: &str) -> Name {
    text.parse().expect("names made here are of letters, digits and `-`, and short")
}

#[cfg(test)]
mod tests;
