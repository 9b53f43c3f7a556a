//! What the kernel says of mounts, swap space and block devices, in `/proc` and `/sys`.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use rustix::fs::{Dev, major, minor};

/// No file of these that is read is longer; a machine with thousands of mounts has some MB.
const LONGEST: u64 = 16 << 20;

/// The trees, which tests have elsewhere.
#[derive(Debug, Clone)]
pub(crate) struct KernelFiles {
    pub(crate) proc: PathBuf,
    pub(crate) sys: PathBuf,
}

/// The number of a device, as `/sys/dev/block` names it: `259:1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DeviceNumber {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

/// A line of `/proc/self/mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountLine {
    pub(crate) device: DeviceNumber,
    pub(crate) target: PathBuf,
    pub(crate) options: String,
    pub(crate) filesystem: String,
    pub(crate) source: PathBuf,
}

/// The directory of a block device in sysfs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockDirectory(PathBuf);

impl KernelFiles {
    pub(crate) fn own() -> KernelFiles {
        KernelFiles { proc: "/proc".into(), sys: "/sys".into() }
    }

    pub(crate) fn mounts(&self) -> io::Result<Vec<MountLine>> {
        Ok(mounts(&read(&self.proc.join("self/mountinfo"))?))
    }

    /// The files and devices that are swapped to. A kernel without swap has no such file.
    pub(crate) fn swaps(&self) -> io::Result<Vec<PathBuf>> {
        match read(&self.proc.join("swaps")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            text => Ok(swaps(&text?)),
        }
    }

    /// The directory of a device; none if it is no block device of this machine.
    pub(crate) fn block(&self, number: DeviceNumber) -> Option<BlockDirectory> {
        fs::canonicalize(self.sys.join(format!("dev/block/{number}"))).ok().map(BlockDirectory)
    }

    /// The loop devices that have a file behind them, each with its file.
    pub(crate) fn loops(&self) -> Vec<(String, PathBuf)> {
        let entries = fs::read_dir(self.sys.join("block")).into_iter().flatten().flatten();
        let file = |entry: fs::DirEntry| {
            let file = read(&entry.path().join("loop/backing_file")).ok()?;
            Some((entry.file_name().to_string_lossy().into_owned(), PathBuf::from(file.trim_end_matches('\n'))))
        };
        entries.filter_map(file).collect()
    }
}

impl BlockDirectory {
    pub(crate) fn name(&self) -> String {
        self.0.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The whole disk that it is a partition of, or itself.
    pub(crate) fn whole(&self) -> BlockDirectory {
        match (self.0.join("partition").exists(), self.0.parent()) {
            (true, Some(whole)) => BlockDirectory(whole.to_owned()),
            _ => self.clone(),
        }
    }

    pub(crate) fn partitions(&self) -> Vec<BlockDirectory> {
        let is_partition = |path: &PathBuf| path.join("partition").exists();
        self.children("").into_iter().filter(is_partition).map(BlockDirectory).collect()
    }

    /// The devices that are made of this one.
    pub(crate) fn holders(&self) -> Vec<String> {
        names(self.children("holders"))
    }

    /// The devices that this one is made of.
    pub(crate) fn below(&self) -> Vec<BlockDirectory> {
        let resolved = |path: PathBuf| fs::canonicalize(path).ok().map(BlockDirectory);
        self.children("slaves").into_iter().filter_map(resolved).collect()
    }

    pub(crate) fn number(&self) -> Option<DeviceNumber> {
        DeviceNumber::parse(&self.value("dev")?)
    }

    /// What a file says, without the end of the line; none if there is none or it is empty.
    pub(crate) fn value(&self, file: &str) -> Option<String> {
        let text = read(&self.0.join(file)).ok()?;
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }

    pub(crate) fn number_in(&self, file: &str) -> Option<u64> {
        self.value(file)?.parse().ok()
    }

    /// The name of what a link leads to.
    pub(crate) fn linked(&self, link: &str) -> Option<String> {
        Some(fs::read_link(self.0.join(link)).ok()?.file_name()?.to_string_lossy().into_owned())
    }

    /// How many entries a directory has.
    pub(crate) fn count(&self, folder: &str) -> usize {
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
    pub(crate) fn of(device: Dev) -> DeviceNumber {
        DeviceNumber { major: major(device), minor: minor(device) }
    }

    fn parse(text: &str) -> Option<DeviceNumber> {
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

/// Lines such as `36 35 98:0 /sub /mnt rw,noatime master:1 - ext4 /dev/sda1 rw` (proc_pid_mountinfo(5)).
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

/// The first column below the heading (proc_swaps(5)).
fn swaps(text: &str) -> Vec<PathBuf> {
    let first = |line: &str| Some(unescaped(line.split_ascii_whitespace().next()?));
    text.lines().skip(1).filter_map(first).collect()
}

/// Spaces and the like are written as a backslash and three octal digits.
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
        fn what_has_no_backslash_stays(text in "[ -\\[\\]-~]{0,20}") {
            prop_assert_eq!(unescaped(&text), PathBuf::from(&text));
        }
    }
}
