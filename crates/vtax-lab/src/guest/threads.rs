//! The host's threads that a guest is made of: who runs its instructions and who moves its
//! packets, to be pinned and to be accounted for.

use std::{collections::BTreeMap, fs, io};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use vtax_model::topology::Name;
use vtax_sys::{SysError, process::ProcessId};

use super::{
    error::GuestError,
    qmp::{Monitor, Vcpu},
};

/// Threads by what they do. All numbers are those of `/proc`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Threads {
    /// QEMU's main loop. It serves virtio-net without vhost, and all emulated NICs.
    pub main: u32,
    /// The virtual CPUs, by their numbers in the guest.
    pub vcpus: Vec<Vcpu>,
    /// Threads for input and output beside the main one.
    pub io: Vec<u32>,
    /// vhost's workers. Since Linux 6.4 they are threads of QEMU, before kernel threads.
    pub vhost: Vec<u32>,
    /// The rest: workers for blocking calls, RCU.
    pub others: Vec<u32>,
}

impl Threads {
    /// The threads of a guest now. Those of vhost are there once the guest's driver is.
    ///
    /// # Errors
    /// The monitor doesn't answer, or QEMU is gone.
    pub fn of(guest: &Name, process: ProcessId, monitor: &mut Monitor) -> Result<Threads, GuestError> {
        let mut vcpus = monitor.vcpus()?;
        vcpus.sort_by_key(|vcpu| vcpu.index);
        let io = monitor.io_threads()?.into_iter().map(|thread| thread.thread).collect();
        let tasks = tasks(process.pid.0).map_err(GuestError::process(guest))?;
        let mut threads = classify(process.pid.0, vcpus, io, &tasks);
        if threads.vhost.is_empty() {
            threads.vhost = kernel_threads(&vhost_name(process.pid.0));
        }
        Ok(threads)
    }

    /// The threads of a guest now, by the names that QEMU gives them, without asking its monitor:
    /// it can be read while a sample is taken. A thread for input and output is among the others.
    ///
    /// # Errors
    /// QEMU is gone.
    pub fn by_name(guest: &Name, process: ProcessId) -> Result<Threads, GuestError> {
        let tasks = tasks(process.pid.0).map_err(GuestError::process(guest))?;
        let vcpus = tasks.iter().filter_map(|(tid, name)| Some(Vcpu { index: vcpu(name)?, thread: *tid })).collect();
        let mut threads = classify(process.pid.0, vcpus, Vec::new(), &tasks);
        if threads.vhost.is_empty() {
            threads.vhost = kernel_threads(&vhost_name(process.pid.0));
        }
        Ok(threads)
    }

    /// All of them.
    pub fn all(&self) -> Vec<u32> {
        let vcpus = self.vcpus.iter().map(|vcpu| vcpu.thread);
        let rest = self.io.iter().chain(&self.vhost).chain(&self.others).copied();
        std::iter::once(self.main).chain(vcpus).chain(rest).collect()
    }

    /// Pins each virtual CPU to a CPU of its own, the first to the first; if there are fewer
    /// CPUs than virtual ones, it starts again with the first.
    ///
    /// # Errors
    /// A CPU is not to be had.
    pub fn pin_vcpus(&self, guest: &Name, cpus: &[u32]) -> Result<(), GuestError> {
        for (vcpu, cpu) in self.vcpus.iter().zip(cpus.iter().cycle()) {
            pin(guest, &format!("vCPU {}", vcpu.index), vcpu.thread, &[*cpu])?;
        }
        Ok(())
    }

    /// Lets what moves packets on the host run on these CPUs only: the main loop, the I/O
    /// threads and vhost's.
    ///
    /// # Errors
    /// A CPU is not to be had.
    pub fn pin_service(&self, guest: &Name, cpus: &[u32]) -> Result<(), GuestError> {
        pin(guest, "QEMU's main loop", self.main, cpus)?;
        for thread in self.io.iter() {
            pin(guest, "I/O thread", *thread, cpus)?;
        }
        for thread in self.vhost.iter() {
            pin(guest, "vhost", *thread, cpus)?;
        }
        Ok(())
    }
}

