//! Real guests under a real QEMU. These tests need QEMU, a kernel for guests (`make kernel`, or `VTAX_KERNEL`), the
//! agent (`cargo build`, or `VTAX_AGENT`) and permission to create network namespaces and taps; without them they fail.

#[path = "shared/agent.rs"]
mod agent;

use std::{
    fs::{self, File, Permissions},
    io::{BufRead, BufReader, Write},
    os::{
        fd::OwnedFd,
        unix::{
            fs::{MetadataExt, PermissionsExt},
            net::UnixStream,
        },
    },
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use agent::agent;
use tempfile::TempDir;
use vtax_guest::{
    GuestError, LinkName, accel,
    arguments::nic_id,
    home::{self, MOST_LOGGED},
    image::{self, Tools},
    kernel::Kernel,
    launch::{Boot, DiskFormat, GuestEngine, Launch, NicKind, NicLaunch, QemuProgram, Seed},
    process::Qemu,
    threads::GuestPins,
};
use vtax_model::{
    guest::{Accelerator, EmulatedNic, GuestSize, VirtioNic},
    units::ByteSize,
};
use vtax_sys::{
    SysError,
    confine::{Confinement, OwnUsers},
    netlink::open_tap,
    netns::{NetNs, Outlive},
    process::Signal,
};

/// Timeout for a guest under TCG on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(600);
const END: Duration = Duration::from_secs(30);

/// Test resources in addition to the guest itself; dropping it removes its directory.
struct Bench {
    folder: TempDir,
    kernel: Kernel,
    namespace: NetNs,
}

impl Bench {
    fn new() -> Bench {
        let folder = tempfile::Builder::new().prefix("vtax-guest").tempdir_in("/tmp").expect("a folder");
        fs::create_dir(folder.path().join("web")).expect("ours");
        // Only the guest's own directory keeps other users out.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("ours");
        Bench {
            folder,
            kernel: Kernel::find(None).expect("a kernel for guests"),
            namespace: NetNs::scratch().expect("the right to make namespaces"),
        }
    }

    fn launch(&self, init: &Path, nics: Vec<NicLaunch>) -> Launch {
        let engine = GuestEngine {
            qemu: QemuProgram::find().expect("QEMU"),
            accel: Accelerator::Tcg,
            boot: Boot::Disk { disk: PathBuf::new(), format: DiskFormat::Raw, keep: false },
        };
        let size = GuestSize { vcpus: 2, ..GuestSize::default() };
        let directory = self.folder.path().join("web");
        let bare = Launch::new("web".parse().expect("a name"), directory, engine, &size);
        let mut launch = Launch { nics, ..bare };
        let initramfs = image::build(&self.kernel, init, &drivers(&launch), Tools::None).expect("an image");
        launch.boot = Boot::Kernel { kernel: self.kernel.bootable().expect("a kernel"), initramfs, append: Vec::new() };
        launch
    }

    /// A tap is created by opening it, in the namespace.
    fn queues(&self, nic: &NicLaunch) -> Vec<OwnedFd> {
        let tap = nic.kind.tap().expect("each has one").as_str().parse().expect("a name");
        open_tap(&self.namespace, &tap, nic.kind.queues()).expect("the right to make taps")
    }

    fn start(&self, launch: Launch) -> Guest {
        let queues = launch.nics.iter().map(|nic| self.queues(nic));
        Guest::start(launch.clone(), queues.collect(), |command| self.namespace.place(command))
    }
}

/// A guest that ends with its test, whatever the test's outcome.
struct Guest(Qemu);

impl Guest {
    fn start(
        launch: Launch,
        queues: Vec<Vec<OwnedFd>>,
        prepare: impl FnOnce(&mut Command) -> Result<(), SysError>,
    ) -> Guest {
        Guest(Qemu::start(launch, queues, Outlive::No, prepare).expect("QEMU starts"))
    }

    fn end(&mut self) {
        let _ = self.0.process().signal(Signal::KILL);
        let _ = self.0.stop(END);
        home::remove(self.0.launch()).expect("it has ended");
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
    }
}

fn tap(index: u32) -> LinkName {
    LinkName::new(format!("vnet{index}"))
}

fn nic(index: u32, kind: NicKind) -> NicLaunch {
    NicLaunch::new(format!("02:00:5e:10:00:{index:02x}").parse().expect("an address"), kind)
}

/// Every kind of NIC that requires no other program and that this QEMU supports.
fn all_nics() -> Vec<NicLaunch> {
    let devices = QemuProgram::find().and_then(|qemu| qemu.devices()).expect("QEMU");
    let several = VirtioNic { queues: 2, packed: true, offloads: false, mrg_rxbuf: false, ..Default::default() };
    let rings = VirtioNic { vectors: Some(2), rx_ring: Some(1024), tx_ring: Some(256), ..Default::default() };
    let mut kinds = vec![
        NicKind::Virtio { tap: tap(0), nic: VirtioNic::default() },
        NicKind::Virtio { tap: tap(1), nic: several },
        NicKind::Virtio { tap: tap(2), nic: rings },
    ];
    let models = [EmulatedNic::E1000e, EmulatedNic::Igb, EmulatedNic::Vmxnet3, EmulatedNic::Rtl8139];
    for (model, index) in models.into_iter().filter(|model| devices.contains(<&str>::from(*model))).zip(3..) {
        kinds.push(NicKind::Emulated { tap: tap(index), model });
    }
    kinds.into_iter().zip(0..).map(|(kind, index)| nic(index, kind)).collect()
}

#[test]
fn a_guest_with_every_kind_of_nic_boots_has_known_threads_and_exits() {
    let bench = Bench::new();
    let mut guest = bench.start(bench.launch(&agent(), all_nics()));
    guest.0.wait_agent(PATIENCE).expect("the agent opens its port");

    assert_confined(&guest.0);
    let threads = guest.0.threads(END).expect("QEMU answers");
    assert_eq!(threads.main, guest.0.process().pid.0);
    assert_eq!(threads.vcpus.iter().map(|vcpu| vcpu.index).collect::<Vec<_>>(), [0, 1]);
    let name = |tid| fs::read_to_string(format!("/proc/{}/task/{tid}/comm", threads.main)).expect("a thread of it");
    assert_eq!(name(threads.vcpus[1].thread).trim_end(), "CPU 1/TCG");
    assert_eq!(name(threads.main).trim_end(), "vtax-web");

    let first = vtax_sys::cpu::allowed_cpus().expect("ours").iter().next().expect("we run somewhere");
    let pins = GuestPins { cpus: vec![first], io_cpus: vec![first], vhost_cpus: vec![first] };
    guest.0.pin(&pins, END).expect("a CPU that is ours");
    assert!(threads.places().iter().all(|place| place.cpus == [first]), "{:?}", threads.places());
    let overhead = guest.0.overhead().expect("it runs");
    assert!((ByteSize(1 << 20)..ByteSize(1 << 30)).contains(&overhead), "{overhead}");
    let status = fs::read_to_string(format!("/proc/{}/status", threads.vcpus[1].thread)).expect("a thread");
    assert!(status.lines().any(|line| line == format!("Cpus_allowed_list:\t{first}")), "{status}");

    let mut monitor = guest.0.monitor(END).expect("QEMU answers");
    assert!(monitor.status().expect("QEMU answers").running);
    for index in 0..guest.0.launch().nics.len() {
        monitor.set_link(&nic_id(index), false).expect("there is such a NIC");
    }
    let error = monitor.set_link("nic99", false).expect_err("there is none");
    assert!(matches!(error, GuestError::Refused { .. }), "{error}");
    drop(monitor);

    let process = guest.0.process();
    guest.0.stop(END).expect("it ends");
    assert!(!process.exists(), "neither running nor a zombie");
}

#[test]
fn nics_are_plugged_and_unplugged_in_a_guest_started_with_stopped_processors() {
    let bench = Bench::new();
    let virtio = |index| nic(index, NicKind::Virtio { tap: tap(index), nic: VirtioNic::default() });
    let mtu = Some(9000.try_into().expect("an MTU"));
    let nics = vec![NicLaunch { slot: Some(16), host_mtu: mtu, ..virtio(0) }];
    let mut guest = bench.start(Launch { spare_ports: 2, paused: true, ..bench.launch(&agent(), nics) });
    guest.0.wait_ready(PATIENCE).expect("QEMU answers");
    assert!(!guest.0.monitor(END).and_then(|mut monitor| monitor.status()).expect("QEMU answers").running);
    guest.0.monitor(END).and_then(|mut monitor| monitor.resume()).expect("QEMU answers");
    guest.0.wait_agent(PATIENCE).expect("the agent opens its port");

    let several = VirtioNic { queues: 2, ..VirtioNic::default() };
    let second = nic(2, NicKind::Virtio { tap: tap(2), nic: several });
    let open = |nic: &NicLaunch| bench.queues(nic);
    guest.0.plug(0, 1, &virtio(1), open(&virtio(1)), END).expect("an empty slot");
    let error = guest.0.plug(0, 2, &second, open(&second), END).expect_err("the slot is taken");
    assert!(matches!(error, GuestError::Refused { .. }), "{error}");
    guest.0.plug(1, 2, &second, open(&second), END).expect("nothing is left of the first try");
    // The guest's system can release a NIC only after detecting it.
    guest.0.unplug(1, PATIENCE).expect("the guest lets it go");
    guest.0.unplug(2, PATIENCE).expect("the guest lets it go");
    guest.0.plug(0, 1, &virtio(1), open(&virtio(1)), END).expect("the slot is empty again");
    guest.0.stop(END).expect("it ends");
}

/// Each thread has a dedicated user, no privilege and a system call filter, and no other user has access to its files.
fn assert_confined(qemu: &Qemu) {
    let pid = qemu.process().pid.0;
    let own = fs::metadata(format!("/proc/{pid}")).expect("it runs").uid();
    assert!(OwnUsers::may_be(own), "{own}");
    for thread in fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten() {
        let status = fs::read_to_string(thread.path().join("status")).expect("a thread");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
            line.unwrap_or_else(|| panic!("no {name}: {status}"))
        };
        let ids = [own.to_string().as_str(); 4].join("\t");
        assert_eq!((field("Uid"), field("Gid"), field("Groups").trim()), (ids.as_str(), ids.as_str(), ""));
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(u64::from_str_radix(field(set), 16), Ok(0), "{set}");
        }
        assert_eq!((field("NoNewPrivs"), field("Seccomp")), ("1", "2"));
    }
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).expect("it runs");
    let limit = |name: &str| limits.lines().find_map(|line| line.strip_prefix(name)?.split_ascii_whitespace().next());
    assert_eq!(limit("Max core file size"), Some("0"));
    assert_ne!(limit("Max processes"), Some("unlimited"));
    let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("it runs");
    assert!(cgroup.contains("/vtax-web-") || limit("Max data size") != Some("unlimited"), "{cgroup}{limits}");

    let launch = qemu.launch();
    let mode = |path: &Path| {
        let found = fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (found.uid(), found.mode() & 0o077)
    };
    assert_eq!(mode(&launch.directory), (own, 0));
    for file in [launch.agent_socket(), launch.console_socket(), launch.qmp_socket(), launch.console_log()] {
        assert_eq!(mode(&file), (own, 0), "{}", file.display());
    }
    for file in [launch.agent_socket(), launch.console_log(), launch.stderr_log()] {
        assert_eq!(opened_by_another(&file), "denied\n", "{}", file.display());
    }
}

