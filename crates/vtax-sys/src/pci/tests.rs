//! A fake sysfs. A thread emulates the kernel's reaction when a file is written.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use super::*;

const LONG: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(30);
const PF: &str = "devices/pci0000:80/0000:80:00.0/0000:81:00.0";
const VF: &str = "devices/pci0000:80/0000:80:00.0/0000:81:10.0";
const VIRTIO: &str = "devices/pci0000:00/0000:00:03.0";

struct Made(TempDir);

impl Made {
    /// Creates a root port with a NIC that has one virtual function, behind a second root complex; and a virtio NIC at
    /// the first one.
    fn new() -> Self {
        let made = Self(TempDir::new().unwrap());
        for (directory, class) in
            [("devices/pci0000:80/0000:80:00.0", "0x060400"), (PF, "0x020000"), (VF, "0x020000"), (VIRTIO, "0x020000")]
        {
            made.device(directory, class);
        }
        for (file, text) in [
            ("sriov_totalvfs", "7"),
            ("sriov_numvfs", "1"),
            ("sriov_drivers_autoprobe", "1"),
            ("sriov_vf_device", "10ca"),
            ("current_link_speed", "2.5 GT/s PCIe"),
            ("current_link_width", "4"),
        ] {
            made.file(&format!("{PF}/{file}"), text);
        }
        made.file(&format!("{PF}/numa_node"), "1");
        made.file(&format!("{VF}/current_link_speed"), "Unknown");
        made.file(&format!("{PF}/net/eth1/mtu"), "1500");
        made.file(&format!("{VIRTIO}/virtio2/net/eth0/mtu"), "1500");
        for (from, to) in [("../0000:81:10.0", "virtfn0"), ("../../kernel/iommu_groups/4", "iommu_group")] {
            made.link(from, &format!("{PF}/{to}"));
        }
        made.link("../0000:81:00.0", &format!("{VF}/physfn"));
        made.link("../../devices/pci0000:80/0000:80:00.0/pci_bus/0000:81", "class/pci_bus/0000:81");
        made.directory("devices/pci0000:80/0000:80:00.0/pci_bus/0000:81");
        made.file("bus/pci/slots/2/address", "0000:81:00");
        made.file("bus/pci/slots/2-1/address", "0000:05");
        made.file("bus/pci/drivers_probe", "");
        for driver in ["igb", "vfio-pci"] {
            made.file(&format!("bus/pci/drivers/{driver}/bind"), "");
            made.file(&format!("bus/pci/drivers/{driver}/unbind"), "");
        }
        made.take(PF, "igb");
        made
    }

    fn device(&self, directory: &str, class: &str) {
        for (file, text) in [
            ("vendor", "0x8086"),
            ("device", "0x10c9"),
            ("class", class),
            ("numa_node", "-1"),
            ("driver_override", "(null)"),
        ] {
            self.file(&format!("{directory}/{file}"), text);
        }
        let address = directory.rsplit('/').next().unwrap();
        self.link(&format!("../../../{directory}"), &format!("bus/pci/devices/{address}"));
    }

    fn take(&self, directory: &str, driver: &str) {
        symlink(self.path(&format!("bus/pci/drivers/{driver}")), self.path(&format!("{directory}/driver"))).unwrap();
    }

    fn file(&self, path: &str, text: &str) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        fs::write(self.path(path), format!("{text}\n")).unwrap();
    }

    fn directory(&self, path: &str) {
        fs::create_dir_all(self.path(path)).unwrap();
    }

    fn link(&self, to: &str, path: &str) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        symlink(to, self.path(path)).unwrap();
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn tree(&self) -> PciTree {
        PciTree::at(self.0.path())
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap().trim().to_owned()
    }

    /// Runs `test` while a thread emulates the kernel's reaction to writes.
    fn with_kernel<T>(&self, test: impl FnOnce(&PciTree) -> T) -> T {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    self.react();
                    thread::sleep(Duration::from_millis(1));
                }
            });
            let result = test(&self.tree());
            over.store(true, Ordering::Relaxed);
            result
        })
    }

    fn react(&self) {
        for driver in ["igb", "vfio-pci"] {
            let of = |file: &str| self.path(&format!("bus/pci/drivers/{driver}/{file}"));
            if let Some(address) = taken(&of("unbind")) {
                fs::remove_file(self.path("bus/pci/devices").join(address).join("driver")).unwrap();
            }
            if let Some(address) = taken(&of("bind")) {
                self.take(&format!("bus/pci/devices/{address}"), driver);
            }
        }
        if let Some(address) = taken(&self.path("bus/pci/drivers_probe")) {
            self.take(&format!("bus/pci/devices/{address}"), "igb");
        }
    }
}

