//! Guest with fio and disks.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tempfile::TempDir;
use vtax_disk::carried::CarriedProgram;
use vtax_guest::{
    disk_threads::DiskThreads,
    home,
    image::{self, Tools},
    kernel::Kernel,
    launch::{Boot, DiskFormat, GuestDisks, GuestEngine, LENT_DRIVERS, Launch, PORT_DRIVERS, QemuProgram},
    paths,
    process::{self, Qemu},
    vdisk::{self, DiskFile, DiskLaunch, DiskPaths, DiskSource},
};
use vtax_model::{
    disk::DiskAttach,
    guest::{Accelerator, GuestSize},
    units::Span,
};
use vtax_sys::{netns::Outlive, process::Signal};
use vtax_wire::{link::AgentLink, protocol::Ran};

use super::{agent::agent, lent, monitor::RawMonitor};

/// Timeout for a guest under TCG on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(600);
const END: Duration = Duration::from_secs(30);

/// File that each attached disk uses.
const SHARED: &str = "shared.img";

/// Lock of guests that measure, so that they run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

pub(crate) struct Machine {
    qemu: Qemu,
    link: AgentLink,
    _rest: Rest,
    folder: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Machine {
    pub(crate) fn start() -> Machine {
        Machine::start_with(|_| QemuProgram::find().expect("QEMU"), Vec::new())
    }

    /// Starts a guest with the same file of the host attached once in each of these ways, and with several processors.
    pub(crate) fn start_attached(ways: &[DiskAttach]) -> Machine {
        Machine::start_with(|_| QemuProgram::find().expect("QEMU"), ways.to_vec())
    }

    /// Starts a guest whose clock counts instructions, one nanosecond each: its measurements depend neither on the
    /// machine's other work nor on the speed of translation.
    pub(crate) fn start_counted() -> Machine {
        let counted = |folder: &Path| {
            let found = QemuProgram::find().expect("QEMU");
            let path = folder.join("qemu");
            // Such a clock supports only one thread.
            let script = format!(
                "#!/bin/sh\nfor word do shift; case $word in tcg,thread=multi) word=tcg,thread=single;; esac; \
                 set -- \"$@\" \"$word\"; done\nexec {} \"$@\" -icount shift=0,sleep=off\n",
                found.path.display()
            );
            fs::write(&path, script).expect("ours");
            fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("ours");
            QemuProgram { path, ..found }
        };
        Machine::start_with(counted, Vec::new())
    }

    fn start_with(qemu: impl FnOnce(&Path) -> QemuProgram, ways: Vec<DiskAttach>) -> Machine {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::Builder::new().prefix("vtax-disk").tempdir_in("/var/tmp").expect("a folder");
        fs::create_dir(folder.path().join("guest")).expect("ours");
        // QEMU runs as a separate user, who opens the files of its disks.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("ours");
        let launch = launch(folder.path(), qemu(folder.path()), &ways);
        if !ways.is_empty() {
            make_file(&folder.path().join(SHARED), 64 << 20);
        }
        let rest = Rest(launch.clone());
        let boot = || {
            let mut qemu = Qemu::start(launch.clone(), Vec::new(), Outlive::No, |_| Ok(()))?;
            qemu.wait_agent(PATIENCE).map(|()| qemu)
        };
        // QEMU's translator occasionally crashes while a guest boots (`iotlb_to_section`).
        let qemu = boot().or_else(|error| {
            assert!(error.is_crash(), "the agent opens its port: {error}");
            drop(Rest(launch.clone()));
            fs::create_dir_all(&launch.directory).expect("ours");
            boot()
        });
        let qemu = qemu.expect("the agent opens its port");
        let link = AgentLink::connect_unix("guest", &qemu.launch().agent_socket(), PATIENCE).expect("it answers");
        let machine = Machine { qemu, link, _rest: rest, folder, _alone: alone };
        machine.shell("mount -t configfs none /sys/kernel/config");
        machine
    }

    /// Creates a file of the host that QEMU's user may open.
    pub(crate) fn file(&self, name: &str, size: u64) -> PathBuf {
        let path = self.folder.path().join(name);
        make_file(&path, size);
        path
    }

    /// Returns the disk attached in the way of this number, by its path in the guest.
    pub(crate) fn attached(&self, number: usize) -> String {
        let until = Instant::now() + PATIENCE;
        let disk = &self.qemu.launch().disks.disks[number];
        loop {
            let ran = self.run(&DiskLaunch::LISTING);
            if let Some(name) = disk.find(ran.stdout.raw()) {
                return format!("/dev/{name}");
            }
            assert!(Instant::now() < until, "there is no disk {number}: {}\n{}", ran.stdout, self.dmesg());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Returns the host's threads that serve the guest's disks.
    pub(crate) fn disk_threads(&self) -> DiskThreads {
        DiskThreads::of(self.qemu.launch(), self.qemu.process()).expect("it runs")
    }

    /// Returns the names of QEMU's threads that serve only disks.
    pub(crate) fn iothreads(&self) -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.qemu.process().pid)).expect("it runs").flatten();
        let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
        let mut names: Vec<String> =
            names.filter_map(|name| Some(name.trim_end().strip_prefix("IO disk-")?.to_owned())).collect();
        names.sort();
        names
    }

