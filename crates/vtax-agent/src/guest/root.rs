//! Use of the host's files as the guest's root file system.
//!
//! The host's root directory is shared with the guest, read-only. Writes in the guest stay in its memory (overlayfs).
//! The new root is moved on top of the old one, as switch_root(8) does. After chroot(2) alone, the kernel would create
//! no user namespaces (`create_user_ns` asks `current_chrooted`).

use std::{env, fs, io, os::unix::fs::symlink, path::Path};

use rustix::{io::Errno, mount::MountFlags};
use vtax_sys::{
    SysError,
    mount::{Pseudo, enter_root, mount, move_to, nine_p, overlay},
};

/// Directories from which the new root is made, in the image's own root.
const SHARED: &str = "/vtax/shared";
const WRITTEN: &str = "/vtax/written";
const ROOT: &str = "/vtax/root";
/// Mounts of the guest's own kernel, which move to the new root.
const KEPT: [&str; 3] = ["proc", "sys", "dev"];
/// Links to a process's own files, which udev creates elsewhere. bash needs them for `<(…)`.
const OWN_FILES: [[&str; 2]; 4] = [
    ["/proc/self/fd", "/dev/fd"],
    ["/proc/self/fd/0", "/dev/stdin"],
    ["/proc/self/fd/1", "/dev/stdout"],
    ["/proc/self/fd/2", "/dev/stderr"],
];
const CONTROLLED: &str = "/sys/fs/cgroup/cgroup.subtree_control";
const TRACING: &str = "/sys/kernel/tracing";

/// Makes the share with this tag the root directory, after which the image is no longer visible. `say` gets a message
/// for each missing part that the guest doesn't need.
pub(super) fn live_in(tag: &str, say: impl Fn(&str)) -> Result<(), SysError> {
    let (written, root) = (Path::new(WRITTEN), Path::new(ROOT));
    nine_p(tag, Path::new(SHARED))?;
    mount(Pseudo::Tmpfs, written)?;
    overlay(Path::new(SHARED), &written.join("upper"), &written.join("work"), root)?;
    for kept in KEPT {
        move_to(&Path::new("/").join(kept), &root.join(kept))?;
    }
    cover()?;
    mount(Pseudo::Tmpfs, Path::new("/run"))?;
    mount(Pseudo::Devpts, Path::new("/dev/pts"))?;
    link_own_files()?;
    let shm = mount(Pseudo::Tmpfs, Path::new("/dev/shm"));
    let groups = mount(Pseudo::Cgroup2, Path::new("/sys/fs/cgroup"));
    for lack in [shm, groups.and_then(|()| enable_controllers()), mount_tracing()].into_iter().filter_map(Result::err) {
        say(&format!("{lack}; the guest continues without it"));
    }
    Ok(())
}

/// Covers the old root, which remains below but is unreachable.
fn cover() -> Result<(), SysError> {
    env::set_current_dir(ROOT).map_err(|errno| failed("change to directory", ROOT, errno))?;
    move_to(Path::new("."), Path::new("/"))?;
    enter_root(Path::new("."))
}

fn link_own_files() -> Result<(), SysError> {
    for [files, link] in OWN_FILES {
        match symlink(files, link) {
            Err(errno) if errno.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed("create the link", link, errno));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Enables the cgroup controllers with which vtax limits guests. On other machines systemd does that.
fn enable_controllers() -> Result<(), SysError> {
    fs::write(CONTROLLED, "+memory +pids").map_err(|errno| failed("enable controllers with", CONTROLLED, errno))
}

/// Mounts tracefs; sysfs has the directory if the kernel has tracefs.
fn mount_tracing() -> Result<(), SysError> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    match rustix::mount::mount("tracefs", TRACING, "tracefs", flags, None) {
        Ok(()) | Err(Errno::BUSY) => Ok(()),
        Err(errno) => Err(failed("mount tracefs on", TRACING, errno.into())),
    }
}

fn failed(operation: &'static str, object: &str, errno: io::Error) -> SysError {
    SysError::plain(operation, object, errno)
}
