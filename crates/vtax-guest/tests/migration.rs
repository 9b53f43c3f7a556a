//! Real guests that migrate between two QEMUs of this machine. These tests have the same requirements as `guest.rs`.

#[path = "shared/agent.rs"]
mod agent;

use std::{
    cell::Cell,
    fs::{self, Permissions},
    io::{Read, Write},
    net::SocketAddr,
    ops::ControlFlow,
    os::{
        fd::OwnedFd,
        unix::{
            fs::{MetadataExt, PermissionsExt},
            net::UnixStream,
        },
    },
    thread,
    time::Duration,
};

use agent::agent;
use rustix::fs::getxattr;
use tempfile::TempDir;
use vtax_guest::{
    GuestError, LinkName, home,
    image::{self, Tools},
    kernel::Kernel,
    launch::{Boot, GuestEngine, Launch, NicKind, NicLaunch, QemuProgram},
    migration::{
        Arrival, Departure, IncomingGuest, MigrationCancel, MigrationError, MigrationKey, MigrationLimits,
        MigrationMethod, MigrationOptions, MigrationWatcher, MigrationWire, SILENCE_MOST, SourcePulse,
    },
    process::Qemu,
    qmp::{MigrationInfo, MigrationStatus, Monitor},
    userfaultfd,
};
use vtax_model::{
    guest::{Accelerator, GuestSize, VirtioNic},
    units::ByteSize,
};
use vtax_sys::{
    netlink::{LinkChange, Rtnl, open_tap},
    netns::{NetNs, Outlive},
    process::Signal,
};

/// Timeout for a guest under TCG on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(600);
const END: Duration = Duration::from_secs(30);
/// The time for which a guest is kept suspended.
const HOLD: Duration = Duration::from_millis(500);
/// The maximum difference of both suspend times.
const APART_MOST: Duration = Duration::from_millis(3);

/// Test resources in addition to the guests; dropping it removes their directories.
struct Bench {
    folder: TempDir,
    boot: Boot,
    namespace: NetNs,
}

impl Bench {
    fn new() -> Bench {
        let folder = tempfile::Builder::new().prefix("vtax-migration").tempdir_in("/tmp").expect("a folder");
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("ours");
        let kernel = Kernel::find(None).expect("a kernel for guests");
        let drivers = ["virtio_pci", "virtio_console", "virtio_net"];
        let initramfs = image::build(&kernel, &agent(), &drivers, Tools::None).expect("an image");
        let boot = Boot::Kernel { kernel: kernel.bootable().expect("a kernel"), initramfs, append: Vec::new() };
        let namespace = NetNs::scratch().expect("the right to make namespaces");
        let up = LinkChange { up: Some(true), ..LinkChange::default() };
        let mut links = Rtnl::open_in(&namespace).expect("ours");
        links.set_link(&"lo".parse().expect("a name"), &up).expect("ours");
        Bench { folder, boot, namespace }
    }

    /// A guest with a NIC, whose directory and tap have this number.
    fn launch(&self, number: u32) -> Launch {
        let directory = self.folder.path().join(number.to_string());
        fs::create_dir(&directory).expect("ours");
        let qemu = QemuProgram::find().expect("QEMU");
        let engine = GuestEngine { qemu, accel: Accelerator::Tcg, boot: self.boot.clone() };
        let size = GuestSize { vcpus: 2, ..GuestSize::default() };
        let tap = LinkName::new(format!("vnet{number}"));
        let kind = NicKind::Virtio { tap, nic: VirtioNic::default() };
        let nic = NicLaunch::new("02:00:5e:10:00:01".parse().expect("an address"), kind);
        Launch { nics: vec![nic], ..Launch::new("web".parse().expect("a name"), directory, engine, &size) }
    }

