//! Changes that hand a device over: drivers and virtual functions.
//!
//! A device is bound to a driver through the driver's file `bind`, not through the bus's `drivers_probe`, which reports
//! success even if the driver refused (`really_probe` turns its error into "didn't match").

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::address::PciAddress;
use super::device::driver_override;
use super::error::PciError;
use super::sysfs::{number, text};
use super::{PciTree, Sriov};
use crate::error::{Result, SysError, remedy_for};

/// Polling interval of sysfs, which has no events for these changes.
const GLANCE: Duration = Duration::from_millis(5);

impl PciTree {
    /// Binds the device to this driver, and reserves it for this driver from now on (`driver_override`). With `None`
    /// the device is left without a driver, and any driver may take it.
    ///
    /// It can block as long as a guest holds the device, so stop the guest first.
    ///
    /// # Errors
    /// [`PciError::NoDevice`] and [`PciError::NoDriver`]: nothing was changed. [`PciError::Refused`],
    /// [`PciError::NotTaken`] and [`PciError::StillHeld`]: the device has no driver, or still the old one.
    pub fn bind(&self, device: PciAddress, driver: Option<&str>, patience: Duration) -> Result<()> {
        self.rebind(device, driver, driver, patience)
    }

    /// Restores an earlier state of a device: this driver or none, and this `driver_override`.
    pub fn rebind(
        &self,
        device: PciAddress,
        driver: Option<&str>,
        driver_override: Option<&str>,
        patience: Duration,
    ) -> Result<()> {
        self.known(device)?;
        let Some(driver) = driver else {
            self.unbind(device, patience)?;
            return self.set_override(device, driver_override);
        };
        let deadline = Instant::now() + patience;
        if self.driver(device).as_deref() != Some(driver) {
            self.loaded(device, driver)?;
            // The override keeps other drivers from taking the device in the meantime. It also lets this driver take a
            // device whose number it doesn't know: vfio-pci knows none.
            self.set_override(device, Some(driver))?;
            self.unbind(device, patience)?;
            self.ask(device, driver, deadline, patience)?;
        }
        self.set_override(device, driver_override)
    }

    /// Lets the loaded drivers probe the device, and returns the one that took it. A device that has a driver keeps it.
    ///
    /// # Errors
    /// [`PciError::NobodyTook`]. [`PciError::AutoprobeOff`] for a virtual function whose physical function keeps the
    /// kernel from probing: [`PciTree::bind`] and [`PciTree::rebind`] name a driver instead.
    pub fn probe(&self, device: PciAddress, patience: Duration) -> Result<String> {
        self.known(device)?;
        self.probed(device)?;
        self.set_override(device, None)?;
        write(&self.bus.join("drivers_probe"), &device.to_string())?;
        let found = until(Instant::now() + patience, || self.driver(device));
        found.ok_or_else(|| PciError::NobodyTook { device, waited: patience }.into())
    }

    /// Waits for the network link of a device that a driver has just taken, and returns its name.
    pub fn await_netdev(&self, device: PciAddress, patience: Duration) -> Result<String> {
        self.known(device)?;
        let found = until(Instant::now() + patience, || self.netdev(device));
        let late = || PciError::NoNetdev { device, driver: self.driver(device), waited: patience };
        found.ok_or_else(|| late().into())
    }

    /// Waits for a block device on a device that a driver has just taken, and returns whether there is one: a driver
    /// looks for disks after it has taken the device.
    pub fn await_block(&self, device: PciAddress, patience: Duration) -> bool {
        until(Instant::now() + patience, || self.has_block(device).then_some(())).is_some()
    }

    /// Creates virtual functions of `pf`, or removes them all (0). If it already has this number, nothing changes.
    /// Removing a function can block until the guest that holds it releases it: stop guests first.
    ///
    /// # Errors
    /// [`PciError::NoSriov`], [`PciError::TooManyVfs`], [`PciError::VfsExist`], [`PciError::NoPfDriver`],
    /// [`PciError::NoRoom`], [`PciError::VfsInUse`]. [`PciError::FewerVfs`]: those that were created stay.
    pub fn set_numvfs(&self, pf: PciAddress, n: u32) -> Result<()> {
        let before = self.sriov(pf)?;
        if before.num == n {
            return Ok(());
        }
        allowed(pf, before, n)?;
        let file = self.directory(pf).join("sriov_numvfs");
        written(&file, &n.to_string()).map_err(|errno| match no_vfs(pf, before, n, self.driver(pf), &errno) {
            Some(error) => error.into(),
            None => not_written(&file, errno),
        })?;
        enabled(pf, n, number(&file).unwrap_or_default()).map_err(SysError::from)
    }