/// Error that the user of another guest gets.
fn opened_by_another(file: &Path) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let another = Confinement {
        users: OwnUsers::find(),
        groups: Vec::new(),
        directory: File::open(folder.path()).expect("ours").into(),
        files: Vec::new(),
        cgroup: None,
        limits: Vec::new(),
        reads_all_files: false,
    };
    let mut shell = Command::new("sh");
    shell.args(["-c", "if [ -e \"$0\" ] || [ -r \"$0\" ]; then echo seen; else echo denied; fi"]).arg(file);
    another.apply(&mut shell);
    String::from_utf8(shell.output().expect("a shell").stdout).expect("text")
}

/// The boot prints endlessly: the log is full after a moment, and everything else works. The disk is a qcow2 with a
/// backing file, and only root may read both.
#[test]
fn an_endless_console_stays_within_its_limit() {
    let bench = Bench::new();
    // mov dx, 0x3f8; mov al, 'x'; out dx, al; jmp to the out
    let mut launch = disk(&bench, Some(&[0xba, 0xf8, 0x03, 0xb0, b'x', 0xee, 0xeb, 0xfd]));
    launch.boot = Boot::Disk { disk: overlay(&bench), format: DiskFormat::Qcow2, keep: false };
    let mut guest = bench.start(launch);
    guest.0.wait_ready(PATIENCE).expect("QEMU answers");
    let size = |path: PathBuf| fs::metadata(path).expect("there is a log").blocks() * 512;
    let until = Instant::now() + PATIENCE;
    while !guest.0.last_words().is_full {
        assert!(Instant::now() < until && guest.0.is_alive(), "{} bytes", size(guest.0.launch().console_log()));
        thread::sleep(Duration::from_millis(20));
    }
    let full = size(guest.0.launch().console_log());
    assert!((MOST_LOGGED / 2..=MOST_LOGGED).contains(&full), "{full}");
    assert!(guest.0.monitor(END).expect("QEMU answers").status().expect("QEMU answers").running);
    assert_eq!(size(guest.0.launch().console_log()), full, "it grows no more");
    // QEMU's own messages have a separate log.
    guest.0.process().signal(Signal::TERM).expect("ours");
    let death = guest.0.death(END).expect("it ends").to_string();
    assert!(death.contains("terminating on signal 15") && death.contains("before its log was full"), "{death}");
    guest.end();
    assert_eq!(fs::read_dir(&guest.0.launch().directory).expect("it stays").count(), 0, "all is gone with the guest");
}

