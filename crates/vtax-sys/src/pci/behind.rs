//! Lookup of the PCI device below a link, a file system or a guest's share.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::PciTree;
use super::address::PciAddress;
use super::sysfs::{entries, text};

/// Limit on stacked devices. A file system on a crypt device on a RAID on partitions has 3.
const DEEPEST: u32 = 16;

impl PciTree {
    /// Returns the device of a link in the namespace in which `/sys` was mounted.
    pub fn behind_link(&self, name: &str) -> Option<PciAddress> {
        last_address(&self.sys.join("class/net").join(name).join("device"))
    }

    /// Returns the devices below a block device, given by its number, looking through partitions, device mapper, RAID
    /// and the paths of an NVMe disk.
    pub fn behind_block(&self, major: u32, minor: u32) -> BTreeSet<PciAddress> {
        let mut found = BTreeSet::new();
        let directory = fs::canonicalize(self.sys.join(format!("dev/block/{major}:{minor}")));
        if let Ok(directory) = directory {
            stacked(&directory, DEEPEST, &mut found);
        }
        found
    }

    /// Returns whether this device provides a block device that programs can open.
    pub fn has_block(&self, device: PciAddress) -> bool {
        let shown = |(_, path): &(String, PathBuf)| text(&path.join("hidden")).as_deref() != Some("1");
        entries(&self.sys.join("block")).filter(shown).filter_map(|(_, path)| fs::canonicalize(path).ok()).any(
            |found| {
                let mut devices = BTreeSet::new();
                stacked(&found, DEEPEST, &mut devices);
                devices.contains(&device)
            },
        )
    }

    /// Returns the PCI devices of the virtio devices of this virtio driver, such as `9pnet_virtio`.
    pub fn behind_virtio(&self, driver: &str) -> BTreeSet<PciAddress> {
        let bound = entries(&self.sys.join("bus/virtio/drivers").join(driver));
        bound.filter(|(name, _)| name.starts_with("virtio")).filter_map(|(_, path)| last_address(&path)).collect()
    }

    /// Returns the device of the virtio-serial port with this name, as seen inside a guest.
    pub fn behind_port(&self, name: &str) -> Option<PciAddress> {
        let mut ports = entries(&self.sys.join("class/virtio-ports"));
        let (_, path) = ports.find(|(_, path)| text(&path.join("name")).as_deref() == Some(name))?;
        last_address(&path)
    }
}

fn last_address(path: &Path) -> Option<PciAddress> {
    let real = fs::canonicalize(path).ok()?;
    real.components().rev().find_map(|part| part.as_os_str().to_str()?.parse().ok())
}

fn stacked(directory: &Path, deepest: u32, found: &mut BTreeSet<PciAddress>) {
    if let Some(address) = last_address(directory) {
        found.insert(address);
        return;
    }
    if deepest == 0 {
        return;
    }
    for below in below(directory) {
        stacked(&below, deepest - 1, found);
    }
}