    /// Sets whether the kernel probes drivers for new virtual functions of `pf`. Disable it before creating functions
    /// for VFIO: then they never get a network link.
    ///
    /// # Errors
    /// [`PciError::NoSriov`]; `ENOENT` before Linux 4.12.
    pub fn set_autoprobe(&self, pf: PciAddress, on: bool) -> Result<()> {
        self.sriov(pf)?;
        let (file, wrote) = ("sriov_drivers_autoprobe", u32::from(on).to_string());
        let path = self.directory(pf).join(file);
        write(&path, &wrote)?;
        kept(pf, file, &wrote, text(&path))
    }

    fn known(&self, device: PciAddress) -> Result<(), PciError> {
        if self.directory(device).exists() { Ok(()) } else { Err(PciError::NoDevice { device }) }
    }

    fn loaded(&self, device: PciAddress, driver: &str) -> Result<(), PciError> {
        let there = self.bus.join("drivers").join(driver).is_dir();
        if there { Ok(()) } else { Err(PciError::NoDriver { device, driver: driver.to_owned() }) }
    }

    fn probed(&self, device: PciAddress) -> Result<()> {
        let Some(pf) = self.device(device)?.filter(|it| it.driver.is_none()).and_then(|it| it.physfn) else {
            return Ok(());
        };
        match self.device(pf)?.and_then(|pf| pf.sriov) {
            Some(Sriov { autoprobe: false, .. }) => Err(PciError::AutoprobeOff { device, pf }.into()),
            _ => Ok(()),
        }
    }

    fn sriov(&self, pf: PciAddress) -> Result<Sriov> {
        self.known(pf)?;
        let device = self.device(pf)?;
        Ok(device.and_then(|device| device.sriov).ok_or(PciError::NoSriov { device: pf })?)
    }

    fn set_override(&self, device: PciAddress, wanted: Option<&str>) -> Result<()> {
        let directory = self.directory(device);
        if driver_override(&directory).as_deref() == wanted {
            return Ok(());
        }
        // A single newline clears it (`driver_set_override`).
        write(&directory.join("driver_override"), &format!("{}\n", wanted.unwrap_or_default()))?;
        kept(device, "driver_override", wanted.unwrap_or_default(), driver_override(&directory))
    }

    fn unbind(&self, device: PciAddress, patience: Duration) -> Result<()> {
        let Some(driver) = self.driver(device) else { return Ok(()) };
        let file = self.directory(device).join("driver/unbind");
        match written(&file, &device.to_string()) {
            // If the device no longer has a driver, another process was faster.
            Err(errno) if self.driver(device).is_some() => return Err(not_written(&file, errno)),
            _ => {}
        }
        let gone = until(Instant::now() + patience, || self.driver(device).is_none().then_some(()));
        gone.ok_or_else(|| PciError::StillHeld { device, driver, waited: patience }.into())
    }

    fn ask(&self, device: PciAddress, driver: &str, deadline: Instant, waited: Duration) -> Result<()> {
        let file = self.bus.join("drivers").join(driver).join("bind");
        loop {
            match written(&file, &device.to_string()) {
                Ok(()) => break,
                // The driver waits for something else (`EPROBE_DEFER`), such as a module that is loading.
                Err(errno) if errno.raw_os_error() == Some(libc::EAGAIN) && Instant::now() < deadline => sleep(GLANCE),
                // Another process was faster. The code below checks whether it bound this driver.
                Err(errno) if errno.raw_os_error() == Some(libc::EBUSY) && self.driver(device).is_some() => break,
                Err(errno) if errno.kind() == io::ErrorKind::NotFound => {
                    return Err(PciError::NoDriver { device, driver: driver.to_owned() }.into());
                }
                Err(errno) if is_ours(&errno) => return Err(not_written(&file, errno)),
                Err(errno) => return Err(refused(device, driver, errno).into()),
            }
        }
        let taken = until(deadline, || self.driver(device).filter(|found| found == driver));
        let late = || PciError::NotTaken { device, driver: driver.to_owned(), waited, found: self.driver(device) };
        taken.map(drop).ok_or_else(|| late().into())
    }
}

fn allowed(device: PciAddress, before: Sriov, asked: u32) -> Result<(), PciError> {
    match before {
        Sriov { total, .. } if asked > total => Err(PciError::TooManyVfs { device, asked, total }),
        Sriov { num: enabled @ 1.., .. } if asked > 0 => Err(PciError::VfsExist { device, enabled, asked }),
        _ => Ok(()),
    }
}

/// Translates an error of creating or removing virtual functions (`sriov_numvfs_store`).
fn no_vfs(
    device: PciAddress,
    before: Sriov,
    asked: u32,
    driver: Option<String>,
    errno: &io::Error,
) -> Option<PciError> {
    let number = errno.raw_os_error()?;
    Some(match number {
        libc::ERANGE => PciError::TooManyVfs { device, asked, total: before.total },
        libc::EBUSY if asked > 0 => PciError::VfsExist { device, enabled: before.num, asked },
        libc::EBUSY => PciError::VfsInUse { device },
        // igb and ixgbe return it: `pci_vfs_assigned`.
        libc::EPERM if asked == 0 && rustix::process::geteuid().is_root() => PciError::VfsInUse { device },
        libc::ENOENT | libc::ENOSYS | libc::EOPNOTSUPP => PciError::NoPfDriver { device, driver },
        libc::ENOMEM | libc::EIO => PciError::NoRoom { device, errno: io::Error::from_raw_os_error(number) },
        _ => return None,
    })
}

