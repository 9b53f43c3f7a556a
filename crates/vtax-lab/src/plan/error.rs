//! Why a lab can't be planned.

use std::{fmt, path::PathBuf};

use ipnet::Ipv4Net;
use vtax_model::{
    guest::{BadGuest, Mac},
    method::{IoMethod, Unsupported},
    topology::{BadMasters, Name, NicName},
    units::{ByteSize, Mtu},
};

use super::nic_error::NicError;

/// Why a lab can't be planned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// This machine can't offer the zone's or guest's method.
    #[error("{kind} `{name}`: {method} can't be used here: {unsupported}")]
    Unsupported {
        /// `zone` or `guest`.
        kind: &'static str,
        /// Its name.
        name: Name,
        /// Its method.
        method: IoMethod,
        /// The reason and the remedy.
        unsupported: Unsupported,
    },
    /// A NIC can't be used as the topology says.
    #[error("wire `{wire}`: the NIC {nic}: {error}")]
    Nic {
        /// The wire that is a cable.
        wire: Name,
        /// The NIC at an end of it, as the user wrote it.
        nic: NicName,
        /// Why not.
        error: Box<NicError>,
    },
    /// No order of starting the guests fits their masters.
    #[error(transparent)]
    Masters(#[from] BadMasters),
    /// This machine can't even make wires.
    #[error("no lab can be built here: {0}")]
    NoWires(Unsupported),
    /// A wire has a rate, and the kernel can't keep it.
    #[error(
        "wire `{wire}` can't have a rate here: {why}; load or install the module `sch_tbf` (CONFIG_NET_SCH_TBF), or remove the rate"
    )]
    NoRate {
        /// The wire.
        wire: Name,
        /// What is missing.
        why: String,
    },
    /// Two zones or guests use the same wire's end in ways that exclude each other.
    #[error(
        "`{first}` ({first_method}) and `{second}` ({second_method}) clash on wire `{wire}` at `{host}`: {why}; give `{second}` a wire of its own"
    )]
    Clash {
        /// The wire.
        wire: Name,
        /// The host at whose end they clash.
        host: Name,
        /// The one that comes first.
        first: Name,
        /// Its method.
        first_method: IoMethod,
        /// The other.
        second: Name,
        /// Its method.
        second_method: IoMethod,
        /// Why both can't be.
        why: &'static str,
    },
    /// Another lab has this name.
    #[error(
        "a lab named `{lab}` exists; take it down (vtax lab down {lab}), clean it if it is abandoned (vtax lab clean), or choose another name"
    )]
    NameTaken {
        /// The name.
        lab: Name,
    },
    /// The range in the file is in use.
    #[error("the addresses {range} are in use: {by}; name another range, or none to have a free one chosen")]
    RangeInUse {
        /// The range of the file.
        range: Ipv4Net,
        /// What uses it.
        by: String,
    },
    /// The range in the file is too small.
    #[error("the range {range} is too small for lab `{lab}`, which needs a /{needed}; name a larger one")]
    RangeTooSmall {
        /// The lab.
        lab: Name,
        /// The range of the file.
        range: Ipv4Net,
        /// The length of the prefix that is needed.
        needed: u8,
    },
    /// No range is free.
    #[error("no /{needed} is free in {within}; take some labs down, or name a range in the file")]
    NoFreeRange {
        /// The length of the prefix that is needed.
        needed: u8,
        /// The range that was searched.
        within: Ipv4Net,
    },
    /// A tunnel leaves an MTU that is too small for IPv4.
    #[error("zone `{zone}`: a tunnel takes {overhead} bytes, so that MTU {mtu} leaves too little; use {least} or more", least = Mtu::MIN.get() + overhead)]
    MtuTooSmall {
        /// The zone.
        zone: Name,
        /// The wires' MTU.
        mtu: Mtu,
        /// The bytes that the tunnel takes of each packet.
        overhead: u32,
    },
    /// A tunnel has no other end.
    #[error("zone `{zone}`: its tunnel over wire `{wire}` has no other end: {why}")]
    NoTunnelEnd {
        /// The zone.
        zone: Name,
        /// Its wire.
        wire: Name,
        /// The reason and the remedy.
        why: &'static str,
    },
    /// The topology refers to something that isn't in it, or not where it would have to be.
    #[error("`{user}` names {what} `{name}`: {why}")]
    Unknown {
        /// The object that refers to another.
        user: Name,
        /// The kind of the other object: "host" or "wire".
        what: &'static str,
        /// The name.
        name: Name,
        /// Why it can't be used.
        why: &'static str,
    },
    /// More namespaces than this user may have.
    #[error("lab `{lab}` needs {wanted} network namespaces and {most} are allowed; raise user.max_net_namespaces")]
    TooManyNamespaces {
        /// The lab.
        lab: Name,
        /// How many it needs.
        wanted: u64,
        /// How many there may be.
        most: u64,
    },
    /// More ports than the kernel gives a bridge.
    #[error(
        "host `{host}` would have {ports} ports on one bridge and the kernel allows {most}; spread the zones over several wires"
    )]
    BridgeFull {
        /// The host.
        host: Name,
        /// Ports on one of its bridges.
        ports: usize,
        /// The kernel's limit.
        most: usize,
    },
    /// No machine could have such a guest.
    #[error("guest `{guest}`: {error}")]
    BadGuest {
        /// The guest.
        guest: Name,
        /// Why not.
        error: BadGuest,
    },
    /// Two NICs of one network can't have one address.
    #[error("guests `{first}` and `{second}` would both have the address {mac}; give one of them another (`mac = `)")]
    SameMac {
        /// A guest.
        first: Name,
        /// The other.
        second: Name,
        /// The address of both.
        mac: Mac,
    },
    /// The guests need more memory than is free.
    #[error("the guests of lab `{lab}` have {wanted} of {} in all, and {available} are free; use fewer or smaller guests, {}", Pages(*huge), Relief(*huge))]
    Memory {
        /// The lab.
        lab: Name,
        /// The memory of all guests together.
        wanted: ByteSize,
        /// What is free.
        available: ByteSize,
        /// Whether it is about huge pages.
        huge: bool,
    },
    /// The path of a guest's directory is too long for sockets in it.
    #[error(
        "guest `{guest}`: the path of its directory, {path}, has more than {longest} bytes; use shorter names, or set XDG_RUNTIME_DIR to a shorter directory"
    )]
    LongPath {
        /// The guest.
        guest: Name,
        /// The directory.
        path: PathBuf,
        /// The most bytes that the path may have, by unix(7).
        longest: usize,
    },
    /// A guest names a CPU or NUMA node that this machine doesn't have.
    #[error("guest `{guest}` is to be on {what} {number}, and this machine has {there}; name one of these")]
    NoSuchPlace {
        /// The guest.
        guest: Name,
        /// CPU or NUMA node.
        what: &'static str,
        /// Its number.
        number: u32,
        /// The numbers that exist, with commas.
        there: String,
    },
}

struct Pages(bool);

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 { "huge pages" } else { "memory" })
    }
}

struct Relief(bool);

impl fmt::Display for Relief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 { "or reserve more (vm.nr_hugepages)" } else { "or end other programs" })
    }
}