/// Returns the devices below a block device that has no hardware of its own.
fn below(directory: &Path) -> Vec<PathBuf> {
    // Slaves belong to the whole device, not to a partition.
    let partition = directory.join("partition").exists();
    let whole = if partition { directory.parent().unwrap_or(directory) } else { directory };
    let slaves = entries(&whole.join("slaves")).map(|(_, path)| path);
    // A disk with several controllers is a device of its subsystem; adjacent links point to the controllers.
    let subsystem = whole.parent().filter(|parent| parent.join("subsysnqn").exists());
    let controllers = subsystem.into_iter().flat_map(entries).filter(|(_, path)| path.is_symlink());
    let controllers = controllers.filter(|(name, _)| name.starts_with("nvme")).map(|(_, path)| path);
    slaves.chain(controllers).filter_map(|path| fs::canonicalize(path).ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    const DISK: &str = "devices/pci0000:00/0000:00:05.0/ata1/sda";

    struct Made(TempDir);

    impl Made {
        fn new() -> Self {
            Self(TempDir::new().unwrap())
        }

        fn file(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn link(&self, path: &str, to: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::create_dir_all(self.0.path().join(to)).unwrap();
            symlink(self.0.path().join(to), path).unwrap();
        }

        fn behind(&self, major: u32, minor: u32) -> Vec<String> {
            PciTree::at(self.0.path()).behind_block(major, minor).iter().map(PciAddress::to_string).collect()
        }
    }

    #[test]
    fn a_file_system_on_a_partition_of_a_raid_of_crypt_devices_is_traced() {
        let made = Made::new();
        made.file("devices/virtual/block/md0/md0p1/partition", "1");
        made.link("dev/block/259:1", "devices/virtual/block/md0/md0p1");
        made.link("devices/virtual/block/md0/slaves/dm-0", "devices/virtual/block/dm-0");
        made.link("devices/virtual/block/dm-0/slaves/sda1", &format!("{DISK}/sda1"));
        made.link("devices/virtual/block/md0/slaves/vda", "devices/pci0000:00/0000:00:06.0/virtio3/block/vda");
        assert_eq!(made.behind(259, 1), ["0000:00:05.0", "0000:00:06.0"]);
        assert_eq!(made.behind(9, 9), Vec::<String>::new());
    }

    #[test]
    fn a_disk_of_two_nvme_controllers_is_on_both() {
        let made = Made::new();
        let subsystem = "devices/virtual/nvme-subsystem/nvme-subsys0";
        made.file(&format!("{subsystem}/subsysnqn"), "nqn");
        made.link("dev/block/259:0", &format!("{subsystem}/nvme0n1"));
        for (name, device) in [("nvme0", "0000:00:07.0"), ("nvme1", "0000:00:08.0")] {
            made.link(&format!("{subsystem}/{name}"), &format!("devices/pci0000:00/{device}/nvme/{name}"));
        }
        assert_eq!(made.behind(259, 0), ["0000:00:07.0", "0000:00:08.0"]);
    }

    #[test]
    fn a_controller_has_a_disk_once_programs_can_open_it() {
        let made = Made::new();
        let subsystem = "devices/virtual/nvme-subsystem/nvme-subsys0";
        made.file(&format!("{subsystem}/subsysnqn"), "nqn");
        made.link(&format!("{subsystem}/nvme0"), "devices/pci0000:00/0000:00:07.0/nvme/nvme0");
        made.file("devices/pci0000:00/0000:00:07.0/nvme/nvme0/nvme0c0n1/hidden", "1");
        made.link("block/nvme0c0n1", "devices/pci0000:00/0000:00:07.0/nvme/nvme0/nvme0c0n1");
        let tree = PciTree::at(made.0.path());
        let has = |device: &str| tree.has_block(device.parse().unwrap());
        assert!(!has("0000:00:07.0"));
        made.link("block/nvme0n1", &format!("{subsystem}/nvme0n1"));
        assert!(has("0000:00:07.0") && !has("0000:00:08.0"));
    }

    #[test]
    fn circular_devices_terminate() {
        let made = Made::new();
        made.link("dev/block/253:0", "devices/virtual/block/dm-0");
        made.link("devices/virtual/block/dm-0/slaves/dm-1", "devices/virtual/block/dm-1");
        made.link("devices/virtual/block/dm-1/slaves/dm-0", "devices/virtual/block/dm-0");
        assert_eq!(made.behind(253, 0), Vec::<String>::new());
    }

    #[test]
    fn links_shares_and_ports_are_traced() {
        let made = Made::new();
        let virtio = "devices/pci0000:00/0000:00:03.0/virtio2";
        made.link("class/net/eth0", &format!("{virtio}/net/eth0"));
        made.link(&format!("{virtio}/net/eth0/device"), virtio);
        made.link("bus/virtio/drivers/9pnet_virtio/virtio2", virtio);
        made.link("bus/virtio/drivers/9pnet_virtio/module", "module/9pnet_virtio");
        made.file(&format!("{virtio}/virtio-ports/vport2p1/name"), "org.vtax.agent.0\n");
        made.link("class/virtio-ports/vport2p1", &format!("{virtio}/virtio-ports/vport2p1"));
        let tree = PciTree::at(made.0.path());
        let device: PciAddress = "0000:00:03.0".parse().unwrap();
        assert_eq!((tree.behind_link("eth0"), tree.behind_link("lo")), (Some(device), None));
        assert_eq!(tree.behind_virtio("9pnet_virtio"), [device].into());
        assert_eq!((tree.behind_port("org.vtax.agent.0"), tree.behind_port("other")), (Some(device), None));
    }
}
