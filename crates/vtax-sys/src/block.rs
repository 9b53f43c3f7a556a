//! Mounts, swap space and block devices as the kernel reports them in `/proc` and `/sys`, and the users of a device.

use std::{
    fmt, fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{Dev, OFlags, major, minor},
    io::Errno,
};

/// Limit on the length of these files; a machine with thousands of mounts has some MB.
const LONGEST: u64 = 16 << 20;

/// Root directories of the trees, which tests replace.
#[derive(Debug, Clone)]
pub struct KernelFiles {
    /// Path of `/proc`.
    pub proc: PathBuf,
    /// Path of `/sys`.
    pub sys: PathBuf,
}

/// Number of a device, as in `/sys/dev/block`: `259:1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceNumber {
    /// Number of the driver.
    pub major: u32,
    /// Number within the driver.
    pub minor: u32,
}

/// A line of `/proc/PID/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountLine {
    pub device: DeviceNumber,
    pub target: PathBuf,
    pub options: String,
    pub filesystem: String,
    pub source: PathBuf,
}

/// Use of a block device by this machine, which excludes other uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockUse {
    /// The device is mounted.
    Mounted {
        /// The device, or a part of it.
        device: String,
        /// Mount point.
        at: PathBuf,
    },
    /// The kernel swaps to this device.
    Swap {
        /// Path from `/proc/swaps`.
        path: PathBuf,
    },
    /// Another device is built on this one.
    Held {
        /// The device, or a part of it.
        device: String,
        /// The other device.
        by: String,
    },
}

/// Directory of a block device in sysfs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockDirectory(PathBuf);

impl MountLine {
    /// Parses a `mountinfo` file, possibly of another machine. Malformed lines are skipped.
    pub fn read_all(mountinfo: &str) -> Vec<MountLine> {
        mounts(mountinfo)
    }
}

impl KernelFiles {
    /// Returns the trees of this machine.
    pub fn own() -> KernelFiles {
        KernelFiles { proc: "/proc".into(), sys: "/sys".into() }
    }

    /// Returns the mounts that this process sees.
    pub fn mounts(&self) -> io::Result<Vec<MountLine>> {
        Ok(mounts(&read(&self.proc.join("self/mountinfo"))?))
    }

    /// Returns the mounts that the first process sees, because this process may be in its own mount namespace. Falls
    /// back to those of this process.
    fn mounts_of_all(&self) -> io::Result<Vec<MountLine>> {
        read(&self.proc.join("1/mountinfo")).map_or_else(|_| self.mounts(), |text| Ok(mounts(&text)))
    }

    /// Returns the use of a device, of the disk that contains it, or of one of its partitions; none if they are unused.
    pub fn user(&self, device: &BlockDirectory) -> io::Result<Option<BlockUse>> {
        let mut near = vec![device.clone(), device.whole()];
        near.extend(device.partitions());
        near.dedup();
        for part in near {
            if let Some(user) = self.user_of(&part)? {
                return Ok(Some(user));
            }
        }
        Ok(None)
    }

    fn user_of(&self, part: &BlockDirectory) -> io::Result<Option<BlockUse>> {
        let (device, number) = (part.name(), part.number());
        let is_it = |other: &Path| number.is_some() && DeviceNumber::at(other) == number;
        // btrfs mounts have their own number, and the device only as their source.
        let is_mount =
            |mount: &MountLine| Some(mount.device) == number || mount.source.is_absolute() && is_it(&mount.source);
        if let Some(mount) = self.mounts_of_all()?.into_iter().find(is_mount) {
            return Ok(Some(BlockUse::Mounted { device, at: mount.target }));
        }
        if let Some(path) = self.swaps()?.into_iter().find(|swap| is_it(swap)) {
            return Ok(Some(BlockUse::Swap { path }));
        }
        Ok(part.holders().into_iter().next().map(|by| BlockUse::Held { device, by }))
    }

    /// Returns the swap files and devices. A kernel without swap has no such file.
    pub fn swaps(&self) -> io::Result<Vec<PathBuf>> {
        match read(&self.proc.join("swaps")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            text => Ok(swaps(&text?)),
        }
    }

    /// Returns the directory of a device; none if it is not a block device of this machine.
    pub fn block(&self, number: DeviceNumber) -> Option<BlockDirectory> {
        fs::canonicalize(self.sys.join(format!("dev/block/{number}"))).ok().map(BlockDirectory)
    }

    /// Returns the loop devices that have a backing file, each with its file.
    pub fn loops(&self) -> Vec<(String, PathBuf)> {
        let entries = fs::read_dir(self.sys.join("block")).into_iter().flatten().flatten();
        let file = |entry: fs::DirEntry| {
            let file = read(&entry.path().join("loop/backing_file")).ok()?;
            Some((entry.file_name().to_string_lossy().into_owned(), PathBuf::from(file.trim_end_matches('\n'))))
        };
        entries.filter_map(file).collect()
    }
}

