//! The file systems that the kernel itself makes up, for a machine that has nothing else.

use std::ffi::CStr;
use std::fs;
use std::path::Path;

use rustix::mount::MountFlags;

use crate::error::{Result, SysError};

/// A file system without a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pseudo {
    /// Processes and settings.
    Proc,
    /// Devices and their drivers.
    Sysfs,
    /// Device nodes, kept by the kernel.
    Devtmpfs,
    /// Files in memory.
    Tmpfs,
}

impl Pseudo {
    fn name(self) -> &'static str {
        match self {
            Self::Proc => "proc",
            Self::Sysfs => "sysfs",
            Self::Devtmpfs => "devtmpfs",
            Self::Tmpfs => "tmpfs",
        }
    }

    /// Programs may be run in a tmpfs only.
    fn flags(self) -> MountFlags {
        match self {
            Self::Proc | Self::Sysfs => MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC,
            Self::Devtmpfs => MountFlags::NOSUID | MountFlags::NOEXEC,
            Self::Tmpfs => MountFlags::NOSUID | MountFlags::NODEV,
        }
    }
}

/// Mounts it, on a directory that is made if need be. One that the kernel has mounted there
/// already (`CONFIG_DEVTMPFS_MOUNT`) stays.
pub fn mount(what: Pseudo, target: &Path) -> Result<()> {
    let operation = match what {
        Pseudo::Proc => "mount proc on",
        Pseudo::Sysfs => "mount sysfs on",
        Pseudo::Devtmpfs => "mount devtmpfs on",
        Pseudo::Tmpfs => "mount tmpfs on",
    };
    let fail = |errno| SysError::os(operation, target.display(), errno);
    fs::create_dir_all(target).map_err(fail)?;
    match rustix::mount::mount(what.name(), target, what.name(), what.flags(), None::<&CStr>) {
        // The same file system, at its own root (`do_add_mount`).
        Ok(()) | Err(rustix::io::Errno::BUSY) => Ok(()),
        Err(errno) => Err(fail(errno.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_a_file_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = mount(Pseudo::Tmpfs, file.path()).unwrap_err();
        assert!(error.to_string().starts_with("cannot mount tmpfs on"), "{error}");
        assert!(error.to_string().contains(file.path().to_str().unwrap()), "{error}");
    }
}
