//! What this host does with a file or a block device at the moment.

use std::{
    fs::{self, File},
    os::{
        fd::AsFd,
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, OFlags, flock, major, minor},
    io::Errno,
    process::{Flock, FlockOffsetType, FlockType, fcntl_getlk},
};

/// QEMU marks what it does with a file by locks of single bytes from here on, and what nobody else may do by those from 200
/// on (`block/file-posix.c`). Each bit of its permissions has a byte: reading 0, writing 1, changing the size 3.
const DOES: u64 = 100;
const FORBIDS: u64 = 200;
const READ: u64 = 0;
const WRITE: u64 = 1;
const RESIZE: u64 = 3;

/// How a domain is to have a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WantedUse {
    pub(super) writes: bool,
    pub(super) alone: bool,
}

/// Who uses a file of this host; none if nobody does.
pub(super) fn of_file(path: &Path, wanted: WantedUse) -> Option<String> {
    let loops = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let backs = |entry: &fs::DirEntry| {
        let backing = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        Path::new(backing.trim_end()) == path
    };
    if let Some(found) = loops.into_iter().find(backs) {
        let name = found.file_name().display().to_string();
        return Some(format!("{name} is made of it; detach that first (losetup -d /dev/{name})"));
    }
    if is_swap(path) {
        return Some("this host swaps to it; first: swapoff".to_owned());
    }
    locked(path, wanted)
}

/// Who uses a block device of this host; none if nobody does.
pub(super) fn of_device(path: &Path, number: u64, wanted: WantedUse) -> Option<String> {
    let own = (major(number), minor(number));
    let near = relatives(own);
    let mounts = fs::read_to_string("/proc/1/mountinfo").or_else(|_| fs::read_to_string("/proc/self/mountinfo"));
    let mounts = mounts.unwrap_or_default();
    if let Some(point) = mounts.lines().find_map(|line| mounted(line, &near, number_of)) {
        return Some(format!("it, or a part of it, is mounted at {point}; unmount that first"));
    }
    let nodes: Vec<PathBuf> =
        swaps().into_iter().filter(|swap| number_of(swap).is_some_and(|it| near.contains(&it))).collect();
    if let Some(swap) = nodes.first() {
        return Some(format!("this host swaps to {}; first: swapoff {}", swap.display(), swap.display()));
    }
    if let Some(holder) = near.iter().find_map(|number| holder(*number)) {
        return Some(format!("{holder} is made of it or of a part of it; remove that first"));
    }
    let excl =
        |writes| File::options().read(true).write(writes).custom_flags(OFlags::EXCL.bits().cast_signed()).open(path);
    match excl(false) {
        Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) && (wanted.writes || wanted.alone) => {
            Some("another program has it for itself; end that first".to_owned())
        }
        _ => locked(path, wanted),
    }
}

/// Who has locked it: by flock, or as QEMU does.
fn locked(path: &Path, wanted: WantedUse) -> Option<String> {
    let file = File::open(path).ok()?;
    let lock =
        if wanted.alone { FlockOperation::NonBlockingLockExclusive } else { FlockOperation::NonBlockingLockShared };
    if flock(&file, lock) == Err(Errno::WOULDBLOCK) {
        return Some("another program has locked it (flock); end that first".to_owned());
    }
    let is_set = |byte: u64| {
        let asked =
            Flock { start: byte, length: 1, pid: None, typ: FlockType::WriteLock, offset_type: FlockOffsetType::Set };
        fcntl_getlk(file.as_fd(), &asked).is_ok_and(|found| found.is_some())
    };
    let forbidden: &[u64] = if wanted.writes { &[FORBIDS + READ, FORBIDS + WRITE] } else { &[FORBIDS + READ] };
    let disturbing: &[u64] = &[DOES + WRITE, DOES + RESIZE];
    let by_qemu = forbidden.iter().chain(disturbing).any(|byte| is_set(*byte));
    by_qemu.then(|| "another QEMU uses it, of libvirt perhaps; end that first".to_owned())
}

