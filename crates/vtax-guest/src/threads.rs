//! Host threads that run a guest's vCPUs and move its packets: pinning, and CPU time.

use std::{collections::BTreeMap, fmt, fs, io};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};
use vtax_model::{guest::GuestSize, topology::Name};
use vtax_sys::{SysError, process::ProcessId};

use super::{
    error::GuestError,
    qmp::{Monitor, Vcpu},
};

/// Threads by role. All numbers are those of `/proc`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Threads {
    /// QEMU's main loop. It serves virtio-net without vhost, and all emulated NICs.
    pub main: u32,
    /// The virtual CPUs, by their number in the guest.
    pub vcpus: Vec<Vcpu>,
    /// vhost's workers. They are threads of QEMU since Linux 6.4, and were kernel threads before.
    pub vhost: Vec<u32>,
    /// The rest: workers for blocking calls, RCU.
    pub others: Vec<u32>,
}

/// The CPUs that a guest's threads are pinned to. An empty list means any CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestPins {
    /// For virtual CPUs: each gets the next CPU of this list, cyclically.
    #[serde(default)]
    pub cpus: Vec<u32>,
    /// For QEMU's other threads: each may run on all of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub io_cpus: Vec<u32>,
    /// For vhost's threads, one per queue pair: each gets the next CPU of this list, cyclically.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vhost_cpus: Vec<u32>,
}

/// Work of one of QEMU's threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThreadRole {
    /// The virtual CPU with this number.
    Vcpu(u32),
    /// QEMU's own.
    Io,
    /// vhost's worker of this queue pair.
    Vhost(u32),
}

/// CPUs of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadPlace {
    pub role: ThreadRole,
    pub thread: u32,
    pub cpus: Vec<u32>,
}

impl GuestPins {
    /// The CPUs named in a lab file.
    pub fn of(size: &GuestSize) -> GuestPins {
        let GuestSize { cpus, io_cpus, vhost_cpus, .. } = size.clone();
        GuestPins { cpus, io_cpus, vhost_cpus }
    }

    /// Returns true if nothing is pinned.
    pub fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    /// All CPUs that are named.
    pub fn all(&self) -> impl Iterator<Item = u32> {
        self.cpus.iter().chain(&self.io_cpus).chain(&self.vhost_cpus).copied()
    }
}

impl fmt::Display for GuestPins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = [("vcpus", &self.cpus), ("QEMU's threads", &self.io_cpus), ("vhost", &self.vhost_cpus)];
        let named = of.into_iter().filter(|(_, cpus)| !cpus.is_empty());
        named.into_iter().try_for_each(|(whose, cpus)| write!(f, ", {whose} on cpus {}", list(cpus)))
    }
}

impl fmt::Display for ThreadRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ThreadRole::Vcpu(index) => write!(f, "vCPU {index}"),
            ThreadRole::Io => f.write_str("QEMU's own thread"),
            ThreadRole::Vhost(queue) => write!(f, "vhost of queue {queue}"),
        }
    }
}

