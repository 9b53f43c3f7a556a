//! Why a lab can't be planned.

use std::path::PathBuf;

use ipnet::Ipv4Net;
use vtax_model::{
    guest::{BadGuest, Mac},
    method::{IoMethod, Unsupported},
    topology::{BadMasters, Name, NicName},
    units::{ByteSize, Mtu},
};

use super::nic_error::NicError;

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
