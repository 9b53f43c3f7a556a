//! CPU time that the host spends during a sample on a row's guests, and on programs that carry the traffic of its
//! zones.
//!
//! A thread reads the times of QEMU's threads and of the machine shortly after the start and shortly before the end of
//! the measured time. It sleeps in between, so that its own cost is not in the figures. For a program that doesn't
//! report when it measures (fio), the thread takes several readings; only those count that were certainly taken within
//! the measured time.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use vtax_guest::{
    guest_threads::{GuestThreadRole, guest_threads},
    launch::Launch,
    vdisk::DiskLaunch,
};
use vtax_lab::RelayProcess;
use vtax_model::{
    guest::Accelerator,
    run::{ClockReading, GuestCpu, HostCpu, RelayCpu},
    workload::{TestSpec, Warmup},
};
use vtax_sys::{
    clock::now_ns,
    cpu::{MachineTimes, TaskTimes, interrupts, kvm_exits, machine_times, process_time, task_times},
    process::ProcessId,
};
use vtax_wire::measure::{AgentPair, MeasureError, ParallelReports, measure_watched};

use super::{
    agent::ANSWER,
    attachment::GuestProcess,
    end::{ConnectedEnd, ConnectedRow},
};
use crate::threads::start_in;

/// Distance of the readings from both ends of the measured time, because orders take a moment to arrive.
const INSET: Duration = Duration::from_millis(20);

pub(in crate::study) struct Observed {
    qemu: GuestProcess,
    /// True if it contains no endpoint, but serves a switch.
    serves: bool,
    clock: Option<ClockReading>,
    disks: Option<ServedDisks>,
}

/// Processes of this machine that serve a row, in addition to its agents.
#[derive(Default)]
pub(in crate::study) struct ObservedRow {
    guests: Vec<Observed>,
    /// Programs that carry the traffic of its zones.
    relays: Vec<RelayProcess>,
}

impl ObservedRow {
    /// Returns a row with this guest, or without guests.
    pub(in crate::study) fn of_guest(guest: Option<Observed>) -> ObservedRow {
        ObservedRow { guests: guest.into_iter().collect(), relays: Vec::new() }
    }

    fn is_empty(&self) -> bool {
        self.guests.is_empty() && self.relays.is_empty()
    }
}

/// Disks of a guest that a row measures.
#[derive(Debug, Clone)]
pub(in crate::study) struct ServedDisks {
    qemu: GuestProcess,
    /// Launch configuration with only these disks.
    launch: Launch,
}

impl ServedDisks {
    /// Returns these disks of the guest whose QEMU is this process.
    pub(in crate::study) fn of(process: ProcessId, launch: &Launch, disks: Vec<DiskLaunch>) -> ServedDisks {
        let qemu = GuestProcess { name: launch.name.to_string(), process, accel: launch.accel };
        let mut launch = launch.clone();
        launch.disks.disks = disks;
        ServedDisks { qemu, launch }
    }
}

impl Observed {
    /// Returns a guest whose disks are measured.
    pub(in crate::study) fn of_disks(disks: &ServedDisks) -> Observed {
        Observed { qemu: disks.qemu.clone(), serves: false, clock: None, disks: Some(disks.clone()) }
    }
}

/// Returns what can be observed of a row: the guests with its endpoints and those that serve the switches between them,
/// each once, and the programs that carry traffic.
pub(super) fn observed(connected: &ConnectedRow) -> ObservedRow {
    let mut observed: Vec<Observed> = Vec::new();
    let guests = connected.ends().filter_map(|end| Some((end.qemu()?, Some(end))));
    let servers = connected.ends().filter_map(|end| Some((end.attachment.switched()?.server()?, None)));
    for (qemu, end) in guests.chain(servers) {
        if !observed.iter().any(|known| known.qemu.process == qemu.process) {
            observed.push(Observed { qemu, serves: end.is_none(), clock: end.and_then(clock), disks: None });
        }
    }
    ObservedRow { guests: observed, relays: connected.ends().flat_map(|end| end.attachment.relays()).collect() }
}

/// Compares the clock of the endpoint's machine with ours, before the sample, because it takes several exchanges.
fn clock(end: &ConnectedEnd) -> Option<ClockReading> {
    let offset = end.agent.link.clock_offset(ANSWER).ok()?;
    let at_ns = now_ns();
    let ahead = i128::from(offset.theirs(at_ns)) - i128::from(at_ns);
    let uncertainty = offset.uncertainty().as_nanos();
    Some(ClockReading { at_ns, ahead_ns: i64::try_from(ahead).ok()?, uncertainty_ns: u64::try_from(uncertainty).ok()? })
}

