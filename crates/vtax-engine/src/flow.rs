//! One thread per flow: pinned, started together, its costs read at the edges of the window.

use std::{
    ops::ControlFlow,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, ScopedJoinHandle},
    time::Duration,
};

use vtax_model::{
    histogram::Histogram,
    measurement::{EndReport, FileReport, MachineCpu, ThreadCpu},
    workload::Transport,
};
use vtax_sys::{
    clock::now_ns,
    cpu::{CpuTimes, MachineTimes, machine_times, online_cpus, pin_current_thread, thread_times},
    sock::tcp_info,
};

use crate::{
    error::{EngineError, compare_checksums},
    transport::Flow,
};

/// Runs `work` on a thread per flow and joins what they report.
///
/// No thread begins before all of them run. The first error ends the other flows and is returned.
pub(crate) fn run<W>(flows: &[Flow], cpus: &[u32], work: W) -> Result<EndReport, EngineError>
where
    W: Fn(&Flow, &Meter<'_>) -> Result<EndReport, EngineError> + Sync,
{
    let crew = Crew { flows, cpus, work, gate: Gate::default(), failure: Mutex::new(None) };
    let reports = thread::scope(|scope| {
        let threads = crew.flows.iter().map(|flow| spawn(scope, &crew, flow)).collect::<Result<Vec<_>, _>>();
        match &threads {
            Ok(threads) => crew.gate.open_when(threads.len()),
            Err(_) => crew.gate.abandon(),
        }
        threads.map(|threads| threads.into_iter().filter_map(join).collect::<Vec<_>>())
    });
    let failure = crew.failure.into_inner().unwrap_or_else(PoisonError::into_inner);
    failure.map_or_else(|| merge(reports?), Err)
}

struct Crew<'a, W> {
    flows: &'a [Flow],
    cpus: &'a [u32],
    work: W,
    gate: Gate,
    failure: Mutex<Option<EngineError>>,
}

