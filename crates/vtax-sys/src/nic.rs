//! Facts about a link: its driver, offloads and queues, and the interrupts of its device.

use std::fs;
use std::path::{Path, PathBuf};

use vtax_model::{
    foreign::ForeignText,
    nic::{IrqFacts, NicFacts},
};

use crate::ethtool::Ethtool;
use crate::netlink::IfName;
use crate::pci::sysfs::{entries, number, text};

/// Describes a link of the calling thread's network namespace, as far as the driver and the kernel report it. Never
/// fails: unknown facts are absent, and all of them for a link that doesn't exist.
///
/// The device is found by the bus address that the driver reports, not through `/sys/class/net`. That directory shows
/// the links of the namespace in which `/sys` was mounted, so a zone's `eth0` would be confused with the machine's.
pub fn describe(link: &IfName) -> NicFacts {
    let Ok(ethtool) = Ethtool::open(link) else { return NicFacts::default() };
    let driver = ethtool.driver();
    let device = driver.bus.as_deref().and_then(|bus| Device::find(Path::new("/"), bus));
    NicFacts {
        driver: driver.name.map(ForeignText::from),
        driver_version: driver.version.map(ForeignText::from),
        firmware: driver.firmware.map(ForeignText::from),
        speed_mbps: ethtool.speed_mbps(),
        numa_node: device.as_ref().and_then(Device::numa_node),
        offloads: ethtool.offloads().into_iter().map(|(name, on)| (name.into(), on)).collect(),
        channels: ethtool.channels(),
        rings: ethtool.rings(),
        coalescing: ethtool.coalescing(),
        irqs: device.as_ref().map(Device::irqs).unwrap_or_default(),
        bus: driver.bus.map(ForeignText::from),
    }
}

/// A device in sysfs.
struct Device {
    root: PathBuf,
    /// Directory below `sys/bus`, on any bus.
    directory: PathBuf,
}

impl Device {
    /// Finds the device with this address on any bus, e.g. `0000:3b:00.1` on `pci`.
    fn find(root: &Path, address: &str) -> Option<Self> {
        if address.is_empty() || address.starts_with('.') || address.contains('/') {
            return None;
        }
        let buses = fs::read_dir(root.join("sys/bus")).ok()?.flatten();
        let directory = buses.map(|bus| bus.path().join("devices").join(address)).find(|path| path.exists())?;
        Some(Self { root: root.to_owned(), directory })
    }

    /// Returns the NUMA node. On a machine with one node, the file contains -1.
    fn numa_node(&self) -> Option<u32> {
        number(&self.directory.join("numa_node"))
    }

    /// Returns the interrupts in ascending order. A device with message-signalled interrupts has a file for each of
    /// them. The number in `irq` is then one of these, or unused.
    fn irqs(&self) -> Vec<IrqFacts> {
        let signalled = entries(&self.directory.join("msi_irqs"));
        let mut numbers: Vec<u32> = signalled.filter_map(|(name, _)| name.parse().ok()).collect();
        if numbers.is_empty() {
            numbers.extend(number(&self.directory.join("irq")).filter(|number| *number > 0));
        }
        numbers.sort_unstable();
        numbers.into_iter().filter_map(|number| self.irq(number)).collect()
    }

    fn irq(&self, number: u32) -> Option<IrqFacts> {
        let directory = self.root.join("proc/irq").join(number.to_string());
        let affinity = text(&directory.join("smp_affinity_list"))?.into();
        let effective =
            text(&directory.join("effective_affinity_list")).filter(|list| !list.is_empty()).map(ForeignText::from);
        Some(IrqFacts { number, affinity, effective })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    const NIC: &str = "sys/bus/pci/devices/0000:3b:00.1";

    #[test]
    fn the_interrupts_of_a_device_are_found_by_its_address() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| write(root.path(), path, text);
        put(&format!("{NIC}/numa_node"), "1\n");
        put(&format!("{NIC}/irq"), "16\n");
        put(&format!("{NIC}/msi_irqs/101"), "msix\n");
        put(&format!("{NIC}/msi_irqs/99"), "msix\n");
        put("sys/bus/usb/devices/1-1/irq", "5\n");
        put("proc/irq/99/smp_affinity_list", "0-3\n");
        put("proc/irq/99/effective_affinity_list", "2\n");
        put("proc/irq/101/smp_affinity_list", "8\n");
        put("proc/irq/101/effective_affinity_list", "\n");
        let device = Device::find(root.path(), "0000:3b:00.1").unwrap();
        assert_eq!(device.numa_node(), Some(1));
        let irqs = device.irqs();
        let first = IrqFacts { number: 99, affinity: "0-3".into(), effective: Some("2".into()) };
        assert_eq!(irqs, [first, IrqFacts { number: 101, affinity: "8".into(), effective: None }]);
    }

    #[test]
    fn a_device_without_message_signalled_interrupts_has_one() {
        let root = tempfile::tempdir().unwrap();
        for (address, irq) in [("a", "9\n"), ("b", "0\n")] {
            write(root.path(), &format!("sys/bus/platform/devices/{address}/irq"), irq);
            write(root.path(), &format!("sys/bus/platform/devices/{address}/numa_node"), "-1\n");
        }
        write(root.path(), "proc/irq/9/smp_affinity_list", "0\n");
        write(root.path(), "proc/irq/0/smp_affinity_list", "0\n");
        let irqs = |address| Device::find(root.path(), address).unwrap().irqs().len();
        assert_eq!((irqs("a"), irqs("b")), (1, 0));
        assert_eq!(Device::find(root.path(), "a").unwrap().numa_node(), None);
    }

    #[test]
    fn an_address_is_not_a_path() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "sys/bus/pci/devices/x/irq", "1\n");
        for address in ["..", "../devices/x", "", "/etc", "y"] {
            assert!(Device::find(root.path(), address).is_none(), "{address}");
        }
    }

    #[test]
    fn a_link_that_does_not_exist_is_described_by_nothing() {
        assert_eq!(describe(&"no-such-link".parse().unwrap()), NicFacts::default());
    }
}
