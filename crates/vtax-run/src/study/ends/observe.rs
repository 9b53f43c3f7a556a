//! The CPU time that the guests of a row cost their host while a sample is taken.
//!
//! A thread here reads the times of QEMU's threads and of the machine shortly after the begin and shortly before the
//! end of the measured time, and sleeps in between, so that its own cost is not in the figures.

use std::{
    collections::BTreeMap,
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use vtax_agent::measure::{AgentPair, MeasureError, ParallelReports, measure_watched};
use vtax_guest::threads::Threads;
use vtax_model::{
    guest::Accelerator,
    run::{ClockReading, GuestCpu, HostCpu},
    workload::{TestSpec, Warmup},
};
use vtax_sys::{
    clock::now_ns,
    cpu::{MachineTimes, TaskTimes, interrupts, kvm_exits, machine_times, task_times},
};

use super::{
    agent::ANSWER,
    attachment::GuestProcess,
    end::{ConnectedEnd, ConnectedRow},
};
use crate::threads::start_in;

/// This long after the begin and before the end of the measured time is read: orders take a moment to arrive.
const INSET: Duration = Duration::from_millis(20);

pub(super) struct Observed {
    qemu: GuestProcess,
    clock: Option<ClockReading>,
}

/// The guests in which the ends of a row are and whose QEMU can be observed, each once.
pub(super) fn observed(connected: &ConnectedRow) -> Vec<Observed> {
    let mut observed: Vec<Observed> = Vec::new();
    for end in connected.ends() {
        let Some(qemu) = end.attachment.qemu() else { continue };
        if !observed.iter().any(|known| known.qemu.process == qemu.process) {
            observed.push(Observed { qemu, clock: clock(end) });
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

impl GuestReading {
    /// None if QEMU is gone.
    fn read(guest: &Observed) -> Option<GuestReading> {
        let Threads { main, vcpus, vhost, others } = Threads::by_name(guest.qemu.process).ok()?;
        let of = |role| move |thread: u32| (thread, role);
        let service = std::iter::once(main).chain(others).map(of(Role::Qemu));
        let vcpus = vcpus.into_iter().map(|vcpu| vcpu.thread).map(of(Role::Vcpu));
        let all = vcpus.chain(vhost.into_iter().map(of(Role::Vhost))).chain(service);
        // A worker may have ended since.
        let threads = all.filter_map(|(thread, role)| Some((thread, (role, task_times(thread).ok()?)))).collect();
        Some(GuestReading { threads, exits: kvm_exits(guest.qemu.process.pid.0) })
    }

    /// The time of a thread that ended in the span is lost, but threads of vCPUs and vhost don't end before the guest.
    fn since(&self, before: &GuestReading, guest: &Observed) -> GuestCpu {
        let (mut inside, mut vhost, mut qemu) = (0.0, 0.0, 0.0);
        for (thread, (role, times)) in &self.threads {
            let span = before.threads.get(thread).map_or(*times, |(_, earlier)| times.since(*earlier));
            let busy = span.busy().as_secs_f64();
            match (role, guest.qemu.accel) {
                (Role::Vcpu, Accelerator::Tcg) => inside += busy,
                (Role::Vcpu, Accelerator::Kvm) => {
                    // Ticks, which may say more than the clock does.
                    let own = span.guest.as_secs_f64().min(busy);
                    (inside, qemu) = (inside + own, qemu + busy - own);
                }
                (Role::Vhost, _) => vhost += busy,
                (Role::Qemu, _) => qemu += busy,
            }
        }
        GuestCpu {
            name: guest.qemu.name.clone().into(),
            pid: guest.qemu.process.pid.0,
            accel: guest.qemu.accel,
            guest: inside,
            vhost,
            qemu,
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
        Observed { qemu: GuestProcess { name: "web".to_owned(), process, accel }, clock: None }
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
