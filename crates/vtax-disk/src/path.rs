//! Path to a disk: file system, device, driver, queue.
//!
//! It contains only facts from this machine's kernel. A guest sees its disk as a virtual device; only the host knows
//! which of its files or disks is behind it.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

use vtax_model::{
    disk::{BlockIdentity, DiskIdentity, FilesystemIdentity, LowerBlock, WriteCache},
    foreign::ForeignText,
    units::ByteSize,
};
use vtax_sys::block::{BlockDirectory, DeviceNumber, KernelFiles, MountLine};

use crate::target::DiskTarget;

/// Returns the path of a target, for a test with or without O_DIRECT.
pub fn identify(target: &DiskTarget, direct: bool) -> io::Result<DiskIdentity> {
    identify_in(target, direct, &KernelFiles::own())
}

fn identify_in(target: &DiskTarget, direct: bool, files: &KernelFiles) -> io::Result<DiskIdentity> {
    let path = ForeignText::from(target.path.display().to_string());
    if target.is_device {
        let number = DeviceNumber::of(fs::metadata(&target.path)?.rdev());
        let device = files.block(number).map(|device| describe(&device));
        return Ok(DiskIdentity { path, direct, filesystem: None, device, user: None });
    }
    let mount = mount_of(&target.path, files);
    let filesystem = mount.as_ref().map(|mount| FilesystemIdentity {
        kind: mount.filesystem.as_str().into(),
        options: mount.options.as_str().into(),
    });
    let device = mount.and_then(|mount| device_of(&mount, files)).map(|device| describe(&device));
    Ok(DiskIdentity { path, direct, filesystem, device, user: None })
}

/// Returns the mount that contains a file, or would contain it: the one with the longest mount point, and of several on
/// one mount point the last, which covers the others.
pub(crate) fn mount_of(path: &Path, files: &KernelFiles) -> Option<MountLine> {
    let mounts = files.mounts().ok()?;
    let above = mounts.into_iter().filter(|mount| path.starts_with(&mount.target));
    above.max_by_key(|mount| mount.target.components().count())
}

/// Returns the device of a mount, by its number. For btrfs, which has its own numbers and may be on several devices, it
/// is the mount's source.
fn device_of(mount: &MountLine, files: &KernelFiles) -> Option<BlockDirectory> {
    let by_source = || {
        let found = fs::metadata(&mount.source).ok()?;
        files.block(DeviceNumber::of(found.rdev()))
    };
    files.block(mount.device).or_else(by_source)
}

fn describe(device: &BlockDirectory) -> BlockIdentity {
    let whole = device.whole();
    let number = |file: &str| whole.number_in(file);
    let queues = u32::try_from(whole.count("mq")).ok().filter(|count| *count > 0);
    let cached = |dio: u64| dio == 0;
    BlockIdentity {
        name: whole.name().into(),
        driver: driver(&whole).map(ForeignText::from),
        model: model(&whole).map(ForeignText::from),
        scheduler: whole.value("queue/scheduler").and_then(|list| in_force(&list)).map(ForeignText::from),
        requests: number("queue/nr_requests").and_then(|requests| requests.try_into().ok()),
        queues,
        rotational: number("queue/rotational").map(|turns| turns == 1),
        sector: number("queue/logical_block_size").map(ByteSize),
        write_cache: whole.value("queue/write_cache").and_then(|cache| match cache.as_str() {
            "write back" => Some(WriteCache::Back),
            "write through" => Some(WriteCache::Through),
            _ => None,
        }),
        backing_file: whole.value("loop/backing_file").map(ForeignText::from),
        backing_cached: whole.number_in("loop/dio").map(cached),
        below: whole.below().iter().map(lower).collect(),
    }
}

fn lower(device: &BlockDirectory) -> LowerBlock {
    LowerBlock { name: device.name().into(), model: model(&device.whole()).map(ForeignText::from) }
}

/// Returns the driver of a disk. An NVMe namespace has its controller in between, and a virtual device has no driver.
fn driver(device: &BlockDirectory) -> Option<String> {
    let of_device = ["device/driver", "device/device/driver"].into_iter().find_map(|link| device.linked(link));
    let mapped = || device.value("dm/uuid").map(|uuid| format!("device-mapper ({})", kind_of(&uuid)));
    let array = || device.value("md/level").map(|level| format!("md ({level})"));
    of_device.or_else(mapped).or_else(array)
}

/// Returns the kind of a mapped device: the program that created it puts its name in front of the rest, e.g. `LVM-…`.
fn kind_of(uuid: &str) -> &str {
    uuid.split('-').next().unwrap_or_default()
}

