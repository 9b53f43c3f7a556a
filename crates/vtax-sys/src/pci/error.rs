//! Why a PCI device can't be used or changed.

use std::io;
use std::time::Duration;

use super::address::PciAddress;

/// Why a PCI device wasn't handed over.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say it")]
pub enum PciError {
    #[error("there is no PCI device {device}: look at `vtax io list`; addresses change when cards are put in")]
    #[diagnostic(code("no-such-device"))]
    NoDevice { device: PciAddress },
    #[error("{device} can't have virtual functions: choose a NIC with SR-IOV, or switch SR-IOV on in the firmware")]
    #[diagnostic(code("no-sriov"))]
    NoSriov { device: PciAddress },
    #[error("{device} can't have {asked} virtual functions: it has at most {total}; ask for fewer")]
    #[diagnostic(code("too-many-functions"))]
    TooManyVfs { device: PciAddress, asked: u32, total: u32 },
    /// `EBUSY`: the kernel only goes from none to some and from some to none.
    #[error(
        "{device} has {enabled} virtual functions, and their number can't be changed to {asked}: destroy those first, \
         or use them"
    )]
    #[diagnostic(code("functions-exist"))]
    VfsExist { device: PciAddress, enabled: u32, asked: u32 },
    /// The virtual functions can't be removed now (`EBUSY`, or `EPERM` from igb and ixgbe).
    #[error("the virtual functions of {device} are in use: stop the guests that hold them, then try again")]
    #[diagnostic(code("functions-in-use"))]
    VfsInUse { device: PciAddress },
    /// `ENOENT`, `ENOSYS` or `EOPNOTSUPP`.
    #[error("{device} can't make virtual functions now: {}; bind it to the driver of its maker", no_driver(.driver))]
    #[diagnostic(code("driver-without-sriov"))]
    NoPfDriver { device: PciAddress, driver: Option<String> },
    /// `ENOMEM` or `EIO`: the firmware reserved no bus numbers or addresses for them.
    #[error(
        "there is no room for virtual functions of {device} ({errno}): switch SR-IOV and decoding above 4 GiB on in \
         the firmware, or boot with pci=realloc"
    )]
    #[diagnostic(code("no-room-for-functions"))]
    NoRoom { device: PciAddress, errno: io::Error },
    #[error("{device} enabled {enabled} virtual functions instead of {asked}: ask for {enabled}, or look at dmesg")]
    #[diagnostic(code("fewer-functions"))]
    FewerVfs { device: PciAddress, asked: u32, enabled: u32 },
    #[error("there is no driver {driver} for {device}: load it (modprobe {driver}), or use a kernel that has it")]
    #[diagnostic(code("no-such-driver"))]
    NoDriver { device: PciAddress, driver: String },
    #[error("driver {driver} refuses {device}: {errno}; {remedy}")]
    #[diagnostic(code("driver-refuses"))]
    Refused { device: PciAddress, driver: String, errno: io::Error, remedy: &'static str },
    #[error("driver {driver} did not take {device} within {waited:?}: {}; look at dmesg", has(.found))]
    #[diagnostic(code("device-not-taken"))]
    NotTaken { device: PciAddress, driver: String, waited: Duration, found: Option<String> },
    #[error("no driver took {device} within {waited:?}: load the one of its maker (modprobe), or look at dmesg")]
    #[diagnostic(code("device-not-taken"))]
    NobodyTook { device: PciAddress, waited: Duration },
    #[error(
        "the kernel doesn't probe drivers for {device}, a virtual function of {pf}: name the driver, or switch \
         sriov_drivers_autoprobe of {pf} on"
    )]
    #[diagnostic(code("autoprobe-off"))]
    AutoprobeOff { device: PciAddress, pf: PciAddress },
    #[error("driver {driver} did not let {device} go within {waited:?}: stop what uses it, then try again")]
    #[diagnostic(code("device-still-held"))]
    StillHeld { device: PciAddress, driver: String, waited: Duration },
    #[error(
        "{device} has no network link after {waited:?} ({}): look at dmesg, or whether a link of another namespace is \
         its own", has(.driver)
    )]
    #[diagnostic(code("no-network-link"))]
    NoNetdev { device: PciAddress, driver: Option<String>, waited: Duration },
    #[error("{file} of {device} did not take {wrote:?}: it reads back as {read:?}")]
    #[diagnostic(code("setting-not-taken"))]
    NotKept { device: PciAddress, file: &'static str, wrote: String, read: String },
}

fn no_driver(driver: &Option<String>) -> String {
    match driver {
        Some(driver) => format!("its driver {driver} doesn't know how"),
        None => "it has no driver".to_owned(),
    }
}

fn has(driver: &Option<String>) -> String {
    driver.as_ref().map_or("it has no driver".to_owned(), |driver| format!("it has driver {driver}"))
}