/// Opens a device exclusively (`O_EXCL` of open(2)). None if it is in exclusive use by the kernel or another program: a
/// mount in any namespace, an array, a mapped device. While the file is open, none of these can take the device.
pub fn claim(device: &Path) -> io::Result<Option<fs::File>> {
    let exclusive = (OFlags::EXCL | OFlags::NONBLOCK).bits().cast_signed();
    match fs::OpenOptions::new().read(true).custom_flags(exclusive).open(device) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

impl BlockDirectory {
    /// Returns the kernel's name of the device.
    pub fn name(&self) -> String {
        self.0.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Returns true if sysfs has a file `partition` in the directory.
    pub fn is_partition(&self) -> bool {
        self.0.join("partition").exists()
    }

    /// Returns the whole disk that contains the partition, or the device itself.
    pub fn whole(&self) -> BlockDirectory {
        match (self.is_partition(), self.0.parent()) {
            (true, Some(whole)) => BlockDirectory(whole.to_owned()),
            _ => self.clone(),
        }
    }

    /// Returns the partitions of a whole disk, sorted by path.
    pub fn partitions(&self) -> Vec<BlockDirectory> {
        let is_partition = |path: &PathBuf| path.join("partition").exists();
        self.children("").into_iter().filter(is_partition).map(BlockDirectory).collect()
    }

    /// Returns the devices built on this one.
    pub fn holders(&self) -> Vec<String> {
        names(self.children("holders"))
    }

    /// Returns the devices that this one is built on.
    pub fn below(&self) -> Vec<BlockDirectory> {
        let resolved = |path: PathBuf| fs::canonicalize(path).ok().map(BlockDirectory);
        self.children("slaves").into_iter().filter_map(resolved).collect()
    }

    /// Returns the major and minor number from the file `dev`; `None` if it is missing or malformed.
    pub fn number(&self) -> Option<DeviceNumber> {
        DeviceNumber::parse(&self.value("dev")?)
    }

    /// Returns the contents of a file without surrounding white space; none if the file doesn't exist or is empty.
    pub fn value(&self, file: &str) -> Option<String> {
        let text = read(&self.0.join(file)).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    pub fn number_in(&self, file: &str) -> Option<u64> {
        self.value(file)?.parse().ok()
    }

    /// Returns the name of a link's target.
    pub fn linked(&self, link: &str) -> Option<String> {
        Some(fs::read_link(self.0.join(link)).ok()?.file_name()?.to_string_lossy().into_owned())
    }

    /// Returns the number of entries of a directory.
    pub fn count(&self, folder: &str) -> usize {
        self.children(folder).len()
    }

    fn children(&self, folder: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.0.join(folder)).into_iter().flatten().flatten();
        let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        found.sort();
        found
    }
}

fn names(paths: Vec<PathBuf>) -> Vec<String> {
    paths.iter().filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned())).collect()
}

impl DeviceNumber {
    /// Converts the kernel's single number.
    pub fn of(device: Dev) -> DeviceNumber {
        DeviceNumber { major: major(device), minor: minor(device) }
    }

    /// Returns the number of the block device at a path.
    pub fn at(path: &Path) -> Option<DeviceNumber> {
        let found = fs::metadata(path).ok()?;
        found.file_type().is_block_device().then(|| DeviceNumber::of(found.rdev()))
    }

    /// Parses a number such as `259:1`.
    pub fn parse(text: &str) -> Option<DeviceNumber> {
        let (major, minor) = text.split_once(':')?;
        Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

fn read(path: &Path) -> io::Result<String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Parses lines such as `36 35 98:0 /sub /mnt rw,noatime master:1 - ext4 /dev/sda1 rw` (proc_pid_mountinfo(5)).
fn mounts(text: &str) -> Vec<MountLine> {
    let line = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(2);
        let device = DeviceNumber::parse(before.next()?)?;
        let (target, options) = (before.nth(1)?, before.next()?);
        let mut after = after.split(' ');
        let (filesystem, source) = (after.next()?, after.next()?);
        Some(MountLine {
            device,
            target: unescaped(target),
            options: options.to_owned(),
            filesystem: filesystem.to_owned(),
            source: unescaped(source),
        })
    };
    text.lines().filter_map(line).collect()
}

/// Returns the first column below the heading (proc_swaps(5)).
fn swaps(text: &str) -> Vec<PathBuf> {
    let first = |line: &str| Some(unescaped(line.split_ascii_whitespace().next()?));
    text.lines().skip(1).filter_map(first).collect()
}

/// Decodes spaces and similar characters, which are written as a backslash and three octal digits.
fn unescaped(text: &str) -> PathBuf {
    use std::{ffi::OsString, os::unix::ffi::OsStringExt};
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, after @ ..] = rest {
        let code = match (first, after) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..]) => {
                Some((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'))
            }
            _ => None,
        };
        bytes.push(code.unwrap_or(*first));
        rest = &after[if code.is_some() { 3 } else { 0 }..];
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vtax_fuzz::fuzz_text;

    use super::*;

    const MOUNTS: &str = "\
        27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,errors=continue\n\
        36 27 0:31 /sub /mnt/a\\040b rw,noatime - btrfs /dev/sdb1 rw\n\
        broken line\n";
    const SWAPS: &str = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/swap\\040file file 1 0 -2\n";

    #[test]
    fn mounts_and_swap_are_read_as_the_kernel_writes_them() {
        let found = mounts(MOUNTS);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].device.to_string(), found[0].filesystem.as_str()), ("254:0".into(), "ext4"));
        assert_eq!(
            (found[1].target.as_path(), found[1].source.as_path()),
            (Path::new("/mnt/a b"), Path::new("/dev/sdb1"))
        );
        assert_eq!(swaps(SWAPS), [Path::new("/swap file")]);
    }

    #[test]
    fn fuzz_kernel_files() {
        fuzz_text("kernel-files", &[MOUNTS, SWAPS, "7:0"], |text| {
            let _ = (mounts(text), swaps(text), DeviceNumber::parse(text));
            Some(())
        });
    }

    proptest! {
        #[test]
        fn text_without_backslashes_is_unchanged(text in "[ -\\[\\]-~]{0,20}") {
            prop_assert_eq!(unescaped(&text), PathBuf::from(&text));
        }
    }
}