/// Through QEMU's own monitor, which can be told to allocate memory.
#[test]
fn a_guest_over_its_memory_limit_is_named() {
    let bench = Bench::new();
    let mut guest = bench.start(disk(&bench, Some(&[0xfa, 0xf4, 0xeb, 0xfd])));
    guest.0.wait_ready(PATIENCE).expect("QEMU answers");
    let mut monitor = UnixStream::connect(guest.0.launch().qmp_socket()).expect("QEMU listens");
    let ring = r#"{"execute": "chardev-add", "arguments": {"id": "NAME", "backend": {"type": "ringbuf", "data": {"size": 1073741824}}}}"#;
    monitor.write_all(br#"{"execute": "qmp_capabilities"}"#).expect("QEMU listens");
    for ring in ["one", "two", "three"].map(|name| ring.replace("NAME", name)) {
        // QEMU may have exited already.
        let _ = monitor.write_all(ring.as_bytes());
    }
    let death = guest.0.death(PATIENCE).expect("it ends");
    assert!(matches!(death, GuestError::OverMemory { .. }), "{death}");
    let told = death.to_string();
    assert!(told.starts_with("guest `web` exited: it exceeded its memory limit of 1"), "{told}");
}

/// It accepts writes, no other user can read it, and it is removed with the guest, whoever removes that.
#[test]
fn a_server_has_a_state_disk_until_it_is_removed() {
    let bench = Bench::new();
    let server = Launch {
        server: Some("emulated:nics=2,nodes=1,memory=1GiB".parse().expect("a server")),
        vcpus: 1,
        memory: "1 GiB".parse().expect("a size"),
        ..bench.launch(&agent(), Vec::new())
    };
    let mut guest = bench.start(server);
    guest.0.wait_ready(PATIENCE).expect("QEMU runs");
    let directory = &guest.0.launch().directory;
    let disk = fs::metadata(directory.join("state.img")).expect("it is there");
    let owner = fs::metadata(directory).expect("it is there").uid();
    assert_eq!((disk.mode() & 0o777, disk.uid(), disk.len()), (0o600, owner, 256 << 20));
    assert!(disk.blocks() * 512 < 1 << 20, "it has holes: {} blocks", disk.blocks());
    let directory = directory.clone();
    guest.end();
    assert_eq!(fs::read_dir(&directory).expect("it stays").count(), 0);
}

#[test]
fn a_guest_can_be_stopped_by_another_process() {
    let bench = Bench::new();
    let mut guest = bench.start(bench.launch(&agent(), Vec::new()));
    guest.0.wait_ready(PATIENCE).expect("QEMU answers");
    let mut other = Qemu::attach(guest.0.launch().clone(), guest.0.process());
    other.wait_agent(PATIENCE).expect("the agent opens its port");
    other.stop(END).expect("it ends");
    assert!(!guest.0.is_alive());
    assert!(matches!(guest.0.wait_ready(END), Err(GuestError::Ended { .. })));
}

/// A domain's system may be waited for (`vtax ldm exec`) before the domain's supervisor has started its processors.
#[test]
fn a_wait_for_the_agent_leaves_the_monitor_to_others() {
    let bench = Bench::new();
    let mut guest = bench.start(Launch { paused: true, ..bench.launch(&agent(), Vec::new()) });
    guest.0.wait_ready(PATIENCE).expect("QEMU answers");
    let mut other = Qemu::attach(guest.0.launch().clone(), guest.0.process());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| other.wait_agent(PATIENCE));
        thread::sleep(Duration::from_millis(100));
        let started = guest.0.monitor(PATIENCE / 10).and_then(|mut monitor| monitor.resume());
        started.expect("the monitor is free between looks");
        waiting.join().expect("no panic").expect("the agent opens its port");
    });
}

