//! Why a lab can't be planned, and why a NIC can't be part of it.

use std::path::PathBuf;

use ipnet::Ipv4Net;
use vtax_model::{
    disk::DiskAttach,
    guest::{BadGuest, Mac},
    method::{IoMethod, Unsupported},
    topology::{BadMasters, Name, NicName},
    units::{ByteSize, Mtu},
};
use vtax_sys::pci::PciAddress;

use crate::facts::NoDevice;

/// Why a lab can't be planned.
#[derive(Debug, Clone, PartialEq, Eq, miette::Diagnostic, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum PlanError {
    #[error("{kind} `{name}`: {method} can't be used here: {unsupported}")]
    #[diagnostic(forward(unsupported))]
    Unsupported { kind: &'static str, name: Name, method: IoMethod, unsupported: Unsupported },
    #[error("wire `{wire}`: the NIC {nic}: {error}")]
    #[diagnostic(forward(error))]
    Nic { wire: Name, nic: NicName, error: Box<NicError> },
    #[error("guest `{guest}`: {attach} of {path} can't be had here: {unsupported}", path = path.display())]
    #[diagnostic(forward(unsupported))]
    Disk { guest: Name, path: PathBuf, attach: DiskAttach, unsupported: Unsupported },
    #[error("guest `{guest}`: the disk {path}: {why}", path = path.display())]
    #[diagnostic(code("bad-backend"))]
    DiskBackend { guest: Name, path: PathBuf, why: String },
    #[error("guest `{guest}` has {count} disks and there is room for {most}; give it fewer")]
    #[diagnostic(code("bad-guest"))]
    Disks { guest: Name, count: usize, most: u32 },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Masters(#[from] BadMasters),
    #[error("no lab can be built here: {0}")]
    #[diagnostic(forward(0))]
    NoWires(Unsupported),
    #[error(
        "wire `{wire}` can't have a rate here: {why}; load or install the module `sch_tbf` (CONFIG_NET_SCH_TBF), or remove the rate"
    )]
    #[diagnostic(code("no-rate-limit"))]
    NoRate { wire: Name, why: String },
    #[error(
        "`{first}` ({first_method}) and `{second}` ({second_method}) clash on wire `{wire}` at `{host}`: {why}; give `{second}` a wire of its own"
    )]
    #[diagnostic(code("methods-clash"))]
    Clash {
        wire: Name,
        host: Name,
        first: Name,
        first_method: IoMethod,
        second: Name,
        second_method: IoMethod,
        why: &'static str,
    },
    #[error(
        "a lab named `{lab}` exists; take it down (vtax lab down {lab}), clean it if it is abandoned (vtax lab clean), or choose another name"
    )]
    #[diagnostic(code("name-taken"))]
    NameTaken { lab: Name },
    #[error("the addresses {range} are in use: {by}; name another range, or none to have a free one chosen")]
    #[diagnostic(code("range-in-use"))]
    RangeInUse { range: Ipv4Net, by: String },
    #[error("the range {range} is too small for lab `{lab}`, which needs a /{needed}; name a larger one")]
    #[diagnostic(code("range-too-small"))]
    RangeTooSmall { lab: Name, range: Ipv4Net, needed: u8 },
    #[error("no /{needed} is free in {within}; take some labs down, or name a range in the file")]
    #[diagnostic(code("no-free-range"))]
    NoFreeRange { needed: u8, within: Ipv4Net },
    #[error("zone `{zone}`: a tunnel takes {overhead} bytes, so that MTU {mtu} leaves too little; use {least} or more", least = Mtu::MIN.get() + overhead)]
    #[diagnostic(code("mtu-too-small"))]
    MtuTooSmall { zone: Name, mtu: Mtu, overhead: u32 },
    #[error("zone `{zone}`: its tunnel over wire `{wire}` has no other end: {why}")]
    #[diagnostic(code("no-tunnel-end"))]
    NoTunnelEnd { zone: Name, wire: Name, why: &'static str },
    #[error("`{user}` names {what} `{name}`: {why}")]
    #[diagnostic(code("unknown-name"))]
    Unknown { user: Name, what: &'static str, name: Name, why: &'static str },
    #[error("lab `{lab}` needs {wanted} network namespaces and {most} are allowed; raise user.max_net_namespaces")]
    #[diagnostic(code("too-many-namespaces"))]
    TooManyNamespaces { lab: Name, wanted: u64, most: u64 },
    #[error(
        "host `{host}` would have {ports} ports on one bridge and the kernel allows {most}; spread the zones over several wires"
    )]
    #[diagnostic(code("bridge-full"))]
    BridgeFull { host: Name, ports: usize, most: usize },
    #[error("guest `{guest}`: {error}")]
    #[diagnostic(forward(error))]
    BadGuest { guest: Name, error: BadGuest },
    #[error("guests `{first}` and `{second}` would both have the address {mac}; give one of them another (`mac = `)")]
    #[diagnostic(code("same-address"))]
    SameMac { first: Name, second: Name, mac: Mac },
    #[error("the guests of lab `{lab}` have {wanted} of {} in all, and {available} are free; use fewer or smaller guests, {}", pages(*huge), relief(*huge))]
    #[diagnostic(code("not-enough-memory"))]
    Memory { lab: Name, wanted: ByteSize, available: ByteSize, huge: bool },
    #[error(
        "guest `{guest}`: the path of its directory, {path}, has more than {longest} bytes; use shorter names, or set XDG_RUNTIME_DIR to a shorter directory"
    )]
    #[diagnostic(code("path-too-long"))]
    LongPath { guest: Name, path: PathBuf, longest: usize },
    #[error("guest `{guest}` is to be on {what} {number}, and this machine has {there}; name one of these")]
    #[diagnostic(code("no-such-cpu-or-node"))]
    NoSuchPlace { guest: Name, what: &'static str, number: u32, there: String },
}

