//! A guest with fio and with disks.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tempfile::TempDir;
use vtax_agent::{link::AgentLink, protocol::Ran};
use vtax_disk::carried::CarriedProgram;
use vtax_guest::{
    home,
    image::{self, Tools},
    kernel::Kernel,
    launch::{Boot, GuestEngine, LENT_DRIVERS, Launch, PORT_DRIVERS, QemuProgram},
    process::Qemu,
};
use vtax_model::{
    guest::{Accelerator, GuestSize},
    units::Span,
};
use vtax_sys::{netns::Outlive, process::Signal};

use super::{agent::agent, lent, monitor::RawMonitor};

/// A guest under TCG on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(120);
const END: Duration = Duration::from_secs(10);

/// Guests that measure have the machine to themselves, one after another.
static ALONE: Mutex<()> = Mutex::new(());

pub(crate) struct Machine {
    qemu: Qemu,
    link: AgentLink,
    folder: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Machine {
    pub(crate) fn start() -> Machine {
        Machine::start_with(|_| QemuProgram::find().expect("QEMU"))
    }

    /// One whose clock counts instructions, a nanosecond each: what it measures doesn't depend on what else this machine
    /// does, nor on how fast it translates.
    pub(crate) fn start_counted() -> Machine {
        Machine::start_with(|folder| {
            let found = QemuProgram::find().expect("QEMU");
            let path = folder.join("qemu");
            // Such a clock has one thread only.
            let script = format!(
                "#!/bin/sh\nfor word do shift; case $word in tcg,thread=multi) word=tcg,thread=single;; esac; \
                 set -- \"$@\" \"$word\"; done\nexec {} \"$@\" -icount shift=0,sleep=off\n",
                found.path.display()
            );
            fs::write(&path, script).expect("ours");
            fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("ours");
            QemuProgram { path, ..found }
        })
    }

    fn start_with(qemu: impl FnOnce(&Path) -> QemuProgram) -> Machine {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::Builder::new().prefix("vtax-disk").tempdir_in("/var/tmp").expect("a folder");
        fs::create_dir(folder.path().join("guest")).expect("ours");
        // QEMU's user opens the files of its disks.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("ours");
        let launch = launch(folder.path(), qemu(folder.path()));
        let mut qemu = Qemu::start(launch, Vec::new(), Outlive::No, |_| Ok(())).expect("QEMU starts");
        let link = qemu.wait_agent(PATIENCE).map(|()| qemu.launch().agent_socket());
        let link = link.map(|socket| AgentLink::connect_unix("guest", &socket, PATIENCE));
        let link = link.expect("the agent opens its port").expect("it answers");
        let machine = Machine { qemu, link, folder, _alone: alone };
        machine.shell("mount -t configfs none /sys/kernel/config");
        machine
    }

    /// A file of the host that QEMU's user may open.
    pub(crate) fn file(&self, name: &str, size: u64) -> PathBuf {
        let path = self.folder.path().join(name);
        File::create(&path).and_then(|file| file.set_len(size)).expect("room");
        fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("ours");
        path
    }

    pub(crate) fn monitor(&self) -> RawMonitor {
        RawMonitor::open(&self.qemu.launch().qmp_socket())
    }

    /// Waits for a disk, and gives its path.
    pub(crate) fn wait_disk(&self, name: &str) -> String {
        let until = Instant::now() + PATIENCE;
        let path = format!("/dev/{name}");
        while self.run(&["/bin/busybox", "test", "-b", &path]).status != 0 {
            assert!(Instant::now() < until, "there is no {path}");
            std::thread::sleep(Duration::from_millis(200));
        }
        path
    }

    /// Makes a disk without a store behind it (Documentation/block/null_blk.rst), in the place of one of that name.
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

    fn shell(&self, script: &str) {
        let ran = self.run(&["/bin/sh", "-c", script]);
        assert_eq!(ran.status, 0, "{script}: {}", ran.stderr);
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
        let _ = home::remove(self.qemu.launch());
    }
}

fn launch(folder: &Path, qemu: QemuProgram) -> Launch {
    let kernel = Kernel::find(None).expect("a kernel for guests");
    let disks = ["virtio_blk", "configfs", "null_blk"];
    let drivers: Vec<&str> = PORT_DRIVERS.into_iter().chain(LENT_DRIVERS).chain(disks).collect();
    let initramfs = image::build(&kernel, &agent(), &drivers, Tools::Busybox).expect("an image");
    let cache = image::cache().expect("a cache");
    let boot = Boot::Kernel { kernel: kernel.bootable().expect("a kernel"), initramfs, append: Vec::new() };
    let engine = GuestEngine { qemu, accel: Accelerator::Tcg, boot };
    let size = GuestSize { memory: "512 MiB".parse().expect("a size"), ..GuestSize::default() };
    Launch {
        lent: Some(CarriedProgram::fio(&cache).expect("fio is installed").folder),
        spare_ports: 1,
        ..Launch::new("disks".parse().expect("a name"), folder.join("guest"), engine, &size)
    }
}
