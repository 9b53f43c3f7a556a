//! Confinement of an I/O domain to whole cores, to measure how much they carry.
//!
//! The I/O side's threads get the cores; the guests' virtual CPUs and this process, which starts the load, get the
//! others. The I/O side is confined by a cpuset, which also holds threads that it starts in the meantime, or by
//! affinities where cpusets are unavailable. All of it is one batch of the tuning journal: whatever dies, the guard or
//! the next vtax restores it.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use vtax_change::{Change, ChangeError, ChangeJournal, ChangeJournalError, CpusetHierarchy, HostAccess};
use vtax_guest::threads::Threads;
use vtax_host::{
    inspect::{HostGuest, SystemRoot, guests},
    pin::WholeCores,
};
use vtax_journal::BatchId;
use vtax_model::cpus::CpuSet;
use vtax_sys::{
    cpu,
    process::{Pid, ProcessId},
};
use vtax_tune::{RecoveredBatch, RevertReport};

use super::told;
use crate::stop::{Blamed, Stop};

/// Threads of an I/O domain, and those of the guests that must not disturb it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IoThreads {
    /// Threads that do the domain's work.
    pub inside: Vec<HostTask>,
    /// The guests' virtual CPUs; for a domain, all threads of other guests.
    pub outside: Vec<HostTask>,
    /// Number of virtual CPUs of the domain; none for the host.
    pub vcpus: Option<usize>,
    /// Number of guests of other hosts on this machine, which are left alone.
    pub elsewhere: usize,
}

/// Thread of this machine. Before Linux 6.4, a vhost worker is a separate process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostTask {
    pub process: ProcessId,
    pub tid: Pid,
}

/// I/O side that is confined. Dropping it restores everything.
#[derive(Debug)]
pub struct IoConfinement {
    journal: Option<ChangeJournal>,
    batch: Option<BatchId>,
    /// CPUs of this thread before the change.
    own: CpuSet,
    cores: WholeCores,
    /// Reason why affinities are used.
    without_cpuset: Option<&'static str>,
    recovered: Vec<RecoveredBatch>,
}

const NOT_MOUNTED: &str = "this machine has no cpusets (controller not mounted)";
const NOT_ALLOWED: &str = "the guests' control groups cannot have cpusets (controller not enabled there)";

impl IoThreads {
    /// Finds the threads that serve all guests of a host, or those of the guest `domain` on it. The host is the one of the
    /// named guests, and this machine if none is named. Hosts of labs are namespaces of this machine.
    pub fn find(domain: Option<&str>, named: &[String]) -> IoThreads {
        let all = guests(&SystemRoot::live());
        let is_named = |guest: &&HostGuest| named.iter().any(|name| guest.name.raw() == name);
        let own = named.is_empty().then(|| network_of(Pid::own()));
        let hosts: Vec<Option<PathBuf>> =
            all.iter().filter(is_named).map(|guest| network_of(Pid(guest.pid))).chain(own).collect();
        let mut found = IoThreads::default();
        for guest in all {
            if !hosts.contains(&network_of(Pid(guest.pid))) {
                found.elsewhere += 1;
                continue;
            }
            // It may have ended since.
            let Ok(threads) = Threads::by_name(process(&guest)) else { continue };
            found.add(&guest, &threads, domain);
        }
        found
    }

    fn add(&mut self, guest: &HostGuest, threads: &Threads, domain: Option<&str>) {
        let task = |tid: u32| HostTask::of(process(guest), Pid(tid));
        let vcpus = threads.vcpus.iter().map(|vcpu| task(vcpu.thread));
        let others = std::iter::once(&threads.main).chain(&threads.vhost).chain(&threads.others).map(|tid| task(*tid));
        match domain {
            None => {
                self.inside.extend(others.flatten());
                self.outside.extend(vcpus.flatten());
            }
            Some(name) if guest.name.raw() == name => {
                *self.vcpus.get_or_insert(0) += threads.vcpus.len();
                self.inside.extend(vcpus.chain(others).flatten());
            }
            Some(_) => self.outside.extend(vcpus.chain(others).flatten()),
        }
    }

