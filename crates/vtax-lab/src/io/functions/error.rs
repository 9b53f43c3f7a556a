//! Why virtual functions can't be made or removed.

use vtax_model::{units::Mtu, vf::BadRate};

use crate::facts::NoDevice;

/// Why virtual functions can't be made or removed. Nothing has been changed.
#[derive(Debug, Clone, PartialEq, Eq, miette::Diagnostic, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum VfError {
    #[error(transparent)]
    #[diagnostic(transparent)]
    Unknown(NoDevice),
    #[error("{name} is a virtual function and has none; name its physical function, the part before the point")]
    #[diagnostic(code("is-virtual-function"))]
    Virtual { name: String },
    #[error(
        "{name} can't have virtual functions; name one of type PF (vtax io list), or switch SR-IOV on in the firmware"
    )]
    #[diagnostic(code("no-sriov"))]
    NoSriov { name: String },
    #[error("{name} has no driver, which would make its virtual functions; load that of its maker (modprobe)")]
    #[diagnostic(code("no-driver"))]
    NoDriver { name: String },
    #[error(
        "{name} is lent to {owner}; take that lab down first (vtax lab down), or let the lab have its functions by the method sr-iov"
    )]
    #[diagnostic(code("nic-lent"))]
    Lent { name: String, owner: String },
    #[error(
        "{name} has {num} virtual functions, and Linux makes none beside those; remove them first (vtax io destroy-vf {name}), then make as many as are wanted"
    )]
    #[diagnostic(code("functions-exist"))]
    There { name: String, num: u32 },
    #[error("{name} can have {total} virtual functions, and {wanted} are wanted; ask for fewer (-n max: all)")]
    #[diagnostic(code("too-many-functions"))]
    TooMany { name: String, wanted: u32, total: u32 },
    #[error("an address is one function's, and {count} are wanted; leave --mac out, or make one (-n 1)")]
    #[diagnostic(code("one-address-for-several"))]
    OneAddress { count: u32 },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Rate(BadRate),
    #[error("{name} has no network link here, by which its functions would get their settings; leave those out")]
    #[diagnostic(code("no-network-link"))]
    NoLink { name: String },
    #[error("{name}: its functions can have a MAC address or a rate only while its link is up; ip link set {link} up")]
    #[diagnostic(code("nic-down"))]
    Down { name: String, link: String },
    #[error(
        "{name}: no driver takes new functions (sriov_drivers_autoprobe is 0), so that they have no MTU; leave --mtu out"
    )]
    #[diagnostic(code("autoprobe-off"))]
    Unprobed { name: String },
    #[error("{name}: its driver takes an MTU of {most} at most, and {wanted} is wanted; ask for less")]
    #[diagnostic(code("mtu-too-large"))]
    Mtu { name: String, wanted: Mtu, most: u32 },
    #[error(
        "{name} is one of {count} virtual functions of {pf}, and Linux removes only all of them at once; name {pf} to remove them all"
    )]
    #[diagnostic(code("one-function-of-several"))]
    OneOfSeveral { name: String, pf: String, count: usize },
    #[error("{name} has no virtual functions")]
    #[diagnostic(code("no-functions"))]
    NoneThere { name: String },
    #[error("{name} is in use: {by}; end that first")]
    #[diagnostic(code("functions-in-use"))]
    InUse { name: String, by: String },
}
