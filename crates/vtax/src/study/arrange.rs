//! From a study to the lab that it needs: which hosts, wires, zones and guests, and which two ends
//! each row measures between.

use std::collections::BTreeMap;

use vtax_model::{
    guest::{Attach, GuestDefaults},
    method::IoMethod,
    study::{IpType, Row, Study},
    topology::{Guest, Host, Name, Topology, Wire, Zone},
    units::Mtu,
};

/// A study's lab and the ends of its rows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Arrangement {
    /// What to build.
    pub(crate) topology: Topology,
    /// Initiator and responder of each row.
    pub(crate) ends: BTreeMap<Row, Ends>,
}

/// The two ends that a row measures between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) initiator: End,
    pub(crate) responder: End,
}

/// One end: a zone, a guest, or a host on one of its wires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Host { host: Name, wire: Name },
    Zone(Name),
    Guest(Name),
}

impl End {
    /// The domain in which the end's agent runs.
    pub(crate) fn domain(&self) -> &Name {
        match self {
            End::Host { host, .. } => host,
            End::Zone(domain) | End::Guest(domain) => domain,
        }
    }
}

/// The lab for `rows` of `study`, under `name`.
///
/// Each method has a wire of its own between the two hosts, so that all stand side by side for
/// the whole run and none has to be rebuilt between samples: a bridge and a macvlan could not
/// share one anyway.
pub(crate) fn arrange(study: &Study, name: Name, rows: &[Row]) -> Arrangement {
    let mut builder = Builder::new(study, name);
    for row in rows {
        match (*row, study.guest.attach(*row)) {
            (_, Some(nic)) => builder.guests(*row, nic, &study.guest, study.both),
            (Row::Method(method), None) => builder.back_to_back(*row, method, study.both),
            (Row::Zones { from, to }, None) => builder.one_host(*row, from, to),
            (Row::Engine(_) | Row::Device(_), None) => builder.one_wire(*row),
        }
    }
    builder.arrangement
}

struct Builder {
    arrangement: Arrangement,
}

impl Builder {
    fn new(study: &Study, name: Name) -> Builder {
        let mtu = study.cells.iter().map(|cell| cell.mtu).min().unwrap_or(Mtu::ETHERNET);
        let (hosts, wires, zones, guests) = Default::default();
        let topology = Topology { name, addresses: study.addresses, mtu, hosts, wires, zones, guests };
        Builder { arrangement: Arrangement { topology, ends: BTreeMap::new() } }
    }

    fn back_to_back(&mut self, row: Row, method: IoMethod, both: bool) {
        let (sut, peer) = (self.host("sut", false), self.host("peer", false));
        let wire = self.wire(&format!("{method}-wire"), &sut, &peer);
        let initiator = self.end(method, &sut, &wire);
        let far = if both { method } else { IoMethod::Native };
        let responder = self.end(far, &peer, &wire);
        self.arrangement.ends.insert(row, Ends { initiator, responder });
    }

    /// As for zones: guests of each row have a wire of their own.
    fn guests(&mut self, row: Row, nic: Attach, defaults: &GuestDefaults, both: bool) {
        let (sut, peer) = (self.host("sut", false), self.host("peer", false));
        let kind = row.flavour().map_or_else(|| nic.method().to_string(), |flavour| flavour.to_string());
        let wire = self.wire(&format!("{kind}-wire"), &sut, &peer);
        let initiator = self.guest(&format!("{kind}-{sut}"), &sut, nic, defaults, &wire);
        let responder = match both {
            true => self.guest(&format!("{kind}-{peer}"), &peer, nic, defaults, &wire),
            false => End::Host { host: peer, wire },
        };
        self.arrangement.ends.insert(row, Ends { initiator, responder });
    }

    fn guest(&mut self, guest: &str, host: &Name, attach: Attach, defaults: &GuestDefaults, wire: &Name) -> End {
        let name = built_in_name(guest);
        let GuestDefaults { size, system, .. } = defaults.clone();
        let (host, wire) = (host.clone(), wire.clone());
        self.arrangement.topology.guests.push(Guest {
            name: name.clone(),
            host,
            wire,
            attach,
            mac: None,
            size,
            system,
        });
        End::Guest(name)
    }

    /// Engines are compared on one path: the hosts' own stacks and the wire between them.
    fn one_wire(&mut self, row: Row) {
        let (sut, peer) = (self.host("sut", false), self.host("peer", false));
        let wire = self.wire("wire", &sut, &peer);
        let [initiator, responder] = [sut, peer].map(|host| End::Host { host, wire: wire.clone() });
        self.arrangement.ends.insert(row, Ends { initiator, responder });
    }

    fn end(&mut self, method: IoMethod, host: &Name, wire: &Name) -> End {
        match method {
            IoMethod::Native => End::Host { host: host.clone(), wire: wire.clone() },
            _ => End::Zone(self.zone(&format!("{method}-{host}"), host, method, wire)),
        }
    }

    /// Traffic between two zones of one host: inside the host if both share its stack, else out
    /// to a switch and back.
    fn one_host(&mut self, row: Row, from: IpType, to: IpType) {
        let (sut, switch) = (self.host("sut", false), self.host("switch", true));
        let initiator = self.instance(from, "from", &sut, &switch);
        let responder = self.instance(to, "to", &sut, &switch);
        self.arrangement.ends.insert(row, Ends { initiator, responder });
    }

