//! The host resources of one guest's QEMU: a dedicated directory and cgroup, the rights of its user, and the nodes
//! of its devices.
//!
//! The directory is a small tmpfs. So the kernel limits the output of the guest's console and of QEMU, even if nobody
//! reads it and vtax has long exited. A full log keeps its beginning.

use std::{
    env,
    ffi::CString,
    fs::{self, File},
    io,
    os::{
        fd::OwnedFd,
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::fs::{FallocateFlags, fallocate};
use vtax_model::{guest::Accelerator, topology::Name};
use vtax_sys::{
    SysError,
    confine::{Confinement, OwnUsers},
    directory,
    mount::{small_tmpfs, unmount_all},
    pci,
    process::Pid,
};

use super::{
    error::GuestError,
    files,
    last_words::LastWords,
    launch::{Launch, QemuProgram, Version},
    limits::{GuestCgroup, Limits},
    seed,
};

/// Maximum size of the console log and QEMU's messages together.
pub const MOST_LOGGED: u64 = 1 << 20;
/// Space for QEMU's messages, which a guest can't fill through its console.
const MESSAGES: u64 = 64 << 10;

/// Launch inputs of QEMU in addition to its arguments.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) confinement: Confinement,
    /// The log of QEMU's own messages.
    pub(super) messages: File,
    /// True if its temporary files can't be where ours are (`TMPDIR`).
    pub(super) other_tmpdir: bool,
}

/// Creates the guest's directory and cgroup. [`remove`] removes whatever was created.
pub(super) fn make(launch: &Launch) -> Result<Home, GuestError> {
    let directory = &launch.directory;
    let fail = |error| GuestError::process(&launch.name)(error);
    unmount_all(directory).map_err(fail)?;
    let most = MOST_LOGGED + seed::size(launch)? + launch.server_disks().map(|(_, size)| size).sum::<u64>();
    small_tmpfs(directory, most).map_err(fail)?;
    let path = launch.stderr_log();
    let messages = directory::create_private_file(&path).map_err(GuestError::file("create", &path))?;
    fallocate(&messages, FallocateFlags::KEEP_SIZE, 0, MESSAGES)
        .map_err(|errno| GuestError::file("reserve space for", &path)(errno.into()))?;
    seed::write(launch)?;
    for (path, size) in launch.server_disks() {
        let disk = File::options().write(true).create_new(true).mode(0o600).open(&path);
        disk.and_then(|disk| disk.set_len(size)).map_err(GuestError::file("create", &path))?;
    }
    let confinement = confinement(launch)?;
    let ours = env::var_os("TMPDIR").filter(|_| confinement.users.is_some());
    let other_tmpdir = ours.is_some_and(|folder| !is_for_all(Path::new(&folder)));
    Ok(Home { confinement, messages, other_tmpdir })
}

/// Returns true if every user can enter the directory and create files in it.
fn is_for_all(directory: &Path) -> bool {
    let allows = |path: &Path, bits| fs::metadata(path).is_ok_and(|found| found.mode() & bits == bits);
    allows(directory, 0o003) && directory.ancestors().skip(1).all(|parent| allows(parent, 0o001))
}

/// Undoes `make`: the directory stays, and is empty. The guest must have exited.
pub fn remove(launch: &Launch) -> Result<(), GuestError> {
    launch.assigned().filter_map(vfio_node).for_each(|node| return_node(&node));
    remove_of(&launch.name, &launch.directory)
}

/// Like [`remove`], but also removes the directory. A missing directory is not an error.
pub fn remove_all(launch: &Launch) -> Result<(), GuestError> {
    remove(launch)?;
    match fs::remove_dir_all(&launch.directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(GuestError::file("remove", &launch.directory)(error))
        }
        _ => Ok(()),
    }
}

/// Removes the cgroup and file system of a guest known only by these. The guest must have exited.
pub fn remove_of(guest: &Name, directory: &Path) -> Result<(), GuestError> {
    if let Some(cgroup) = GuestCgroup::of(guest, directory) {
        cgroup.remove();
    }
    unmount_all(directory).map(drop).map_err(GuestError::process(guest))
}