    fn start(&self, launch: Launch) -> Guest {
        let tap = launch.nics[0].kind.tap().expect("it has one").as_str().parse().expect("a name");
        let queues = vec![open_tap(&self.namespace, &tap, 1).expect("the right to make taps")];
        let started = Qemu::start(launch, queues, Outlive::No, |command| self.namespace.place(command));
        let mut guest = Guest(started.expect("QEMU starts"));
        guest.0.wait_ready(PATIENCE).expect("QEMU answers");
        guest
    }

    fn source(&self) -> Guest {
        let mut guest = self.start(self.launch(0));
        guest.0.wait_agent(PATIENCE).expect("the agent opens its port");
        guest
    }

    fn target(&self, number: u32) -> Guest {
        self.start(Launch { incoming: true, ..self.launch(number) })
    }
}

/// A guest that ends with its test, whatever the test's outcome.
struct Guest(Qemu);

impl Guest {
    fn kill(&self) {
        self.0.process().signal(Signal::KILL).expect("ours");
    }

    fn is_running(&mut self) -> bool {
        self.0.monitor(END).and_then(|mut monitor| monitor.status()).expect("QEMU answers").running
    }

    /// Its kernel receives an interrupt on which it panics, and prints that on the console of this QEMU.
    fn assert_alive(&mut self) {
        assert!(self.is_running());
        self.0.wait_agent(PATIENCE).expect("the agent has its port open");
        self.0.monitor(END).and_then(|mut monitor| monitor.inject_nmi()).expect("QEMU answers");
        let death = self.0.death(PATIENCE).expect("it ends").to_string();
        assert!(death.contains("(its kernel panicked)") && death.contains("NMI"), "{death}");
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.process().signal(Signal::KILL);
        let _ = self.0.stop(END);
        home::remove(self.0.launch()).expect("it has ended");
    }
}

/// Informs the target of the source's progress, and runs a test's actions at the first sign of memory and at the
/// switchover.
#[derive(Default)]
struct Watch<'a> {
    pulse: SourcePulse,
    at_memory: Option<Box<dyn FnOnce() + 'a>>,
    hold: Duration,
    statuses: Vec<MigrationStatus>,
}

impl MigrationWatcher for Watch<'_> {
    fn progress(&mut self, info: &MigrationInfo) {
        self.statuses.push(info.status);
        if info.ram.as_ref().is_some_and(|ram| ram.transferred > 1 << 20)
            && let Some(act) = self.at_memory.take()
        {
            act();
        }
    }

    fn moved(&mut self) {
        self.pulse.beat();
    }

    fn before_switchover(&mut self, monitor: &mut Monitor) -> ControlFlow<()> {
        assert!(!monitor.status().expect("QEMU answers").running, "the vCPUs are stopped");
        thread::sleep(self.hold);
        ControlFlow::Continue(())
    }
}

/// The ends of a connection: for the source, and for the target.
type Ends = (Option<OwnedFd>, MigrationWire);

fn socket_pair() -> Ends {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    (Some(ours.into()), MigrationWire::Connected(theirs.into()))
}

fn loopback() -> Ends {
    (None, MigrationWire::Tcp("127.0.0.1:0".parse().expect("an address")))
}

type Outcome = (Result<Departure, MigrationError>, Result<Arrival, MigrationError>);

fn migrate(
    source: &mut Guest,
    target: &mut Guest,
    (near, far): Ends,
    options: &MigrationOptions,
    cancel: &MigrationCancel,
    watch: &mut Watch<'_>,
) -> Outcome {
    let mut incoming = IncomingGuest::listen(&mut target.0, far, options).expect("it listens");
    let address: Option<SocketAddr> = incoming.address();
    let wire = match near {
        Some(socket) => MigrationWire::Connected(socket),
        None => MigrationWire::Tcp(address.expect("a port was selected")),
    };
    let (pulse, abandoned) = (watch.pulse.clone(), MigrationCancel::default());
    thread::scope(|scope| {
        let receiving = scope.spawn(|| incoming.receive(&pulse, &abandoned).map(|()| incoming));
        let left = Departure::of(&mut source.0, wire, options, cancel, watch);
        if left.is_err() && !matches!(left, Err(MigrationError::WireCut { .. })) {
            abandoned.cancel();
        }
        let arrived = receiving.join().expect("no panic").and_then(IncomingGuest::resume);
        (left, arrived)
    })
}