/// Why a NIC can't be an end of a wire, or its functions can't be handed out.
#[derive(Debug, Clone, PartialEq, Eq, miette::Diagnostic, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum NicError {
    #[error("{0}")]
    #[diagnostic(transparent)]
    Unknown(NoDevice),
    #[error("it is no network controller; name a NIC (vtax io list shows them)")]
    #[diagnostic(code("not-a-nic"))]
    NotANic,
    #[error("it is a virtual function; name its physical function {0}")]
    #[diagnostic(code("is-virtual-function"))]
    Virtual(PciAddress),
    #[error("it must not be taken: {0}; use another NIC")]
    #[diagnostic(code("nic-must-stay"))]
    Kept(String),
    #[error(
        "{0} has it, and with it all virtual functions that it can have; take that lab down first (vtax lab down), or use another NIC"
    )]
    #[diagnostic(code("nic-lent"))]
    Lent(String),
    #[error("it has no driver; load the one of its maker (modprobe), or bind it")]
    #[diagnostic(code("no-driver"))]
    NoDriver,
    #[error(
        "its driver {0} shows no network link here: a guest or another namespace has it; give it back first (vtax io list says who has it)"
    )]
    #[diagnostic(code("no-network-link"))]
    NoLink(String),
    #[error("its link {link} is in use: {by}; remove that first")]
    #[diagnostic(code("nic-in-use"))]
    InUse { link: String, by: String },
    #[error("it is an end of the wire `{0}` already; name another")]
    #[diagnostic(code("nic-in-use"))]
    Twice(String),
    #[error("it can't have virtual functions; use a NIC with SR-IOV, or switch SR-IOV on in the firmware")]
    #[diagnostic(code("no-sriov"))]
    NoSriov,
    #[error("{wanted} virtual functions are wanted, and it can have {total}; use another NIC for the rest")]
    #[diagnostic(code("too-many-functions"))]
    TooFewVfs { wanted: u32, total: u32 },
    #[error(
        "{wanted} virtual functions are wanted, and of the {num} that it has {free} are free; end their users, or remove them all (vtax io destroy-vf) and the lab makes its own"
    )]
    #[diagnostic(code("functions-in-use"))]
    VfsInUse { wanted: u32, num: u32, free: u32 },
    #[error(
        "it doesn't tell where its virtual functions will be; make them first (vtax io create-vf), and the lab uses those"
    )]
    #[diagnostic(code("function-addresses-unknown"))]
    VfsUnknown,
    #[error(
        "{name} has {num} virtual functions, which are gone when a guest gets it; end their users and remove them first (vtax io destroy-vf {name})"
    )]
    #[diagnostic(code("functions-exist"))]
    HasVfs { name: String, num: u32 },
    #[error("nothing is known of the driver that a guest needs for its virtual functions ({0}); use it in a zone")]
    #[diagnostic(code("unknown-function-driver"))]
    VfDriver(String),
    #[error(transparent)]
    #[diagnostic(transparent)]
    NotForGuests(#[from] Unsupported),
    #[error("{member} would go with it, being {bond}, and must stay: {why}; use a NIC elsewhere")]
    #[diagnostic(code("companion-must-stay"))]
    Bound { member: String, bond: &'static str, why: String },
}

impl PlanError {
    /// Why a zone or guest can't have its method.
    pub(super) fn unsupported(kind: &'static str, name: &Name, method: IoMethod) -> impl Fn(Unsupported) -> PlanError {
        let name = name.clone();
        move |unsupported| PlanError::Unsupported { kind, name: name.clone(), method, unsupported }
    }
}

fn pages(huge: bool) -> &'static str {
    if huge { "huge pages" } else { "memory" }
}

fn relief(huge: bool) -> &'static str {
    if huge { "or reserve more (vm.nr_hugepages)" } else { "or end other programs" }
}
