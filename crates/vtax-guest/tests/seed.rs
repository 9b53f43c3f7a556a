//! The seed that installs the agent into a system on a separate disk, in a real guest. There is no such system here; a
//! shell does what its cloud-init would do: it runs the seed's script. Requires QEMU, a kernel for guests, a static
//! busybox and the agent, like the guest tests.

#[path = "shared/agent.rs"]
mod agent;

use std::{
    fs,
    time::{Duration, Instant},
};

use agent::agent;
use vtax_guest::{
    home,
    image::{self, Tools},
    kernel::Kernel,
    launch::{Boot, GuestEngine, Launch, QemuProgram, Seed},
    process::Qemu,
    seed,
};
use vtax_model::guest::{Accelerator, GuestSize};
use vtax_sys::netns::Outlive;

/// Timeout for a guest under TCG on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(600);
const END: Duration = Duration::from_secs(30);

/// The first process of a minimal system. It runs the script twice.
fn system() -> String {
    format!(
        "#!/bin/busybox sh\n\
         /bin/busybox --install -s /bin\n\
         export PATH=/bin\n\
         mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev\n\
         while read -r module parameters; do insmod \"$module\"; done </etc/vtax/modules\n\
         seed() {{ (\n{}\n) }}\n\
         seed; sleep 2; seed\n\
         while :; do sleep 1000; done\n",
        seed::script()
    )
}

/// A file as in an archive that the kernel unpacks after the first
/// (Documentation/driver-api/early-userspace/buffer-format.rst).
fn entry(name: &str, mode: u32, data: &[u8]) -> Vec<u8> {
    let fields = [0, mode, 0, 0, 1, 0, data.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
    let mut bytes = b"070701".to_vec();
    bytes.extend(fields.iter().flat_map(|field| format!("{field:08x}").into_bytes()));
    for part in [[name.as_bytes(), b"\0"].concat().as_slice(), data] {
        bytes.extend(part);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

/// A guest that ends with its test, whatever the test's outcome.
struct Guest(Qemu);

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.stop(END);
        home::remove(self.0.launch()).expect("it has ended");
    }
}

/// Returns its output once it contains this text.
fn console(guest: &Qemu, awaited: &str) -> String {
    let until = Instant::now() + END;
    loop {
        let said = fs::read_to_string(guest.launch().console_log()).expect("it has a console");
        if said.contains(awaited) {
            return said;
        }
        assert!(Instant::now() < until, "it doesn't say `{awaited}`: {said}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_system_installs_the_agent_from_the_seed_and_runs_it() {
    let folder = tempfile::Builder::new().prefix("vtax-seed").tempdir_in("/tmp").expect("a folder");
    let kernel = Kernel::find(None).expect("a kernel for guests");
    let drivers = ["virtio_pci", "virtio_console", "virtio_blk", "vfat", "nls_cp437", "nls_ascii"];
    let base = image::build(&kernel, &agent(), &drivers, Tools::Busybox).expect("an image");
    let mut image = fs::read(base).expect("just built");
    image.extend(entry("system", 0o100_755, system().as_bytes()));
    image.extend(["usr", "usr/local", "usr/local/sbin"].iter().flat_map(|folder| entry(folder, 0o040_755, b"")));
    image.extend(entry("TRAILER!!!", 0, b""));
    let directory = folder.path().join("web");
    fs::create_dir(&directory).expect("ours");
    let initramfs = folder.path().join("system.cpio");
    fs::write(&initramfs, image).expect("ours");
    let engine = GuestEngine {
        qemu: QemuProgram::find().expect("QEMU"),
        accel: Accelerator::Tcg,
        boot: Boot::Kernel {
            kernel: kernel.bootable().expect("a kernel"),
            initramfs,
            append: vec!["rdinit=/system".to_owned()],
        },
    };
    let launch = Launch {
        seed: Some(Seed { agent: agent(), address: "198.18.0.3/24".parse().expect("an address") }),
        ..Launch::new("web".parse().expect("a name"), directory, engine, &GuestSize::default())
    };
    let mut guest = Guest(Qemu::start(launch, Vec::new(), Outlive::No, |_| Ok(())).expect("QEMU starts"));
    guest.0.wait_agent(PATIENCE).expect("the agent opens its port");
    let said = console(&guest.0, "vtax-agent: ready");
    assert!(said.contains("vtax-agent 0."), "the copy tells its version before: {said}");
    // As in an image that starts its own agent: the second one finds the port in use, and exits.
    console(&guest.0, "in use by another process");
    guest.0.wait_agent(PATIENCE).expect("the first one still has the port open");
}