/// Returns the mechanism that limits the guest's memory, if it exited because it reached the limit. The kernel counts
/// the processes that it kills in a cgroup. A resource limit only denies memory, which QEMU reports as it exits.
pub(super) fn over_memory(launch: &Launch, words: &LastWords) -> Option<&'static str> {
    match GuestCgroup::of(&launch.name, &launch.directory).filter(GuestCgroup::exists) {
        Some(cgroup) => cgroup.ran_out().then_some("its cgroup's memory.max"),
        None => words.lacks_memory().then_some("RLIMIT_DATA"),
    }
}

fn confinement(launch: &Launch) -> Result<Confinement, GuestError> {
    let users = OwnUsers::find();
    let limits = Limits::of(launch);
    // Even with such cgroups, a machine may not let vtax create one, e.g. in a container.
    let cgroup = GuestCgroup::of(&launch.name, &launch.directory).and_then(|cgroup| cgroup.make(&limits).ok());
    let directory = &launch.directory;
    let opened = File::open(directory).map_err(GuestError::file("open", directory))?;
    let nodes = launch.assigned().filter_map(vfio_node);
    let disks = launch.server_disks().map(|(path, _)| path);
    let asks_kvm = launch.accel == Accelerator::Kvm && launch.qemu.version < Version::OPEN_KVM;
    Ok(Confinement {
        users,
        groups: asks_kvm.then(files::kvm_group).flatten().into_iter().collect(),
        directory: OwnedFd::from(opened),
        files: nodes
            .chain(disks)
            .filter_map(|file| CString::new(file.into_os_string().into_encoded_bytes()).ok())
            .collect(),
        limits: limits.of_process(cgroup.is_some(), users.is_some()),
        cgroup,
        // An emulated server shares the host's files with its guest.
        reads_all_files: launch.server.is_some(),
    })
}

/// The VFIO node of the device's IOMMU group, which QEMU opens by name. It exists while vfio-pci drives a device of the
/// group.
fn vfio_node(device: pci::PciAddress) -> Option<PathBuf> {
    let group = fs::read_link(format!("/sys/bus/pci/devices/{device}/iommu_group")).ok()?;
    let node = Path::new("/dev/vfio").join(group.file_name()?);
    node.exists().then_some(node)
}

/// Allows a running QEMU to open a device that is plugged in later.
pub(super) fn admit(qemu: Pid, device: pci::PciAddress) -> Result<(), SysError> {
    let Some(node) = vfio_node(device) else { return Ok(()) };
    let user = fs::metadata(format!("/proc/{qemu}")).map(|found| (found.uid(), found.gid()));
    let given = user.and_then(|(uid, gid)| std::os::unix::fs::chown(&node, Some(uid), Some(gid)));
    given.map_err(|errno| SysError::plain("change the owner of", node.display(), errno))
}

/// Undoes [`admit`].
pub(super) fn dismiss(device: pci::PciAddress) {
    vfio_node(device).iter().for_each(|node| return_node(node));
}

/// Returns the node to root, unless it was never assigned to a guest.
fn return_node(node: &Path) {
    if fs::metadata(node).is_ok_and(|found| OwnUsers::may_be(found.uid())) {
        // If this fails, it belongs to a user that no process has.
        let _ = std::os::unix::fs::chown(node, Some(0), Some(0));
    }
}

/// Isolation features that this machine lacks, one per line; empty if it has all.
pub fn weaknesses(qemu: &QemuProgram) -> Vec<String> {
    let mut list = Vec::new();
    if OwnUsers::find().is_none() {
        list.push("guests run as this user: this user namespace has no other user IDs for them".to_owned());
    }
    if !qemu.sandbox {
        list.push(format!(
            "guests can use every system call: {} or the kernel lacks seccomp support",
            qemu.path.display()
        ));
    }
    if !GuestCgroup::can_be() {
        list.push(
            "a guest's memory and processes are limited by resource limits (RLIMIT_DATA, RLIMIT_NPROC), which \
             do not cover shared memory: vtax cannot create a cgroup here to limit them"
                .to_owned(),
        );
    }
    list
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_directory_is_for_all_only_if_all_can_reach_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).expect("ours");
        let share = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
        share(folder.path(), 0o700);
        share(&inner, 0o1777);
        assert!(!is_for_all(&inner), "nobody else can get there");
        share(folder.path(), 0o755);
        assert!(is_for_all(&inner));
        share(&inner, 0o755);
        assert!(!is_for_all(&inner));
        assert!(!is_for_all(Path::new("/no/such")));
    }
}
