//! A lab as its file describes it: hosts, the wires between them, the zones on them.
//!
//! ```toml
//! [lab]
//! name = "rack"
//! addresses = "198.18.0.0/20"   # optional; a free range is chosen without it
//! mtu = 1500                    # optional
//!
//! [[host]]
//! name = "sut"
//! [[host]]
//! name = "peer"
//!
//! [[wire]]
//! name = "w0"
//! ends = ["sut", "peer"]
//! rate = "1 Gbit/s"             # optional; as fast as the kernel can without it
//! queue = "64KiB"               # optional, with a rate: what may wait for its turn
//!
//! [[zone]]
//! name = "web"
//! host = "sut"
//! method = "bridge"
//! wire = "w0"                   # optional where the host has one wire only
//! count = 3                     # optional: web-1, web-2, web-3
//! ```
//!
//! A host with `switch = true` owns no domain: its wires are the ports of one bridge.

use std::{collections::BTreeSet, fmt, str::FromStr};

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::{
    located::{FileError, Source},
    method::IoMethod,
    units::{BitRate, ByteSize, Mtu},
};

/// The name of a lab, host, wire or zone: 1 to 32 letters, digits and `-`, a letter first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// A name that vtax doesn't take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a name: use 1 to 32 lower-case letters, digits and `-`, a letter first")]
pub struct BadName(String);

impl Name {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = BadName;

    fn try_from(text: String) -> Result<Self, BadName> {
        let starts = text.starts_with(|c: char| c.is_ascii_lowercase());
        let rest = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if starts && rest && text.len() <= 32 { Ok(Name(text)) } else { Err(BadName(text)) }
    }
}

impl FromStr for Name {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        Name::try_from(text.to_owned())
    }
}

impl From<Name> for String {
    fn from(name: Name) -> String {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A lab: what is to be there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// The lab's name, one per machine and user.
    pub name: Name,
    /// The range that every address is taken from; chosen when the lab is built if absent.
    pub addresses: Option<Ipv4Net>,
    /// The MTU of the wires.
    pub mtu: Mtu,
    /// The hosts, in the file's order.
    pub hosts: Vec<Host>,
    /// The wires, in the file's order.
    pub wires: Vec<Wire>,
    /// The zones, those with a count written out.
    pub zones: Vec<Zone>,
}

/// A host of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name.
    pub name: Name,
    /// Whether it is a switch: one bridge whose ports are its wires.
    pub switch: bool,
}

/// A wire between two hosts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wire {
    /// Its name.
    pub name: Name,
    /// The hosts at its ends.
    pub ends: [Name; 2],
    /// Its limit, if it is to have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<Shape>,
}

/// What a wire carries at most, in each direction.
///
/// Counted are the packets with their Ethernet headers, not what a physical wire adds to them
/// (preamble, checksum, gap).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// The rate.
    pub rate: BitRate,
    /// How much may wait at each end; what comes on top is dropped. Without it, what the rate
    /// brings in 50 ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<ByteSize>,
}

impl Shape {
    /// Bytes of the Ethernet header, which an MTU leaves out.
    pub const HEADER: u32 = 14;
}

/// A zone of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zone {
    /// Its name, unlike that of any host or other zone.
    pub name: Name,
    /// The host that it lives on.
    pub host: Name,
    /// How it is attached.
    pub method: IoMethod,
    /// The wire of its host that it is attached to.
    pub wire: Name,
}

impl Topology {
    /// The most zones that one lab may have: a Linux bridge takes 1,023 ports.
    pub const MOST_ZONES: usize = 1000;

