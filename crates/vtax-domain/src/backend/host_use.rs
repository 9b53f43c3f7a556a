//! Current use of a file or a block device by this host.

use std::{fs::File, io, path::Path};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use vtax_sys::{
    block::{BlockUse, DeviceNumber, KernelFiles, claim},
    lock::is_byte_locked,
};

/// QEMU marks its own accesses to a file by locks of single bytes from here, and those that it forbids to others by
/// bytes from 200 (`block/file-posix.c`). Each bit of its permissions has a byte: reading 0, writing 1, resizing 3.
const DOES: u64 = 100;
const FORBIDS: u64 = 200;
const READ: u64 = 0;
const WRITE: u64 = 1;
const RESIZE: u64 = 3;

/// Intended use of a backend by a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WantedUse {
    pub(super) writes: bool,
    pub(super) alone: bool,
    /// The domain migrates here: until it has, the QEMU of its source uses the backend, and has locked it.
    pub(super) arrives: bool,
}

/// Returns the user of a file on this host, if any.
pub(super) fn of_file(path: &Path, wanted: WantedUse) -> Option<String> {
    let files = KernelFiles::own();
    if let Some((name, _)) = files.loops().into_iter().find(|(_, backing)| backing == path) {
        return Some(format!("{name} uses it; detach that first (losetup -d /dev/{name})"));
    }
    if files.swaps().unwrap_or_default().iter().any(|swap| swap == path) {
        return Some("this host swaps to it; run swapoff first".to_owned());
    }
    if wanted.arrives { None } else { locked(path, wanted) }
}

/// Returns the user of a block device of this host, if any.
pub(super) fn of_device(path: &Path, number: u64, wanted: WantedUse) -> io::Result<Option<String>> {
    let files = KernelFiles::own();
    let user = files.block(DeviceNumber::of(number)).map_or(Ok(None), |device| files.user(&device))?;
    let is_free = || claim(path).map_or(true, |claimed| claimed.is_some());
    Ok(match user {
        Some(BlockUse::Mounted { at, .. }) => {
            Some(format!("it, or a part of it, is mounted at {}; unmount that first", at.display()))
        }
        Some(BlockUse::Swap { path }) => {
            Some(format!("this host swaps to {}; first run swapoff {}", path.display(), path.display()))
        }
        Some(BlockUse::Held { by, .. }) => Some(format!("{by} uses it or a part of it; remove that first")),
        None if (wanted.writes || wanted.alone) && !wanted.arrives && !is_free() => {
            Some("another program uses it exclusively; stop that program first".to_owned())
        }
        None if wanted.arrives => None,
        None => locked(path, wanted),
    })
}

/// Returns the holder of a lock on it: flock, or QEMU's kind.
fn locked(path: &Path, wanted: WantedUse) -> Option<String> {
    let file = File::open(path).ok()?;
    let lock =
        if wanted.alone { FlockOperation::NonBlockingLockExclusive } else { FlockOperation::NonBlockingLockShared };
    if flock(&file, lock) == Err(Errno::WOULDBLOCK) {
        return Some("another program has locked it (flock); stop that program first".to_owned());
    }
    let is_set = |byte| is_byte_locked(&file, byte).unwrap_or(false);
    let forbidden: &[u64] = if wanted.writes { &[FORBIDS + READ, FORBIDS + WRITE] } else { &[FORBIDS + READ] };
    let disturbing: &[u64] = &[DOES + WRITE, DOES + RESIZE];
    let by_qemu = forbidden.iter().chain(disturbing).any(|byte| is_set(*byte));
    by_qemu.then(|| "another QEMU uses it, perhaps one started by libvirt; stop that one first".to_owned())
}

/// Returns true if the device is a partition.
pub(super) fn is_partition(number: u64) -> bool {
    KernelFiles::own().block(DeviceNumber::of(number)).is_some_and(|device| device.is_partition())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locked_file_is_in_use() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let used = |writes, alone| of_file(file.path(), WantedUse { writes, alone, arrives: false });
        assert_eq!(used(true, true), None);
        let other = File::open(file.path()).expect("a file");
        flock(&other, FlockOperation::LockShared).expect("nobody has it");
        assert_eq!(used(true, false), None);
        assert!(used(false, true).expect("it is shared").contains("flock"));
        flock(&other, FlockOperation::LockExclusive).expect("nobody has it");
        assert!(used(true, false).expect("it isn't shared").contains("flock"));
        assert_eq!(of_file(file.path(), WantedUse { writes: true, alone: true, arrives: true }), None);
    }
}
