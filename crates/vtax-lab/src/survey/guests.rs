//! Determines the requirements of guests on this machine. This is done only if a plan has guests: it queries QEMU,
//! builds an initramfs for each kernel and NIC, and starts a guest once per boot of the machine to check whether KVM
//! works.

use std::{
    fs::{self, OpenOptions},
    path::Path,
};

use vtax_model::{
    guest::{Accelerator, System},
    method::Unsupported,
    units::ByteSize,
};
use vtax_sys::{
    SysError,
    clock::tsc_khz,
    cpu::online_cpus,
    netlink::{probe_macvtap, probe_tap},
};

use super::{needs::GuestNeeds, vhost_user};
use crate::{
    facts::{DiskFacts, GuestFacts, QemuFacts, SystemFacts},
    world::World,
};
use vtax_guest::{
    GuestError, accel, disk,
    image::{self, Tools},
    kernel::Kernel,
    launch::{Boot, PORT_DRIVERS, QemuProgram},
};

impl GuestFacts {
    pub(crate) fn gather(world: &World, needs: &GuestNeeds) -> GuestFacts {
        let mut systems = systems(needs);
        let qemu = QemuFacts::gather(needs, &systems).map_err(refused);
        if qemu.as_ref().is_ok_and(|qemu| qemu.accel == Accelerator::Tcg) {
            tell_clock(&mut systems);
        }
        let disks = DiskFacts::gather(&needs.disks, qemu.as_ref().ok().map(|qemu| &qemu.program));
        GuestFacts {
            qemu,
            disks,
            tap: probe_tap().map_err(|error| refused_by_kernel(&error)),
            macvtap: probe_macvtap().map_err(no_macvtap),
            vhost: vhost(),
            vhost_user: vhost_user::backends(),
            agent: needs.agent.clone(),
            systems,
            memory: meminfo("MemAvailable").unwrap_or(ByteSize(u64::MAX)),
            huge_pages: huge_pages(),
            cpus: online_cpus().map(|cpus| cpus.iter().collect()).unwrap_or_default(),
            nodes: nodes(),
            labs: world.labs(),
        }
    }
}

impl QemuFacts {
    /// Queries QEMU, and probes KVM with the first bootable system.
    fn gather(needs: &GuestNeeds, systems: &[SystemFacts]) -> Result<QemuFacts, GuestError> {
        let program = QemuProgram::find()?;
        let devices = program.devices()?;
        let no_kvm = why_no_kvm(&program, needs, systems);
        let accel = if no_kvm.is_none() { Accelerator::Kvm } else { Accelerator::Tcg };
        Ok(QemuFacts { program, devices, accel, no_kvm })
    }
}

/// The probe requires a kernel and an initramfs, which is built if all guests have their own disks.
fn why_no_kvm(program: &QemuProgram, needs: &GuestNeeds, systems: &[SystemFacts]) -> Option<String> {
    let own = systems.iter().find_map(|facts| match (&facts.system, &facts.boot) {
        (System::Own { kernel }, Ok(Boot::Kernel { initramfs, .. })) => Some((kernel.clone(), initramfs.clone())),
        _ => None,
    });
    let named = own.as_ref().and_then(|(kernel, _)| kernel.as_deref()).or(needs.kernel.as_deref());
    let tried = Kernel::find(named).and_then(|kernel| {
        let initramfs = match own {
            Some((_, initramfs)) => initramfs,
            None => image::build(&kernel, &needs.agent, &drivers("virtio_net"), Tools::Busybox)?,
        };
        accel::probe(program, &kernel, &initramfs)
    });
    tried.unwrap_or_else(|error| Some(format!("cannot try KVM: {error}")))
}

fn systems(needs: &GuestNeeds) -> Vec<SystemFacts> {
    let facts = |(system, driver): &(System, String)| {
        let boot = match system {
            System::Own { kernel } => own_system(needs, kernel.as_deref(), driver),
            System::Disk { image } => disk(needs, image),
        };
        SystemFacts { system: system.clone(), driver: driver.clone(), boot: boot.map_err(refused) }
    };
    needs.systems.iter().map(facts).collect()
}

/// Passes guests under TCG the frequency of the timestamp counter, which Linux measures inaccurately on busy CPUs.
fn tell_clock(systems: &mut [SystemFacts]) {
    let Some(khz) = tsc_khz() else { return };
    for system in systems {
        if let Ok(Boot::Kernel { append, .. }) = &mut system.boot {
            append.push(format!("tsc_early_khz={khz}"));
        }
    }
}

fn own_system(needs: &GuestNeeds, kernel: Option<&Path>, driver: &str) -> Result<Boot, GuestError> {
    let kernel = Kernel::find(kernel.or(needs.kernel.as_deref()))?;
    let initramfs = image::build(&kernel, &needs.agent, &drivers(driver), Tools::Busybox)?;
    Ok(Boot::Kernel { kernel: kernel.bootable()?, initramfs, append: Vec::new() })
}

/// The drivers of the agent's port and of the NICs.
fn drivers(nics: &str) -> Vec<&str> {
    PORT_DRIVERS.into_iter().chain(nics.split(',')).collect()
}