fn encrypted() -> MigrationOptions {
    MigrationOptions { key: Some(MigrationKey::random()), ..MigrationOptions::default() }
}

/// Slow enough for a test to act in the meantime.
fn slow() -> MigrationOptions {
    let limits = MigrationLimits { bandwidth: Some(ByteSize(2 << 20)), ..MigrationLimits::default() };
    MigrationOptions { limits, ..MigrationOptions::default() }
}

fn migrates(source: &mut Guest, target: &mut Guest, ends: Ends, options: &MigrationOptions) {
    let mut watch = Watch::default();
    let outcome = migrate(source, target, ends, options, &MigrationCancel::default(), &mut watch);
    let (Ok(departure), Ok(arrival)) = outcome else { panic!("{outcome:?}") };
    assert!(!source.is_running() && target.is_running());
    let suspension = departure.suspension(&arrival);
    assert!(suspension.by_qemu.is_some() && suspension.by_events.is_some(), "{suspension:?}");
    let ram = departure.info.ram.as_ref().expect("figures");
    assert!(ram.total >= 256 << 20 && ram.transferred > 1 << 20 && departure.info.setup_time().is_some(), "{ram:?}");
    assert!(!source.0.launch().directory.join("keys.psk").exists());
    assert!(!target.0.launch().directory.join("keys.psk").exists());
}

#[test]
fn a_running_guest_migrates_plain_and_encrypted_over_a_socket_and_an_address() {
    let bench = Bench::new();
    let mut source = bench.source();
    let rate = source.0.monitor(END).and_then(|mut monitor| monitor.measure_dirty_rate(1)).expect("QEMU answers");
    assert!(rate.is_some(), "QEMU measures the dirty rate");
    let launch = source.0.launch();
    assert!(launch.machine.as_ref().is_some_and(|machine| machine.to_string().starts_with("pc-q35-")), "{launch:?}");
    let mut number = 0;
    let four = MigrationMethod { channels: 4.try_into().ok(), ..MigrationMethod::default() };
    for (ends, options) in [
        (socket_pair(), MigrationOptions::default()),
        (socket_pair(), encrypted()),
        (loopback(), encrypted()),
        (loopback(), MigrationOptions { method: four, ..encrypted() }),
    ] {
        number += 1;
        let mut target = bench.target(number);
        assert_eq!(source.0.launch().differences(target.0.launch()), []);
        migrates(&mut source, &mut target, ends, &options);
        source = target;
    }
    source.assert_alive();
}