/// The device itself, the disk that it is a partition of, and its own partitions.
fn relatives(own: (u32, u32)) -> Vec<(u32, u32)> {
    let node = PathBuf::from(format!("/sys/dev/block/{}:{}", own.0, own.1));
    let Ok(node) = fs::canonicalize(node) else { return vec![own] };
    let number = |folder: &Path| parse(fs::read_to_string(folder.join("dev")).ok()?.trim());
    let whole = node.join("partition").exists().then(|| node.parent().and_then(number)).flatten();
    let parts = fs::read_dir(&node).into_iter().flatten().flatten().map(|entry| entry.path());
    let parts = parts.filter(|part| part.join("partition").exists());
    std::iter::once(own).chain(whole).chain(parts.filter_map(|part| number(&part))).collect()
}

fn holder((major, minor): (u32, u32)) -> Option<String> {
    let holders = fs::read_dir(format!("/sys/dev/block/{major}:{minor}/holders")).ok()?;
    holders.flatten().next().map(|found| found.file_name().display().to_string())
}

/// Whether the device is a partition.
pub(super) fn is_partition(number: u64) -> bool {
    Path::new(&format!("/sys/dev/block/{}:{}/partition", major(number), minor(number))).exists()
}

fn parse(number: &str) -> Option<(u32, u32)> {
    let (major, minor) = number.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn number_of(path: &Path) -> Option<(u32, u32)> {
    let number = fs::metadata(path).ok()?.rdev();
    (number != 0).then(|| (major(number), minor(number)))
}

/// Where a line of mountinfo (proc_pid_mountinfo(5)) says that one of these devices is mounted. Some file systems have a number
/// of their own, so the name of the device counts too.
fn mounted(line: &str, of: &[(u32, u32)], number: impl Fn(&Path) -> Option<(u32, u32)>) -> Option<String> {
    let (mount, source) = line.split_once(" - ")?;
    let mut fields = mount.split(' ').skip(2);
    let (own, point) = (fields.next().and_then(parse), fields.nth(1)?);
    let source = source.split(' ').nth(1).map(Path::new).filter(|source| source.is_absolute());
    let found = own.into_iter().chain(source.and_then(number)).any(|found| of.contains(&found));
    found.then(|| point.to_owned())
}

/// The files and devices that the host swaps to (proc_swaps(5)).
fn swaps() -> Vec<PathBuf> {
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    swaps.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().next().map(PathBuf::from)).collect()
}

fn is_swap(path: &Path) -> bool {
    swaps().iter().any(|swap| swap == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_known_by_number_or_name() {
        let by_number = "36 35 8:1 / /mnt/a rw,noatime shared:1 - ext4 /dev/sda1 rw";
        let by_name = "36 35 0:55 / /mnt/b rw - btrfs /dev/sdb rw";
        let number = |path: &Path| (path == Path::new("/dev/sdb")).then_some((8, 16));
        assert_eq!(mounted(by_number, &[(8, 0), (8, 1)], number).as_deref(), Some("/mnt/a"));
        assert_eq!(mounted(by_name, &[(8, 16)], number).as_deref(), Some("/mnt/b"));
        assert_eq!(mounted(by_name, &[(8, 1)], number), None);
        assert_eq!(mounted("nonsense", &[(8, 1)], number), None);
    }

    #[test]
    fn a_locked_file_is_in_use() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let used = |writes, alone| of_file(file.path(), WantedUse { writes, alone });
        assert_eq!(used(true, true), None);
        let other = File::open(file.path()).expect("a file");
        flock(&other, FlockOperation::LockShared).expect("nobody has it");
        assert_eq!(used(true, false), None);
        assert!(used(false, true).expect("it is shared").contains("flock"));
        flock(&other, FlockOperation::LockExclusive).expect("nobody has it");
        assert!(used(true, false).expect("it isn't shared").contains("flock"));
    }
}