fn list(cpus: &[u32]) -> String {
    cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

impl Threads {
    /// The current threads. vhost's are created when QEMU opens the device (`VHOST_SET_OWNER`), before its monitor
    /// answers.
    pub fn of(guest: &Name, process: ProcessId, monitor: &mut Monitor) -> Result<Threads, GuestError> {
        let mut vcpus = monitor.vcpus()?;
        vcpus.sort_by_key(|vcpu| vcpu.index);
        let tasks = tasks(process.pid.0).map_err(GuestError::process(guest))?;
        Ok(Threads::classified(process.pid.0, vcpus, &tasks))
    }

    /// The current threads, by QEMU's thread names. The monitor isn't used, so a sample isn't disturbed.
    pub fn by_name(process: ProcessId) -> Result<Threads, SysError> {
        let tasks = tasks(process.pid.0)?;
        let vcpus = tasks.iter().filter_map(|(tid, name)| Some(Vcpu { index: vcpu(name)?, thread: *tid })).collect();
        Ok(Threads::classified(process.pid.0, vcpus, &tasks))
    }

    fn classified(main: u32, vcpus: Vec<Vcpu>, tasks: &BTreeMap<u32, String>) -> Threads {
        let mut threads = classify(main, vcpus, tasks);
        if threads.vhost.is_empty() {
            threads.vhost = kernel_threads(&vhost_name(main));
        }
        threads
    }

    /// All of them.
    pub fn all(&self) -> Vec<u32> {
        let vcpus = self.vcpus.iter().map(|vcpu| vcpu.thread);
        let rest = self.vhost.iter().chain(&self.others).copied();
        std::iter::once(self.main).chain(vcpus).chain(rest).collect()
    }

    /// Pins the existing threads, and reads back the CPUs that the kernel granted to each.
    pub fn pin(&self, guest: &Name, pins: &GuestPins) -> Result<(), GuestError> {
        for (role, thread) in self.roles() {
            let cpus = pins.of_role(role);
            if !cpus.is_empty() {
                pin(guest, &role.to_string(), thread, cpus)?;
            }
        }
        Ok(())
    }

    /// Current CPUs of each thread. A thread that has exited in the meantime is omitted.
    pub fn places(&self) -> Vec<ThreadPlace> {
        let place = |(role, thread)| Some(ThreadPlace { role, thread, cpus: allowed(thread).ok()? });
        self.roles().filter_map(place).collect()
    }

    fn roles(&self) -> impl Iterator<Item = (ThreadRole, u32)> {
        let vcpus = self.vcpus.iter().map(|vcpu| (ThreadRole::Vcpu(vcpu.index), vcpu.thread));
        let own = std::iter::once(&self.main).chain(&self.others);
        // Threads are created queue by queue, with ascending numbers.
        let vhost = (0..).zip(&self.vhost).map(|(queue, thread)| (ThreadRole::Vhost(queue), *thread));
        vcpus.chain(own.map(|thread| (ThreadRole::Io, *thread))).chain(vhost)
    }
}

impl GuestPins {
    /// The CPUs for a thread; any CPU if empty.
    fn of_role(&self, role: ThreadRole) -> &[u32] {
        let in_turn = |cpus: &'_ [u32], index: u32| index as usize % cpus.len().max(1);
        match role {
            ThreadRole::Vcpu(index) => self.cpus.get(in_turn(&self.cpus, index)).map_or(&[], std::slice::from_ref),
            ThreadRole::Io => &self.io_cpus,
            ThreadRole::Vhost(queue) => {
                self.vhost_cpus.get(in_turn(&self.vhost_cpus, queue)).map_or(&[], std::slice::from_ref)
            }
        }
    }
}

/// The threads of a process and their names.
pub(super) fn tasks(pid: u32) -> Result<BTreeMap<u32, String>, SysError> {
    let folder = format!("/proc/{pid}/task");
    let fail = |errno: io::Error| SysError::plain("list", &folder, errno);
    let mut tasks = BTreeMap::new();
    for entry in fs::read_dir(&folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        // A thread that has exited since has no name.
        if let (Some(tid), Ok(name)) = (number(&entry), fs::read_to_string(entry.path().join("comm"))) {
            tasks.insert(tid, name.trim_end().to_owned());
        }
    }
    Ok(tasks)
}

fn number(entry: &fs::DirEntry) -> Option<u32> {
    entry.file_name().to_str()?.parse().ok()
}

fn classify(main: u32, vcpus: Vec<Vcpu>, tasks: &BTreeMap<u32, String>) -> Threads {
    let mut threads = Threads { main, vcpus, ..Threads::default() };
    for (tid, name) in tasks {
        let known = *tid == main || threads.vcpus.iter().any(|vcpu| vcpu.thread == *tid);
        if *name == vhost_name(main) {
            threads.vhost.push(*tid);
        } else if !known {
            threads.others.push(*tid);
        }
    }
    threads
}

/// The kernel names vhost's threads after the process that owns the device (`vhost_worker_create`).
fn vhost_name(pid: u32) -> String {
    format!("vhost-{pid}")
}

/// The virtual CPU of a thread named `CPU 0/KVM`, with `debug-threads=on` (QEMU's `kvm_start_vcpu_thread`).
fn vcpu(name: &str) -> Option<u32> {
    name.strip_prefix("CPU ")?.split('/').next()?.parse().ok()
}

/// Kernel threads are separate processes, without a command line.
fn kernel_threads(name: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| Some((number(&entry)?, entry.path())));
    let named =
        processes.filter(|(_, path)| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end() == name));
    let kernels = named.filter(|(_, path)| fs::read(path.join("cmdline")).is_ok_and(|line| line.is_empty()));
    let mut pids: Vec<u32> = kernels.map(|(pid, _)| pid).collect();
    pids.sort_unstable();
    pids
}

/// Pins one thread, and reads the mask back: the kernel omits CPUs that are offline or outside the cpuset.
fn pin(guest: &Name, thread: &str, tid: u32, cpus: &[u32]) -> Result<(), GuestError> {
    pinned(tid, cpus).map_err(|error| GuestError::Pin {
        guest: guest.clone(),
        thread: thread.to_owned(),
        cpus: list(cpus),
        error,
    })
}

fn pinned(tid: u32, cpus: &[u32]) -> io::Result<()> {
    let mut wanted = CpuSet::new();
    for cpu in cpus {
        let cpu = usize::try_from(*cpu).ok().filter(|cpu| *cpu < CpuSet::MAX_CPU).ok_or_else(invalid)?;
        wanted.set(cpu);
    }
    let tid = thread(tid)?;
    sched_setaffinity(Some(tid), &wanted)?;
    if sched_getaffinity(Some(tid))? == wanted { Ok(()) } else { Err(invalid()) }
}

fn allowed(tid: u32) -> io::Result<Vec<u32>> {
    let set = sched_getaffinity(Some(thread(tid)?))?;
    Ok((0..).zip(0..CpuSet::MAX_CPU).filter(|(_, cpu)| set.is_set(*cpu)).map(|(number, _)| number).collect())
}

