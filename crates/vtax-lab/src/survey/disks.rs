//! Inspects the files and block devices for guests' disks, and probes attachment methods that not every machine
//! supports.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::Path,
};

use rustix::fs::{OFlags, major, minor};
use vtax_guest::{launch::QemuProgram, probe};
use vtax_model::{
    disk::{DiskAttach, DiskDevice, HostAio},
    method::Unsupported,
    topology::GuestDisk,
};
use vtax_sys::pci::PciTree;

use crate::facts::{DiskBackendFacts, DiskFacts, tried};

impl DiskFacts {
    /// Looks at these disks only.
    pub(super) fn gather(disks: &BTreeSet<GuestDisk>, qemu: Option<&QemuProgram>) -> DiskFacts {
        let backends: BTreeMap<_, _> = disks.iter().map(|disk| (disk.path.clone(), backend(&disk.path))).collect();
        let ways: BTreeSet<DiskAttach> =
            disks.iter().map(|disk| tried(&disk.attach)).filter(probe::is_needed).collect();
        let lacking = ways.into_iter().filter_map(|way| Some((way, lack(qemu?, &way)?))).collect();
        DiskFacts { backends, lacking }
    }
}

fn lack(qemu: &QemuProgram, way: &DiskAttach) -> Option<Unsupported> {
    let why = match probe::attachable(qemu, way) {
        Ok(said) => said?,
        Err(error) => error.to_string(),
    };
    let what = match way.device {
        DiskDevice::VhostUserBlk => format!("{way} cannot be served"),
        _ => format!("aio={} cannot be used", way.aio),
    };
    let remedy = match (way.aio, way.device) {
        (HostAio::IoUring, _) => {
            "allow io_uring to all users (sysctl kernel.io_uring_disabled=0), use a QEMU that was built with it, or use aio=threads"
        }
        (HostAio::Native, _) => "raise fs.aio-max-nr, use a QEMU that was built with Linux AIO, or use aio=threads",
        (HostAio::Threads, _) => "use a QEMU that was built with its vhost-user-blk server, or use virtio-blk",
    };
    Some(Unsupported::new(format!("{what}: {why}"), remedy))
}

fn backend(path: &Path) -> Result<DiskBackendFacts, String> {
    let unusable = |error: io::Error| format!("it cannot be used: {error}; name an existing file or block device");
    let path = fs::canonicalize(path).map_err(unusable)?;
    let about = fs::metadata(&path).map_err(unusable)?;
    let is_device = about.file_type().is_block_device();
    if !is_device && !about.is_file() {
        return Err("it is neither a file nor a block device; name one".to_owned());
    }
    if !is_device && (about.len() == 0 || !about.len().is_multiple_of(512)) {
        let size = about.len();
        return Err(format!(
            "its size of {size} bytes is not a multiple of 512-byte sectors; make it larger: truncate -s 8G"
        ));
    }
    let flags = if is_device { OFlags::EXCL } else { OFlags::empty() };
    // Only an inspection: a disk may be read-only for this user.
    match File::options().read(true).write(true).custom_flags(flags.bits().cast_signed()).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            return Err(
                "it is mounted, or another program holds it exclusively; unmount it, or stop that program".to_owned()
            );
        }
        opened => drop(opened.map_err(unusable)?),
    }
    let on = is_device.then(|| PciTree::live().behind_block(major(about.rdev()), minor(about.rdev())));
    Ok(DiskBackendFacts { path, is_device, on: on.into_iter().flatten().collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_not_disks_are_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("disk");
        let refused = |path: &Path| backend(path).expect_err("no disk");
        assert!(refused(&file).contains("No such file"));
        assert!(refused(folder.path()).starts_with("it is neither a file"));
        for (size, good) in [(0, false), (700, false), (1024, true)] {
            File::create(&file).and_then(|made| made.set_len(size)).expect("ours");
            assert_eq!(backend(&file).is_ok(), good, "{size}");
        }
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).expect("ours");
        let found = backend(&link).expect("a file");
        assert_eq!((found.path, found.is_device, found.on), (fs::canonicalize(file).expect("ours"), false, Vec::new()));
    }
}
