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
    /// This machine doesn't have the zone's or guest's method.
    #[error("{kind} `{name}`: {method} can't be used here: {unsupported}")]
    Unsupported {
        /// `zone` or `guest`.
        kind: &'static str,
        /// Which.
        name: Name,
        /// Its method.
        method: IoMethod,
        /// Why, and what to do.
        unsupported: Unsupported,
    },
    /// A NIC can't be what it is to be.
    #[error("wire `{wire}`: the NIC {nic}: {error}")]
    Nic {
        /// The wire that is a cable.
        wire: Name,
        /// The NIC at an end of it, as its user names it.
        nic: NicName,
        /// Why not.
        error: Box<NicError>,
    },
    /// In which order guests would have to be started.
    #[error(transparent)]
    Masters(#[from] BadMasters),
    /// Not even wires can be made.
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
    /// Two zones or guests want the same wire's end in ways that exclude each other.
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
    /// The name is not free.
    #[error(
        "a lab named `{lab}` exists; take it down (vtax lab down {lab}), clean it if it is abandoned (vtax lab clean), or choose another name"
    )]
    NameTaken {
        /// The name.
        lab: Name,
    },
    /// The range in the file is not free.
    #[error("the addresses {range} are in use: {by}; name another range, or none to have a free one chosen")]
    RangeInUse {
        /// The range of the file.
        range: Ipv4Net,
        /// What it clashes with.
        by: String,
    },
    /// The range in the file doesn't suffice.
    #[error("the range {range} is too small for lab `{lab}`, which needs a /{needed}; name a larger one")]
    RangeTooSmall {
        /// The lab.
        lab: Name,
        /// The range of the file.
        range: Ipv4Net,
        /// The length of the prefix that would do.
        needed: u8,
    },
    /// No range is free.
    #[error("no /{needed} is free in {within}; take some labs down, or name a range in the file")]
    NoFreeRange {
        /// The length of the prefix that is needed.
        needed: u8,
        /// Where it was looked for.
        within: Ipv4Net,
    },
    /// A tunnel leaves less than an IPv4 link must carry.
    #[error("zone `{zone}`: a tunnel takes {overhead} bytes, so that MTU {mtu} leaves too little; use {least} or more", least = Mtu::MIN.get() + overhead)]
    MtuTooSmall {
        /// The zone.
        zone: Name,
        /// The wires' MTU.
        mtu: Mtu,
        /// What the tunnel takes.
        overhead: u32,
    },
    /// A tunnel has nowhere to go.
    #[error("zone `{zone}`: its tunnel over wire `{wire}` has no other end: {why}")]
    NoTunnelEnd {
        /// The zone.
        zone: Name,
        /// Its wire.
        wire: Name,
        /// Why, and what to do.
        why: &'static str,
    },
    /// The topology refers to something that isn't in it, or not where it would have to be.
    #[error("`{user}` names {what} `{name}`: {why}")]
    Unknown {
        /// Who refers.
        user: Name,
        /// To what: "host", "wire".
        what: &'static str,
        /// The name.
        name: Name,
        /// What is wrong with it.
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
    /// The guests' memory is not there.
    #[error("the guests of lab `{lab}` have {wanted} of {} in all, and {available} are free; use fewer or smaller guests, {}", Pages(*huge), Relief(*huge))]
    Memory {
        /// The lab.
        lab: Name,
        /// What they have together.
        wanted: ByteSize,
        /// What is free.
        available: ByteSize,
        /// Whether it is about huge pages.
        huge: bool,
    },
    /// A socket there could have no name.
    #[error(
        "guest `{guest}`: the path of its directory, {path}, has more than {longest} bytes; use shorter names, or set XDG_RUNTIME_DIR to a shorter directory"
    )]
    LongPath {
        /// The guest.
        guest: Name,
        /// The directory.
        path: PathBuf,
        /// What its sockets leave of unix(7)'s limit.
        longest: usize,
    },
    /// A guest is to be where this machine has nothing.
    #[error("guest `{guest}` is to be on {what} {number}, and this machine has {there}; name one of these")]
    NoSuchPlace {
        /// The guest.
        guest: Name,
        /// CPU or NUMA node.
        what: &'static str,
        /// Its number.
        number: u32,
        /// What there is, with commas.
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