    /// Returns the number of threads of the I/O side that may run on other CPUs.
    pub fn strays(&self, cpus: &CpuSet) -> usize {
        let is_stray = |task: &&HostTask| {
            let allowed = cpu::thread_cpus(task.tid).ok().flatten();
            allowed.is_some_and(|allowed| allowed.iter().any(|cpu| !cpus.contains(cpu)))
        };
        self.inside.iter().filter(is_stray).count()
    }
}

impl HostTask {
    /// None if it has ended.
    fn of(process: ProcessId, tid: Pid) -> Option<HostTask> {
        let is_of_process = Path::new(&format!("/proc/{}/task/{tid}", process.pid)).exists();
        let process = if is_of_process { process } else { ProcessId::of(tid).ok()? };
        Some(HostTask { process, tid })
    }
}

/// Returns the network namespace of a process, as in its link. None if the process has ended.
fn network_of(process: Pid) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{process}/ns/net")).ok()
}

fn process(guest: &HostGuest) -> ProcessId {
    ProcessId { pid: Pid(guest.pid), start_ticks: guest.start_ticks }
}

impl IoConfinement {
    /// Confines these threads to the cores, and all others involved to the remaining CPUs.
    pub fn begin(folder: &Path, threads: &IoThreads, cores: WholeCores) -> Result<IoConfinement, Stop> {
        let own = cpu::allowed_cpus().or_infrastructure()?;
        let (journal, recovered) = told(
            HostAccess::live().map_err(ChangeJournalError::from).and_then(|host| ChangeJournal::start(folder, host)),
        )?;
        let recovered = RecoveredBatch::list(recovered);
        let (journal, batch, without_cpuset) = (Some(journal), None, None);
        let mut confined = IoConfinement { journal, batch, own, cores, without_cpuset, recovered };
        confined.make(threads)?;
        let outside: Vec<u32> = confined.cores.outside.iter().collect();
        cpu::pin_current_thread(&outside).or_infrastructure()?;
        Ok(confined)
    }

    /// Returns the reason why the threads are confined by affinities, unless a cpuset confines them.
    pub fn without_cpuset(&self) -> Option<&'static str> {
        self.without_cpuset
    }

    /// Returns the leftovers of a killed vtax or a reboot that were restored first.
    pub fn recovered(&self) -> &[RecoveredBatch] {
        &self.recovered
    }

    fn make(&mut self, threads: &IoThreads) -> Result<(), Stop> {
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let host = journal.host();
        let (inside, without_cpuset) = told(inside(host, &threads.inside, &self.cores.inside))?;
        let outside = told(outside(host, &threads.outside, &self.cores.outside))?;
        self.without_cpuset = without_cpuset;
        let changes: Vec<Change> =
            inside.into_iter().chain(outside).filter(|change| !change.changes_nothing()).collect();
        if !changes.is_empty() {
            self.batch = Some(told(journal.try_out(changes))?);
        }
        Ok(())
    }

    /// Restores everything. Settings that another program has changed since are reported.
    pub fn end(mut self) -> Result<RevertReport, Stop> {
        self.restore()
    }

    fn restore(&mut self) -> Result<RevertReport, Stop> {
        let Some(mut journal) = self.journal.take() else { return Ok(RevertReport::default()) };
        let own: Vec<u32> = self.own.iter().collect();
        let freed = cpu::pin_current_thread(&own).or_infrastructure();
        let report = self.batch.take().map(|batch| journal.revert(batch)).transpose();
        let report = told(report)?.map(RevertReport::from).unwrap_or_default();
        told(journal.close())?;
        freed.map(|()| report)
    }
}

impl Drop for IoConfinement {
    fn drop(&mut self) {
        // Anything that cannot be restored now is left to the guard, or to the next vtax, which
        // reports it.
        let _ = self.restore();
    }
}