    fn instance(&mut self, kind: IpType, role: &str, sut: &Name, switch: &Name) -> End {
        let (method, wire) = match kind {
            IpType::Shared => (IoMethod::SharedIp, "host-wire".to_owned()),
            IpType::Exclusive => (IoMethod::Exclusive, format!("{role}-wire")),
        };
        // The host keeps a wire of its own, even if every zone here has one too.
        self.wire("host-wire", sut, switch);
        let wire = self.wire(&wire, sut, switch);
        End::Zone(self.zone(&format!("{}-{role}", kind.name()), sut, method, &wire))
    }

    fn host(&mut self, host: &str, switch: bool) -> Name {
        let name = built_in_name(host);
        let hosts = &mut self.arrangement.topology.hosts;
        if !hosts.iter().any(|host| host.name == name) {
            hosts.push(Host { name: name.clone(), switch });
        }
        name
    }

    fn wire(&mut self, wire: &str, from: &Name, to: &Name) -> Name {
        let name = built_in_name(wire);
        let wires = &mut self.arrangement.topology.wires;
        if !wires.iter().any(|wire| wire.name == name) {
            wires.push(Wire { name: name.clone(), ends: [from.clone(), to.clone()], shape: None });
        }
        name
    }

    fn zone(&mut self, zone: &str, host: &Name, method: IoMethod, wire: &Name) -> Name {
        let name = built_in_name(zone);
        let zones = &mut self.arrangement.topology.zones;
        if !zones.iter().any(|zone| zone.name == name) {
            zones.push(Zone { name: name.clone(), host: host.clone(), method, wire: wire.clone() });
        }
        name
    }
}

fn built_in_name(text: &str) -> Name {
    text.parse().expect("names made here are of letters and `-`, and short")
}

#[cfg(test)]
mod tests {
    use vtax_model::options::Engine;

    use super::*;

    fn arranged(study: &str, both: bool) -> Arrangement {
        let mut study = Study::built_in(study).expect("built in");
        study.both = both;
        let rows = study.rows.clone();
        let name = study.id.clone();
        arrange(&study, name, &rows)
    }

    fn domains(arrangement: &Arrangement, row: &str) -> (String, String) {
        let ends = &arrangement.ends[&row.parse().expect("a row")];
        (ends.initiator.domain().to_string(), ends.responder.domain().to_string())
    }

    #[test]
    fn a_method_stands_at_sut_against_a_native_peer() {
        let demo = arranged("demo", false);
        assert_eq!(domains(&demo, "native"), ("sut".into(), "peer".into()));
        assert_eq!(domains(&demo, "bridge"), ("bridge-sut".into(), "peer".into()));
        assert_eq!(demo.topology.wires.len(), demo.ends.len());
    }

    #[test]
    fn both_puts_the_method_at_both_ends() {
        let demo = arranged("demo", true);
        assert_eq!(domains(&demo, "bridge"), ("bridge-sut".into(), "bridge-peer".into()));
        assert_eq!(domains(&demo, "native"), ("sut".into(), "peer".into()));
    }

    #[test]
    fn guests_of_each_row_stand_on_a_wire_of_their_own() {
        let mut study = Study::built_in("demo").expect("built in");
        let row = |text: &str| text.parse::<Row>().expect("a row");
        study.rows = ["native", "paravirtual", "paravirtual:userspace", "emulated:igb"].map(row).into();
        let lab = arrange(&study, study.id.clone(), &study.rows);
        assert_eq!(domains(&lab, "paravirtual"), ("paravirtual-sut".into(), "peer".into()));
        assert_eq!(domains(&lab, "paravirtual:userspace"), ("userspace-sut".into(), "peer".into()));
        study.both = true;
        let lab = arrange(&study, study.id.clone(), &study.rows);
        assert_eq!(domains(&lab, "emulated:igb"), ("igb-sut".into(), "igb-peer".into()));
        assert_eq!((lab.topology.wires.len(), lab.topology.guests.len()), (4, 6));
    }

    #[test]
    fn engines_share_one_wire() {
        let mut study = Study::built_in("demo").expect("built in");
        study.rows = vec![Row::Engine(Engine::Blocking), Row::Engine(Engine::Epoll)];
        let engines = arrange(&study, study.id.clone(), &study.rows);
        assert_eq!(domains(&engines, "blocking"), domains(&engines, "epoll"));
        assert_eq!(engines.topology.wires.len(), 1);
    }

    #[test]
    fn zones_of_one_host_share_its_wire_or_have_their_own() {
        let instances = arranged("ip-instances", false);
        assert_eq!(domains(&instances, "exclusive-to-shared"), ("exclusive-from".into(), "shared-to".into()));
        let wire = |zone: &str| {
            let found = instances.topology.zones.iter().find(|found| found.name.as_str() == zone);
            found.map(|zone| zone.wire.to_string())
        };
        assert_eq!(wire("shared-from"), wire("shared-to"));
        assert_eq!(wire("exclusive-from").as_deref(), Some("from-wire"));
        assert_eq!(wire("exclusive-to").as_deref(), Some("to-wire"));
    }
}
