//! Work without root. A process that enters its own user namespace is root there. It may create network namespaces,
//! links and mounts, but only below its own network namespace. It cannot reach the real NICs.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::mount::MountPropagationFlags;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use crate::error::{Result, SysError};
use crate::netns::NsId;
use crate::process::Pid;

/// Bits of the kernel's capability sets, from `linux/capability.h`.
const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;

/// Moves this process into a new user, mount and network namespace in which it is root, with only its own user and
/// group mapped. Later mounts stay inside.
///
/// Call it first: the kernel refuses it to a process with threads. After an error, the process may be only partly
/// inside and have no privilege anywhere; report the error and exit.
///
/// # Errors
/// [`SysError::Threaded`], or [`SysError::UserNamespaceRefused`] with the kernel setting that forbids it.
pub fn enter_own() -> Result<()> {
    require_single_thread()?;
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    let flags = UnshareFlags::NEWUSER | UnshareFlags::NEWNS | UnshareFlags::NEWNET;
    // SAFETY: FILES is not among the flags; the descriptor table stays as it is.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(|e| refused("unshare", e.into()))?;
    // A process without privilege outside may map its group only after it gives up setgroups(2), see
    // user_namespaces(7).
    write_map("setgroups", "deny".into())?;
    write_map("uid_map", format!("0 {} 1", uid.as_raw()))?;
    write_map("gid_map", format!("0 {} 1", gid.as_raw()))?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).map_err(|e| refused("make mounts private", e.into()))
}

/// Moves this process into the user, mount and network namespace of another process, the keeper that holds a lab open.
/// The working directory stays the same.
///
/// # Errors
/// [`SysError::Threaded`]; `EPERM` if the keeper belongs to another user; `ENOENT` if it has exited.
pub fn join(keeper: Pid) -> Result<()> {
    require_single_thread()?;
    let directory = std::env::current_dir().map_err(|e| SysError::os("find", "the working directory", e))?;
    let namespaces =
        [("user", LinkNameSpaceType::User), ("mnt", LinkNameSpaceType::Mount), ("net", LinkNameSpaceType::Network)];
    // All are opened before the first is entered, because /proc may be a different one afterwards.
    let mut open = Vec::new();
    for (name, kind) in namespaces {
        if let Some(file) = differing_namespace(keeper, name)? {
            open.push((name, kind, file));
        }
    }
    for (name, kind, file) in open {
        move_into_link_name_space(file.as_fd(), Some(kind))
            .map_err(|e| SysError::os("join", format!("{name} namespace of process {keeper}"), e))?;
    }
    std::env::set_current_dir(&directory).map_err(|e| SysError::os("return to directory", directory.display(), e))
}

/// Returns whether this thread may create namespaces and links: it has `CAP_NET_ADMIN` and `CAP_SYS_ADMIN`. In a
/// container with a user namespace that shares the host's network, the kernel may nevertheless refuse links; the error
/// then says so.
pub fn have_net_admin() -> bool {
    let wanted = (1 << CAP_NET_ADMIN) | (1 << CAP_SYS_ADMIN);
    fs::read_to_string("/proc/thread-self/status")
        .ok()
        .and_then(|status| effective_capabilities(&status))
        .is_some_and(|held| held & wanted == wanted)
}

/// Returns whether this process is in the initial user namespace, where root is root of the machine
/// (user_namespaces(7)).
pub fn is_initial() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

fn require_single_thread() -> Result<()> {
    let (operation, path) = ("read", "/proc/self/status");
    let status = fs::read_to_string(path).map_err(|e| SysError::os(operation, path, e))?;
    let threads = field(&status, "Threads:")
        .and_then(|count| count.parse().ok())
        .ok_or_else(|| SysError::malformed(operation, path, "no count of threads"))?;
    if threads == 1 { Ok(()) } else { Err(SysError::Threaded { threads }) }
}

/// Opens the keeper's namespace; none if we are already in it. setns(2) refuses to enter the caller's own user
/// namespace.
fn differing_namespace(keeper: Pid, name: &'static str) -> Result<Option<File>> {
    let open = |path: String| File::open(&path).map_err(|e| SysError::os("open namespace", &path, e));
    let id = |file: &File| {
        let metadata = file.metadata().map_err(|e| SysError::os("identify namespace", name, e));
        metadata.map(|metadata| NsId::of(&metadata))
    };
    let theirs = open(format!("/proc/{keeper}/ns/{name}"))?;
    let ours = open(format!("/proc/self/ns/{name}"))?;
    Ok((id(&theirs)? != id(&ours)?).then_some(theirs))
}

fn write_map(name: &'static str, contents: String) -> Result<()> {
    let path = Path::new("/proc/self").join(name);
    fs::write(path, contents).map_err(|e| refused(name, e))
}