fn thread(tid: u32) -> io::Result<rustix::process::Pid> {
    i32::try_from(tid).ok().and_then(rustix::process::Pid::from_raw).ok_or_else(invalid)
}

fn invalid() -> io::Error {
    rustix::io::Errno::INVAL.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_identified_by_monitor_and_name() {
        let tasks = [
            (100, "vtax-web"),
            (101, "call_rcu"),
            (103, "CPU 0/TCG"),
            (104, "vhost-100"),
            (105, "IO io0"),
            (106, "worker"),
            (107, "vhost-10"),
        ];
        let tasks = tasks.map(|(tid, name)| (tid, name.to_owned())).into();
        let threads = classify(100, vec![Vcpu { index: 0, thread: 103 }], &tasks);
        assert_eq!(
            (threads.main, &threads.vhost[..], &threads.others[..]),
            (100, &[104][..], &[101, 105, 106, 107][..])
        );
        assert_eq!(threads.all(), [100, 103, 104, 101, 105, 106, 107]);
    }

    #[test]
    fn virtual_cpus_are_known_by_name() {
        assert_eq!(
            ["CPU 0/KVM", "CPU 12/TCG", "IO io0", "CPU", "CPU x/KVM"].map(vcpu),
            [Some(0), Some(12), None, None, None]
        );
        let own = ProcessId::of(vtax_sys::process::Pid::own()).expect("this process");
        let threads = Threads::by_name(own).expect("this process");
        assert!(threads.main == own.pid.0 && threads.vcpus.is_empty() && !threads.others.is_empty(), "{threads:?}");
    }

    #[test]
    fn a_thread_can_be_pinned_and_impossible_cpus_are_named() {
        let guest: Name = "web".parse().expect("a name");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a child");
        let allowed = sched_getaffinity(None).expect("ours");
        let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).expect("we run somewhere");
        pin(&guest, "vCPU 0", child.id(), &[first as u32]).expect("a CPU that is ours");
        let error = pin(&guest, "vCPU 0", child.id(), &[1023]).expect_err("no such CPU").to_string();
        assert!(error.contains("cannot pin vCPU 0 to CPU 1023"), "{error}");
        assert!(pin(&guest, "vCPU 0", child.id(), &[u32::MAX]).is_err());
        child.kill().and_then(|()| child.wait()).expect("our own child");
    }

    #[test]
    fn pinning_cycles_through_the_cpus() {
        let pins = GuestPins { cpus: vec![4, 5], io_cpus: vec![0, 1], vhost_cpus: vec![6] };
        let of = |role| pins.of_role(role).to_vec();
        assert_eq!([0, 1, 2].map(|vcpu| of(ThreadRole::Vcpu(vcpu))), [[4], [5], [4]]);
        assert_eq!([0, 1].map(|queue| of(ThreadRole::Vhost(queue))), [[6], [6]]);
        assert_eq!(of(ThreadRole::Io), [0, 1]);
        let none = GuestPins::default();
        assert!(
            [ThreadRole::Vcpu(1), ThreadRole::Io, ThreadRole::Vhost(1)].map(|role| none.of_role(role).len()) == [0; 3]
        );
        assert_eq!(pins.to_string(), ", vcpus on cpus 4,5, QEMU's threads on cpus 0,1, vhost on cpus 6");
        assert!(none.is_empty() && none.to_string().is_empty());
    }

    #[test]
    fn allowed_cpus_are_read_back() {
        let guest: Name = "web".parse().expect("a name");
        let allowed = sched_getaffinity(None).expect("ours");
        let first = (0..).find(|cpu| allowed.is_set(*cpu as usize)).expect("we run somewhere");
        let children = [(); 3].map(|()| std::process::Command::new("sleep").arg("60").spawn().expect("a child"));
        let [main, vcpu, vhost] = [0, 1, 2].map(|child| children[child].id());
        let vcpus = vec![Vcpu { index: 0, thread: vcpu }];
        let threads = Threads { main, vcpus, vhost: vec![vhost], ..Threads::default() };
        let pins = GuestPins { io_cpus: vec![first], vhost_cpus: vec![first], ..GuestPins::default() };
        threads.pin(&guest, &pins).expect("a CPU that is ours");
        let places: BTreeMap<_, _> = threads.places().into_iter().map(|place| (place.role, place.cpus)).collect();
        assert_eq!((&places[&ThreadRole::Io][..], &places[&ThreadRole::Vhost(0)][..]), (&[first][..], &[first][..]));
        assert_eq!(places[&ThreadRole::Vcpu(0)].len() as u32, allowed.count());
        for mut child in children {
            child.kill().and_then(|()| child.wait()).expect("our own child");
        }
    }

    #[test]
    fn own_threads_have_names() {
        let tasks = tasks(std::process::id()).expect("this process");
        assert!(tasks.contains_key(&std::process::id()) && tasks.values().all(|name| !name.is_empty()), "{tasks:?}");
    }
}