/// Returns the text written to the file, once.
fn taken(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).unwrap_or_default().trim().to_owned();
    let there = !text.is_empty();
    there.then(|| fs::write(file, "").unwrap());
    there.then_some(text)
}

fn address(text: &str) -> PciAddress {
    text.parse().unwrap()
}

fn pf() -> PciAddress {
    address("0000:81:00.0")
}

fn vf() -> PciAddress {
    address("0000:81:10.0")
}

#[test]
fn devices_are_read_with_their_place() {
    let made = Made::new();
    let devices = made.tree().devices().unwrap();
    let addresses: Vec<String> = devices.iter().map(|device| device.address.to_string()).collect();
    assert_eq!(addresses, ["0000:00:03.0", "0000:80:00.0", "0000:81:00.0", "0000:81:10.0"]);
    let [virtio, port, pf, vf] = devices.try_into().unwrap();
    assert!(port.is_bridge() && !port.is_nic() && pf.is_nic());
    assert_eq!((virtio.netdev.as_deref(), virtio.numa_node, virtio.sriov), (Some("eth0"), None, None));
    assert_eq!(pf.root, Root { domain: 0, bus: 0x80 });
    assert_eq!((pf.path, vf.path), (vec![(0, 0), (0, 0)], vec![(0, 0), (0x10, 0)]));
    assert_eq!((pf.slot.as_deref(), vf.slot.as_deref(), virtio.slot), (Some("2"), Some("2"), None));
    assert_eq!((pf.driver.as_deref(), pf.driver_override, pf.iommu_group), (Some("igb"), None, Some(4)));
    assert_eq!((pf.netdev.as_deref(), pf.numa_node), (Some("eth1"), Some(1)));
    assert_eq!((pf.virtfns, vf.physfn), (vec![vf.address], Some(pf.address)));
    assert_eq!(pf.sriov, Some(Sriov { total: 7, num: 1, autoprobe: true, vf_device: 0x10ca, offset: 0, stride: 0 }));
    assert_eq!((pf.link, vf.link), (Some(PciLink { speed: "2.5 GT/s PCIe".into(), width: 4 }), None));
}

#[test]
fn empty_slots_and_a_machine_without_pci_are_not_errors() {
    let made = Made::new();
    let slots = made.tree().slots();
    assert_eq!(slots.iter().map(|slot| slot.name.as_str()).collect::<Vec<_>>(), ["2", "2-1"]);
    assert_eq!((slots[0].root, slots[1].root), (Some(Root { domain: 0, bus: 0x80 }), None));
    let none = TempDir::new().unwrap();
    assert_eq!(PciTree::at(none.path()).devices().unwrap(), []);
    assert_eq!(PciTree::at(none.path()).device(pf()).unwrap(), None);
}

#[test]
fn a_device_is_moved_to_another_driver_and_back() {
    let made = Made::new();
    made.with_kernel(|tree| {
        tree.bind(pf(), Some("vfio-pci"), LONG).unwrap();
        let device = tree.device(pf()).unwrap().unwrap();
        assert_eq!((device.driver.as_deref(), device.driver_override.as_deref()), (Some("vfio-pci"), Some("vfio-pci")));
        tree.rebind(pf(), Some("igb"), None, LONG).unwrap();
        let device = tree.device(pf()).unwrap().unwrap();
        assert_eq!((device.driver.as_deref(), device.driver_override), (Some("igb"), None));
        tree.bind(pf(), None, LONG).unwrap();
        assert_eq!(tree.driver(pf()), None);
        assert_eq!(tree.probe(pf(), LONG).unwrap(), "igb");
    });
}

#[test]
fn an_override_that_names_another_driver_than_the_bound_one_comes_back_too() {
    let made = Made::new();
    made.with_kernel(|tree| {
        tree.rebind(pf(), Some("vfio-pci"), Some("igb"), LONG).unwrap();
        let device = tree.device(pf()).unwrap().unwrap();
        assert_eq!((device.driver.as_deref(), device.driver_override.as_deref()), (Some("vfio-pci"), Some("igb")));
        tree.rebind(pf(), None, Some("igb"), LONG).unwrap();
        let device = tree.device(pf()).unwrap().unwrap();
        assert_eq!((device.driver, device.driver_override.as_deref()), (None, Some("igb")));
    });
}

