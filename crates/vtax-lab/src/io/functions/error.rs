//! Why virtual functions can't be made or removed.

use vtax_model::{units::Mtu, vf::BadRate};

use crate::facts::NoDevice;

/// Why virtual functions can't be made or removed. Nothing has been changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VfError {
    /// No device has this name, or several have it.
    #[error(transparent)]
    Unknown(NoDevice),
    /// The device is a virtual function itself.
    #[error("{name} is a virtual function and has none; name its physical function, the part before the point")]
    Virtual {
        /// Its name.
        name: String,
    },
    /// The hardware has no virtual functions.
    #[error(
        "{name} can't have virtual functions; name one of type PF (vtax io list), or switch SR-IOV on in the firmware"
    )]
    NoSriov {
        /// Its name.
        name: String,
    },
    /// The device has no driver.
    #[error("{name} has no driver, which would make its virtual functions; load that of its maker (modprobe)")]
    NoDriver {
        /// Its name.
        name: String,
    },
    /// A lab has the device.
    #[error(
        "{name} is lent to {owner}; take that lab down first (vtax lab down), or let the lab have its functions by the method sr-iov"
    )]
    Lent {
        /// Its name.
        name: String,
        /// `LAB/DOMAIN`.
        owner: String,
    },
    /// There are virtual functions already. The kernel can only go from none to some.
    #[error(
        "{name} has {num} virtual functions, and Linux makes none beside those; remove them first (vtax io destroy-vf {name}), then make as many as are wanted"
    )]
    There {
        /// Its name.
        name: String,
        /// How many.
        num: u32,
    },
    /// The user asked for more than the device can have.
    #[error("{name} can have {total} virtual functions, and {wanted} are wanted; ask for fewer (-n max: all)")]
    TooMany {
        /// Its name.
        name: String,
        /// What the user asked for.
        wanted: u32,
        /// How many the hardware can have.
        total: u32,
    },
    /// Several functions can't have one address.
    #[error("an address is one function's, and {count} are wanted; leave --mac out, or make one (-n 1)")]
    OneAddress {
        /// What the user asked for.
        count: u32,
    },
    /// The rate can't be said in the kernel's unit.
    #[error(transparent)]
    Rate(BadRate),
    /// The link by which functions are configured isn't here.
    #[error("{name} has no network link here, by which its functions would get their settings; leave those out")]
    NoLink {
        /// Its name.
        name: String,
    },
    /// The link is down. A rate is a share of the link's speed, and a function's driver asks for its address
    /// over a link that is up.
    #[error("{name}: its functions can have a MAC address or a rate only while its link is up; ip link set {link} up")]
    Down {
        /// Its name.
        name: String,
        /// Its link.
        link: String,
    },
    /// New functions get no driver, and so have no link whose MTU could be set.
    #[error(
        "{name}: no driver takes new functions (sriov_drivers_autoprobe is 0), so that they have no MTU; leave --mtu out"
    )]
    Unprobed {
        /// Its name.
        name: String,
    },
    /// The MTU is larger than the hardware takes.
    #[error("{name}: its driver takes an MTU of {most} at most, and {wanted} is wanted; ask for less")]
    Mtu {
        /// Its name.
        name: String,
        /// What the user asked for.
        wanted: Mtu,
        /// The most that the driver takes.
        most: u32,
    },
    /// The user named one function of several. The kernel can only remove all of them at once.
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
    /// There is nothing to remove.
    #[error("{name} has no virtual functions")]
    NoneThere {
        /// Its name.
        name: String,
    },
    /// Somebody uses the function.
    #[error("{name} is in use: {by}; end that first")]
    InUse {
        /// Its name.
        name: String,
        /// Who uses it.
        by: String,
    },
}
