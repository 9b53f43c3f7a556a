//! Why a PCI device can't be had or changed.

use std::io;
use std::time::Duration;

use super::address::PciAddress;

/// Why a PCI device wasn't handed over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PciError {
    /// Nothing has this address.
    #[error("there is no PCI device {device}: look at `vtax io list`; addresses change when cards are put in")]
    NoDevice {
        /// The address that was looked for.
        device: PciAddress,
    },
    /// It has no virtual functions, and can't have any.
    #[error("{device} can't have virtual functions: choose a NIC with SR-IOV, or switch SR-IOV on in the firmware")]
    NoSriov {
        /// The device.
        device: PciAddress,
    },
    /// `ERANGE`.
    #[error("{device} can't have {asked} virtual functions: it has at most {total}; ask for fewer")]
    TooManyVfs {
        /// The physical function.
        device: PciAddress,
        /// How many were asked for.
        asked: u32,
        /// How many it can have.
        total: u32,
    },
    /// `EBUSY`: the kernel goes from none to some and from some to none only.
    #[error(
        "{device} has {enabled} virtual functions, and their number can't be changed to {asked}: destroy those first, \
         or use them"
    )]
    VfsExist {
        /// The physical function.
        device: PciAddress,
        /// How many it has.
        enabled: u32,
        /// How many were asked for.
        asked: u32,
    },
    /// Its virtual functions can't be removed now (`EBUSY`, or `EPERM` of igb and ixgbe).
    #[error("the virtual functions of {device} are in use: stop the guests that hold them, then try again")]
    VfsInUse {
        /// The physical function.
        device: PciAddress,
    },
    /// `ENOENT`, `ENOSYS` or `EOPNOTSUPP`.
    #[error("{device} can't make virtual functions now: {}; bind it to the driver of its maker", no_driver(.driver))]
    NoPfDriver {
        /// The physical function.
        device: PciAddress,
        /// The driver that it has.
        driver: Option<String>,
    },
    /// `ENOMEM` or `EIO`: the firmware reserved no bus numbers or addresses for them.
    #[error(
        "there is no room for virtual functions of {device} ({errno}): switch SR-IOV and decoding above 4 GiB on in \
         the firmware, or boot with pci=realloc"
    )]
    NoRoom {
        /// The physical function.
        device: PciAddress,
        /// The kernel's answer.
        errno: io::Error,
    },
    /// The driver enabled fewer than asked for, and called that a success.
    #[error("{device} enabled {enabled} virtual functions instead of {asked}: ask for {enabled}, or look at dmesg")]
    FewerVfs {
        /// The physical function.
        device: PciAddress,
        /// How many were asked for.
        asked: u32,
        /// How many there are.
        enabled: u32,
    },
    /// No such driver is loaded.
    #[error("there is no driver {driver} for {device}: load it (modprobe {driver}), or use a kernel that has it")]
    NoDriver {
        /// The device.
        device: PciAddress,
        /// The driver that was wanted.
        driver: String,
    },
    /// The driver looked at the device and said no.
    #[error("driver {driver} refuses {device}: {errno}; {remedy}")]
    Refused {
        /// The device.
        device: PciAddress,
        /// The driver.
        driver: String,
        /// Its answer.
        errno: io::Error,
        /// What the user can do about it.
        remedy: &'static str,
    },
    /// The driver didn't take the device in time.
    #[error("driver {driver} did not take {device} within {waited:?}: {}; look at dmesg", has(.found))]
    NotTaken {
        /// The device.
        device: PciAddress,
        /// The driver.
        driver: String,
        /// How long we waited.
        waited: Duration,
        /// The driver that has it.
        found: Option<String>,
    },
    /// No driver knows the device.
    #[error("no driver took {device} within {waited:?}: load the one of its maker (modprobe), or look at dmesg")]
    NobodyTook {
        /// The device.
        device: PciAddress,
        /// How long we waited.
        waited: Duration,
    },
    /// The kernel lets only a driver that is named have it (`pci_device_can_probe`).
    #[error(
        "the kernel doesn't probe drivers for {device}, a virtual function of {pf}: name the driver, or switch \
         sriov_drivers_autoprobe of {pf} on"
    )]
    AutoprobeOff {
        /// The virtual function.
        device: PciAddress,
        /// Its physical one.
        pf: PciAddress,
    },
    /// The driver doesn't let the device go.
    #[error("driver {driver} did not let {device} go within {waited:?}: stop what uses it, then try again")]
    StillHeld {
        /// The device.
        device: PciAddress,
        /// The driver.
        driver: String,
        /// How long we waited.
        waited: Duration,
    },
    /// The driver has the device, but shows no network link.
    #[error(
        "{device} has no network link after {waited:?} ({}): look at dmesg, or whether a link of another namespace is \
         its own", has(.driver)
    )]
    NoNetdev {
        /// The device.
        device: PciAddress,
        /// The driver that has it.
        driver: Option<String>,
        /// How long we waited.
        waited: Duration,
    },
    /// A file in sysfs took a value, and has another.
    #[error("{file} of {device} did not take {wrote:?}: it reads back as {read:?}")]
    NotKept {
        /// The device.
        device: PciAddress,
        /// The file's name.
        file: &'static str,
        /// The value that was written.
        wrote: String,
        /// The value that it has now.
        read: String,
    },
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