fn spawn<'scope, W>(
    scope: &'scope thread::Scope<'scope, '_>,
    crew: &'scope Crew<'_, W>,
    flow: &'scope Flow,
) -> Result<ScopedJoinHandle<'scope, Option<EndReport>>, EngineError>
where
    W: Fn(&Flow, &Meter<'_>) -> Result<EndReport, EngineError> + Sync,
{
    thread::Builder::new()
        .name(format!("flow-{}", flow.index))
        .spawn_scoped(scope, move || crew.run(flow))
        .map_err(|source| EngineError::Thread { flow: flow.index, source })
}

fn join(thread: ScopedJoinHandle<'_, Option<EndReport>>) -> Option<EndReport> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl<W> Crew<'_, W>
where
    W: Fn(&Flow, &Meter<'_>) -> Result<EndReport, EngineError> + Sync,
{
    fn run(&self, flow: &Flow) -> Option<EndReport> {
        let cpu = (!self.cpus.is_empty()).then(|| self.cpus[flow.index as usize % self.cpus.len()]);
        let pinned = cpu.map_or(Ok(()), |cpu| pin_current_thread(&[cpu]));
        if !self.gate.pass() {
            return None;
        }
        let report = pinned.map_err(EngineError::from).and_then(|()| (self.work)(flow, &Meter { flow, cpu }));
        report.map_err(|error| self.fail(error)).ok()
    }

    /// Keeps the first error: those after it are its consequences.
    fn fail(&self, error: EngineError) {
        lock(&self.failure).get_or_insert(error);
        self.flows.iter().for_each(Flow::stop);
    }
}

/// Holds the threads back until all are there. Unlike a barrier it can be abandoned when one of
/// them could not be made.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    arrived: usize,
    opened: Option<bool>,
}

impl Gate {
    /// False if the work was abandoned.
    fn pass(&self) -> bool {
        let mut state = lock(&self.state);
        state.arrived += 1;
        self.changed.notify_all();
        loop {
            match state.opened {
                Some(opened) => return opened,
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn open_when(&self, arrived: usize) {
        let mut state = lock(&self.state);
        while state.arrived < arrived {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.opened = Some(true);
        self.changed.notify_all();
    }

    fn abandon(&self) {
        lock(&self.state).opened = Some(false);
        self.changed.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads what a flow costs: CPU of its thread, of the machine (flow 0 only, lest it be counted
/// once per flow), and retransmitted segments.
pub(crate) struct Meter<'a> {
    flow: &'a Flow,
    cpu: Option<u32>,
}

/// The counters at one edge of the window.
pub(crate) struct Reading {
    thread: CpuTimes,
    machine: Option<MachineTimes>,
    retransmits: u32,
}

impl Meter<'_> {
    /// Takes some microseconds: call it outside of what is timed by transaction. To be called on
    /// the flow's own thread.
    pub(crate) fn read(&self) -> Result<Reading, EngineError> {
        let retransmits = match self.flow.transport {
            Transport::Tcp => tcp_info(&*self.flow.socket)?.retransmits,
            Transport::Udp => 0,
        };
        let machine = if self.flow.index == 0 { Some(machine_times()?) } else { None };
        Ok(Reading { thread: thread_times(), machine, retransmits })
    }

    /// A report of the costs between two readings, its counts still zero.
    pub(crate) fn between(&self, opened: &Reading, closed: &Reading) -> Result<EndReport, EngineError> {
        let thread = closed.thread.since(opened.thread);
        let machine = match (opened.machine, closed.machine) {
            (Some(opened), Some(closed)) => machine_cpu(closed.since(opened))?,
            _ => MachineCpu::default(),
        };
        Ok(EndReport {
            retransmits: u64::from(closed.retransmits.wrapping_sub(opened.retransmits)),
            threads: vec![ThreadCpu {
                user: thread.user.as_secs_f64(),
                system: thread.system.as_secs_f64(),
                cpu: self.cpu,
            }],
            machine,
            ..EndReport::default()
        })
    }
}

fn machine_cpu(times: MachineTimes) -> Result<MachineCpu, EngineError> {
    let cpus = online_cpus()?.iter().count();
    Ok(MachineCpu {
        cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
        user: (times.user + times.nice).as_secs_f64(),
        system: times.system.as_secs_f64(),
        irq: times.irq.as_secs_f64(),
        softirq: times.softirq.as_secs_f64(),
        steal: times.steal.as_secs_f64(),
        guest: (times.guest + times.guest_nice).as_secs_f64(),
        idle: (times.idle + times.iowait).as_secs_f64(),
    })
}

/// A moment `span` after `now`, in the nanoseconds of [`now_ns`].
pub(crate) fn after(now: u64, span: Duration) -> u64 {
    now.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

/// Seconds from `start` to `end`.
pub(crate) fn seconds(start: u64, end: u64) -> f64 {
    Duration::from_nanos(end - start).as_secs_f64()
}

/// Runs `step` until `span` has passed since `start`, or until it breaks off; returns when its
/// last step ended.
#[inline]
pub(crate) fn until<E>(
    start: u64,
    span: Duration,
    mut step: impl FnMut() -> Result<ControlFlow<()>, E>,
) -> Result<u64, E> {
    let end = after(start, span);
    let mut now = now_ns();
    while now < end && step()?.is_continue() {
        now = now_ns();
    }
    Ok(now)
}

/// Joins the flows of one end: counts and CPU times add up, the time is the longest.
fn merge(reports: Vec<EndReport>) -> Result<EndReport, EngineError> {
    reports.into_iter().try_fold(EndReport::default(), add)
}

fn add(mut sum: EndReport, flow: EndReport) -> Result<EndReport, EngineError> {
    sum.seconds = sum.seconds.max(flow.seconds);
    sum.transactions += flow.transactions;
    sum.bytes += flow.bytes;
    sum.rtt = merge_rtt(sum.rtt, flow.rtt);
    sum.lost = sum.lost.saturating_add(flow.lost);
    sum.reordered += flow.reordered;
    sum.retransmits += flow.retransmits;
    sum.threads.extend(flow.threads);
    if flow.machine.cpus > 0 {
        sum.machine = flow.machine;
    }
    sum.file = merge_file(sum.file, flow.file)?;
    Ok(sum)
}

fn merge_rtt(sum: Option<Histogram>, flow: Option<Histogram>) -> Option<Histogram> {
    match (sum, flow) {
        (Some(mut sum), Some(flow)) => {
            sum.merge(&flow);
            Some(sum)
        }
        (sum, flow) => sum.or(flow),
    }
}

/// Every flow carries the same file, so their checksums are the same too.
fn merge_file(sum: Option<FileReport>, flow: Option<FileReport>) -> Result<Option<FileReport>, EngineError> {
    let (Some(sum), Some(flow)) = (sum, flow) else { return Ok(sum.or(flow)) };
    compare_checksums(sum.checksum, flow.checksum)?;
    Ok(Some(FileReport {
        real: sum.real.max(flow.real),
        user: sum.user + flow.user,
        sys: sum.sys + flow.sys,
        checksum: sum.checksum,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(seconds: f64, rtt: &[u64]) -> EndReport {
        let mut histogram = Histogram::new();
        rtt.iter().for_each(|ns| histogram.record(*ns));
        let transactions = rtt.len() as u64;
        EndReport {
            seconds,
            transactions,
            rtt: Some(histogram),
            threads: vec![ThreadCpu::default()],
            ..EndReport::default()
        }
    }

    #[test]
    fn flows_add_up() {
        let machine = MachineCpu { cpus: 2, idle: 1.0, ..MachineCpu::default() };
        let first = EndReport { machine, ..report(1.0, &[10, 20]) };
        let sum = merge(vec![first, report(1.5, &[30])]).unwrap();
        assert_eq!((sum.seconds, sum.transactions, sum.threads.len()), (1.5, 3, 2));
        assert_eq!(sum.rtt.map(|rtt| (rtt.count(), rtt.max())), Some((3, 30)));
        assert_eq!(sum.machine, machine);
    }

    #[test]
    fn flows_that_carried_different_files_are_an_error() {
        let with = |checksum| EndReport {
            file: Some(FileReport { checksum, ..FileReport::default() }),
            ..EndReport::default()
        };
        assert!(merge(vec![with(1), with(1)]).is_ok());
        assert!(matches!(merge(vec![with(1), with(2)]), Err(EngineError::ChecksumMismatch { sent: 1, received: 2 })));
    }

    #[test]
    fn an_abandoned_gate_lets_nobody_through() {
        let gate = Gate::default();
        thread::scope(|scope| {
            let held = scope.spawn(|| gate.pass());
            gate.abandon();
            assert!(!held.join().unwrap());
        });
    }

    #[test]
    fn a_gate_opens_when_all_are_there() {
        let gate = Gate::default();
        thread::scope(|scope| {
            let held = [scope.spawn(|| gate.pass()), scope.spawn(|| gate.pass())];
            gate.open_when(2);
            assert!(held.into_iter().all(|thread| thread.join().unwrap()));
        });
    }
}