/// This test as the first process, which can't work: it exits, and so the kernel panics.
#[test]
fn a_panic_is_noticed_with_the_last_words_of_the_console() {
    let bench = Bench::new();
    let mut guest = bench.start(bench.launch(Path::new("/proc/self/exe"), Vec::new()));
    let error = guest.0.wait_agent(PATIENCE).expect_err("there is no agent");
    assert!(matches!(error, GuestError::Ended { .. }), "{error}");
    let told = error.to_string();
    assert!(told.contains("(its kernel panicked)") && told.contains("Attempted to kill init"), "{told}");
}

/// It waits forever for a disk that doesn't exist, and no processor hangs.
#[test]
fn a_guest_that_hangs_at_boot_is_abandoned_at_the_deadline() {
    let bench = Bench::new();
    let mut launch = bench.launch(&agent(), Vec::new());
    let Boot::Kernel { append, .. } = &mut launch.boot else { unreachable!("it boots a kernel") };
    append.extend(["rdinit=/none", "root=/dev/none", "rootwait"].map(str::to_owned));
    let mut guest = bench.start(launch);
    let patience = Duration::from_secs(3);
    let begun = Instant::now();
    let error = guest.0.wait_agent(patience).expect_err("there is no agent");
    assert!(begun.elapsed() >= patience && guest.0.is_alive());
    assert!(matches!(error, GuestError::Late { waited, .. } if waited == patience), "{error}");
    assert!(error.to_string().contains("`web` has no agent on its port within 3s"), "{error}");
}

