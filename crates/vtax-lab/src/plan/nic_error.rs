//! Why a NIC can't be an end of a wire, or its functions can't be handed out.

use vtax_model::method::Unsupported;
use vtax_sys::pci::PciAddress;

use crate::facts::NoDevice;

/// Why a NIC can't be an end of a wire, or its functions can't be handed out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NicError {
    /// No device has this name, or several have it.
    #[error("{0}")]
    Unknown(NoDevice),
    /// The device is no network controller.
    #[error("it is no network controller; name a NIC (vtax io list shows them)")]
    NotANic,
    /// The device is a virtual function, which can't be at the end of a cable.
    #[error("it is a virtual function; name its physical function {0}")]
    Virtual(PciAddress),
    /// The host needs the device.
    #[error("it must not be taken: {0}; use another NIC")]
    Kept(String),
    /// A lab has the device.
    #[error(
        "{0} has it, and with it all virtual functions that it can have; take that lab down first (vtax lab down), or use another NIC"
    )]
    Lent(String),
    /// The device has no driver.
    #[error("it has no driver; load the one of its maker (modprobe), or bind it")]
    NoDriver,
    /// Its driver shows no link here.
    #[error(
        "its driver {0} shows no network link here: a guest or another namespace has it; give it back first (vtax io list says who has it)"
    )]
    NoLink(String),
    /// Somebody uses the device's link.
    #[error("its link {link} is in use: {by}; remove that first")]
    InUse {
        /// The link.
        link: String,
        /// What uses it.
        by: String,
    },
    /// The device would be at the ends of two wires.
    #[error("it is an end of the wire `{0}` already; name another")]
    Twice(String),
    /// The hardware has no virtual functions.
    #[error("it can't have virtual functions; use a NIC with SR-IOV, or switch SR-IOV on in the firmware")]
    NoSriov,
    /// The lab needs more functions than the NIC can have.
    #[error("{wanted} virtual functions are wanted, and it can have {total}; use another NIC for the rest")]
    TooFewVfs {
        /// How many the lab needs.
        wanted: u32,
        /// How many the NIC can have.
        total: u32,
    },
    /// The NIC has functions already, and too few of them are free.
    #[error(
        "{wanted} virtual functions are wanted, and of the {num} that it has {free} are free; end their users, or remove them all (vtax io destroy-vf) and the lab makes its own"
    )]
    VfsInUse {
        /// How many the lab needs.
        wanted: u32,
        /// How many it has.
        num: u32,
        /// How many of these are free.
        free: u32,
    },
    /// The NIC doesn't tell the addresses of its functions before there are some.
    #[error(
        "it doesn't tell where its virtual functions will be; make them first (vtax io create-vf), and the lab uses those"
    )]
    VfsUnknown,
    /// A guest would get the NIC, and its virtual functions would be gone.
    #[error(
        "{name} has {num} virtual functions, which are gone when a guest gets it; end their users and remove them first (vtax io destroy-vf {name})"
    )]
    HasVfs {
        /// The NIC, or one that goes with it.
        name: String,
        /// How many.
        num: u32,
    },
    /// It is not known which driver the function needs in a guest.
    #[error("nothing is known of the driver that a guest needs for its virtual functions ({0}); use it in a zone")]
    VfDriver(String),
    /// No guest can have a PCI device here.
    #[error(transparent)]
    NotForGuests(#[from] Unsupported),
    /// A device that would be handed over together with the NIC must stay.
    #[error("{member} would go with it, being {bond}, and must stay: {why}; use a NIC elsewhere")]
    Bound {
        /// The other device.
        member: String,
        /// `in the same IOMMU group`, or `below the same root complex`.
        bond: &'static str,
        /// Why not.
        why: String,
    },
}
