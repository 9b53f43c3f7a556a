//! A disk as seen by the guest's system: its modules and its name.
//!
//! The order in which drivers find disks doesn't depend on QEMU's arguments. But the place of a disk's port on the PCI
//! bus does, and the kernel reports the place for each block device.

use std::borrow::Cow;

use vtax_model::disk::DiskDevice;

use super::DiskLaunch;

impl DiskLaunch {
    /// A program of the guest that reports its block devices ([`DiskLaunch::find`]).
    pub const LISTING: [&str; 3] = ["/bin/sh", "-c", "ls -l /sys/block"];

    /// The name of the disk's block device in the guest, such as `vda`, from the output of [`DiskLaunch::LISTING`];
    /// `None` if no driver has found the disk yet.
    pub fn find<'a>(&self, listing: &'a str) -> Option<Cow<'a, str>> {
        let (slot, function) = self.slot();
        let port = format!("/0000:00:{slot:02x}.{function}/");
        let below = listing.lines().filter_map(|line| line.split_once(" -> ")).filter(|(_, path)| path.contains(&port));
        below.filter_map(|(_, path)| path.trim_end().rsplit('/').next()).find_map(shown)
    }
}

/// The name under which a block device can be opened. An NVMe controller that may share its disks with another has `nvme0c1n2`,
/// which the kernel hides, and the disk is `nvme0n2` (drivers/nvme/host/multipath.c).
fn shown(name: &str) -> Option<Cow<'_, str>> {
    let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let hidden = name.strip_prefix("nvme").and_then(|rest| {
        let (subsystem, rest) = rest.split_once('c')?;
        let (_, namespace) = rest.split_once('n')?;
        Some(format!("nvme{subsystem}n{namespace}"))
    });
    plain.then(|| hidden.map_or(name.into(), Into::into))
}

/// The modules for such a disk in a guest.
pub fn drivers(device: DiskDevice) -> &'static [&'static str] {
    match device {
        DiskDevice::VirtioBlk | DiskDevice::VhostUserBlk | DiskDevice::Nbd => &["virtio_blk"],
        DiskDevice::VirtioScsi => &["virtio_scsi", "sd_mod"],
        DiskDevice::Nvme | DiskDevice::AssignedNvme => &["nvme"],
        DiskDevice::Ahci => &["ahci", "sd_mod"],
        DiskDevice::Ide => &["ata_piix", "sd_mod"],
    }
}

/// The devices that QEMU must emulate for such a disk.
pub fn models(device: DiskDevice) -> &'static [&'static str] {
    match device {
        DiskDevice::VirtioBlk | DiskDevice::Nbd => &["virtio-blk-pci"],
        DiskDevice::VhostUserBlk => &["vhost-user-blk-pci"],
        DiskDevice::VirtioScsi => &["virtio-scsi-pci", "scsi-hd"],
        DiskDevice::Nvme => &["nvme"],
        DiskDevice::Ahci => &["ich9-ahci", "ide-hd"],
        DiskDevice::Ide => &["piix3-ide", "ide-hd"],
        DiskDevice::AssignedNvme => &["vfio-pci"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vdisk::{DiskPaths, DiskSource};

    #[test]
    fn a_disk_is_found_by_the_place_of_its_port() {
        let listing = "total 0\n\
            lrwxrwxrwx 1 0 0 0 Nov 25 22:00 nvme0c1n2 -> ../devices/pci0000:00/0000:00:09.1/0000:05:00.0/nvme/nvme1/nvme0c1n2\n\
            lrwxrwxrwx 1 0 0 0 Nov 25 22:00 nvme0n2 -> ../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n2\n\
            lrwxrwxrwx 1 0 0 0 Nov 25 22:00 sda -> ../devices/pci0000:00/0000:00:08.3/ata1/host0/target0:0:0/0:0:0:0/block/sda\n\
            lrwxrwxrwx 1 0 0 0 Nov 25 22:00 vda -> ../devices/pci0000:00/0000:00:08.0/0000:01:00.0/virtio1/block/vda\n";
        let find = |port| {
            let source = DiskSource::Paths(DiskPaths { files: Vec::new(), timeout: None });
            let disk = DiskLaunch { port, serial: "a".to_owned(), read_only: false, attach: None, source };
            disk.find(listing).map(|name| name.into_owned())
        };
        assert_eq!([0, 3, 9].map(find), ["vda", "sda", "nvme0n2"].map(|name| Some(name.to_owned())));
        assert_eq!(find(1), None);
    }

    #[test]
    fn output_of_a_guest_is_not_used_as_a_path() {
        assert_eq!([".", "", "a b", "../x", "vda;"].map(shown), [None, None, None, None, None]);
        assert_eq!([shown("nvme0n1"), shown("nvme3c")], [Some("nvme0n1".into()), Some("nvme3c".into())]);
    }
}
