//! The CPU time that the guests of a row cost their host while a sample is taken.
//!
//! A thread here reads the times of QEMU's threads and of the machine shortly after the begin and shortly before the
//! end of the measured time, and sleeps in between, so that its own cost is not in the figures. Of a program that says only
//! afterwards that it has measured (fio), the thread reads them several times, and those readings count that were surely
//! taken in the measured time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use vtax_agent::measure::{AgentPair, MeasureError, ParallelReports, measure_watched};
use vtax_guest::{disk_threads::DiskThreads, launch::Launch, threads::Threads, vdisk::DiskLaunch};
use vtax_model::{
    guest::Accelerator,
    run::{ClockReading, GuestCpu, HostCpu},
    workload::{TestSpec, Warmup},
};
use vtax_sys::{
    clock::now_ns,
    cpu::{MachineTimes, TaskTimes, interrupts, kvm_exits, machine_times, task_times},
    process::ProcessId,
};

use super::{
    agent::ANSWER,
    attachment::GuestProcess,
    end::{ConnectedEnd, ConnectedRow},
};
use crate::threads::start_in;

/// This long after the begin and before the end of the measured time is read: orders take a moment to arrive.
const INSET: Duration = Duration::from_millis(20);

pub(in crate::study) struct Observed {
    qemu: GuestProcess,
    clock: Option<ClockReading>,
    disks: Option<ServedDisks>,
}

/// The disks of a guest that a row measures.
#[derive(Debug, Clone)]
pub(in crate::study) struct ServedDisks {
    qemu: GuestProcess,
    /// With these disks alone.
    launch: Launch,
}

impl ServedDisks {
    /// Those disks of the guest whose QEMU is this process.
    pub(in crate::study) fn of(process: ProcessId, launch: &Launch, disks: Vec<DiskLaunch>) -> ServedDisks {
        let qemu = GuestProcess { name: launch.name.to_string(), process, accel: launch.accel };
        let mut launch = launch.clone();
        launch.disks.disks = disks;
        ServedDisks { qemu, launch }
    }
}

impl Observed {
    /// A guest whose disks are measured.
    pub(in crate::study) fn of_disks(disks: &ServedDisks) -> Observed {
        Observed { qemu: disks.qemu.clone(), clock: None, disks: Some(disks.clone()) }
    }
}

/// The guests in which the ends of a row are and whose QEMU can be observed, each once.
pub(super) fn observed(connected: &ConnectedRow) -> Vec<Observed> {
    let mut observed: Vec<Observed> = Vec::new();
    for end in connected.ends() {
        let Some(qemu) = end.attachment.qemu() else { continue };
        if !observed.iter().any(|known| known.qemu.process == qemu.process) {
            observed.push(Observed { qemu, clock: clock(end), disks: None });
        }
    }
    observed
}

/// The clock of the end's machine, compared with ours. Read before a sample, for it takes some exchanges.
fn clock(end: &ConnectedEnd) -> Option<ClockReading> {
    let offset = end.agent.link.clock_offset(ANSWER).ok()?;
    let at_ns = now_ns();
    let ahead = i128::from(offset.theirs(at_ns)) - i128::from(at_ns);
    let uncertainty = offset.uncertainty().as_nanos();
    Some(ClockReading { at_ns, ahead_ns: i64::try_from(ahead).ok()?, uncertainty_ns: u64::try_from(uncertainty).ok()? })
}

