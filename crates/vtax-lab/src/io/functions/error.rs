//! Why virtual functions can't be made or removed.

use vtax_model::{units::Mtu, vf::BadRate};

use crate::facts::NoDevice;

/// Why virtual functions can't be made or removed. Nothing has been changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VfError {
    /// Nothing here is called so, or several are.
    #[error(transparent)]
    Unknown(NoDevice),
    /// It is one itself.
    #[error("{name} is a virtual function and has none; name its physical function, the part before the point")]
    Virtual {
        /// Its name.
        name: String,
    },
    /// No hardware for it.
    #[error(
        "{name} can't have virtual functions; name one of type PF (vtax io list), or switch SR-IOV on in the firmware"
    )]
    NoSriov {
        /// Its name.
        name: String,
    },
    /// Nothing drives it.
    #[error("{name} has no driver, which would make its virtual functions; load that of its maker (modprobe)")]
    NoDriver {
        /// Its name.
        name: String,
    },
    /// It is a lab's.
    #[error(
        "{name} is lent to {owner}; take that lab down first (vtax lab down), or let the lab have its functions by the method sr-iov"
    )]
    Lent {
        /// Its name.
        name: String,
        /// `LAB/DOMAIN`.
        owner: String,
    },
    /// The kernel goes from none to some only.
    #[error(
        "{name} has {num} virtual functions, and Linux makes none beside those; remove them first (vtax io destroy-vf {name}), then make as many as are wanted"
    )]
    There {
        /// Its name.
        name: String,
        /// How many.
        num: u32,
    },
    /// More than it can have.
    #[error("{name} can have {total} virtual functions, and {wanted} are wanted; ask for fewer (-n max: all)")]
    TooMany {
        /// Its name.
        name: String,
        /// As asked for.
        wanted: u32,
        /// Of its hardware.
        total: u32,
    },
    /// An address is of one.
    #[error("an address is one function's, and {count} are wanted; leave --mac out, or make one (-n 1)")]
    OneAddress {
        /// As asked for.
        count: u32,
    },
    /// Not in the kernel's unit.
    #[error(transparent)]
    Rate(BadRate),
    /// Its functions are configured by its link.
    #[error("{name} has no network link here, by which its functions would get their settings; leave those out")]
    NoLink {
        /// Its name.
        name: String,
    },
    /// A rate is a share of its speed, and a function's driver asks for its address by a link that is up.
    #[error("{name}: its functions can have a MAC address or a rate only while its link is up; ip link set {link} up")]
    Down {
        /// Its name.
        name: String,
        /// Its link.
        link: String,
    },
    /// Without a driver there is no link.
    #[error(
        "{name}: no driver takes new functions (sriov_drivers_autoprobe is 0), so that they have no MTU; leave --mtu out"
    )]
    Unprobed {
        /// Its name.
        name: String,
    },
    /// More than the hardware takes.
    #[error("{name}: its driver takes an MTU of {most} at most, and {wanted} is wanted; ask for less")]
    Mtu {
        /// Its name.
        name: String,
        /// As asked for.
        wanted: Mtu,
        /// By its driver.
        most: u32,
    },
    /// The kernel removes all of a physical function at once.
    #[error(
        "{name} is one of {count} virtual functions of {pf}, and Linux removes only all of them at once; name {pf} to remove them all"
    )]
    OneOfSeveral {
        /// Its name.
        name: String,
        /// Its physical function.
        pf: String,
        /// How many that has.
        count: usize,
    },
    /// Nothing to remove.
    #[error("{name} has no virtual functions")]
    NoneThere {
        /// Its name.
        name: String,
    },
    /// Somebody would miss it.
    #[error("{name} is in use: {by}; end that first")]
    InUse {
        /// Its name.
        name: String,
        /// By whom.
        by: String,
    },
}
