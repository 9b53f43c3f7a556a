//! Limits for a guest's QEMU: memory and processes.
//!
//! A cgroup limits all memory caused by QEMU, so it is used if this machine lets vtax create one (cgroup version 2,
//! with the memory and pids controllers). Otherwise resource limits of the process are used, which only cover private
//! memory.

use std::{
    fs::{self, File},
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{Access, access},
    process::{Resource, Rlimit},
};
use vtax_model::{disk::HostAio, guest::Accelerator, topology::Name, units::ByteSize};
use vtax_sys::{SysError, process::Pid};
use xxhash_rust::xxh3::xxh3_64;

use super::{launch::Launch, vdisk::DiskLaunch};

/// QEMU's own memory in addition to the guest's RAM: heap, device models, and caches of disks.
const OWN: u64 = 512 << 20;
/// TCG's buffer of translated code is at most this large.
const TRANSLATED: u64 = 1 << 30;
/// Memory of each NIC or other device for its queues.
const DEVICE: u64 = 16 << 20;
/// VFIO locks the RAM, and this much for each device's own addresses.
const LOCKED: u64 = 1 << 30;
/// The stack of a thread counts as private memory, even if it was never used.
const STACK: u64 = 8 << 20;
/// QEMU's threads in addition to those of CPUs and queues: up to 64 workers for disks and files, and a few others.
const THREADS: u64 = 96;
/// The maximum number of workers of one of QEMU's loops.
const POOL: u64 = 64;

/// Time for which a cgroup may stay busy after its last process exits.
const BUSY: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);
/// The controllers required to limit a guest by a cgroup.
const CONTROLLERS: [&str; 2] = ["memory", "pids"];

/// Limits of a guest's QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) memory: ByteSize,
    pub(super) processes: u64,
    /// For devices that the guest drives itself.
    locked: Option<ByteSize>,
}

impl Limits {
    pub(super) fn of(launch: &Launch) -> Limits {
        let devices = launch.assigned().count() as u64;
        let translated = if launch.accel == Accelerator::Tcg { TRANSLATED } else { 0 };
        let nics =
            (launch.nics.len() + launch.devices.len() + launch.removable.len()) as u64 + u64::from(launch.disks.ports);
        let disks: u64 = launch.server_disks().map(|(_, size)| size).sum();
        let memory = launch.memory.0.saturating_add(OWN + translated + nics * DEVICE + disks);
        Limits {
            memory: ByteSize(memory),
            processes: THREADS
                + u64::from(launch.vcpus)
                + u64::from(launch.vhost_threads())
                + launch.disks.disks.iter().map(threads_of).sum::<u64>(),
            locked: (devices > 0).then(|| ByteSize(launch.memory.0.saturating_add(devices * LOCKED))),
        }
    }

    /// Limits of the process. A crash leaves no core dump. `cgroup` says whether a cgroup limits the rest, and
    /// `own_user` whether QEMU has a dedicated user: the kernel counts the processes of a user.
    pub(super) fn of_process(&self, cgroup: bool, own_user: bool) -> Vec<(Resource, u64)> {
        let mut list = vec![(Resource::Core, 0)];
        list.extend(self.locked.map(|most| (Resource::Memlock, most.0)));
        if !cgroup {
            list.push((Resource::Data, self.memory.0.saturating_add(self.processes * STACK)));
        }
        if own_user {
            list.push((Resource::Nproc, self.processes));
        }
        list
    }
}

/// A thread that serves one disk has up to 64 workers, and so has io_uring, whose workers the kernel creates.
fn threads_of(disk: &DiskLaunch) -> u64 {
    let own = disk.iothread().is_some();
    u64::from(own) + POOL * (u64::from(own) + u64::from(disk.aio() == HostAio::IoUring))
}

/// Raises a running QEMU's limit of locked memory, for a device plugged in later.
pub(super) fn lock_all(qemu: Pid, launch: &Launch) -> Result<(), SysError> {
    let devices = u64::from(launch.spare_ports) + launch.assigned().count() as u64;
    let most = Some(launch.memory.0.saturating_add(devices * LOCKED));
    let pid = rustix::process::Pid::from_raw(qemu.0.cast_signed());
    let raised = rustix::process::prlimit(pid, Resource::Memlock, Rlimit { current: most, maximum: most });
    raised.map(drop).map_err(|errno| SysError::plain("raise RLIMIT_MEMLOCK of", qemu, errno.into()))
}

/// The cgroup of one guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GuestCgroup(PathBuf);

