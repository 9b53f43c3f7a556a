//! Small text files of the kernel's trees, `/proc` and `/sys`, read and written through paths that cannot leave the
//! tree.
//!
//! In sysfs most paths lead through symbolic links (`class/net/eth0` is one), so a path alone doesn't show where it
//! leads. The kernel itself refuses one that leaves the tree (`RESOLVE_BENEATH` of openat2(2), since Linux 5.6).

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use crate::error::{Result, SysError};
use crate::netns::NetNs;

/// Limit on the length of a kernel setting.
const LONGEST: u64 = 64 << 10;
/// Number of attempts to open a file: the kernel gives up if something is renamed while it follows the path.
const ATTEMPTS: usize = 20;

/// A directory, such as `/sys`, below which files are read and written.
#[derive(Debug)]
pub struct FileTree {
    directory: OwnedFd,
    name: String,
}

impl FileTree {
    /// Opens the tree below this directory.
    pub fn open(directory: &Path) -> Result<Self> {
        let name = directory.display().to_string();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(directory, flags, Mode::empty()).map_err(|e| SysError::os("open", &name, e))?;
        Ok(Self { directory: opened, name })
    }

    /// Returns the `/sys` that shows the links of a network namespace. A process sees those of the namespace in which
    /// its own `/sys` was mounted. This one is mounted nowhere, and exists as long as this handle.
    pub fn sysfs_of(namespace: &NetNs) -> Result<Self> {
        let fail = |e: Errno| SysError::os("mount the sysfs of network namespace", namespace.id(), e);
        let mount = || {
            let context = rustix::mount::fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
            rustix::mount::fsconfig_create(&context)?;
            let safe = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
            rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, safe | MountAttrFlags::MOUNT_ATTR_NOEXEC)
        };
        let directory = namespace.run(mount)?.map_err(fail)?;
        Ok(Self { directory, name: "/sys".to_owned() })
    }

    /// Returns the `/sys` that shows the links of this thread's own network namespace. It is the mounted one, unless
    /// that was mounted in another namespace, e.g. for a program started by `nsenter --net`.
    pub fn own_sysfs() -> Result<Self> {
        let mounted = Self::open(Path::new("/sys"))?;
        // Without the privilege to mount one, a program's network namespace cannot have changed without its `/sys`.
        let Ok(own) = NetNs::current().and_then(|namespace| Self::sysfs_of(&namespace)) else { return Ok(mounted) };
        // The kernel has one file system for each network namespace (`sysfs_get_tree`).
        let device = |tree: &Self| rustix::fs::fstat(&tree.directory).map(|stat| stat.st_dev).ok();
        Ok(if device(&own) == device(&mounted) { mounted } else { own })
    }

    /// Returns a path by which this process reaches the directory, as long as this handle is open.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.directory.as_raw_fd()))
    }

    /// Returns a file's text without trailing white space. None if there is no such file.
    pub fn read(&self, path: &str) -> Result<Option<String>> {
        let file = match self.at(path, OFlags::RDONLY) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            file => file.map_err(|e| self.error("read", path, e.into()))?,
        };
        let mut text = String::new();
        match File::from(file).take(LONGEST).read_to_string(&mut text) {
            Ok(_) => Ok(Some(text.trim_end().to_owned())),
            // The device was removed after its file was opened.
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            Err(e) => Err(self.error("read", path, e)),
        }
    }

    /// Writes a text to an existing file in a single call, as the kernel's files require.
    pub fn write(&self, path: &str, text: &str) -> Result<()> {
        let file = self.at(path, OFlags::WRONLY | OFlags::TRUNC).map_err(|e| self.error("write", path, e.into()))?;
        File::from(file).write_all(text.as_bytes()).map_err(|e| self.error("write", path, e))
    }

    /// Returns whether the kernel allows a file to be written. None if there is no such file.
    pub fn is_writable(&self, path: &str) -> Result<Option<bool>> {
        let file = match self.at(path, OFlags::PATH) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            file => file.map_err(|e| self.error("open", path, e.into()))?,
        };
        let stat = rustix::fs::fstat(&file).map_err(|e| self.error("access", path, e.into()))?;
        Ok(Some(Mode::from_raw_mode(stat.st_mode).intersects(Mode::WUSR | Mode::WGRP | Mode::WOTH)))
    }

    fn at(&self, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let open = || {
            // openat2(2) refuses these together with O_PATH.
            let careful =
                if flags.contains(OFlags::PATH) { OFlags::empty() } else { OFlags::NOCTTY | OFlags::NONBLOCK };
            let flags = flags | OFlags::CLOEXEC | careful;
            rustix::fs::openat2(&self.directory, path, flags, Mode::empty(), ResolveFlags::BENEATH)
        };
        for _ in 1..ATTEMPTS {
            match open() {
                Err(Errno::AGAIN) => {}
                opened => return opened,
            }
        }
        open()
    }

    fn error(&self, operation: &'static str, path: &str, error: io::Error) -> SysError {
        match error.raw_os_error() {
            Some(libc::EXDEV) => SysError::invalid("path of a setting", path, "it leads out of the kernel's tree"),
            _ => SysError::os(operation, format!("{}/{path}", self.name), error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn tree() -> (tempfile::TempDir, FileTree) {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir_all(base.path().join("sys/devices/eth0")).unwrap();
        fs::create_dir_all(base.path().join("sys/class")).unwrap();
        fs::write(base.path().join("secret"), "precious").unwrap();
        fs::write(base.path().join("sys/devices/eth0/mtu"), "1500\n").unwrap();
        symlink("../devices/eth0", base.path().join("sys/class/eth0")).unwrap();
        symlink("../../secret", base.path().join("sys/class/out")).unwrap();
        symlink("/proc/self", base.path().join("sys/class/self")).unwrap();
        let tree = FileTree::open(&base.path().join("sys")).unwrap();
        (base, tree)
    }

    #[test]
    fn links_within_the_tree_are_followed() {
        let (_base, tree) = tree();
        assert_eq!(tree.read("class/eth0/mtu").unwrap().as_deref(), Some("1500"));
        tree.write("class/eth0/mtu", "9000").unwrap();
        assert_eq!(tree.read("devices/eth0/mtu").unwrap().as_deref(), Some("9000"));
    }

    #[test]
    fn a_read_only_file_is_reported() {
        let (base, tree) = tree();
        let file = base.path().join("sys/devices/eth0/mtu");
        assert_eq!(tree.is_writable("class/eth0/mtu").unwrap(), Some(true));
        fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o444)).unwrap();
        assert_eq!(tree.is_writable("class/eth0/mtu").unwrap(), Some(false));
        assert_eq!(tree.is_writable("class/eth1/mtu").unwrap(), None);
    }

    #[test]
    fn no_path_leads_out_of_the_tree() {
        let (base, tree) = tree();
        for path in ["class/out", "../secret", "class/../../secret", "/etc/hostname", "class/self/comm"] {
            let error = tree.read(path).unwrap_err().to_string();
            assert!(error.contains("leads out of the kernel's tree"), "{path}: {error}");
            assert!(tree.write(path, "gone").is_err());
        }
        assert_eq!(fs::read_to_string(base.path().join("secret")).unwrap(), "precious");
    }

    #[test]
    fn a_missing_file_is_none_and_is_never_created() {
        let (base, tree) = tree();
        for path in ["class/eth1/mtu", "devices/eth0/mtu/x", "new"] {
            assert_eq!(tree.read(path).unwrap(), None, "{path}");
        }
        let error = tree.write("new", "1").unwrap_err();
        assert!(error.is_missing(), "{error}");
        assert!(!base.path().join("sys/new").exists());
    }
}