/// Its processors are idle, like those of a guest without timer interrupts.
#[test]
fn a_guest_that_waits_at_boot_is_reset_once() {
    let bench = Bench::new();
    let mut launch = bench.launch(&agent(), Vec::new());
    let Boot::Kernel { append, .. } = &mut launch.boot else { unreachable!("it boots a kernel") };
    append.extend(["rdinit=/none", "root=/dev/none", "rootdelay=3600", "ignore_loglevel"].map(str::to_owned));
    let log = launch.console_log();
    let mut guest = bench.start(launch);
    let boots = || fs::read_to_string(&log).unwrap_or_default().matches("Linux version").count();
    let process = guest.0.process();
    let error = guest.0.wait_agent_telling(PATIENCE, |_, _| {
        if boots() > 1 {
            process.signal(Signal::KILL).expect("ours");
        }
    });
    let error = error.expect_err("there is no agent");
    assert!(matches!(error, GuestError::Ended { .. }), "{error}");
    assert_eq!(boots(), 2);
}

#[test]
fn a_hung_guest_is_late_and_a_killed_one_has_exited() {
    let bench = Bench::new();
    let mut guest = bench.start(bench.launch(&agent(), Vec::new()));
    guest.0.wait_ready(PATIENCE).expect("QEMU answers");
    guest.0.process().signal(Signal::STOP).expect("ours");
    let error = guest.0.wait_agent(Duration::from_millis(200)).expect_err("it is stopped");
    assert!(matches!(error, GuestError::Late { .. }), "{error}");
    guest.0.process().signal(Signal::KILL).expect("ours");
    let error = guest.0.wait_agent(END).expect_err("it is dead");
    assert!(error.to_string().contains("was killed by signal 9"), "{error}");
}

