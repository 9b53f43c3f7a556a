//! Network namespaces: the hosts and zones of a local lab.
//!
//! A namespace lives as long as something refers to it: a process, an open file descriptor, or a mount.
//! [`NetNs::scratch`] keeps one alive only through a descriptor, so it cannot outlive us; [`NetNs::create_at`] pins one
//! to a path with a bind mount, like `ip netns add`, so that it survives until it is removed.
//!
//! A network namespace belongs to a *thread*. All work inside one is done on a scratch thread that ends afterwards, so
//! the caller's thread stays in its own namespace.

mod id;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;

use rustix::mount::UnmountFlags;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use socket2::{Domain, Socket, Type};

pub use id::NsId;

use crate::error::{Result, SysError};
use crate::inherit::die_with_parent;
use crate::process::{Pid, ProcessId};
use crate::sock;

/// The calling thread's namespace. `/proc/self` would be the main thread's.
const OWN: &str = "/proc/thread-self/ns/net";

/// Fate of a child when its parent dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlive {
    /// The child continues.
    Yes,
    /// The kernel kills the child (`PR_SET_PDEATHSIG`).
    ///
    /// The "parent" here is the *thread* that called [`NetNs::spawn`], see prctl(2): the child is killed as soon as
    /// that thread ends, even if the process continues. So start such children from a thread that lives as long as they
    /// should, and never from inside [`NetNs::run`]. A set-user-id program isn't killed.
    No,
}

/// An open network namespace. It exists at least as long as this handle.
#[derive(Debug)]
pub struct NetNs {
    file: File,
    id: NsId,
}

impl NetNs {
    /// Returns the namespace of the calling thread.
    pub fn current() -> Result<Self> {
        Self::open(Path::new(OWN))
    }

    /// Opens the namespace pinned at `path`, or the one of `/proc/PID/ns/net`.
    ///
    /// # Errors
    /// [`SysError::NotANamespace`] for any other file, such as the empty file that is left when a pinned namespace was
    /// unmounted by hand.
    pub fn open(path: &Path) -> Result<Self> {
        let fail = |errno| SysError::os("open network namespace", path.display(), errno);
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(fail)?;
        if !is_network_namespace(file.as_fd()) {
            return Err(SysError::NotANamespace { path: path.display().to_string() });
        }
        let id = NsId::of(&file.metadata().map_err(fail)?);
        Ok(Self { file, id })
    }

    /// Creates a namespace. It exists as long as this handle, and as any process or link in it.
    pub fn scratch() -> Result<Self> {
        on_scratch_thread(|| {
            unshare_network().map_err(|e| SysError::os("create", "a network namespace", e))?;
            Self::current()
        })?
    }

    /// Creates a namespace, pinned at `path`, which must not exist yet and whose directory must. No link in it is up,
    /// not even `lo`. `prepare` runs inside before the namespace is pinned, so it is always found prepared.
    ///
    /// The file system of `path` need not be a shared mount: since Linux 3.18 removing the file, as
    /// [`NetNs::remove_at`] does, drops the mounts on it in *all* mount namespaces. Other processes see the namespace
    /// only if they share our mount namespace or get its mounts by propagation.
    ///
    /// # Errors
    /// `EEXIST` if the path is taken. Nothing is left behind on failure.
    pub fn create_at<T: Send>(path: &Path, prepare: impl FnOnce() -> Result<T> + Send) -> Result<(Self, T)> {
        let fail = |e| SysError::os("create network namespace at", path.display(), e);
        OpenOptions::new().write(true).create_new(true).mode(0o444).open(path).map_err(fail)?;
        let made = on_scratch_thread(|| {
            unshare_network().map_err(fail)?;
            let prepared = prepare()?;
            rustix::mount::mount_bind(OWN, path).map_err(|e| fail(e.into()))?;
            Ok((Self::current()?, prepared))
        });
        made.and_then(|made| made).inspect_err(|_| {
            // The first error is the one to report. The file was created here, so it may be removed.
            let _ = Self::remove_at(path, None);
        })
    }

