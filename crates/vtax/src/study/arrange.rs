//! From a study to the lab that it needs: which hosts, wires and zones, and which two ends each
//! row measures between.

use std::collections::BTreeMap;

use vtax_model::{
    method::IoMethod,
    study::{IpType, Row, Study},
    topology::{Host, Name, Topology, Wire, Zone},
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

/// One end: a zone, or a host on one of its wires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Host { host: Name, wire: Name },
    Zone(Name),
}

impl End {
    /// The domain in which the end's agent runs.
    pub(crate) fn domain(&self) -> &Name {
        match self {
            End::Host { host, .. } => host,
            End::Zone(zone) => zone,
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
        match *row {
            Row::Method(method) => builder.back_to_back(*row, method, study.both),
            Row::Zones { from, to } => builder.one_host(*row, from, to),
            Row::Engine(_) => builder.one_wire(*row),
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
        let topology =
            Topology { name, addresses: study.addresses, mtu, hosts: Vec::new(), wires: Vec::new(), zones: Vec::new() };
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