/// As KVM does to a guest with an instruction that it can't execute.
#[test]
fn a_guest_stopped_by_qemu_differs_from_a_slow_one() {
    let bench = Bench::new();
    let mut guest = bench.start(bench.launch(&agent(), Vec::new()));
    guest.0.wait_ready(PATIENCE).expect("QEMU answers");
    let monitor = UnixStream::connect(guest.0.launch().qmp_socket()).expect("QEMU listens");
    let mut replies = BufReader::new(monitor.try_clone().expect("a copy"));
    for command in ["", r#"{"execute": "qmp_capabilities"}"#, r#"{"execute": "stop"}"#] {
        (&monitor).write_all(command.as_bytes()).expect("QEMU listens");
        replies.read_line(&mut String::new()).expect("QEMU answers");
    }
    drop((monitor, replies));
    let error = guest.0.wait_agent(PATIENCE).expect_err("it is stopped");
    assert!(matches!(&error, GuestError::Stopped { state, .. } if state == "paused"), "{error}");
}

#[test]
fn a_missing_disk_is_named() {
    let bench = Bench::new();
    let mut launch = bench.launch(&agent(), Vec::new());
    launch.boot = Boot::Disk { disk: "/no/such.qcow2".into(), format: DiskFormat::Qcow2, keep: false };
    let error = Qemu::start(launch, Vec::new(), Outlive::No, |_| Ok(())).expect_err("there is no such disk");
    assert!(error.to_string().contains("disk image /no/such.qcow2"), "{error}");
}

#[test]
fn an_unknown_driver_is_named() {
    let kernel = Kernel::find(None).expect("a kernel for guests");
    let error = image::build(&kernel, &agent(), &["virtio_console", "no_such_nic"], Tools::None).expect_err("none");
    assert!(error.to_string().contains(&format!("kernel {} has no driver `no_such_nic`", kernel.release)), "{error}");
}

/// The probe's answer is true: a guest starts with the accelerator that it names.
#[test]
fn the_probed_accelerator_runs_a_guest() {
    let bench = Bench::new();
    let mut launch = bench.launch(&agent(), Vec::new());
    let Boot::Kernel { initramfs, .. } = &launch.boot else { unreachable!("it boots a kernel") };
    let why_not = accel::probe(&launch.qemu, &bench.kernel, initramfs).expect("a probe");
    launch.accel = if why_not.is_none() { Accelerator::Kvm } else { Accelerator::Tcg };
    bench.start(launch).0.wait_agent(PATIENCE).expect("the agent opens its port");
}