    /// Reads a lab file.
    pub fn parse(source: Source<'_>) -> Result<Topology, FileError> {
        Reader { source, file: source.parse()? }.read()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LabFile {
    lab: LabTable,
    host: Vec<HostTable>,
    wire: Vec<WireTable>,
    #[serde(default)]
    zone: Vec<ZoneTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LabTable {
    name: Name,
    addresses: Option<Ipv4Net>,
    #[serde(default = "ethernet")]
    mtu: Mtu,
}

fn ethernet() -> Mtu {
    Mtu::ETHERNET
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostTable {
    name: Spanned<Name>,
    #[serde(default)]
    switch: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireTable {
    name: Spanned<Name>,
    ends: Spanned<[Name; 2]>,
    rate: Option<BitRate>,
    queue: Option<Spanned<ByteSize>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ZoneTable {
    name: Spanned<Name>,
    host: Spanned<Name>,
    method: Spanned<IoMethod>,
    wire: Option<Spanned<Name>>,
    #[serde(default)]
    count: Option<Spanned<i64>>,
}

struct Reader<'a> {
    source: Source<'a>,
    file: LabFile,
}

impl Reader<'_> {
    fn read(self) -> Result<Topology, FileError> {
        let hosts: Vec<Host> = self.file.host.iter().map(HostTable::host).collect();
        let wires = self.wires(&hosts)?;
        let zones = self.zones(&hosts, &wires)?;
        self.check_names(&zones)?;
        let LabTable { name, addresses, mtu } = self.file.lab;
        Ok(Topology { name, addresses, mtu, hosts, wires, zones })
    }

    fn wires(&self, hosts: &[Host]) -> Result<Vec<Wire>, FileError> {
        self.file.wire.iter().map(|table| self.wire(table, hosts)).collect()
    }

    fn wire(&self, table: &WireTable, hosts: &[Host]) -> Result<Wire, FileError> {
        let ends = table.ends.get_ref();
        for end in ends {
            if !hosts.iter().any(|host| host.name == *end) {
                let message = format!("wire `{}` ends at `{end}`, which is not a [[host]]", table.name.get_ref());
                return Err(self.source.error(&table.ends.span(), message));
            }
        }
        if ends[0] == ends[1] {
            let message =
                format!("wire `{}` has both ends at `{}`; a wire joins two hosts", table.name.get_ref(), ends[0]);
            return Err(self.source.error(&table.ends.span(), message));
        }
        Ok(Wire { name: table.name.get_ref().clone(), ends: ends.clone(), shape: self.shape(table)? })
    }

    fn shape(&self, table: &WireTable) -> Result<Option<Shape>, FileError> {
        let mtu = self.file.lab.mtu;
        let packet = mtu.get() + Shape::HEADER;
        match (table.rate, &table.queue) {
            (None, Some(queue)) => Err(self.source.error(
                &queue.span(),
                format!("wire `{}` has a queue and no rate; give it one, or remove the queue", table.name.get_ref()),
            )),
            (Some(_), Some(queue)) if queue.get_ref().0 < packet.into() => Err(self.source.error(
                &queue.span(),
                format!(
                    "a queue of {} holds no packet of mtu {mtu}, which has {packet} bytes; make it longer",
                    queue.get_ref()
                ),
            )),
            (rate, queue) => Ok(rate.map(|rate| Shape { rate, queue: queue.as_ref().map(|queue| *queue.get_ref()) })),
        }
    }

    fn zones(&self, hosts: &[Host], wires: &[Wire]) -> Result<Vec<Zone>, FileError> {
        let mut zones = Vec::new();
        for table in &self.file.zone {
            let host = self.zone_host(table, hosts)?;
            let wire = self.zone_wire(table, &host, wires)?;
            let method = self.zone_method(table)?;
            for name in self.zone_names(table, zones.len())? {
                zones.push(Zone { name, host: host.clone(), method, wire: wire.clone() });
            }
        }
        Ok(zones)
    }

    fn zone_host(&self, table: &ZoneTable, hosts: &[Host]) -> Result<Name, FileError> {
        let wanted = table.host.get_ref();
        match hosts.iter().find(|host| host.name == *wanted) {
            Some(host) if !host.switch => Ok(host.name.clone()),
            Some(_) => Err(self
                .source
                .error(&table.host.span(), format!("`{wanted}` is a switch and can't own a zone; name another host"))),
            None => Err(self.source.error(
                &table.host.span(),
                format!("zone `{}` is on `{wanted}`, which is not a [[host]]", table.name.get_ref()),
            )),
        }
    }

    fn zone_wire(&self, table: &ZoneTable, host: &Name, wires: &[Wire]) -> Result<Name, FileError> {
        let mine: Vec<&Name> = wires.iter().filter(|wire| wire.ends.contains(host)).map(|wire| &wire.name).collect();
        match (&table.wire, mine.as_slice()) {
            (Some(wire), mine) if mine.contains(&wire.get_ref()) => Ok(wire.get_ref().clone()),
            (Some(wire), _) => {
                Err(self.source.error(&wire.span(), format!("host `{host}` has no wire `{}`", wire.get_ref())))
            }
            (None, [only]) => Ok((*only).clone()),
            (None, []) => Err(self
                .source
                .error(&table.host.span(), format!("host `{host}` has no wire; add a [[wire]] that ends there"))),
            (None, _) => Err(self
                .source
                .error(&table.host.span(), format!("host `{host}` has several wires; name one with `wire = `"))),
        }
    }

    fn zone_method(&self, table: &ZoneTable) -> Result<IoMethod, FileError> {
        let method = *table.method.get_ref();
        if method == IoMethod::Native {
            return Err(self
                .source
                .error(&table.method.span(), "`native` is the host itself and needs no [[zone]]; remove this zone"));
        }
        if !method.domains().contains(&crate::method::DomainKind::Zone) {
            return Err(self.source.error(&table.method.span(), format!("`{method}` attaches guests, not zones")));
        }
        Ok(method)
    }

    fn zone_names(&self, table: &ZoneTable, so_far: usize) -> Result<Vec<Name>, FileError> {
        let base = table.name.get_ref();
        let Some(count) = &table.count else { return Ok(vec![base.clone()]) };
        let most = Topology::MOST_ZONES.saturating_sub(so_far);
        let number = usize::try_from(*count.get_ref()).ok().filter(|n| (1..=most).contains(n));
        let Some(number) = number else {
            let message = format!("count {}: a lab has 1 to {} zones in all", count.get_ref(), Topology::MOST_ZONES);
            return Err(self.source.error(&count.span(), message));
        };
        let numbered = (1..=number).map(|i| Name::try_from(format!("{base}-{i}")));
        numbered.collect::<Result<_, _>>().map_err(|error| self.source.error(&table.name.span(), error))
    }

    fn check_names(&self, zones: &[Zone]) -> Result<(), FileError> {
        let mut taken = BTreeSet::new();
        let mut claim = |name: &Name, span: std::ops::Range<usize>| match taken.insert(name.clone()) {
            true => Ok(()),
            false => Err(self
                .source
                .error(&span, format!("the name `{name}` is taken; give each host, wire and zone its own"))),
        };
        for table in &self.file.host {
            claim(table.name.get_ref(), table.name.span())?;
        }
        for table in &self.file.wire {
            claim(table.name.get_ref(), table.name.span())?;
        }
        for zone in zones {
            let table =
                self.file.zone.iter().rfind(|table| zone.name.as_str().starts_with(table.name.get_ref().as_str()));
            let span = table.map_or(0..0, |table| table.name.span());
            claim(&zone.name, span)?;
        }
        Ok(())
    }
}

impl HostTable {
    fn host(&self) -> Host {
        Host { name: self.name.get_ref().clone(), switch: self.switch }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RACK: &str = r#"
[lab]
name = "rack"
[[host]]
name = "sut"
[[host]]
name = "peer"
[[wire]]
name = "w0"
ends = ["sut", "peer"]
[[zone]]
name = "web"
host = "sut"
method = "bridge"
count = 3
"#;

    fn parse(text: &str) -> Result<Topology, FileError> {
        Topology::parse(Source { name: "lab.toml", text })
    }

    fn refused(from: &str, to: &str) -> String {
        assert!(RACK.contains(from));
        parse(&RACK.replace(from, to)).expect_err("a broken file").to_string()
    }

    #[test]
    fn a_count_writes_the_zones_out() {
        let topology = parse(RACK).expect("a good file");
        let names: Vec<&str> = topology.zones.iter().map(|zone| zone.name.as_str()).collect();
        assert_eq!(names, ["web-1", "web-2", "web-3"]);
        assert_eq!(topology.zones[0].wire.as_str(), "w0");
        assert_eq!(topology.mtu, Mtu::ETHERNET);
    }

    #[test]
    fn a_wire_may_have_a_rate_and_then_a_queue() {
        let shape = |more: &str| {
            let topology = parse(&RACK.replace("[\"sut\", \"peer\"]", &format!("[\"sut\", \"peer\"]\n{more}")));
            topology.map(|topology| topology.wires[0].shape)
        };
        let rate = BitRate::new(100_000_000).expect("not 0");
        assert_eq!(shape(""), Ok(None));
        assert_eq!(shape("rate = \"100 Mbit/s\""), Ok(Some(Shape { rate, queue: None })));
        let queue = Some(ByteSize(65_536));
        assert_eq!(shape("rate = \"100M\"\nqueue = \"64KiB\""), Ok(Some(Shape { rate, queue })));
        for (more, wrong) in [
            ("queue = 65536", "lab.toml:11: wire `w0` has a queue and no rate"),
            (
                "rate = \"100M\"\nqueue = 1513",
                "lab.toml:12: a queue of 1513 B holds no packet of mtu 1500, which has 1514",
            ),
            ("rate = \"fast\"", "`fast`"),
        ] {
            let error = shape(more).expect_err(more).to_string();
            assert!(error.contains(wrong), "{error}");
        }
    }

    #[test]
    fn errors_name_file_and_line() {
        insta::assert_snapshot!(refused("count = 3", "counts = 3"));
        insta::assert_snapshot!(refused("count = 3", "count = 0"));
        insta::assert_snapshot!(refused("name = \"rack\"", "name = \"rack\"\nmtu = 67"));
        insta::assert_snapshot!(refused("method = \"bridge\"", "method = \"brigde\""));
        insta::assert_snapshot!(refused("method = \"bridge\"", "method = \"native\""));
        insta::assert_snapshot!(refused("host = \"sut\"", "host = \"nobody\""));
        insta::assert_snapshot!(refused("[\"sut\", \"peer\"]", "[\"sut\", \"sut\"]"));
        insta::assert_snapshot!(refused("name = \"peer\"", "name = \"sut\""));
        insta::assert_snapshot!(refused("name = \"rack\"", "name = \"Rack 1\""));
    }
}