#[test]
fn a_guest_survives_failed_attempts_and_can_then_migrate() {
    let bench = Bench::new();
    let mut source = bench.source();
    let never = MigrationCancel::default();

    let mut other = bench.start(Launch { incoming: true, vcpus: 1, ..bench.launch(1) });
    assert_eq!(source.0.launch().differences(other.0.launch()).len(), 1);
    let mut watch = Watch::default();
    let refused = migrate(&mut source, &mut other, socket_pair(), &encrypted(), &never, &mut watch);
    assert!(matches!(&refused.0, Err(MigrationError::TargetLost { .. })), "{refused:?}");
    let Err(MigrationError::Guest(ended @ GuestError::Ended { .. })) = refused.1 else { panic!("{refused:?}") };
    assert!(ended.to_string().contains("load"), "{ended}");
    assert!(source.is_running());

    let mut killed = bench.target(2);
    let process = killed.0.process();
    let kill = || drop(process.signal(Signal::KILL));
    let mut watch = Watch { at_memory: Some(Box::new(kill)), ..Watch::default() };
    let lost = migrate(&mut source, &mut killed, socket_pair(), &slow(), &never, &mut watch);
    assert!(matches!(&lost.0, Err(error @ MigrationError::TargetLost { .. }) if error.is_undone()), "{lost:?}");
    assert!(matches!(&lost.1, Err(MigrationError::Guest(GuestError::Ended { .. }))), "{lost:?}");
    assert!(source.is_running());

    let mut abandoned = bench.target(3);
    let cancel = MigrationCancel::default();
    let other = cancel.clone();
    let later = move || drop(thread::spawn(move || other.cancel()));
    let mut watch = Watch { at_memory: Some(Box::new(later)), ..Watch::default() };
    let cancelled = migrate(&mut source, &mut abandoned, loopback(), &slow(), &cancel, &mut watch);
    assert!(matches!(&cancelled.0, Err(MigrationError::Cancelled { .. })), "{cancelled:?}");
    assert!(cancelled.1.is_err() && source.is_running());

    let limits = MigrationLimits { time: Some(Duration::from_secs(2)), ..slow().limits };
    let mut target = bench.target(4);
    let hasty = MigrationOptions { limits, ..encrypted() };
    let outcome = migrate(&mut source, &mut target, socket_pair(), &hasty, &never, &mut Watch::default());
    assert!(matches!(&outcome.0, Err(MigrationError::NoConvergence { .. })), "{outcome:?}");
    assert!(source.is_running());

    let mut target = bench.target(5);
    migrates(&mut source, &mut target, socket_pair(), &encrypted());
    source.kill();
    target.assert_alive();
}

