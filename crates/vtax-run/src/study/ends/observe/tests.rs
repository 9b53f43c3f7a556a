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
    Observed { qemu: GuestProcess { name: "web".to_owned(), process, accel }, serves: false, clock: None, disks: None }
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn times(run: u64, guest: u64) -> TaskTimes {
    TaskTimes { run: Some(ms(run)), guest: ms(guest), ..TaskTimes::default() }
}

fn of_guest<const N: usize>(threads: [(u32, GuestThreadRole, TaskTimes); N], exits: Option<u64>) -> GuestReading {
    GuestReading { threads: threads.map(|(thread, role, times)| (thread, (role, times))).into(), exits }
}

#[test]
fn the_observed_time_is_within_the_measured_time() {
    assert_eq!(window(&spec(RR, WARM)), Some((ms(65), ms(185))));
    let long = TestSpec { duration: Span::from_millis(1_000), ..spec(RR, Warmup::NONE) };
    assert_eq!(window(&long), Some((ms(20), ms(980))));
    assert_eq!(window(&spec(RR, Warmup::UntilSteady { most: Span::from_millis(50) })), None);
    assert_eq!(window(&spec(Workload::File { size: ByteSize(1) }, WARM)), None);
}

/// Returns the cost of vCPUs for 40 ms, 30 of them in the guest, vhost for 8 ms, the main loop for 3 ms, and a new
/// worker for 2 ms.
fn span(accel: Accelerator) -> GuestCpu {
    let before = [
        (1, GuestThreadRole::Qemu, times(5, 0)),
        (2, GuestThreadRole::Vcpu, times(100, 90)),
        (3, GuestThreadRole::Vhost, times(1, 0)),
    ];
    let after = [
        (1, GuestThreadRole::Qemu, times(8, 0)),
        (2, GuestThreadRole::Vcpu, times(140, 120)),
        (3, GuestThreadRole::Vhost, times(9, 0)),
        (4, GuestThreadRole::Qemu, times(2, 0)),
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
    let before = of_guest([(2, GuestThreadRole::Vcpu, times(0, 0))], None);
    let after = of_guest([(2, GuestThreadRole::Vcpu, times(7, 10))], None);
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
    let before = Reading { at, machine: tick(10, 20, 30), interrupts: 100, guests: vec![], relays: vec![] };
    let after =
        Reading { at: at + ms(500), machine: tick(60, 30, 230), interrupts: 350, guests: vec![], relays: vec![] };
    let found = after.since(&before, &ObservedRow::default(), false).expect("half a second");
    assert_eq!((found.seconds, found.interrupts, found.all_guests), (0.5, 250, 0.2));
    near([found.softirq, found.irq, found.host_stack()], [0.05, 0.01, 0.06]);
    assert_eq!(before.since(&before, &ObservedRow::default(), false), None);
}

fn at(at: Instant) -> Reading {
    Reading { at, machine: MachineTimes::default(), interrupts: 0, guests: vec![], relays: vec![] }
}

const UNTOLD: UntoldTimes = UntoldTimes { warmup: Duration::from_millis(100), measured: Duration::from_millis(1000) };

/// If the program ends after 1,400 ms, it took between 0 and 300 ms to start, so the measured time began between 100
/// and 400 ms, and ended between 1,100 and 1,400 ms.
#[test]
fn only_what_was_surely_measured_counts() {
    let begun = Instant::now();
    let readings: Vec<Reading> = (2..=28).map(|n| at(begun + ms(50 * n))).collect();
    let span = |over| {
        UNTOLD
            .surely(begun, begun + ms(over), &readings)
            .map(|[first, last]| [first, last].map(|reading| reading.at.saturating_duration_since(begun).as_millis()))
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
fn threads_of_disks_are_distinguished_and_their_kernel_time_is_a_share() {
    let with_kernel = |run, system| TaskTimes { system: ms(system), ..times(run, 0) };
    let after = [
        (1, GuestThreadRole::Qemu, with_kernel(10, 4)),
        (2, GuestThreadRole::Vcpu, with_kernel(100, 30)),
        (3, GuestThreadRole::Iothread, with_kernel(20, 15)),
        (4, GuestThreadRole::Daemon, with_kernel(40, 25)),
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
    let row = ObservedRow::of_guest(Some(observed(Accelerator::Tcg)));
    let (tell, told) = channel();
    tell.send(Instant::now()).expect("open");
    drop(tell);
    assert_eq!(watch(&row, &spec(RR, WARM), told), None);
    let (tell, told) = channel::<Instant>();
    drop(tell);
    assert_eq!(watch(&row, &spec(RR, WARM), told), None, "it has not even begun");
}

/// This process replaces that of a guest. Its threads have other names, so all of its time counts as QEMU's.
#[test]
fn a_sample_is_observed_between_its_edges() {
    let process = ProcessId::of(Pid::own()).expect("this process");
    let relay = RelayProcess { program: "pasta".to_owned(), process };
    let row = ObservedRow { relays: vec![relay], ..ObservedRow::of_guest(Some(observed(Accelerator::Tcg))) };
    let (tell, told) = channel();
    tell.send(Instant::now()).expect("open");
    let seen = watch(&row, &spec(RR, WARM), told).expect("observed");
    assert!(!seen.whole_sample && seen.seconds > 0.1 && seen.seconds < 5.0, "{seen:?}");
    assert_eq!((seen.guests.len(), seen.guests[0].guest, seen.guests[0].vhost), (1, 0.0, 0.0));
    let RelayCpu { program, pid, busy } = &seen.relays[0];
    assert!(*program == "pasta" && *pid == process.pid.0 && (0.0..5.0).contains(busy), "{seen:?}");
    assert!((seen.spent() - seen.qemu() - busy).abs() < 1e-9, "{seen:?}");
    drop(tell);
}
