//! Why a NIC can't be an end of a wire, or its functions can't be handed out.

use vtax_model::method::Unsupported;
use vtax_sys::pci::PciAddress;

use crate::facts::NoDevice;

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