fn refused(step: &'static str, errno: io::Error) -> SysError {
    let (reason, remedy) = Limits::read().explain(&errno);
    SysError::UserNamespaceRefused { step, errno, reason, remedy }
}

/// Kernel settings that can forbid user namespaces; `None` where the kernel doesn't have the setting.
#[derive(Debug, Default)]
struct Limits {
    /// `user.max_user_namespaces`, user_namespaces(7).
    max_user_namespaces: Option<u64>,
    /// From a patch of Debian and the distributions based on it.
    unprivileged_userns_clone: Option<u64>,
    /// Ubuntu since 23.10: creating the namespace succeeds but grants no capabilities in it, so the first step *after*
    /// `unshare` fails.
    apparmor_restrict: Option<u64>,
}

impl Limits {
    fn read() -> Self {
        let number = |key: &str| {
            let text = fs::read_to_string(Path::new("/proc/sys").join(key)).ok()?;
            text.trim().parse().ok()
        };
        Self {
            max_user_namespaces: number("user/max_user_namespaces"),
            unprivileged_userns_clone: number("kernel/unprivileged_userns_clone"),
            apparmor_restrict: number("kernel/apparmor_restrict_unprivileged_userns"),
        }
    }

    /// Returns the reason and the remedy.
    fn explain(&self, errno: &io::Error) -> (&'static str, &'static str) {
        if self.max_user_namespaces == Some(0) {
            return ("user.max_user_namespaces is 0", "run as root, or set it: sysctl user.max_user_namespaces=15000");
        }
        if self.unprivileged_userns_clone == Some(0) {
            return (
                "kernel.unprivileged_userns_clone is 0",
                "run as root, or set it: sysctl kernel.unprivileged_userns_clone=1",
            );
        }
        if self.apparmor_restrict.is_some_and(|level| level > 0) {
            return (
                "AppArmor restricts unprivileged user namespaces (kernel.apparmor_restrict_unprivileged_userns)",
                "run as root, or allow it: sysctl kernel.apparmor_restrict_unprivileged_userns=0",
            );
        }
        match errno.raw_os_error() {
            Some(libc::ENOSPC | libc::EUSERS) => (
                "the limit on namespaces or on their depth is reached",
                "run as root, or raise user.max_user_namespaces, user.max_net_namespaces and user.max_mnt_namespaces",
            ),
            Some(libc::EINVAL) => {
                ("this kernel is built without user namespaces", "run as root, or use a kernel with CONFIG_USER_NS")
            }
            _ => (
                "a security policy forbids it: a container's seccomp filter, a chroot or a security module",
                "run as root outside the container",
            ),
        }
    }
}

fn effective_capabilities(status: &str) -> Option<u64> {
    u64::from_str_radix(field(status, "CapEff:")?, 16).ok()
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STATUS: &str =
        "Name:\tbash\nThreads:\t1\nCapPrm:\t0000000000000000\nCapEff:\t000001ffffffffff\nCapBnd:\t000001ffffffffff\n";

    #[test]
    fn capabilities_of_root_are_read() {
        assert_eq!(effective_capabilities(STATUS), Some(0x1ff_ffff_ffff));
        assert_eq!(field(STATUS, "Threads:"), Some("1"));
    }

    #[test]
    fn a_status_without_capabilities_has_none() {
        assert_eq!(effective_capabilities("Name:\tx\n"), None);
        assert_eq!(effective_capabilities("CapEff:\txyz\n"), None);
    }

    #[test]
    fn each_setting_that_forbids_is_named() {
        let eperm = io::Error::from_raw_os_error(libc::EPERM);
        let cases = [
            (Limits { max_user_namespaces: Some(0), ..Limits::default() }, "max_user_namespaces"),
            (Limits { unprivileged_userns_clone: Some(0), ..Limits::default() }, "unprivileged_userns_clone"),
            (Limits { apparmor_restrict: Some(1), ..Limits::default() }, "apparmor_restrict"),
        ];
        for (limits, setting) in cases {
            let (reason, remedy) = limits.explain(&eperm);
            assert!(reason.contains(setting) && remedy.contains(setting), "{reason} {remedy}");
        }
        let (reason, _) = Limits { max_user_namespaces: Some(9), ..Limits::default() }.explain(&eperm);
        assert!(reason.contains("seccomp"), "{reason}");
    }

    #[test]
    fn a_process_with_threads_is_refused_before_anything_changes() {
        let before = fs::read_link("/proc/self/ns/user").unwrap();
        // The test harness itself runs this on a second thread.
        assert!(matches!(enter_own(), Err(SysError::Threaded { .. })));
        assert_eq!(fs::read_link("/proc/self/ns/user").unwrap(), before);
    }

    proptest! {
        #[test]
        fn hostile_status_never_panics(text in "\\PC*") {
            let _ = effective_capabilities(&text);
            let _ = effective_capabilities(&format!("CapEff:{text}"));
        }
    }
}