/// Forwards this many bytes and then nothing more, like a cut cable: no end is signalled.
fn cut_after(bytes: u64) -> Ends {
    let ((near, ours), (theirs, far)) = (UnixStream::pair().expect("a pair"), UnixStream::pair().expect("a pair"));
    let mut back = (theirs.try_clone().expect("a copy"), ours.try_clone().expect("a copy"));
    thread::spawn(move || {
        let mut chunk = [0; 4096];
        while let Ok(count @ 1..) = back.0.read(&mut chunk) {
            if back.1.write_all(&chunk[..count]).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        let _ = std::io::copy(&mut (&ours).take(bytes), &mut &theirs);
        // Both connections stay open until the test ends.
        thread::park();
        drop((ours, theirs));
    });
    (Some(near.into()), MigrationWire::Connected(far.into()))
}

#[test]
fn a_broken_connection_ends_the_attempt_on_both_sides() {
    let bench = Bench::new();
    let mut source = bench.source();
    let mut target = bench.target(1);
    let mut watch = Watch::default();
    let never = MigrationCancel::default();
    let outcome =
        migrate(&mut source, &mut target, cut_after(4 << 20), &MigrationOptions::default(), &never, &mut watch);
    let silence = |silent: &Duration| *silent >= SILENCE_MOST;
    assert!(matches!(&outcome.0, Err(MigrationError::WireCut { silent, .. }) if silence(silent)), "{outcome:?}");
    assert!(matches!(&outcome.1, Err(MigrationError::SourceSilent { silent, .. }) if silence(silent)), "{outcome:?}");
    source.assert_alive();
}

/// An injected suspension is measured by both methods. Other load can only increase their difference, so the smallest
/// of several attempts counts.
#[test]
fn the_suspend_time_is_measured_by_two_methods() {
    const ATTEMPTS: u32 = 5;
    let bench = Bench::new();
    let mut source = bench.source();
    let mut apart = Vec::new();
    for number in 1..=ATTEMPTS {
        let mut target = bench.target(number);
        let mut watch = Watch { hold: HOLD, ..Watch::default() };
        let never = MigrationCancel::default();
        let options = MigrationOptions::default();
        let outcome = migrate(&mut source, &mut target, socket_pair(), &options, &never, &mut watch);
        let (Ok(departure), Ok(arrival)) = outcome else { panic!("{outcome:?}") };
        assert!(watch.statuses.contains(&MigrationStatus::PreSwitchover), "{:?}", watch.statuses);
        let suspension = departure.suspension(&arrival);
        assert!(suspension.by_qemu >= Some(HOLD) && suspension.by_events >= Some(HOLD), "{suspension:?}");
        apart.push(suspension.disagreement().expect("both are known"));
        if apart.last() <= Some(&APART_MOST) {
            return target.assert_alive();
        }
        source = target;
    }
    panic!("the two suspend times differ by {apart:?}");
}

/// Returns true if the access control list of the device through which a target fetches pages names QEMU's user.
fn is_admitted(qemu: &Qemu) -> bool {
    let user = fs::metadata(format!("/proc/{}", qemu.process().pid)).expect("it runs").uid();
    let mut list = [0; 4096];
    // Without a list there is no such attribute.
    let length = getxattr("/dev/userfaultfd", "system.posix_acl_access", &mut list[..]).unwrap_or(0);
    list[..length].chunks(4).any(|id| id == user.to_le_bytes())
}

/// The guest continues at the target while a part of its memory is still at the source. QEMU's user has access to
/// userfaultfd only for that time.
#[test]
fn a_guest_resumes_before_its_memory_has_arrived() {
    let bench = Bench::new();
    let mut target = bench.target(1);
    let method = MigrationMethod { postcopy: true, ..MigrationMethod::default() };
    // Even an idle guest changes more in the first pass than can be sent in this time.
    let limits = MigrationLimits { suspend: Duration::from_millis(1), ..slow().limits };
    let options = MigrationOptions { method, limits, ..MigrationOptions::default() };
    if !userfaultfd::is_available(&QemuProgram::find().expect("QEMU")) {
        let error = IncomingGuest::listen(&mut target.0, loopback().1, &options).expect_err("not for this user");
        assert!(matches!(error, MigrationError::NoPostcopy { .. }) && error.is_undone(), "{error}");
        return;
    }
    let mut source = bench.source();
    let (receiver, admitted) = (Qemu::attach(target.0.launch().clone(), target.0.process()), Cell::new(false));
    let look = || admitted.set(is_admitted(&receiver));
    let mut watch = Watch { at_memory: Some(Box::new(look)), ..Watch::default() };
    let never = MigrationCancel::default();
    let outcome = migrate(&mut source, &mut target, socket_pair(), &options, &never, &mut watch);
    let (Ok(departure), Ok(arrival)) = outcome else { panic!("{outcome:?}") };
    assert!(watch.statuses.contains(&MigrationStatus::PostcopyActive), "{:?}", watch.statuses);
    assert!(!source.is_running());
    let suspension = departure.suspension(&arrival);
    assert!(suspension.by_qemu.is_some() && suspension.by_events.is_some(), "{suspension:?}");
    let setting = fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").unwrap_or_default();
    assert!(admitted.get() || setting.trim() != "0", "it has no other way");
    assert!(!is_admitted(&target.0));
    target.assert_alive();
}

/// A target whose processors wait for a command has the guest, but doesn't run it until then.
#[test]
fn a_held_target_runs_only_on_command() {
    let bench = Bench::new();
    let mut source = bench.source();
    let mut target = bench.start(Launch { incoming: true, paused: true, ..bench.launch(1) });
    let options = MigrationOptions { held_target: true, ..encrypted() };
    let mut incoming = IncomingGuest::listen(&mut target.0, loopback().1, &options).expect("it listens");
    let wire = MigrationWire::Tcp(incoming.address().expect("a port"));
    let mut watch = Watch::default();
    let pulse = watch.pulse.clone();
    let never = MigrationCancel::default();
    let left = thread::scope(|scope| {
        scope.spawn(|| incoming.receive(&pulse, &never).expect("it arrives"));
        Departure::of(&mut source.0, wire, &options, &never, &mut watch)
    });
    let departure = left.expect("it leaves");
    thread::sleep(HOLD);
    let arrival = incoming.resume().expect("it runs");
    let suspension = departure.suspension(&arrival);
    assert!(suspension.by_events >= Some(HOLD) && suspension.disagreement() > Some(APART_MOST), "{suspension:?}");
    target.assert_alive();
}