/// Each thread of a process with its name.
fn tasks(pid: u32) -> Result<BTreeMap<u32, String>, SysError> {
    let folder = format!("/proc/{pid}/task");
    let fail = |errno: io::Error| SysError::Os { operation: "list", object: folder.clone(), errno, remedy: None };
    let mut tasks = BTreeMap::new();
    for entry in fs::read_dir(&folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        // One that has ended since has no name.
        if let (Some(tid), Ok(name)) = (number(&entry), fs::read_to_string(entry.path().join("comm"))) {
            tasks.insert(tid, name.trim_end().to_owned());
        }
    }
    Ok(tasks)
}

fn number(entry: &fs::DirEntry) -> Option<u32> {
    entry.file_name().to_str()?.parse().ok()
}

fn classify(main: u32, vcpus: Vec<Vcpu>, io: Vec<u32>, tasks: &BTreeMap<u32, String>) -> Threads {
    let mut threads = Threads { main, vcpus, io, ..Threads::default() };
    for (tid, name) in tasks {
        let known = *tid == main || threads.io.contains(tid) || threads.vcpus.iter().any(|vcpu| vcpu.thread == *tid);
        if *name == vhost_name(main) {
            threads.vhost.push(*tid);
        } else if !known {
            threads.others.push(*tid);
        }
    }
    threads
}

/// As the kernel names them: after the process that owns the device (`vhost_worker_create`).
fn vhost_name(pid: u32) -> String {
    format!("vhost-{pid}")
}

/// The number of the virtual CPU that a thread of this name is: `CPU 0/KVM`, with `debug-threads=on`
/// (QEMU's `kvm_start_vcpu_thread`, `mttcg_start_vcpu_thread`).
fn vcpu(name: &str) -> Option<u32> {
    name.strip_prefix("CPU ")?.split('/').next()?.parse().ok()
}

/// Kernel threads are processes of their own, without a command line.
fn kernel_threads(name: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| Some((number(&entry)?, entry.path())));
    let named =
        processes.filter(|(_, path)| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end() == name));
    named
        .filter(|(_, path)| fs::read(path.join("cmdline")).is_ok_and(|line| line.is_empty()))
        .map(|(pid, _)| pid)
        .collect()
}

/// Pins one thread, and reads its mask back: the kernel silently leaves out CPUs that are
/// offline or outside the cpuset.
///
/// # Errors
/// A CPU is not to be had, or the thread is gone.
pub fn pin(guest: &Name, thread: &str, tid: u32, cpus: &[u32]) -> Result<(), GuestError> {
    pinned(tid, cpus).map_err(|error| GuestError::Pin {
        guest: guest.clone(),
        thread: thread.to_owned(),
        cpus: cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
        error,
    })
}

fn pinned(tid: u32, cpus: &[u32]) -> io::Result<()> {
    let invalid = || io::Error::from(rustix::io::Errno::INVAL);
    let tid = i32::try_from(tid).ok().and_then(rustix::process::Pid::from_raw).ok_or_else(invalid)?;
    let mut wanted = CpuSet::new();
    for cpu in cpus {
        let cpu = usize::try_from(*cpu).ok().filter(|cpu| *cpu < CpuSet::MAX_CPU).ok_or_else(invalid)?;
        wanted.set(cpu);
    }
    sched_setaffinity(Some(tid), &wanted)?;
    if sched_getaffinity(Some(tid))? == wanted { Ok(()) } else { Err(invalid()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_told_apart_by_monitor_and_name() {
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
        let threads = classify(100, vec![Vcpu { index: 0, thread: 103 }], vec![105], &tasks);
        assert_eq!((threads.main, &threads.vhost[..], &threads.others[..]), (100, &[104][..], &[101, 106, 107][..]));
        assert_eq!(threads.all(), [100, 103, 105, 104, 101, 106, 107]);
    }

    #[test]
    fn virtual_cpus_are_known_by_name() {
        assert_eq!(
            ["CPU 0/KVM", "CPU 12/TCG", "IO io0", "CPU", "CPU x/KVM"].map(vcpu),
            [Some(0), Some(12), None, None, None]
        );
        let guest: Name = "web".parse().expect("a name");
        let own = ProcessId::of(vtax_sys::process::Pid::own()).expect("this process");
        let threads = Threads::by_name(&guest, own).expect("this process");
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
    fn own_threads_have_names() {
        let tasks = tasks(std::process::id()).expect("this process");
        assert!(tasks.contains_key(&std::process::id()) && tasks.values().all(|name| !name.is_empty()), "{tasks:?}");
    }
}