fn model(device: &BlockDirectory) -> Option<String> {
    let [vendor, model] = ["device/vendor", "device/model"].map(|file| device.value(file));
    match (vendor, model) {
        // The vendor of a virtio disk is a PCI number.
        (Some(vendor), Some(model)) if !vendor.starts_with("0x") => Some(format!("{vendor} {model}")),
        (_, model) => model,
    }
}

/// Returns the item in brackets, e.g. `none` of `[none] mq-deadline`.
fn in_force(list: &str) -> Option<String> {
    let (_, after) = list.split_once('[')?;
    Some(after.split_once(']')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::symlink, path::PathBuf};

    use super::*;

    /// Creates a `/sys` with an NVMe disk, and a mapped device on its partition.
    fn tree(root: &Path) -> KernelFiles {
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("below the root")).expect("made");
            fs::write(path, text).expect("written");
        };
        write("sys/devices/nvme0/nvme0n1/dev", "259:0\n");
        write("sys/devices/nvme0/nvme0n1/queue/scheduler", "[none] mq-deadline kyber\n");
        write("sys/devices/nvme0/nvme0n1/queue/nr_requests", "1023\n");
        write("sys/devices/nvme0/nvme0n1/queue/rotational", "0\n");
        write("sys/devices/nvme0/nvme0n1/queue/logical_block_size", "512\n");
        write("sys/devices/nvme0/nvme0n1/queue/write_cache", "write back\n");
        write("sys/devices/nvme0/nvme0n1/device/model", "Fast Disk 960   \n");
        write("sys/devices/nvme0/nvme0n1/mq/0/cpu_list", "0\n");
        write("sys/devices/nvme0/nvme0n1/mq/1/cpu_list", "1\n");
        write("sys/devices/nvme0/nvme0n1/nvme0n1p1/partition", "1\n");
        write("sys/devices/nvme0/nvme0n1/nvme0n1p1/dev", "259:1\n");
        write("sys/devices/dm-0/dm/uuid", "LVM-abc\n");
        write("sys/devices/dm-0/queue/write_cache", "write through\n");
        write("sys/bus/nvme", "");
        fs::create_dir_all(root.join("sys/dev/block")).expect("made");
        fs::create_dir_all(root.join("sys/devices/dm-0/slaves")).expect("made");
        fs::create_dir_all(root.join("sys/devices/nvme0/nvme0n1/device/device")).expect("made");
        symlink("../../../../../bus/nvme", root.join("sys/devices/nvme0/nvme0n1/device/device/driver")).expect("made");
        symlink("../../devices/nvme0/nvme0n1/nvme0n1p1", root.join("sys/dev/block/259:1")).expect("made");
        symlink("../../devices/dm-0", root.join("sys/dev/block/253:0")).expect("made");
        symlink("../../nvme0/nvme0n1/nvme0n1p1", root.join("sys/devices/dm-0/slaves/nvme0n1p1")).expect("made");
        let mounts = "1 0 253:0 / / rw,relatime - ext4 /dev/mapper/root rw\n\
                      2 1 259:1 / /data rw,noatime - xfs /dev/nvme0n1p1 rw\n\
                      3 1 0:40 / /tmp rw - tmpfs tmpfs rw\n";
        write("proc/self/mountinfo", mounts);
        KernelFiles { proc: root.join("proc"), sys: root.join("sys") }
    }

    fn identity(path: &str) -> DiskIdentity {
        let root = tempfile::tempdir().expect("a folder");
        let target = DiskTarget { path: PathBuf::from(path), is_device: false };
        identify_in(&target, true, &tree(root.path())).expect("read")
    }

    #[test]
    fn a_file_is_followed_to_its_disk() {
        let found = identity("/data/disk");
        assert_eq!(
            found.to_string(),
            "/data/disk on xfs on nvme0n1 (nvme, Fast Disk 960, scheduler none, queue of 1023, write back), O_DIRECT"
        );
        let device = found.device.expect("it has one");
        assert_eq!((device.queues, device.rotational, device.sector), (Some(2), Some(false), Some(ByteSize(512))));
    }

    #[test]
    fn a_mapped_device_names_what_it_is_made_of() {
        let device = identity("/home/disk").device.expect("it has one");
        assert_eq!(device.to_string(), "dm-0 (device-mapper (LVM), write through, made of nvme0n1p1)");
        assert_eq!(device.below[0].model.as_ref().map(ForeignText::raw), Some("Fast Disk 960"));
    }

    #[test]
    fn memory_is_named() {
        let found = identity("/tmp/disk");
        assert!(found.is_cached() && found.device.is_none(), "{found}");
    }

    #[test]
    fn a_mount_is_not_a_prefix_of_a_longer_name() {
        let found = identity("/database/disk");
        assert_eq!(found.filesystem.expect("the root's").kind, "ext4");
    }
}
