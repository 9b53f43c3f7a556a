//! A lab as described in its file (`docs/labs.md`): hosts, the wires between them, and the zones and guests on them.

mod masters;
mod nic_name;
mod reader;

use std::{fmt, path::PathBuf, str::FromStr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{
    address_family::AddressFamily,
    disk::DiskAttach,
    guest::{Attach, BadGuest, GuestSize, Mac, System},
    located::{FileError, Source},
    method::IoMethod,
    units::{BitRate, ByteSize, Mtu},
    vf::VfOptions,
};

pub use masters::BadMasters;
pub use nic_name::{BadNicName, Cable, NicName};

/// The name of a lab, host, wire, zone or guest: 1 to 32 letters, digits and `-`, a letter first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Name(String);

/// Invalid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("invalid name `{0}`: use 1 to 32 lower-case letters, digits and `-`, a letter first")]
#[diagnostic(code("bad-name"))]
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

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Definition of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// The lab's name, one per machine and user.
    pub name: Name,
    /// The family of its addresses.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub family: AddressFamily,
    /// The range of all addresses; chosen when the lab is built if absent.
    pub addresses: Option<IpNet>,
    /// The MTU of the wires.
    pub mtu: Mtu,
    /// The hosts, in the file's order.
    pub hosts: Vec<Host>,
    /// The wires, in the file's order.
    pub wires: Vec<Wire>,
    /// The zones, with counts expanded.
    pub zones: Vec<Zone>,
    /// The guests, with counts expanded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guests: Vec<Guest>,
}

/// A host of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name, unique among hosts, wires, zones and guests.
    pub name: Name,
    /// True if it is a switch: a bridge whose ports are its wires.
    pub switch: bool,
    /// True if its virtual switches send multicast frames only to ports that have joined the group; the kernel's
    /// default if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snooping: Option<bool>,
}

/// A wire between two hosts.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wire {
    /// Its name, unique among hosts, wires, zones and guests.
    pub name: Name,
    /// The hosts at its ends.
    pub ends: [Name; 2],
    /// Its limit, if any.
    pub shape: Option<Shape>,
    /// The NIC ports at its ends, if it is a cable between two: the first at the first end.
    pub nics: Option<Cable>,
}

/// Maximum rate of a wire per direction: packets with Ethernet headers, without preamble, checksum and gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Limit in bits per second for each direction, at least 1.
    pub rate: BitRate,
    /// Queue size at each end; excess packets are dropped. Default: 50 ms at the rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<ByteSize>,
}

impl Shape {
    /// Bytes of the Ethernet header, which the MTU doesn't include.
    pub const HEADER: u32 = 14;
}

/// A zone of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zone {
    /// Its name, unique among hosts and zones.
    pub name: Name,
    /// The host that it lives on.
    pub host: Name,
    /// Its attachment.
    pub method: IoMethod,
    /// The wire of its host that it is attached to.
    pub wire: Name,
    /// Address of its virtual function; derived from its lab and name if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// The settings of its virtual function.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub vf: VfOptions,
}

/// A guest of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// Its name, unique among hosts, zones and guests.
    pub name: Name,
    /// The host that it lives on.
    pub host: Name,
    /// The wire of its host that it is attached to.
    pub wire: Name,
    /// virtio with its backend, an emulated model, or a function of the host.
    pub attach: Attach,
    /// Address of its NIC; derived from its lab and name if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// Its machine.
    #[serde(default)]
    pub size: GuestSize,
    /// Its boot source.
    #[serde(default)]
    pub system: System,
    /// Guests that are started before it, and without which it isn't started. At most
    /// [`MOST_MASTERS`](crate::masters::MOST_MASTERS).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masters: Vec<Name>,
    /// Its disks in addition to the boot disk, in the order of its disk ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<GuestDisk>,
    /// A directory of the host that its agent can read, e.g. a program with its libraries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lent: Option<PathBuf>,
}

/// A disk of a guest. Several disks can share blocks: coordinating writes is up to their users.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GuestDisk {
    /// A file or a block device of the host. For an assigned NVMe controller, one of its block
    /// devices.
    pub path: PathBuf,
    /// Its attachment.
    pub attach: DiskAttach,
}

impl GuestDisk {
    /// Checks that a guest of this size can have it.
    pub fn check(&self, size: &GuestSize) -> Result<(), BadGuest> {
        let (queues, vcpus) = (self.attach.queues, size.vcpus);
        if queues > vcpus { Err(BadGuest::DiskQueues { queues, vcpus }) } else { Ok(()) }
    }
}

impl Topology {
    /// Maximum number of zones and guests of one lab: a Linux bridge has up to 1,023 ports.
    pub const MOST_ZONES: usize = 1000;

