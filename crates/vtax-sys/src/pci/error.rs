//! Errors of using or changing PCI devices.

use std::io;
use std::time::Duration;

use super::address::PciAddress;

/// Reasons why a PCI device was not assigned or released.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
#[non_exhaustive]
pub enum PciError {
    #[error("no PCI device {device}: see `vtax io list`; addresses change when cards are added")]
    #[diagnostic(code("no-such-device"))]
    NoDevice { device: PciAddress },
    #[error("{device} cannot have virtual functions: choose a NIC with SR-IOV, or enable SR-IOV in the firmware")]
    #[diagnostic(code("no-sriov"))]
    NoSriov { device: PciAddress },
    #[error("{device} supports at most {total} virtual functions, not {asked}; request fewer")]
    #[diagnostic(code("too-many-functions"))]
    TooManyVfs { device: PciAddress, asked: u32, total: u32 },
    /// `EBUSY`: the kernel changes the number only from none to some and from some to none.
    #[error(
        "{device} has {enabled} virtual functions, and their number cannot be changed to {asked}: destroy those first, \
         or use them"
    )]
    #[diagnostic(code("functions-exist"))]
    VfsExist { device: PciAddress, enabled: u32, asked: u32 },
    /// The virtual functions cannot be removed now (`EBUSY`, or `EPERM` from igb and ixgbe).
    #[error("the virtual functions of {device} are in use: stop the guests that hold them, then try again")]
    #[diagnostic(code("functions-in-use"))]
    VfsInUse { device: PciAddress },
    /// `ENOENT`, `ENOSYS` or `EOPNOTSUPP`.
    #[error("{device} cannot create virtual functions now: {}; bind it to the vendor's driver", no_driver(.driver))]
    #[diagnostic(code("driver-without-sriov"))]
    NoPfDriver { device: PciAddress, driver: Option<String> },
    /// `ENOMEM` or `EIO`: the firmware reserved no bus numbers or addresses for them.
    #[error(
        "no room for virtual functions of {device} ({errno}): enable SR-IOV and decoding above 4 GiB in \
         the firmware, or boot with pci=realloc"
    )]
    #[diagnostic(code("no-room-for-functions"))]
    NoRoom { device: PciAddress, errno: io::Error },
    #[error("{device} enabled {enabled} virtual functions instead of {asked}: request {enabled}, or check dmesg")]
    #[diagnostic(code("fewer-functions"))]
    FewerVfs { device: PciAddress, asked: u32, enabled: u32 },
    #[error("no driver {driver} for {device}: load it (modprobe {driver}), or use a kernel that has it")]
    #[diagnostic(code("no-such-driver"))]
    NoDriver { device: PciAddress, driver: String },
    #[error("driver {driver} refuses {device}: {errno}; {remedy}")]
    #[diagnostic(code("driver-refuses"))]
    Refused { device: PciAddress, driver: String, errno: io::Error, remedy: &'static str },
    #[error("driver {driver} did not bind to {device} within {waited:?}: {}; check dmesg", has(.found))]
    #[diagnostic(code("device-not-taken"))]
    NotTaken { device: PciAddress, driver: String, waited: Duration, found: Option<String> },
    #[error("no driver bound to {device} within {waited:?}: load the vendor's driver (modprobe), or check dmesg")]
    #[diagnostic(code("device-not-taken"))]
    NobodyTook { device: PciAddress, waited: Duration },
    #[error(
        "the kernel doesn't probe drivers for {device}, a virtual function of {pf}: name the driver, or enable \
         sriov_drivers_autoprobe of {pf}"
    )]
    #[diagnostic(code("autoprobe-off"))]
    AutoprobeOff { device: PciAddress, pf: PciAddress },
    #[error("driver {driver} did not release {device} within {waited:?}: stop what uses it, then try again")]
    #[diagnostic(code("device-still-held"))]
    StillHeld { device: PciAddress, driver: String, waited: Duration },
    #[error(
        "{device} has no network link after {waited:?} ({}): check dmesg, and whether it has a link in another \
         namespace", has(.driver)
    )]
    #[diagnostic(code("no-network-link"))]
    NoNetdev { device: PciAddress, driver: Option<String>, waited: Duration },
    #[error("{file} of {device} did not accept {wrote:?}: it reads back as {read:?}")]
    #[diagnostic(code("setting-not-taken"))]
    NotKept { device: PciAddress, file: &'static str, wrote: String, read: String },
}

fn no_driver(driver: &Option<String>) -> String {
    match driver {
        Some(driver) => format!("its driver {driver} doesn't support it"),
        None => "it has no driver".to_owned(),
    }
}

fn has(driver: &Option<String>) -> String {
    driver.as_ref().map_or("it has no driver".to_owned(), |driver| format!("its driver is {driver}"))
}