/// Takes a sample, and reads what its guests cost meanwhile.
pub(super) fn measure(
    pairs: &[AgentPair<'_>],
    spec: &TestSpec,
    guests: &[Observed],
) -> Result<(ParallelReports, Option<HostCpu>), MeasureError> {
    if guests.is_empty() {
        return Ok((measure_watched(pairs, |_| ())?, None));
    }
    thread::scope(|scope| {
        let (tell, told) = channel();
        // Without the thread, the sample is taken without the costs of its guests.
        let watcher = start_in(scope, "watcher", || watch(guests, spec, told)).ok();
        // Nobody listens any more if the watcher has failed.
        let taken = measure_watched(pairs, |start| {
            let _ = tell.send(start);
        });
        // The sample is over, however it went.
        drop(tell);
        let seen = watcher.and_then(|watcher| watcher.join().expect("the watcher of guests doesn't panic"));
        Ok((taken?, seen))
    })
}

/// The times of a program that warms up, measures and ends, and tells of none of that.
#[derive(Debug, Clone, Copy)]
pub(in crate::study) struct UntoldTimes {
    pub(in crate::study) warmup: Duration,
    pub(in crate::study) measured: Duration,
}

/// Runs such a program, and reads what the guests cost meanwhile. None if it has no times, or took so long to start and to end
/// that little of the measured time is known to be that.
pub(in crate::study) fn observing<T>(
    guests: &[Observed],
    times: Option<UntoldTimes>,
    run: impl FnOnce() -> T,
) -> (T, Option<HostCpu>) {
    let Some(times) = times else { return (run(), None) };
    thread::scope(|scope| {
        let (end, ended) = channel::<()>();
        let begun = Instant::now();
        let watcher = start_in(scope, "watcher", move || times.glances(begun, &ended, || Reading::of(guests))).ok();
        let ran = run();
        let over = Instant::now();
        drop(end);
        let readings = watcher.and_then(|watcher| watcher.join().expect("the watcher of guests doesn't panic"));
        let readings = readings.unwrap_or_default();
        let cost = times.surely(begun, over, &readings).and_then(|[first, last]| last.since(first, guests, false));
        (ran, cost)
    })
}

impl UntoldTimes {
    /// So many readings at most: each takes some of the CPU that is measured.
    const GLANCES: u32 = 20;
    /// And no more often than this.
    const PAUSE: Duration = Duration::from_millis(20);
    /// This part of the measured time at least has to be between two readings.
    const ENOUGH: f64 = 0.25;

    /// Readings from when the program can measure at the earliest until when it has at the latest, had it started at once.
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

    /// The first and the last reading that were surely taken in the measured time. It began at the latest as long before the end
    /// as it takes, and it was over at the earliest as long after the begin as the warm-up and it take.
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

/// What the guests cost. None if the sample ended early, or a guest did.
fn watch(guests: &[Observed], spec: &TestSpec, told: Receiver<Instant>) -> Option<HostCpu> {
    let start = told.recv().ok()?;
    let window = window(spec);
    if let Some((from, until)) = window {
        sleep(&told, start + from)?;
        let before = Reading::of(guests)?;
        sleep(&told, start + until)?;
        return Reading::of(guests)?.since(&before, guests, false);
    }
    let before = Reading::of(guests)?;
    // Waits for the end of the sample.
    let _ = told.recv();
    Reading::of(guests)?.since(&before, guests, true)
}

/// Sleeps until then. None if the sample is over before.
fn sleep(told: &Receiver<Instant>, until: Instant) -> Option<()> {
    match told.recv_timeout(until.saturating_duration_since(Instant::now())) {
        Err(RecvTimeoutError::Timeout) => Some(()),
        Ok(_) | Err(RecvTimeoutError::Disconnected) => None,
    }
}

/// A span surely within the measured time. The times of a file and of the way to a steady state aren't known.
fn window(spec: &TestSpec) -> Option<(Duration, Duration)> {
    let Warmup::For(warmup) = spec.warmup else { return None };
    let inset = INSET.min(spec.duration.0 / 10);
    let known = !spec.workload.kind().is_file();
    known.then(|| (warmup.0 + inset, warmup.0 + spec.duration.0 - inset))
}

/// What a thread is to its guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Vcpu,
    Vhost,
    Iothread,
    Daemon,
    Qemu,
}

struct Reading {
    at: Instant,
    machine: MachineTimes,
    interrupts: u64,
    guests: Vec<GuestReading>,
}

/// The times of one guest's threads, by their numbers.
#[derive(Default)]
struct GuestReading {
    threads: BTreeMap<u32, (Role, TaskTimes)>,
    exits: Option<u64>,
}

impl Reading {
    fn of(guests: &[Observed]) -> Option<Reading> {
        let (at, machine, interrupts) = (Instant::now(), machine_times().ok()?, interrupts().ok()?);
        let guests = guests.iter().map(GuestReading::read).collect::<Option<_>>()?;
        Some(Reading { at, machine, interrupts, guests })
    }

    /// None if no time has passed.
    fn since(&self, before: &Reading, guests: &[Observed], whole_sample: bool) -> Option<HostCpu> {
        let machine = self.machine.since(before.machine);
        let seconds = self.at.saturating_duration_since(before.at).as_secs_f64();
        let spans = guests.iter().zip(&self.guests).zip(&before.guests);
        (seconds > 0.0).then(|| HostCpu {
            seconds,
            whole_sample,
            softirq: machine.softirq.as_secs_f64(),
            irq: machine.irq.as_secs_f64(),
            all_guests: (machine.guest + machine.guest_nice).as_secs_f64(),
            interrupts: self.interrupts.saturating_sub(before.interrupts),
            guests: spans.map(|((guest, after), before)| after.since(before, guest)).collect(),
        })
    }
}

impl ServedDisks {
    /// The iothreads and the daemons' threads that serve these disks. None if QEMU is gone.
    fn threads(&self) -> Option<[BTreeSet<u32>; 2]> {
        let DiskThreads { iothreads, daemons } = DiskThreads::of(&self.launch, self.qemu.process).ok()?;
        Some([iothreads.into_values().collect(), daemons.into_values().flatten().collect()])
    }
}

impl GuestReading {
    /// None if QEMU is gone.
    fn read(guest: &Observed) -> Option<GuestReading> {
        let Threads { main, vcpus, vhost, others } = Threads::by_name(guest.qemu.process).ok()?;
        let [iothreads, daemons] = match &guest.disks {
            Some(disks) => disks.threads()?,
            None => Default::default(),
        };
        let of = |role| move |thread: u32| (thread, role);
        let own = |thread: u32| (thread, if iothreads.contains(&thread) { Role::Iothread } else { Role::Qemu });
        let service = std::iter::once(main).chain(others).map(own).chain(daemons.into_iter().map(of(Role::Daemon)));
        let vcpus = vcpus.into_iter().map(|vcpu| vcpu.thread).map(of(Role::Vcpu));
        let all = vcpus.chain(vhost.into_iter().map(of(Role::Vhost))).chain(service);
        // A worker may have ended since.
        let threads = all.filter_map(|(thread, role)| Some((thread, (role, task_times(thread).ok()?)))).collect();
        Some(GuestReading { threads, exits: kvm_exits(guest.qemu.process.pid.0) })
    }

    /// The time of a thread that ended in the span is lost, but threads of vCPUs and vhost don't end before the guest.
    fn since(&self, before: &GuestReading, guest: &Observed) -> GuestCpu {
        let (mut inside, mut vhost, mut iothread, mut daemon, mut qemu, mut kernel) = Default::default();
        for (thread, (role, times)) in &self.threads {
            let span = before.threads.get(thread).map_or(*times, |(_, earlier)| times.since(*earlier));
            let busy: f64 = span.busy().as_secs_f64();
            if (role, guest.qemu.accel) != (&Role::Vcpu, Accelerator::Tcg) {
                kernel += span.system.as_secs_f64();
            }
            match (role, guest.qemu.accel) {
                (Role::Vcpu, Accelerator::Tcg) => inside += busy,
                (Role::Vcpu, Accelerator::Kvm) => {
                    // Ticks, which may say more than the clock does.
                    let own = span.guest.as_secs_f64().min(busy);
                    (inside, qemu) = (inside + own, qemu + busy - own);
                }
                (Role::Vhost, _) => vhost += busy,
                (Role::Iothread, _) => iothread += busy,
                (Role::Daemon, _) => daemon += busy,
                (Role::Qemu, _) => qemu += busy,
            }
        }
        GuestCpu {
            name: guest.qemu.name.clone().into(),
            pid: guest.qemu.process.pid.0,
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

#[cfg(test)]
mod tests {
    use super::*;
    use vtax_model::{
        options::TestOptions,
        units::{ByteSize, Span},
        workload::{Transport, Workload},
    };
    use vtax_sys::process::{Pid, ProcessId};

    fn spec(workload: Workload, warmup: Warmup) -> TestSpec {
        let duration = Span::from_millis(150);
        TestSpec {
            transport: Transport::Tcp,
            workload,
            streams: 1,
            warmup,
            duration,
            slices: None,
            options: TestOptions::default(),
        }
    }

    const RR: Workload = Workload::Rr { request: ByteSize(1), response: ByteSize(1) };
    const WARM: Warmup = Warmup::For(Span::from_millis(50));

    fn observed(accel: Accelerator) -> Observed {
        let process = ProcessId::of(Pid::own()).expect("this process");
        Observed { qemu: GuestProcess { name: "web".to_owned(), process, accel }, clock: None, disks: None }
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn times(run: u64, guest: u64) -> TaskTimes {
        TaskTimes { run: Some(ms(run)), guest: ms(guest), ..TaskTimes::default() }
    }

    fn of_guest<const N: usize>(threads: [(u32, Role, TaskTimes); N], exits: Option<u64>) -> GuestReading {
        GuestReading { threads: threads.map(|(thread, role, times)| (thread, (role, times))).into(), exits }
    }

    #[test]
    fn the_observed_time_lies_within_the_measured() {
        assert_eq!(window(&spec(RR, WARM)), Some((ms(65), ms(185))));
        let long = TestSpec { duration: Span::from_millis(1_000), ..spec(RR, Warmup::NONE) };
        assert_eq!(window(&long), Some((ms(20), ms(980))));
        assert_eq!(window(&spec(RR, Warmup::UntilSteady { most: Span::from_millis(50) })), None);
        assert_eq!(window(&spec(Workload::File { size: ByteSize(1) }, WARM)), None);
    }

    /// vCPUs 40 ms, 30 of them in the guest; vhost 8 ms; main loop 3 ms, a worker that began 2 ms.
    fn span(accel: Accelerator) -> GuestCpu {
        let before = [(1, Role::Qemu, times(5, 0)), (2, Role::Vcpu, times(100, 90)), (3, Role::Vhost, times(1, 0))];
        let after = [
            (1, Role::Qemu, times(8, 0)),
            (2, Role::Vcpu, times(140, 120)),
            (3, Role::Vhost, times(9, 0)),
            (4, Role::Qemu, times(2, 0)),
        ];
        of_guest(after, Some(1_500)).since(&of_guest(before, Some(1_000)), &observed(accel))
    }

    fn near(found: [f64; 3], expected: [f64; 3]) {
        let far = found.iter().zip(expected).any(|(found, expected)| (found - expected).abs() > 1e-9);
        assert!(!far, "{found:?} is not {expected:?}");
    }

    #[test]
    fn under_kvm_a_vcpu_outside_its_guest_is_qemu() {
        let GuestCpu { guest, vhost, qemu, exits, .. } = span(Accelerator::Kvm);
        near([guest, vhost, qemu], [0.030, 0.008, 0.015]);
        assert_eq!(exits, Some(500));
    }

    #[test]
    fn under_tcg_a_vcpu_is_emulation() {
        let GuestCpu { guest, vhost, qemu, .. } = span(Accelerator::Tcg);
        near([guest, vhost, qemu], [0.040, 0.008, 0.005]);
    }

    #[test]
    fn a_guest_has_no_more_time_than_its_thread() {
        let before = of_guest([(2, Role::Vcpu, times(0, 0))], None);
        let after = of_guest([(2, Role::Vcpu, times(7, 10))], None);
        let GuestCpu { guest, qemu, exits, .. } = after.since(&before, &observed(Accelerator::Kvm));
        near([guest, qemu, 0.0], [0.007, 0.0, 0.0]);
        assert_eq!(exits, None);
    }

    #[test]
    fn the_machine_is_read_at_both_edges() {
        let tick = |softirq, irq, guest| MachineTimes {
            softirq: ms(softirq),
            irq: ms(irq),
            guest: ms(guest),
            ..MachineTimes::default()
        };
        let at = Instant::now();
        let before = Reading { at, machine: tick(10, 20, 30), interrupts: 100, guests: vec![] };
        let after = Reading { at: at + ms(500), machine: tick(60, 30, 230), interrupts: 350, guests: vec![] };
        let found = after.since(&before, &[], false).expect("half a second");
        assert_eq!((found.seconds, found.interrupts, found.all_guests), (0.5, 250, 0.2));
        near([found.softirq, found.irq, found.host_stack()], [0.05, 0.01, 0.06]);
        assert_eq!(before.since(&before, &[], false), None);
    }

    fn at(at: Instant) -> Reading {
        Reading { at, machine: MachineTimes::default(), interrupts: 0, guests: vec![] }
    }

    const UNTOLD: UntoldTimes =
        UntoldTimes { warmup: Duration::from_millis(100), measured: Duration::from_millis(1000) };

    /// It can have begun 0 to 300 ms after its start, so the measured time is from 100 or 400 ms on, to 1,100 or 1,400.
    #[test]
    fn only_what_was_surely_measured_counts() {
        let begun = Instant::now();
        let readings: Vec<Reading> = (2..=28).map(|n| at(begun + ms(50 * n))).collect();
        let span = |over| {
            UNTOLD.surely(begun, begun + ms(over), &readings).map(|[first, last]| {
                [first, last].map(|reading| reading.at.saturating_duration_since(begun).as_millis())
            })
        };
        assert_eq!(span(1_400), Some([400, 1_100]));
        assert_eq!(span(1_120), Some([150, 1_100]));
        assert_eq!(span(1_850), Some([850, 1_100]));
        assert_eq!(span(1_901), None, "less than a quarter is known");
        assert_eq!(span(3_000), None);
        assert_eq!(UNTOLD.surely(begun, begun + ms(1_120), &[]).map(|_| ()), None);
    }

    #[test]
    fn readings_end_with_the_program_or_with_its_time() {
        let times = UntoldTimes { warmup: ms(10), measured: ms(100) };
        let (end, ended) = channel();
        let begun = Instant::now();
        let readings = times.glances(begun, &ended, || Some(begun.elapsed())).expect("each can be read");
        assert!((2..=6).contains(&readings.len()), "{readings:?}");
        assert!(readings[0] >= ms(10) && readings.last().is_some_and(|last| *last >= ms(110)), "{readings:?}");
        drop(end);
        assert_eq!(times.glances(Instant::now(), &ended, || Some(())), Some(vec![]));
        let (_end, ended) = channel();
        assert_eq!(times.glances(begun, &ended, || None::<()>), None, "the guest is gone");
    }

    #[test]
    fn threads_of_disks_are_told_apart_and_their_kernel_time_is_a_share() {
        let with_kernel = |run, system| TaskTimes { system: ms(system), ..times(run, 0) };
        let after = [
            (1, Role::Qemu, with_kernel(10, 4)),
            (2, Role::Vcpu, with_kernel(100, 30)),
            (3, Role::Iothread, with_kernel(20, 15)),
            (4, Role::Daemon, with_kernel(40, 25)),
        ];
        let cost = |accel| of_guest(after, None).since(&of_guest([], None), &observed(accel));
        let GuestCpu { guest, iothread, daemon, qemu, kernel, .. } = cost(Accelerator::Tcg);
        near([guest, iothread, daemon], [0.1, 0.02, 0.04]);
        near([qemu, kernel.expect("known"), 0.0], [0.01, 0.044, 0.0]);
        let of_kvm = cost(Accelerator::Kvm);
        near([of_kvm.kernel.expect("known"), of_kvm.qemu, 0.0], [0.074, 0.11, 0.0]);
    }

    #[test]
    fn a_sample_that_ends_early_was_not_observed() {
        let guests = [observed(Accelerator::Tcg)];
        let (tell, told) = channel();
        tell.send(Instant::now()).expect("open");
        drop(tell);
        assert_eq!(watch(&guests, &spec(RR, WARM), told), None);
        let (tell, told) = channel::<Instant>();
        drop(tell);
        assert_eq!(watch(&guests, &spec(RR, WARM), told), None, "it has not even begun");
    }

    /// This process stands for a guest's: its threads have other names, so all of it is QEMU.
    #[test]
    fn a_sample_is_observed_between_its_edges() {
        let guests = [observed(Accelerator::Tcg)];
        let (tell, told) = channel();
        tell.send(Instant::now()).expect("open");
        let seen = watch(&guests, &spec(RR, WARM), told).expect("observed");
        assert!(!seen.whole_sample && seen.seconds > 0.1 && seen.seconds < 5.0, "{seen:?}");
        assert_eq!((seen.guests.len(), seen.guests[0].guest, seen.guests[0].vhost), (1, 0.0, 0.0));
        drop(tell);
    }
}
