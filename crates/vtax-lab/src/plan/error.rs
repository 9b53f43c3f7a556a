//! Errors of planning a lab, and of NICs in it.

use std::path::PathBuf;

use ipnet::IpNet;
use vtax_model::{
    address_family::AddressFamily,
    disk::DiskAttach,
    guest::{BadGuest, Mac},
    method::{IoMethod, Unsupported},
    topology::{BadMasters, Name, NicName},
    units::{ByteSize, Mtu},
};
use vtax_sys::pci::PciAddress;

use crate::facts::NoDevice;

/// Reason why a lab cannot be planned.
#[derive(Debug, Clone, PartialEq, Eq, miette::Diagnostic, thiserror::Error)]
pub enum PlanError {
    #[error("{kind} `{name}`: {method} is unavailable: {unsupported}")]
    #[diagnostic(forward(unsupported))]
    Unsupported { kind: &'static str, name: Name, method: IoMethod, unsupported: Unsupported },
    #[error("wire `{wire}`: the NIC {nic}: {error}")]
    #[diagnostic(forward(error))]
    Nic { wire: Name, nic: NicName, error: Box<NicError> },
    #[error("guest `{guest}`: cannot attach {path} by {attach}: {unsupported}", path = path.display())]
    #[diagnostic(forward(unsupported))]
    Disk { guest: Name, path: PathBuf, attach: DiskAttach, unsupported: Unsupported },
    #[error("guest `{guest}`: the disk {path}: {why}", path = path.display())]
    #[diagnostic(code("bad-backend"))]
    DiskBackend { guest: Name, path: PathBuf, why: String },
    #[error("guest `{guest}` has {count} disks, at most {most} allowed; use fewer")]
    #[diagnostic(code("bad-guest"))]
    Disks { guest: Name, count: usize, most: u32 },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Masters(#[from] BadMasters),
    #[error("cannot build labs here: {0}")]
    #[diagnostic(forward(0))]
    NoWires(Unsupported),
    #[error(
        "wire `{wire}` cannot have a rate: {why}; load or install the module `sch_tbf` (CONFIG_NET_SCH_TBF), or remove the rate"
    )]
    #[diagnostic(code("no-rate-limit"))]
    NoRate { wire: Name, why: String },
    #[error(
        "host `{host}` has no virtual switch that could have `snooping`; set `switch = true`, give it a zone of the method \
         bridge or a guest, or remove `snooping`"
    )]
    #[diagnostic(code("no-virtual-switch"))]
    NoSwitch { host: Name },
    #[error(
        "`{first}` ({first_method}) and `{second}` ({second_method}) clash on wire `{wire}` at `{host}`: {why}; give `{second}` a separate wire"
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
    #[error("the addresses {range} are in use: {by}; set another range, or none to use a free one")]
    #[diagnostic(code("range-in-use"))]
    RangeInUse { range: IpNet, by: String },
    #[error("the range {range} is too small for lab `{lab}`, which needs a /{needed}; set a larger one")]
    #[diagnostic(code("range-too-small"))]
    RangeTooSmall { lab: Name, range: IpNet, needed: u8 },
    #[error("no free /{needed} in {within}; take some labs down, or set a range in the file")]
    #[diagnostic(code("no-free-range"))]
    NoFreeRange { needed: u8, within: IpNet },
    #[error("zone `{zone}`: MTU {mtu} is too small for a tunnel, which adds {overhead} bytes; use {least} or more")]
    #[diagnostic(code("mtu-too-small"))]
    MtuTooSmall { zone: Name, mtu: Mtu, overhead: u32, least: u32 },
    #[error("MTU {mtu} is too small for {family}; use {least} or more")]
    #[diagnostic(code("mtu-too-small"))]
    MtuTooSmallForFamily { mtu: Mtu, family: AddressFamily, least: u32 },
    #[error("zone `{zone}`: its tunnel over wire `{wire}` has no remote endpoint: {why}")]
    #[diagnostic(code("no-tunnel-end"))]
    NoTunnelEnd { zone: Name, wire: Name, why: &'static str },
    #[error("`{user}` names {what} `{name}`: {why}")]
    #[diagnostic(code("unknown-name"))]
    Unknown { user: Name, what: &'static str, name: Name, why: &'static str },
    #[error("lab `{lab}` needs {wanted} network namespaces, at most {most} allowed; raise user.max_net_namespaces")]
    #[diagnostic(code("too-many-namespaces"))]
    TooManyNamespaces { lab: Name, wanted: u64, most: u64 },
    #[error(
        "host `{host}` would have {ports} ports on one bridge, but the kernel allows {most}; spread the zones over several wires"
    )]
    #[diagnostic(code("bridge-full"))]
    BridgeFull { host: Name, ports: usize, most: usize },
    #[error("guest `{guest}`: {error}")]
    #[diagnostic(forward(error))]
    BadGuest { guest: Name, error: BadGuest },
    #[error("guests `{first}` and `{second}` both have the address {mac}; give one of them another (`mac = `)")]
    #[diagnostic(code("same-address"))]
    SameMac { first: Name, second: Name, mac: Mac },
    #[error("the guests of lab `{lab}` need {wanted} of {}, {available} free; use fewer or smaller guests, {}", pages(*huge), relief(*huge))]
    #[diagnostic(code("not-enough-memory"))]
    Memory { lab: Name, wanted: ByteSize, available: ByteSize, huge: bool },
    #[error(
        "guest `{guest}`: its directory path {path} exceeds {longest} bytes; use shorter names, or set XDG_RUNTIME_DIR to a shorter directory"
    )]
    #[diagnostic(code("path-too-long"))]
    LongPath { guest: Name, path: PathBuf, longest: usize },
    #[error("guest `{guest}`: no {what} {number} on this machine; use one of {there}")]
    #[diagnostic(code("no-such-cpu-or-node"))]
    NoSuchPlace { guest: Name, what: &'static str, number: u32, there: String },
}