    /// Returns the guests, each after its masters, otherwise in the file's order. A missing master and a cycle are
    /// errors.
    pub fn guests_by_masters(&self) -> Result<Vec<&Guest>, BadMasters> {
        masters::ordered(&self.guests)
    }

    /// Reads a lab file.
    pub fn parse(source: Source<'_>) -> Result<Topology, FileError> {
        reader::read(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::{Capability, CapabilityAnswer, DomainKind, MethodVariant};

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
            ("queue = 65536", "lab.toml:11: wire `w0` has a queue but no rate"),
            (
                "rate = \"100M\"\nqueue = 1513",
                "lab.toml:12: a queue of 1513 B cannot hold a packet of mtu 1500, which has 1514",
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

    const GUEST: &str = r#"
[[guest]]
name = "db"
host = "peer"
method = "paravirtual"
"#;

    fn guests(more: &str) -> Result<Vec<Guest>, String> {
        let text = format!("{RACK}{GUEST}{more}\n");
        parse(&text).map(|topology| topology.guests).map_err(|error| error.to_string())
    }

    #[test]
    fn a_guest_has_a_machine_and_a_nic() {
        use crate::guest::{Backend, VirtioNic};

        let plain = guests("").expect("a good file");
        let usual = (GuestSize::default(), System::default(), Attach::Paravirtual(VirtioNic::default()));
        assert_eq!((plain[0].size.clone(), plain[0].system.clone(), plain[0].attach), usual);

        let more = "count = 2\nvcpus = 2\nqueues = 2\nmemory = \"1 GiB\"\nbackend = \"userspace\"\noffloads = false";
        let two = guests(more).expect("a good file");
        assert_eq!(two.iter().map(|guest| guest.name.as_str()).collect::<Vec<_>>(), ["db-1", "db-2"]);
        assert_eq!((two[1].size.vcpus, two[1].size.memory), (2, ByteSize(1 << 30)));
        let nic = VirtioNic { backend: Some(Backend::Userspace), queues: 2, offloads: false, ..VirtioNic::default() };
        assert_eq!(two[1].attach, Attach::Paravirtual(nic));

        let disk = guests("image = \"debian.qcow2\"").expect("a good file");
        assert_eq!(disk[0].system, System::Disk { image: "debian.qcow2".into() });
        assert_eq!(disk[0].size.memory, ByteSize(1 << 30));
    }

    #[test]
    fn a_guest_may_have_disks() {
        let disk = |attach: &str| format!("vcpus = 2\n[[guest.disk]]\npath = \"/dev/sdb\"\n{attach}");
        let disks = |attach: &str| guests(&disk(attach)).map(|guests| guests[0].disks.clone());
        let plain = disks("").expect("a good file");
        assert_eq!((plain[0].path.to_str(), plain[0].attach.to_string()), (Some("/dev/sdb"), "virtio-blk".to_owned()));
        let attached = disks("attach = \"virtio-scsi:iothread,queues=2\"").expect("a good file");
        assert_eq!(attached[0].attach.to_string(), "virtio-scsi:iothread,queues=2");
        let told = ["attach = \"virtio-blk:queues=3\"", "attach = \"ide:iothread\"", "serial = \"a\""];
        insta::assert_snapshot!(told.map(|more| disks(more).expect_err("a broken file")).join("\n"));
    }

    #[test]
    fn a_wire_may_be_a_cable_between_nics() {
        let wired = |more: &str| parse(&RACK.replace("[\"sut\", \"peer\"]", &format!("[\"sut\", \"peer\"]\n{more}")));
        let topology = wired("nics = [\"eno1\", \"0000:81:00.0\"]").expect("a good file");
        assert_eq!(topology.wires[0].nics, Some("eno1,0000:81:00.0".parse().expect("a cable")));
        let told =
            ["nics = [\"eno1\", \"eno1\"]", "nics = [\"eno1\", \"e 2\"]", "nics = [\"a\", \"b\"]\nrate = \"1G\""]
                .map(|more| wired(more).expect_err(more).to_string());
        insta::assert_snapshot!(told.join("\n"));
    }

    #[test]
    fn virtual_functions_have_their_own_options() {
        let zone =
            RACK.replace("\"bridge\"\ncount = 3", "\"sr-iov\"\nmac = \"02:00:5e:10:00:01\"\nvlan = 7\nrate = \"100M\"");
        let zones = parse(&zone).expect("a good file").zones;
        assert_eq!(zones[0].vf.vlan.map(crate::vf::Vlan::get), Some(7));
        assert_eq!(zones[0].mac, "02:00:5e:10:00:01".parse().ok());
        let guest = |method: &str, more: &str| {
            let text = format!("{RACK}{GUEST}{more}\n").replace("paravirtual", method);
            parse(&text).map(|topology| topology.guests[0].clone()).map_err(|error| error.to_string())
        };
        let with = guest("sr-iov", "trust = true\nspoof_check = false").expect("a good file");
        let vf = VfOptions { trust: Some(true), spoof_check: Some(false), ..VfOptions::default() };
        assert_eq!(with.attach, Attach::SrIov(vf));
        assert_eq!(guest("root-domain", "").expect("a good file").attach, Attach::RootDomain);
        let told = [
            guest("sr-iov", "vlan = 4095"),
            guest("sr-iov", "rate = \"1 kbit/s\""),
            guest("sr-iov", "queues = 1"),
            guest("assigned", "vlan = 5"),
            guest("assigned", "mac = \"02:00:00:00:00:01\""),
            guest("paravirtual", "masters = [\"db\"]"),
            guest("paravirtual", "masters = [\"nobody\"]"),
            parse(&RACK.replace("count = 3", "vlan = 7"))
                .map(|topology| topology.guests[0].clone())
                .map_err(|error| error.to_string()),
        ]
        .map(|refused| refused.expect_err("a broken file"));
        insta::assert_snapshot!(told.join("\n"));
    }

    /// Returns the file of a lab with a zone or a guest of this kind, and an option.
    fn with_option(variant: MethodVariant, option: &str) -> String {
        let method: &str = variant.method.into();
        let virtio = variant.virtio.map(|path| {
            let backend: &str = path.backend.into();
            format!("backend = \"{backend}\"\nvnet = \"{}\"\n", path.vnet)
        });
        match variant.domain {
            DomainKind::Zone => RACK.replace("\"bridge\"\ncount = 3", &format!("\"{method}\"\n{option}")),
            _ => {
                let guest = GUEST.replace("\"paravirtual\"", &format!("\"{method}\""));
                format!("{RACK}{guest}{}{option}\n", virtio.unwrap_or_default())
            }
        }
    }

    #[test]
    fn options_that_the_nic_obeys_are_for_those_whose_nic_does() {
        let attached = MethodVariant::all().into_iter().filter(|variant| variant.domain != DomainKind::Primary);
        for variant in attached {
            let options = [("vlan = 7", Capability::Vlan), ("rate = \"100M\"", Capability::RateLimit)];
            for (option, capability) in options {
                let CapabilityAnswer { word, reason, .. } = variant.capabilities().answer(capability);
                match parse(&with_option(variant, option)) {
                    Ok(_) => assert_eq!(word, "NIC", "{variant}, {option}"),
                    Err(refused) => {
                        let told = refused.to_string();
                        assert!(word != "NIC" && told.contains(reason), "{variant}, {option}: {told}");
                    }
                }
            }
        }
    }

    #[test]
    fn errors_of_guests_name_file_and_line() {
        let refused = |more: &str| guests(more).expect_err(more);
        let told = [
            "queues = 2",
            "vcpus = 300",
            "memory = \"64 KiB\"",
            "rx_ring = 300",
            "tx_ring = 512",
            "cpus = [0, 1]",
            "backend = \"vhosts\"",
            "model = \"igb\"",
            "image = \"a.qcow2\"\nkernel = \"/boot/vmlinuz\"",
            "mac = \"01:00:5e:00:00:01\"",
            "count = 2\nmac = \"02:00:00:00:00:01\"",
            "count = 1000",
            "ram = 5",
            "vcpus = -1",
        ]
        .map(refused);
        insta::assert_snapshot!(told.join("\n"));
        let emulated = |more: &str| {
            let guest = GUEST.replace("paravirtual", "emulated");
            parse(&format!("{RACK}{guest}{more}\n")).map(|topology| topology.guests[0].attach)
        };
        assert_eq!(emulated("").expect("a good file"), Attach::Emulated { model: Default::default() });
        insta::assert_snapshot!(emulated("queues = 1").expect_err("no virtio"));
        insta::assert_snapshot!(emulated("model = \"ne2000\"").expect_err("no such model"));
        let text = format!("{RACK}{GUEST}").replace("method = \"paravirtual\"", "method = \"bridge\"");
        insta::assert_snapshot!(parse(&text).expect_err("no method of guests"));
        let text = RACK.replace("method = \"bridge\"", "method = \"paravirtual\"");
        insta::assert_snapshot!(parse(&text).expect_err("no method of zones"));
        let text = format!("{RACK}{GUEST}").replace("name = \"db\"", "name = \"web-2\"");
        insta::assert_snapshot!(parse(&text).expect_err("taken"));
    }
}