impl GuestCgroup {
    /// Its actual or intended location. None if this machine has no cgroups that limit memory and processes.
    pub(super) fn of(guest: &Name, directory: &Path) -> Option<GuestCgroup> {
        Some(GuestCgroup(GuestCgroup::root()?.join(name(guest, directory))))
    }

    pub(super) fn can_be() -> bool {
        GuestCgroup::root().is_some_and(|root| access(&root, Access::WRITE_OK).is_ok())
    }

    fn root() -> Option<PathBuf> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let root = PathBuf::from(hierarchy(&mounts)?);
        let enabled = fs::read_to_string(root.join("cgroup.subtree_control")).ok()?;
        let limits = |controller: &&str| enabled.split_ascii_whitespace().any(|name| name == *controller);
        CONTROLLERS.iter().all(limits).then_some(root)
    }

    /// Creates it, and returns the file through which a process joins it. On failure, nothing is left.
    pub(super) fn make(&self, limits: &Limits) -> io::Result<OwnedFd> {
        match fs::create_dir(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        self.furnish(limits).inspect_err(|_| self.remove())
    }

    fn furnish(&self, limits: &Limits) -> io::Result<OwnedFd> {
        let set = |file: &str, value: u64| fs::write(self.0.join(file), value.to_string());
        set("memory.max", limits.memory.0)?;
        set("pids.max", limits.processes)?;
        Ok(File::options().write(true).open(self.0.join("cgroup.procs"))?.into())
    }

    pub(super) fn exists(&self) -> bool {
        self.0.exists()
    }

    /// Returns true if the kernel has killed one of its processes for lack of memory.
    pub(super) fn ran_out(&self) -> bool {
        let events = fs::read_to_string(self.0.join("memory.events")).unwrap_or_default();
        kills(&events) > 0
    }

    /// Kills its processes and removes it. If it can't be removed now, it is removed with the next guest of this name.
    pub(super) fn remove(&self) {
        if !self.exists() {
            return;
        }
        // This file exists since Linux 5.14.
        let _ = fs::write(self.0.join("cgroup.kill"), "1");
        let until = Instant::now() + BUSY;
        while let Err(error) = fs::remove_dir(&self.0) {
            if error.kind() != io::ErrorKind::ResourceBusy || Instant::now() > until {
                return;
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Its name is ours, and unique to each directory. So it is found without a record.
fn name(guest: &Name, directory: &Path) -> String {
    format!("vtax-{guest}-{:016x}", xxh3_64(directory.as_os_str().as_bytes()))
}

/// Mount point of cgroup version 2 (proc_pid_mountinfo(5)).
fn hierarchy(mounts: &str) -> Option<&Path> {
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let path = mount.split_ascii_whitespace().nth(4)?;
        kind.starts_with("cgroup2 ").then_some(Path::new(path))
    })
}

fn kills(events: &str) -> u64 {
    let count = |line: &str| line.strip_prefix("oom_kill ")?.trim().parse().ok();
    events.lines().find_map(count).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_of_version_2_is_found_among_all_mounts() {
        let mounts = "23 28 0:22 / /sys rw - sysfs sysfs rw\n\
            30 23 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
            31 23 0:27 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw\n";
        assert_eq!(hierarchy(mounts), Some(Path::new("/sys/fs/cgroup/unified")));
        assert_eq!(hierarchy("23 28 0:22 / /sys rw - sysfs sysfs rw\n"), None);
        assert_eq!(hierarchy("nonsense - cgroup2"), None);
    }

    #[test]
    fn each_directory_has_a_separate_cgroup() {
        let guest: Name = "web".parse().expect("a name");
        let of = |lab: &str| name(&guest, &Path::new("/run/vtax/labs").join(lab).join("guests/web"));
        assert!(of("a").starts_with("vtax-web-") && of("a") == of("a") && of("a") != of("b"));
    }

    #[test]
    fn processes_killed_by_the_kernel_are_counted() {
        assert_eq!(kills("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n"), 2);
        assert_eq!(kills(""), 0);
    }

    #[test]
    fn resource_limits_apply_where_no_cgroup_does() {
        let limits = Limits { memory: ByteSize(1 << 30), processes: 100, locked: Some(ByteSize(5)) };
        assert_eq!(limits.of_process(true, false), [(Resource::Core, 0), (Resource::Memlock, 5)]);
        let all = limits.of_process(false, true);
        assert!(all.contains(&(Resource::Nproc, 100)) && all.contains(&(Resource::Data, (1 << 30) + (100 << 23))));
    }
}