    /// Unpins the namespace at `path` and removes the file. The namespace itself disappears with its last process,
    /// descriptor and mount. Returns false if there was nothing at `path`.
    ///
    /// With `expected`, only that namespace is removed. An empty file, left by an interrupted creation or removal, pins
    /// nothing and is removed as well.
    ///
    /// # Errors
    /// [`SysError::WrongNamespace`] or [`SysError::NotANamespace`], and nothing is touched, if something else is there.
    pub fn remove_at(path: &Path, expected: Option<NsId>) -> Result<bool> {
        let fail = |e| SysError::os("remove network namespace at", path.display(), e);
        let metadata = match fs::symlink_metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            metadata => metadata.map_err(fail)?,
        };
        if let Some(found) = pinned(path, &metadata)? {
            if let Some(expected) = expected.filter(|expected| *expected != found) {
                return Err(SysError::WrongNamespace { path: path.display().to_string(), expected, found });
            }
            let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
            rustix::mount::unmount(path, flags).map_err(|e| fail(e.into()))?;
        }
        fs::remove_file(path).map_err(fail)?;
        Ok(true)
    }

    /// Returns the namespace's identity.
    pub fn id(&self) -> NsId {
        self.id
    }

    /// Returns a number that no other namespace gets until the machine reboots, unlike [`NetNs::id`]. None before Linux
    /// 5.14.
    pub fn cookie(&self) -> Result<Option<u64>> {
        let fail = |e| SysError::os("read the cookie of network namespace", self.id, e);
        match self
            .run(|| Socket::new(Domain::IPV4, Type::DGRAM, None).and_then(|socket| sock::netns_cookie(&socket)))?
        {
            Err(e) if e.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(None),
            cookie => cookie.map(Some).map_err(fail),
        }
    }

    /// Runs `work` on a separate thread inside the namespace and returns its result. A panic in `work` continues in the
    /// caller.
    ///
    /// Sockets keep the namespace they were created in, so a socket created by `work` can be used by any thread
    /// afterwards. `/proc/net` is the main thread's view; `work` should read `/proc/thread-self/net`.
    ///
    /// # Errors
    /// Only if the namespace cannot be entered; then `work` has not run.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        on_scratch_thread(|| {
            self.enter().map_err(|e| SysError::os("enter network namespace", self.id, e))?;
            Ok(work())
        })?
    }

    /// Starts a program inside the namespace. The command is consumed, because the namespace stays attached to it.
    pub fn spawn(&self, mut command: Command, outlive: Outlive) -> Result<Child> {
        let program = command.get_program().to_string_lossy().into_owned();
        self.place(&mut command)?;
        if outlive == Outlive::No {
            die_with_parent(&mut command);
        }
        command.spawn().map_err(|e| SysError::os("start program", program, e))
    }

    /// Replaces this process with a program inside the namespace; returns only if that failed. The calling thread may
    /// then already be in the namespace, so the caller should report the error and exit.
    pub fn exec(&self, mut command: Command) -> SysError {
        let program = command.get_program().to_string_lossy().into_owned();
        match self.place(&mut command) {
            Ok(()) => SysError::os("execute program", program, command.exec()),
            Err(error) => error,
        }
    }

    /// Returns the processes whose main thread is in this namespace.
    ///
    /// A process that we may not inspect (ptrace(2), access mode checks) is not in the list, so without root it covers
    /// our own processes only.
    pub fn processes(&self) -> Result<Vec<ProcessId>> {
        let pids = crate::process::all_pids()?;
        let inside = pids.into_iter().filter(|pid| self.holds(*pid));
        // Processes that have exited in the meantime are skipped.
        Ok(inside.filter_map(|pid| ProcessId::of(pid).ok()).collect())
    }

    fn holds(&self, pid: Pid) -> bool {
        fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|m| NsId::of(&m) == self.id)
    }

    fn enter(&self) -> io::Result<()> {
        move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(())
    }

    /// Makes `command` start inside the namespace, which exists as long as the command.
    ///
    /// If this process may not enter the namespace, but may enter the user namespace that owns it, then the command
    /// starts inside both. This is how the user of a rootless container is allowed in.
    pub fn place(&self, command: &mut Command) -> Result<()> {
        let namespace = self.file.try_clone().map_err(|e| SysError::os("use network namespace", self.id, e))?;
        let owner = owner(self.as_fd());
        let hook = move || {
            let enter = || move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network));
            match (enter(), &owner) {
                (Err(rustix::io::Errno::PERM), Some(owner)) => {
                    move_into_link_name_space(owner.as_fd(), Some(LinkNameSpaceType::User))?;
                    Ok(enter()?)
                }
                (entered, _) => Ok(entered?),
            }
        };
        // SAFETY: between fork and exec the hook only makes the system call setns; it takes no lock and allocates
        // nothing.
        unsafe { command.pre_exec(hook) };
        Ok(())
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Returns the namespace pinned at a path. None if the file is empty.
fn pinned(path: &Path, metadata: &fs::Metadata) -> Result<Option<NsId>> {
    if !metadata.is_file() {
        return Err(SysError::NotANamespace { path: path.display().to_string() });
    }
    match NetNs::open(path) {
        Ok(namespace) => Ok(Some(namespace.id)),
        Err(SysError::NotANamespace { .. }) if metadata.len() == 0 => Ok(None),
        Err(error) => Err(error),
    }
}