#[test]
fn without_its_driver_a_device_stays_as_it_was() {
    let made = Made::new();
    let error = made.tree().bind(pf(), Some("igbvf"), SHORT).unwrap_err().to_string();
    assert!(error.contains("no driver igbvf") && error.contains("modprobe igbvf"), "{error}");
    assert_eq!(
        (made.tree().driver(pf()).as_deref(), made.read(&format!("{PF}/driver_override"))),
        (Some("igb"), "(null)".into())
    );
}

/// Without its thread, this fake reacts to nothing.
#[test]
fn drivers_that_do_not_move_are_noticed_in_time() {
    let made = Made::new();
    let tree = made.tree();
    let held = tree.bind(pf(), Some("vfio-pci"), SHORT).unwrap_err();
    assert!(matches!(held, SysError::Pci(PciError::StillHeld { .. })), "{held}");
    let late = tree.bind(vf(), Some("vfio-pci"), SHORT).unwrap_err();
    assert!(matches!(late, SysError::Pci(PciError::NotTaken { found: None, .. })), "{late}");
    let nobody = tree.probe(vf(), SHORT).unwrap_err();
    assert!(matches!(nobody, SysError::Pci(PciError::NobodyTook { .. })), "{nobody}");
    let silent = tree.await_netdev(vf(), SHORT).unwrap_err();
    assert!(matches!(silent, SysError::Pci(PciError::NoNetdev { .. })), "{silent}");
    assert_eq!(tree.await_netdev(pf(), SHORT).unwrap(), "eth1");
}

#[test]
fn a_device_that_does_not_exist_is_named() {
    let (made, gone) = (Made::new(), address("0000:05:00.0"));
    let tree = made.tree();
    for error in [
        tree.bind(gone, None, SHORT).unwrap_err(),
        tree.probe(gone, SHORT).unwrap_err(),
        tree.set_numvfs(gone, 1).unwrap_err(),
        tree.set_autoprobe(gone, false).unwrap_err(),
    ] {
        assert!(error.to_string().starts_with("no PCI device 0000:05:00.0"), "{error}");
    }
}

#[test]
fn virtual_functions_are_created_and_removed() {
    let made = Made::new();
    let tree = made.tree();
    tree.set_numvfs(pf(), 1).unwrap();
    let exist = tree.set_numvfs(pf(), 3).unwrap_err();
    assert!(matches!(exist, SysError::Pci(PciError::VfsExist { enabled: 1, asked: 3, .. })), "{exist}");
    tree.set_numvfs(pf(), 0).unwrap();
    tree.set_numvfs(pf(), 3).unwrap();
    assert_eq!(tree.device(pf()).unwrap().unwrap().sriov.unwrap().num, 3);
    let many = tree.set_numvfs(pf(), 8).unwrap_err();
    assert!(matches!(many, SysError::Pci(PciError::TooManyVfs { total: 7, .. })), "{many}");
    let none = tree.set_numvfs(vf(), 1).unwrap_err();
    assert!(matches!(none, SysError::Pci(PciError::NoSriov { .. })), "{none}");
}

#[test]
fn autoprobe_reads_back_and_keeps_drivers_away_from_virtual_functions() {
    let made = Made::new();
    made.tree().set_autoprobe(pf(), false).unwrap();
    let left_alone = made.tree().probe(vf(), SHORT).unwrap_err();
    assert!(matches!(left_alone, SysError::Pci(PciError::AutoprobeOff { .. })), "{left_alone}");
    assert_eq!(made.tree().device(pf()).unwrap().unwrap().sriov.map(|sriov| sriov.autoprobe), Some(false));
}

#[test]
fn virtual_functions_are_found_through_their_physical_one() {
    let sriov = Sriov { total: 7, num: 0, autoprobe: true, vf_device: 0x10ca, offset: 128, stride: 2 };
    let at = |pf: &str, index| sriov.virtfn(address(pf), index).map(|vf| vf.to_string());
    assert_eq!(at("0000:01:00.0", 0).as_deref(), Some("0000:01:10.0"));
    assert_eq!(at("0000:01:00.1", 5).as_deref(), Some("0000:01:11.3"));
    assert_eq!(at("0000:01:1f.7", 0).as_deref(), Some("0000:02:0f.7"));
    assert_eq!(at("0000:ff:1f.7", 0), None);
    assert_eq!(Sriov { offset: 0, ..sriov }.virtfn(address("0000:01:00.0"), 0), None);
}