fn disk(needs: &GuestNeeds, image: &Path) -> Result<Boot, GuestError> {
    let (disk, format) = disk::inspect(image)?;
    image::agent(&needs.agent)?;
    Ok(Boot::Disk { disk, format, keep: false })
}

fn vhost() -> Result<(), Unsupported> {
    const DEVICE: &str = "/dev/vhost-net";
    let opened = OpenOptions::new().read(true).write(true).open(DEVICE);
    let refuse = |error| {
        Unsupported::new(
            format!("cannot open {DEVICE}: {error}"),
            "load the module `vhost_net` (CONFIG_VHOST_NET) and let this user open it, or use backend = \"userspace\"",
        )
    };
    opened.map(drop).map_err(refuse)
}

/// The remedy names the bridge as well, since a tap on a bridge needs no dedicated file in `/dev`.
fn no_macvtap(error: SysError) -> Unsupported {
    let Unsupported { why, remedy } = match error {
        SysError::NoSuchKind { kind } => Unsupported::new(
            format!("this kernel has no link kind {kind}"),
            "load or install the module `macvtap` (CONFIG_MACVTAP)",
        ),
        error => refused_by_kernel(&error),
    };
    Unsupported { why: format!("vnet = \"macvtap\": {why}"), remedy: format!("{remedy}, or use vnet = \"bridge\"") }
}

fn huge_pages() -> ByteSize {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = field(&text, "HugePages_Free").unwrap_or(0);
    ByteSize(free.saturating_mul(meminfo("Hugepagesize").map_or(0, |size| size.0)))
}

/// A figure in kB (which are KiB, proc_meminfo(5)).
fn meminfo(name: &str) -> Option<ByteSize> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    Some(ByteSize(field(&text, name)?.saturating_mul(1 << 10)))
}

fn field(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// A machine without NUMA has node 0.
fn nodes() -> Vec<u32> {
    let entries = fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| entry.file_name().to_string_lossy().strip_prefix("node")?.parse().ok();
    let mut nodes: Vec<u32> = entries.filter_map(number).collect();
    nodes.sort_unstable();
    if nodes.is_empty() { vec![0] } else { nodes }
}

const NO_REMEDY: &str = "fix that, or use a zone method (bridge is the closest)";

fn refused(error: GuestError) -> Unsupported {
    match error {
        GuestError::Missing { why } => why.into(),
        other => Unsupported::new(other.to_string(), NO_REMEDY),
    }
}

fn refused_by_kernel(error: &SysError) -> Unsupported {
    Unsupported::new(error.why(), error.remedy().unwrap_or(NO_REMEDY))
}

#[cfg(test)]
mod tests {
    use vtax_model::guest::{Attach, EmulatedNic};

    use super::*;
    use vtax_guest::MissingForGuests;

    #[test]
    fn figures_of_memory_are_found_by_their_whole_name() {
        let text = "MemTotal:  8 kB\nMemAvailable:    4 kB\nHugePages_Free:        3\nHugepagesize:       2048 kB\n";
        assert_eq!((field(text, "MemAvailable"), field(text, "HugePages_Free")), (Some(4), Some(3)));
        assert_eq!(field(text, "Mem"), None);
        assert!(meminfo("MemAvailable").is_some_and(|memory| memory.0 > 1 << 20));
    }

    #[test]
    fn one_system_serves_every_backend_and_each_model_has_its_own() {
        let needs = GuestNeeds::new(Path::new("/agent"), None);
        assert!(needs.is_empty());
        let needs = needs.of_methods();
        let drivers: Vec<&str> = needs.systems.iter().map(|(_, driver)| driver.as_str()).collect();
        assert_eq!(drivers, ["8139cp", "e1000e", "igb", "virtio_net", "vmxnet3"]);
        let disk = System::Disk { image: "/no/such/image".into() };
        let needs =
            GuestNeeds::new(Path::new("/agent"), None).with(&disk, &Attach::Emulated { model: EmulatedNic::Igb }, &[]);
        let facts = systems(&needs);
        let error = facts[0].boot.as_ref().expect_err("it isn't there");
        assert!(error.why.contains("/no/such/image"), "{error}");
    }

    #[test]
    fn reason_and_remedy_follow_from_the_error() {
        let missing = MissingForGuests::NoQemu { looked: vec!["/bin; x".into()] };
        let text = GuestError::from(missing).to_string();
        let Unsupported { why, remedy } = refused(MissingForGuests::NoQemu { looked: vec!["/bin; x".into()] }.into());
        assert!(why.ends_with("in /bin; x") && remedy.starts_with("install it"), "{why}; {remedy}");
        assert_eq!(text, format!("{why}; {remedy}"));
        let errno = std::io::Error::from(std::io::ErrorKind::NotFound);
        let remedy = Some("load tun, then try again");
        let error = SysError::Os { operation: "open", object: "/dev/net/tun".to_owned(), errno, detail: None, remedy };
        let text = error.to_string();
        let Unsupported { why, remedy } = refused_by_kernel(&error);
        assert_eq!((format!("{why}; {remedy}"), remedy.as_str()), (text, "load tun, then try again"));
    }
}