fn on_scratch_thread<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
    thread::scope(|scope| {
        let worker = thread::Builder::new()
            .name("vtax-netns".into())
            .spawn_scoped(scope, work)
            .map_err(|e| SysError::os("start", "a scratch thread", e))?;
        Ok(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn unshare_network() -> io::Result<()> {
    // SAFETY: the only flag is NEWNET; the descriptor table stays shared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET)? };
    Ok(())
}

/// Returns the user namespace that owns a namespace, unless that is outside of our own.
fn owner(file: BorrowedFd<'_>) -> Option<OwnedFd> {
    // SAFETY: this ioctl takes no argument and reads and writes no memory of ours.
    let owner = unsafe { libc::ioctl(file.as_raw_fd(), libc::NS_GET_USERNS) };
    // SAFETY: the kernel has just made this descriptor for us, and nothing else uses it.
    (owner >= 0).then(|| unsafe { OwnedFd::from_raw_fd(owner) })
}

/// Returns whether a file is a network namespace. `NS_GET_NSTYPE` (ioctl_ns(2)) fails with `ENOTTY` on other files.
fn is_network_namespace(file: BorrowedFd<'_>) -> bool {
    // SAFETY: this ioctl takes no argument and reads and writes no memory of ours.
    let kind = unsafe { libc::ioctl(file.as_raw_fd(), libc::NS_GET_NSTYPE) };
    kind == libc::CLONE_NEWNET
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_survives_being_written_down() {
        let own = NetNs::current().unwrap().id();
        assert_eq!(own.to_string().parse::<NsId>().unwrap(), own);
    }

    #[test]
    fn malformed_identities_are_refused() {
        for text in ["", ":", "1", "1:", "a:b", "1:2:3", "-1:2"] {
            assert!(text.parse::<NsId>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_plain_file_is_not_a_namespace() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = NetNs::open(file.path()).unwrap_err();
        assert!(matches!(error, SysError::NotANamespace { .. }), "{error}");
    }

    #[test]
    fn a_file_with_contents_is_never_removed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "precious").unwrap();
        assert!(NetNs::remove_at(file.path(), None).is_err());
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "precious");
    }

    #[test]
    fn removing_nothing_is_not_an_error() {
        let directory = tempfile::tempdir().unwrap();
        assert!(!NetNs::remove_at(&directory.path().join("none"), None).unwrap());
    }

    #[test]
    fn the_own_namespace_holds_this_process() {
        let own = ProcessId::of(Pid::own()).unwrap();
        assert!(NetNs::current().unwrap().processes().unwrap().contains(&own));
    }
}