/// Takes a sample, and measures the cost of its guests and relays at the same time.
pub(super) fn measure(
    pairs: &[AgentPair<'_>],
    spec: &TestSpec,
    row: &ObservedRow,
) -> Result<(ParallelReports, Option<HostCpu>), MeasureError> {
    if row.is_empty() {
        return Ok((measure_watched(pairs, |_| ())?, None));
    }
    thread::scope(|scope| {
        let (tell, told) = channel();
        // If the thread cannot be started, the sample has no cost of guests.
        let watcher = start_in(scope, "watcher", || watch(row, spec, told)).ok();
        // If the watcher has failed, nothing receives this.
        let taken = measure_watched(pairs, |start| {
            let _ = tell.send(start);
        });
        // The sample is over, whatever its outcome.
        drop(tell);
        let seen = watcher.and_then(|watcher| watcher.join().expect("the watcher of guests doesn't panic"));
        Ok((taken?, seen))
    })
}

/// Times of a program that warms up, measures and ends without reporting when.
#[derive(Debug, Clone, Copy)]
pub(in crate::study) struct UntoldTimes {
    pub(in crate::study) warmup: Duration,
    pub(in crate::study) measured: Duration,
}

/// Runs such a program, and measures the cost of the guests at the same time. The cost is None without times, or if the
/// program took so long to start and end that too little of the measured time is certain.
pub(in crate::study) fn observing<T>(
    row: &ObservedRow,
    times: Option<UntoldTimes>,
    run: impl FnOnce() -> T,
) -> (T, Option<HostCpu>) {
    let Some(times) = times else { return (run(), None) };
    thread::scope(|scope| {
        let (end, ended) = channel::<()>();
        let begun = Instant::now();
        let watcher = start_in(scope, "watcher", move || times.glances(begun, &ended, || Reading::of(row))).ok();
        let ran = run();
        let over = Instant::now();
        drop(end);
        let readings = watcher.and_then(|watcher| watcher.join().expect("the watcher of guests doesn't panic"));
        let readings = readings.unwrap_or_default();
        let cost = times.surely(begun, over, &readings).and_then(|[first, last]| last.since(first, row, false));
        (ran, cost)
    })
}

impl UntoldTimes {
    /// Approximate maximum of the number of readings, each of which uses some of the CPU time that is measured.
    const GLANCES: u32 = 20;
    /// Minimum interval between readings.
    const PAUSE: Duration = Duration::from_millis(20);
    /// Minimum part of the measured time between the first and the last reading.
    const ENOUGH: f64 = 0.25;

    /// Takes readings at intervals from the end of the warm-up to the end of the measured time, as if the program
    /// started immediately.
    fn glances<R>(self, begun: Instant, ended: &Receiver<()>, read: impl Fn() -> Option<R>) -> Option<Vec<R>> {
        let until = begun + self.warmup + self.measured;
        let pause = (self.measured / UntoldTimes::GLANCES).max(UntoldTimes::PAUSE);
        let (mut at, mut readings) = (begun + self.warmup, Vec::new());
        loop {
            match ended.recv_timeout(at.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => readings.push(read()?),
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return Some(readings),
            }
            if at >= until {
                return Some(readings);
            }
            at = (at + pause).min(until);
        }
    }

    /// Returns the first and the last reading that were certainly taken in the measured time. It began at `over -
    /// measured` at the latest, and ended at `begun + warmup + measured` at the earliest, however long the program took
    /// to start and to end.
    fn surely(self, begun: Instant, over: Instant, readings: &[Reading]) -> Option<[&Reading; 2]> {
        let from = over.checked_sub(self.measured)?;
        let until = begun + self.warmup + self.measured + UntoldTimes::PAUSE / 4;
        let mut sure = readings.iter().filter(|reading| (from..=until).contains(&reading.at));
        let first = sure.next()?;
        let last = sure.next_back()?;
        let enough = self.measured.mul_f64(UntoldTimes::ENOUGH);
        (last.at.saturating_duration_since(first.at) >= enough).then_some([first, last])
    }
}

/// Returns the cost of the row. None if the sample or a guest ended early.
fn watch(row: &ObservedRow, spec: &TestSpec, told: Receiver<Instant>) -> Option<HostCpu> {
    let start = told.recv().ok()?;
    let window = window(spec);
    if let Some((from, until)) = window {
        sleep(&told, start + from)?;
        let before = Reading::of(row)?;
        sleep(&told, start + until)?;
        return Reading::of(row)?.since(&before, row, false);
    }
    let before = Reading::of(row)?;
    // Waits for the end of the sample.
    let _ = told.recv();
    Reading::of(row)?.since(&before, row, true)
}

/// Sleeps until this time. None if the sample ends earlier.
fn sleep(told: &Receiver<Instant>, until: Instant) -> Option<()> {
    match told.recv_timeout(until.saturating_duration_since(Instant::now())) {
        Err(RecvTimeoutError::Timeout) => Some(()),
        Ok(_) | Err(RecvTimeoutError::Disconnected) => None,
    }
}

/// Returns a span certainly within the measured time, relative to the start. None for a file, or for a warm-up until a
/// steady state, whose times aren't known.
fn window(spec: &TestSpec) -> Option<(Duration, Duration)> {
    let Warmup::For(warmup) = spec.warmup else { return None };
    let inset = INSET.min(spec.duration.0 / 10);
    let known = !spec.workload.kind().is_file();
    known.then(|| (warmup.0 + inset, warmup.0 + spec.duration.0 - inset))
}

struct Reading {
    at: Instant,
    machine: MachineTimes,
    interrupts: u64,
    guests: Vec<GuestReading>,
    relays: Vec<Duration>,
}

/// Times of one guest's threads, by TID.
#[derive(Default)]
struct GuestReading {
    threads: BTreeMap<u32, (GuestThreadRole, TaskTimes)>,
    exits: Option<u64>,
}

impl Reading {
    fn of(row: &ObservedRow) -> Option<Reading> {
        let (at, machine, interrupts) = (Instant::now(), machine_times().ok()?, interrupts().ok()?);
        let guests = row.guests.iter().map(GuestReading::read).collect::<Option<_>>()?;
        let relays = row.relays.iter().map(|relay| process_time(relay.process.pid.0).ok()).collect::<Option<_>>()?;
        Some(Reading { at, machine, interrupts, guests, relays })
    }

    /// None if no time has passed.
    fn since(&self, before: &Reading, row: &ObservedRow, whole_sample: bool) -> Option<HostCpu> {
        let machine = self.machine.since(before.machine);
        let seconds = self.at.saturating_duration_since(before.at).as_secs_f64();
        let spans = row.guests.iter().zip(&self.guests).zip(&before.guests);
        let relays = row.relays.iter().zip(&self.relays).zip(&before.relays);
        let relay = |((relay, after), before): ((&RelayProcess, &Duration), &Duration)| RelayCpu {
            program: relay.program.clone().into(),
            pid: relay.process.pid.0,
            busy: after.saturating_sub(*before).as_secs_f64(),
        };
        (seconds > 0.0).then(|| HostCpu {
            seconds,
            whole_sample,
            softirq: machine.softirq.as_secs_f64(),
            irq: machine.irq.as_secs_f64(),
            all_guests: (machine.guest + machine.guest_nice).as_secs_f64(),
            interrupts: self.interrupts.saturating_sub(before.interrupts),
            guests: spans.map(|((guest, after), before)| after.since(before, guest)).collect(),
            relays: relays.map(relay).collect(),
        })
    }
}

impl GuestReading {
    /// None if QEMU has exited.
    fn read(guest: &Observed) -> Option<GuestReading> {
        let launch = guest.disks.as_ref().map(|disks| &disks.launch);
        let all = guest_threads(guest.qemu.process, launch).ok()?.into_iter();
        // A worker thread may have ended since.
        let threads = all.filter_map(|(thread, role)| Some((thread, (role, task_times(thread).ok()?)))).collect();
        Some(GuestReading { threads, exits: kvm_exits(guest.qemu.process.pid.0) })
    }

    /// The time of a thread that ended within the span is lost, but threads of vCPUs and vhost don't end before the
    /// guest.
    fn since(&self, before: &GuestReading, guest: &Observed) -> GuestCpu {
        let (mut inside, mut vhost, mut iothread, mut daemon, mut qemu, mut kernel) = Default::default();
        for (thread, (role, times)) in &self.threads {
            let span = before.threads.get(thread).map_or(*times, |(_, earlier)| times.since(*earlier));
            let busy: f64 = span.busy().as_secs_f64();
            if (role, guest.qemu.accel) != (&GuestThreadRole::Vcpu, Accelerator::Tcg) {
                kernel += span.system.as_secs_f64();
            }
            match (role, guest.qemu.accel) {
                (GuestThreadRole::Vcpu, Accelerator::Tcg) => inside += busy,
                (GuestThreadRole::Vcpu, Accelerator::Kvm) => {
                    // The guest time is counted in ticks, so it may exceed the thread's time.
                    let own = span.guest.as_secs_f64().min(busy);
                    (inside, qemu) = (inside + own, qemu + busy - own);
                }
                (GuestThreadRole::Vhost, _) => vhost += busy,
                (GuestThreadRole::Iothread, _) => iothread += busy,
                (GuestThreadRole::Daemon, _) => daemon += busy,
                (GuestThreadRole::Qemu, _) => qemu += busy,
            }
        }
        GuestCpu {
            name: guest.qemu.name.clone().into(),
            pid: guest.qemu.process.pid.0,
            serves: guest.serves,
            accel: guest.qemu.accel,
            guest: inside,
            vhost,
            iothread,
            daemon,
            qemu,
            kernel: Some(kernel),
            exits: self.exits.zip(before.exits).map(|(now, then)| now.saturating_sub(then)),
            clock: guest.clock,
        }
    }
}