/// The modules of the agent's port and of the NICs.
fn drivers(launch: &Launch) -> Vec<&str> {
    let driver = |nic: &'_ NicLaunch| match nic.kind {
        NicKind::Virtio { .. } => "virtio_net",
        NicKind::Emulated { model, .. } => model.driver(),
        NicKind::Vfio { .. } => panic!("no device of the machine is handed over here"),
    };
    ["virtio_pci", "virtio_console"].into_iter().chain(launch.nics.iter().map(driver)).collect()
}

/// On a raw disk of 1 MiB, the code that a BIOS starts from the first sector if that has a boot signature.
fn disk(bench: &Bench, boot: Option<&[u8]>) -> Launch {
    let disk = bench.folder.path().join("disk,1.raw");
    let mut content = vec![0; 1 << 20];
    if let Some(code) = boot {
        content[..code.len()].copy_from_slice(code);
        content[510..512].copy_from_slice(&[0x55, 0xaa]);
    }
    fs::write(&disk, content).expect("ours");
    let mut launch = bench.launch(&agent(), Vec::new());
    launch.boot = Boot::Disk { disk, format: DiskFormat::Raw, keep: true };
    launch.seed = Some(Seed { agent: agent(), address: "198.18.0.3/24".parse().expect("an address") });
    launch
}

/// A qcow2 without data, backed by the raw disk (docs/interop/qcow2.rst in QEMU). Its clusters are the header, the
/// refcount table, the only refcount block, and the L1 table.
fn overlay(bench: &Bench) -> PathBuf {
    const CLUSTER: u64 = 1 << 16;
    let (base, overlay) = (bench.folder.path().join("disk,1.raw"), bench.folder.path().join("top.qcow2"));
    let name = b"disk,1.raw";
    let mut image = b"QFI\xfb".to_vec();
    image.extend(2_u32.to_be_bytes());
    image.extend(512_u64.to_be_bytes());
    for word in [name.len() as u32, 16] {
        image.extend(word.to_be_bytes());
    }
    image.extend((1_u64 << 20).to_be_bytes());
    for word in [0_u32, 1] {
        image.extend(word.to_be_bytes());
    }
    for offset in [3 * CLUSTER, CLUSTER] {
        image.extend(offset.to_be_bytes());
    }
    for word in [1_u32, 0, 0, 0] {
        image.extend(word.to_be_bytes());
    }
    image.resize(4 * CLUSTER as usize, 0);
    let mut put = |offset: u64, bytes: &[u8]| image[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    put(512, name);
    put(CLUSTER, &(2 * CLUSTER).to_be_bytes());
    put(2 * CLUSTER, &[0, 1, 0, 1, 0, 1, 0, 1]);
    fs::write(&overlay, image).expect("ours");
    for image in [&base, &overlay] {
        fs::set_permissions(image, Permissions::from_mode(0o600)).expect("ours");
    }
    overlay
}

/// All options of the smallest machine are valid for this QEMU; it needs no kernel to check them.
#[test]
fn a_disk_whose_system_is_silent_keeps_its_guest_waiting() {
    let bench = Bench::new();
    // cli; hlt; jmp to the hlt
    let launch = disk(&bench, Some(&[0xfa, 0xf4, 0xeb, 0xfd]));
    let mut guest = bench.start(launch);
    guest.0.wait_ready(PATIENCE).expect("QEMU takes every option");
    assert!(guest.0.launch().seed_directory().join("user-data").is_file());
    guest.0.stop(END).expect("it ends");
}

#[test]
fn a_disk_that_does_not_boot_is_not_waited_for() {
    let bench = Bench::new();
    let mut guest = bench.start(disk(&bench, None));
    let error = guest.0.wait_agent(PATIENCE).expect_err("there is no system").to_string();
    assert!(error.contains("exited") && error.contains("No bootable device"), "{error}");
}