/// Reason why a NIC cannot be an end of a wire, or its functions cannot be assigned.
#[derive(Debug, Clone, PartialEq, Eq, miette::Diagnostic, thiserror::Error)]
pub enum NicError {
    #[error("{0}")]
    #[diagnostic(transparent)]
    Unknown(NoDevice),
    #[error("it is not a network controller; name a NIC (see vtax io list)")]
    #[diagnostic(code("not-a-nic"))]
    NotANic,
    #[error("it is a virtual function; name its physical function {0}")]
    #[diagnostic(code("is-virtual-function"))]
    Virtual(PciAddress),
    #[error("it must stay: {0}; use another NIC")]
    #[diagnostic(code("nic-must-stay"))]
    Kept(String),
    #[error("{0} uses it with all its virtual functions; take that lab down first (vtax lab down), or use another NIC")]
    #[diagnostic(code("nic-lent"))]
    Lent(String),
    #[error("it has no driver; load the vendor's driver (modprobe), or bind it")]
    #[diagnostic(code("no-driver"))]
    NoDriver,
    #[error(
        "its driver {0} shows no network link here: a guest or another namespace has it; release it first (vtax io list shows the owner)"
    )]
    #[diagnostic(code("no-network-link"))]
    NoLink(String),
    #[error("its link {link} is in use: {by}; remove that first")]
    #[diagnostic(code("nic-in-use"))]
    InUse { link: String, by: String },
    #[error("it is already an end of the wire `{0}`; name another")]
    #[diagnostic(code("nic-in-use"))]
    Twice(String),
    #[error("it does not support virtual functions; use a NIC with SR-IOV, or enable SR-IOV in the firmware")]
    #[diagnostic(code("no-sriov"))]
    NoSriov,
    #[error("it supports {total} virtual functions, {wanted} requested; use another NIC for the rest")]
    #[diagnostic(code("too-many-functions"))]
    TooFewVfs { wanted: u32, total: u32 },
    #[error(
        "{wanted} virtual functions requested, {free} of its {num} free; stop their users, or remove them all (vtax io destroy-vf) so that the lab creates its own"
    )]
    #[diagnostic(code("functions-in-use"))]
    VfsInUse { wanted: u32, num: u32, free: u32 },
    #[error(
        "it does not report the PCI addresses of future virtual functions; create them first (vtax io create-vf), and the lab uses those"
    )]
    #[diagnostic(code("function-addresses-unknown"))]
    VfsUnknown,
    #[error(
        "{name} has {num} virtual functions, which disappear when it is assigned to a guest; stop their users and remove them first (vtax io destroy-vf {name})"
    )]
    #[diagnostic(code("functions-exist"))]
    HasVfs { name: String, num: u32 },
    #[error("unknown guest driver for its virtual functions ({0}); use it in a zone")]
    #[diagnostic(code("unknown-function-driver"))]
    VfDriver(String),
    #[error(transparent)]
    #[diagnostic(transparent)]
    NotForGuests(#[from] Unsupported),
    #[error("{member}, {bond}, would be assigned with it but must stay: {why}; use a NIC in another slot")]
    #[diagnostic(code("companion-must-stay"))]
    Bound { member: String, bond: &'static str, why: String },
}

impl PlanError {
    /// Returns why a zone or guest cannot have its method.
    pub(super) fn unsupported(kind: &'static str, name: &Name, method: IoMethod) -> impl Fn(Unsupported) -> PlanError {
        let name = name.clone();
        move |unsupported| PlanError::Unsupported { kind, name: name.clone(), method, unsupported }
    }
}

fn pages(huge: bool) -> &'static str {
    if huge { "huge pages" } else { "memory" }
}

fn relief(huge: bool) -> &'static str {
    if huge { "or reserve more (vm.nr_hugepages)" } else { "or stop other programs" }
}
