//! Why a NIC can't be an end of a wire, or its functions can't be handed out.

use vtax_model::method::Unsupported;
use vtax_sys::pci::PciAddress;

use crate::facts::NoDevice;

/// Why a NIC can't be an end of a wire, or its functions can't be handed out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum NicError {
    #[error("{0}")]
    Unknown(NoDevice),
    #[error("it is no network controller; name a NIC (vtax io list shows them)")]
    NotANic,
    #[error("it is a virtual function; name its physical function {0}")]
    Virtual(PciAddress),
    #[error("it must not be taken: {0}; use another NIC")]
    Kept(String),
    #[error(
        "{0} has it, and with it all virtual functions that it can have; take that lab down first (vtax lab down), or use another NIC"
    )]
    Lent(String),
    #[error("it has no driver; load the one of its maker (modprobe), or bind it")]
    NoDriver,
    #[error(
        "its driver {0} shows no network link here: a guest or another namespace has it; give it back first (vtax io list says who has it)"
    )]
    NoLink(String),
    #[error("its link {link} is in use: {by}; remove that first")]
    InUse { link: String, by: String },
    #[error("it is an end of the wire `{0}` already; name another")]
    Twice(String),
    #[error("it can't have virtual functions; use a NIC with SR-IOV, or switch SR-IOV on in the firmware")]
    NoSriov,
    #[error("{wanted} virtual functions are wanted, and it can have {total}; use another NIC for the rest")]
    TooFewVfs { wanted: u32, total: u32 },
    #[error(
        "{wanted} virtual functions are wanted, and of the {num} that it has {free} are free; end their users, or remove them all (vtax io destroy-vf) and the lab makes its own"
    )]
    VfsInUse { wanted: u32, num: u32, free: u32 },
    #[error(
        "it doesn't tell where its virtual functions will be; make them first (vtax io create-vf), and the lab uses those"
    )]
    VfsUnknown,
    #[error(
        "{name} has {num} virtual functions, which are gone when a guest gets it; end their users and remove them first (vtax io destroy-vf {name})"
    )]
    HasVfs { name: String, num: u32 },
    #[error("nothing is known of the driver that a guest needs for its virtual functions ({0}); use it in a zone")]
    VfDriver(String),
    #[error(transparent)]
    NotForGuests(#[from] Unsupported),
    #[error("{member} would go with it, being {bond}, and must stay: {why}; use a NIC elsewhere")]
    Bound { member: String, bond: &'static str, why: String },
}