fn enabled(device: PciAddress, asked: u32, enabled: u32) -> Result<(), PciError> {
    if enabled == asked { Ok(()) } else { Err(PciError::FewerVfs { device, asked, enabled }) }
}

fn refused(device: PciAddress, driver: &str, errno: io::Error) -> PciError {
    let remedy = match errno.raw_os_error() {
        Some(libc::EINVAL) if driver == "vfio-pci" => {
            "it accepts only devices in an IOMMU group: boot with intel_iommu=on or amd_iommu=on, and enable the IOMMU \
             in the firmware"
        }
        Some(libc::ENODEV) => "the driver doesn't support this device, or the device doesn't work: check dmesg",
        Some(libc::EBUSY) => "another device of its IOMMU group is in use by the host: assign the whole group",
        _ => "check dmesg",
    };
    PciError::Refused { device, driver: driver.to_owned(), errno, remedy }
}

/// Returns whether the error concerns the writing process, not the device.
fn is_ours(errno: &io::Error) -> bool {
    matches!(errno.raw_os_error(), Some(libc::EACCES | libc::EPERM | libc::EROFS))
}

fn write(file: &Path, value: &str) -> Result<()> {
    written(file, value).map_err(|errno| not_written(file, errno))
}

fn kept(device: PciAddress, file: &'static str, wrote: &str, read: Option<String>) -> Result<()> {
    let read = read.unwrap_or_default();
    if read == wrote { Ok(()) } else { Err(PciError::NotKept { device, file, wrote: wrote.to_owned(), read }.into()) }
}

/// Writes in one call, because each call is a separate change, and creates no file where sysfs has none.
fn written(file: &Path, value: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).truncate(true).open(file)?;
    file.write_all(value.as_bytes())
}

fn not_written(file: &Path, errno: io::Error) -> SysError {
    let remedy = match errno.raw_os_error() {
        Some(libc::EROFS) => Some("/sys is read-only, as in containers: run vtax on the host itself"),
        Some(libc::EACCES | libc::EPERM) => Some("changing PCI devices requires root: run as root"),
        _ => remedy_for(&errno),
    };
    SysError::refused("write to", file.display(), errno, remedy)
}

/// Polls until the deadline. Calls `look` at least once.
fn until<T>(deadline: Instant, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    loop {
        let found = look();
        if found.is_some() || Instant::now() >= deadline {
            return found;
        }
        sleep(GLANCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device() -> PciAddress {
        "0000:01:00.0".parse().unwrap()
    }

    #[test]
    fn each_answer_of_the_kernel_has_its_own_meaning_and_remedy() {
        let before = Sriov { total: 7, num: 2, autoprobe: true, vf_device: 0, offset: 128, stride: 2 };
        let told = |asked, number| {
            let errno = io::Error::from_raw_os_error(number);
            no_vfs(device(), before, asked, Some("igb".into()), &errno).map(|error| error.to_string())
        };
        for (asked, number, part) in [
            (9, libc::ERANGE, "at most 7"),
            (3, libc::EBUSY, "destroy those first"),
            (0, libc::EBUSY, "stop the guests"),
            (3, libc::ENOENT, "igb doesn't support it"),
            (3, libc::ENOSYS, "vendor's driver"),
            (3, libc::EOPNOTSUPP, "vendor's driver"),
            (3, libc::ENOMEM, "pci=realloc"),
        ] {
            let text = told(asked, number).unwrap();
            assert!(text.contains(part) && text.contains("0000:01:00.0"), "{number}: {text}");
        }
        assert_eq!(told(3, libc::EINTR), None);
    }

    #[test]
    fn a_driver_that_enables_fewer_is_found_out() {
        assert!(enabled(device(), 4, 4).is_ok());
        let text = enabled(device(), 4, 2).unwrap_err().to_string();
        assert!(text.contains("enabled 2") && text.contains("instead of 4"), "{text}");
    }

    #[test]
    fn a_refusal_for_lack_of_an_iommu_is_reported_as_such() {
        let text = |driver, number| refused(device(), driver, io::Error::from_raw_os_error(number)).to_string();
        assert!(text("vfio-pci", libc::EINVAL).contains("intel_iommu=on"));
        assert!(!text("igb", libc::EINVAL).contains("iommu"));
        assert!(text("igb", libc::ENODEV).contains("dmesg"));
    }
}