    fn dmesg(&self) -> String {
        self.run(&["/bin/busybox", "dmesg"]).stdout.to_string()
    }

    pub(crate) fn qemu(&self) -> &Qemu {
        &self.qemu
    }

    pub(crate) fn monitor(&self) -> RawMonitor {
        RawMonitor::open(&self.qemu.launch().qmp_socket())
    }

    /// Waits for a disk, and returns its path.
    pub(crate) fn wait_disk(&self, name: &str) -> String {
        let until = Instant::now() + PATIENCE;
        let path = format!("/dev/{name}");
        while self.run(&["/bin/busybox", "test", "-b", &path]).status != 0 {
            assert!(Instant::now() < until, "there is no {path}");
            std::thread::sleep(Duration::from_millis(200));
        }
        path
    }

    /// Creates a disk without storage (Documentation/block/null_blk.rst), replacing one of the same name.
    pub(crate) fn null_disk(&self, name: &str, settings: &[(&str, &str)]) -> String {
        let folder = format!("/sys/kernel/config/nullb/{name}");
        let set: Vec<String> = settings.iter().map(|(name, value)| format!("echo {value} >{folder}/{name}")).collect();
        let set = set.join(" && ");
        let before = format!("if [ -d {folder} ]; then echo 0 >{folder}/power; rmdir {folder}; fi");
        self.shell(&format!("{before}; mkdir {folder} && {set} && echo 256 >{folder}/size && echo 1 >{folder}/power"));
        self.wait_disk(name)
    }

    pub(crate) fn fio(&self, arguments: &[String]) -> Ran {
        let argv = [CarriedProgram::command(lent()), arguments.to_vec()].concat();
        self.link.run(&argv, &[], Span(PATIENCE)).expect("it runs")
    }

    pub(crate) fn shell(&self, script: &str) -> String {
        let ran = self.run(&["/bin/sh", "-c", script]);
        assert_eq!(ran.status, 0, "{script}: {}", ran.stderr);
        ran.stdout.raw().to_owned()
    }

    fn run(&self, argv: &[&str]) -> Ran {
        let argv: Vec<String> = argv.iter().map(ToString::to_string).collect();
        self.link.run(&argv, &[], Span(PATIENCE)).expect("it runs")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.qemu.process().signal(Signal::KILL);
        let _ = self.qemu.stop(END);
    }
}

/// Cleanup of objects that outlive the test's process: storage daemons and mounts.
struct Rest(Launch);

impl Drop for Rest {
    fn drop(&mut self) {
        let _ = process::end(&self.0, None);
        let _ = paths::end_all(&self.0.name, &self.0.directory);
        let _ = home::remove(&self.0);
    }
}

fn make_file(path: &Path, size: u64) {
    File::create(path).and_then(|file| file.set_len(size)).expect("room");
    fs::set_permissions(path, Permissions::from_mode(0o666)).expect("ours");
}

fn launch(folder: &Path, qemu: QemuProgram, ways: &[DiskAttach]) -> Launch {
    let kernel = Kernel::find(None).expect("a kernel for guests");
    let disks = ["virtio_blk", "configfs", "null_blk"];
    let attached = ways.iter().flat_map(|way| vdisk::drivers(way.device));
    let drivers: Vec<&str> =
        PORT_DRIVERS.into_iter().chain(LENT_DRIVERS).chain(disks).chain(attached.copied()).collect();
    let initramfs = image::build(&kernel, &agent(), &drivers, Tools::Busybox).expect("an image");
    let carried = image::carried().expect("a cache");
    let boot = Boot::Kernel { kernel: kernel.bootable().expect("a kernel"), initramfs, append: Vec::new() };
    let engine = GuestEngine { qemu, accel: Accelerator::Tcg, boot };
    let vcpus = if ways.is_empty() { 1 } else { 4 };
    let size = GuestSize { vcpus, memory: "512 MiB".parse().expect("a size"), ..GuestSize::default() };
    let file = folder.join(SHARED);
    let disks: Vec<DiskLaunch> = (0..).zip(ways).map(|(port, way)| disk(&file, port, *way)).collect();
    Launch {
        lent: Some(CarriedProgram::fio(&carried).expect("fio is installed").folder),
        spare_ports: 1,
        disks: GuestDisks { ports: disks.len() as u32, disks },
        ..Launch::new("disks".parse().expect("a name"), folder.join("guest"), engine, &size)
    }
}

fn disk(file: &Path, port: u32, way: DiskAttach) -> DiskLaunch {
    let file = DiskFile {
        path: file.to_owned(),
        format: DiskFormat::Raw,
        is_device: false,
        slice: None,
        exclusive: false,
        shared: true,
        direct: true,
    };
    let source = match way.device.is_served() {
        true => DiskSource::Paths(DiskPaths { files: vec![file], timeout: None }),
        false => DiskSource::File(file),
    };
    DiskLaunch { port, serial: format!("row-{port}"), read_only: false, attach: Some(way), source }
}