/// Returns the changes that confine threads to these CPUs, and the reason if no cpuset does.
fn inside(
    host: &mut HostAccess,
    tasks: &[HostTask],
    cpus: &CpuSet,
) -> Result<(Vec<Change>, Option<&'static str>), ChangeError> {
    let Some(sets) = CpusetHierarchy::find(host)? else {
        return Ok((affinities(host, tasks, cpus)?, Some(NOT_MOUNTED)));
    };
    let mut groups: BTreeSet<String> = BTreeSet::new();
    for task in tasks {
        groups.extend(sets.group_of(host, task.process, task.tid)?);
    }
    if !groups.iter().all(|group| sets.can_confine(group)) {
        return Ok((affinities(host, tasks, cpus)?, Some(NOT_ALLOWED)));
    }
    let mut changes = Vec::new();
    for group in &groups {
        changes.push(Change::plan_cpuset_group(host, &sets, group, cpus)?);
    }
    for task in tasks {
        changes.extend(there(Change::plan_thread_cpuset(host, &sets, task.process, task.tid, cpus))?);
    }
    Ok((changes, None))
}

fn affinities(host: &mut HostAccess, tasks: &[HostTask], cpus: &CpuSet) -> Result<Vec<Change>, ChangeError> {
    let changes = tasks.iter().map(|task| there(Change::plan_thread(host, task.process, task.tid, cpus)));
    Ok(changes.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
}

/// Threads keep the part of their affinity that is among these CPUs.
fn outside(host: &mut HostAccess, tasks: &[HostTask], cpus: &CpuSet) -> Result<Vec<Change>, ChangeError> {
    let mut changes = Vec::new();
    for task in tasks {
        let allowed = cpu::thread_cpus(task.tid)?.unwrap_or_default();
        let kept: CpuSet = allowed.iter().filter(|cpu| cpus.contains(*cpu)).collect();
        let wanted = if kept.is_empty() { cpus } else { &kept };
        changes.extend(there(Change::plan_thread(host, task.process, task.tid, wanted))?);
    }
    Ok(changes)
}

/// None for a thread that has ended in the meantime.
fn there(change: Result<Change, ChangeError>) -> Result<Option<Change>, ChangeError> {
    match change {
        Err(ChangeError::Missing { .. }) => Ok(None),
        change => change.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use vtax_guest::qmp::Vcpu;

    use super::*;

    /// Threads of this process, which exists.
    fn added(domain: Option<&str>) -> IoThreads {
        let own = ProcessId::of(Pid::own()).expect("this process");
        let guest = |name: &str| HostGuest {
            name: name.into(),
            pid: own.pid.0,
            start_ticks: own.start_ticks,
            vcpus: Vec::new(),
            vhost: Vec::new(),
            nic_queues: Vec::new(),
            links: Vec::new(),
        };
        // A worker that is a separate process: the parent.
        let parent = std::os::unix::process::parent_id();
        let vcpus = vec![Vcpu { index: 0, thread: own.pid.0 }];
        let threads = Threads { main: own.pid.0, vcpus, vhost: vec![parent], others: Vec::new() };
        let mut found = IoThreads::default();
        found.add(&guest("mars"), &threads, domain);
        found.add(&guest("venus"), &Threads { vcpus: Vec::new(), ..threads }, domain);
        found
    }

    #[test]
    fn the_host_serves_and_guests_are_kept_off() {
        let found = added(None);
        assert_eq!((found.inside.len(), found.outside.len(), found.vcpus), (4, 1, None));
        let parent = Pid(std::os::unix::process::parent_id());
        let worker = found.inside.iter().find(|task| task.tid == parent).expect("the worker");
        assert_eq!(worker.process.pid, parent);
    }

    #[test]
    fn a_domain_is_confined_with_its_virtual_cpus() {
        let found = added(Some("mars"));
        assert_eq!((found.inside.len(), found.outside.len(), found.vcpus), (3, 2, Some(1)));
        assert_eq!(added(Some("pluto")).vcpus, None);
    }

    #[test]
    fn threads_that_may_run_elsewhere_are_counted() {
        let own = cpu::allowed_cpus().expect("ours");
        let task = HostTask::of(ProcessId::of(Pid::own()).expect("this process"), Pid::own()).expect("it is there");
        let threads = IoThreads { inside: vec![task], ..IoThreads::default() };
        assert_eq!((threads.strays(&own), threads.strays(&CpuSet::default())), (0, 1));
    }
}
