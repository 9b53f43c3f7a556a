//! Mounts for a guest without disks: the kernel's own file systems, and files of its host.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount_move, unmount};
use strum::IntoStaticStr;

use crate::error::{Result, SysError};

/// Maximum number of files and directories on a small tmpfs.
const SMALL_FILES: u32 = 64;

/// A file system without a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Pseudo {
    Proc,
    Sysfs,
    /// Device nodes, which the kernel creates.
    Devtmpfs,
    /// Terminals; each mount has its own set.
    Devpts,
    Tmpfs,
    Cgroup2,
}

impl Pseudo {
    /// Returns the mount options. Every user may open a terminal, as `/dev/ptmx` allows on any system.
    fn options(self) -> Option<&'static CStr> {
        (self == Self::Devpts).then_some(c"mode=620,ptmxmode=666")
    }

    /// Returns the mount flags. Programs may be run only from a tmpfs.
    fn flags(self) -> MountFlags {
        match self {
            Self::Proc | Self::Sysfs | Self::Cgroup2 => MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC,
            Self::Devtmpfs | Self::Devpts => MountFlags::NOSUID | MountFlags::NOEXEC,
            Self::Tmpfs => MountFlags::NOSUID | MountFlags::NODEV,
        }
    }
}

/// Mounts the file system on `target`, and creates that directory if needed. A file system that the kernel has already
/// mounted there (`CONFIG_DEVTMPFS_MOUNT`) stays.
pub fn mount(what: Pseudo, target: &Path) -> Result<()> {
    let name: &str = what.into();
    let fail = |errno| SysError::os("mount", format_args!("{name} on {}", target.display()), errno);
    fs::create_dir_all(target).map_err(fail)?;
    match rustix::mount::mount(name, target, name, what.flags(), what.options()) {
        // EBUSY: the same file system is already mounted there, at its root (`do_add_mount`).
        Ok(()) | Err(rustix::io::Errno::BUSY) => Ok(()),
        Err(errno) => Err(fail(errno.into())),
    }
}

/// Mounts an in-memory file system on the directory `target`, for files of one user. It takes no more than `most` bytes
/// and has no devices or programs.
pub fn small_tmpfs(target: &Path, most: u64) -> Result<()> {
    let options = CString::new(format!("mode=0700,size={most},nr_inodes={SMALL_FILES}")).expect("it has no zero");
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("vtax", target, "tmpfs", flags, options.as_c_str())
        .map_err(|errno| SysError::os("mount", format_args!("tmpfs on {}", target.display()), errno))
}

/// Removes all mounts on a directory. Open files remain usable until they are closed. Returns false if there was no
/// mount.
pub fn unmount_all(target: &Path) -> Result<bool> {
    let mut found = false;
    loop {
        match unmount(target, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            Ok(()) => found = true,
            // Nothing is mounted there, or there is no such directory.
            Err(Errno::INVAL | Errno::NOENT) => return Ok(found),
            Err(errno) => return Err(SysError::os("unmount", target.display(), errno)),
        }
    }
}

/// Mounts the files that the host shares under `tag` (9p over virtio), read-only, and creates the directory if needed.
/// The files must not change, because file contents stay in the cache.
///
/// # Errors
/// `ENOENT` if no share has this tag. `ENODEV` if this kernel has no 9p, or its modules (`9pnet_virtio`, `9p`) are not
/// loaded.
pub fn nine_p(tag: &str, target: &Path) -> Result<()> {
    let fail = |errno: io::Error| {
        let remedy = match errno.raw_os_error() {
            Some(libc::ENODEV) => Some("load the modules 9pnet_virtio and 9p"),
            Some(libc::ENOENT) => Some("check that the guest has a share with this tag"),
            _ => None,
        };
        SysError::refused("mount the share", format_args!("{tag} on {}", target.display()), errno, remedy)
    };
    fs::create_dir_all(target).map_err(fail)?;
    // Messages of 512,000 bytes fit the 128 pages of an entry in a virtio ring.
    let options = c"trans=virtio,version=9p2000.L,msize=512000,cache=loose";
    rustix::mount::mount(tag, target, "9p", MountFlags::RDONLY, options).map_err(|errno| fail(errno.into()))
}

/// Mounts `lower` on `target` as a writable overlay; writes go to `upper`. `work` is an empty directory on the same
/// file system as `upper`. Directories are created if needed.
///
/// # Errors
/// `ENODEV` without the module overlay; `EINVAL` if the file system of `upper` doesn't support it, as 9p doesn't.
pub fn overlay(lower: &Path, upper: &Path, work: &Path, target: &Path) -> Result<()> {
    let fail = |errno: io::Error| SysError::os("mount an overlay on", target.display(), errno);
    for directory in [upper, work, target] {
        fs::create_dir_all(directory).map_err(fail)?;
    }
    let options = overlay_options(lower, upper, work)?;
    let mounted = rustix::mount::mount("overlay", target, "overlay", MountFlags::empty(), options.as_c_str());
    mounted.map_err(|errno| fail(errno.into()))
}

/// Returns the options as one text. Directories with commas or colons, which are separators there, are refused.
fn overlay_options(lower: &Path, upper: &Path, work: &Path) -> Result<CString> {
    let mut options = Vec::new();
    for (key, path) in [("lowerdir", lower), ("upperdir", upper), ("workdir", work)] {
        let bytes = path.as_os_str().as_bytes();
        if bytes.iter().any(|byte| b",:\\\0".contains(byte)) {
            let why = "a comma, colon, backslash or zero would end the option";
            return Err(SysError::invalid("directory of an overlay", path.display(), why));
        }
        options.extend_from_slice(if options.is_empty() { b"" } else { b"," });
        options.extend([key.as_bytes(), b"=", bytes].concat());
    }
    Ok(CString::new(options).expect("paths with a zero were refused"))
}

/// Moves the mount at `from`, with all mounts below it, to the directory `to`.
pub fn move_to(from: &Path, to: &Path) -> Result<()> {
    let moved = mount_move(from, to);
    moved.map_err(|errno| SysError::os("move the mount", format_args!("{} to {}", from.display(), to.display()), errno))
}

/// Sets the root directory and the working directory of this process and of those that it starts later.
pub fn enter_root(path: &Path) -> Result<()> {
    let fail = |errno: rustix::io::Errno| SysError::os("change the root directory to", path.display(), errno);
    rustix::process::chroot(path).map_err(fail)?;
    rustix::process::chdir("/").map_err(fail)
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

    #[test]
    fn an_overlay_names_its_directories_and_none_that_would_end_early() {
        let of = |lower| overlay_options(Path::new(lower), Path::new("/u"), Path::new("/w"));
        assert_eq!(of("/ro").unwrap().as_c_str(), c"lowerdir=/ro,upperdir=/u,workdir=/w");
        for path in ["/a,b", "/a:b", "/a\\b"] {
            assert!(of(path).unwrap_err().to_string().contains("comma"), "{path}");
        }
    }

    #[test]
    fn a_share_that_does_not_exist_and_a_root_that_is_none_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let error = nine_p("vtax-none", directory.path()).unwrap_err();
        assert!(error.to_string().starts_with("cannot mount the share vtax-none on"), "{error}");
        let error = enter_root(&directory.path().join("none")).unwrap_err();
        assert!(error.to_string().contains("none"), "{error}");
    }
}
