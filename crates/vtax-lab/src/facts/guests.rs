//! What a plan with guests must know of this machine. Gathered only for those: QEMU is asked, an
//! initramfs is made for each kernel and NIC, and once a boot of the machine a guest is started to see
//! whether KVM works.

use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use vtax_model::{
    guest::{Accelerator, Attach, Flavour, GuestDefaults, System},
    method::Unsupported,
    study::{Row, Study},
    topology::{Cable, Name, NicName, Topology},
    units::ByteSize,
};
use vtax_sys::{
    SysError,
    clock::tsc_khz,
    cpu::online_cpus,
    netlink::{probe_macvtap, probe_tap},
};

use super::{Facts, PciFacts, vhost_user};
use crate::{
    guest::{
        GuestError,
        accel::{self, AcceleratorChoice},
        disk,
        image::{self, Tools},
        kernel::Kernel,
        launch::Boot,
        qemu::QemuProgram,
    },
    nic,
    plan::driver_of,
    world::World,
};

/// What this machine has for guests. What it hasn't is there with why and what mends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestFacts {
    /// The program that runs them.
    pub qemu: Result<QemuFacts, Unsupported>,
    /// Whether taps can be made.
    pub tap: Result<(), Unsupported>,
    /// Whether macvtaps can be made, and opened.
    pub macvtap: Result<(), Unsupported>,
    /// Whether the kernel serves rings of virtio-net.
    pub vhost: Result<(), Unsupported>,
    /// Programs that serve rings of virtio-net, each with what it lacks for a lab.
    pub vhost_user: Vec<String>,
    /// The agent's program, which goes into guests.
    pub agent: PathBuf,
    /// What guests can boot: one entry for each system and driver that was asked for.
    pub systems: Vec<SystemFacts>,
    /// What programs can still have without swapping (`MemAvailable`).
    pub memory: ByteSize,
    /// Free huge pages of the usual size.
    pub huge_pages: ByteSize,
    /// CPUs that are online.
    pub cpus: Vec<u32>,
    /// NUMA nodes.
    pub nodes: Vec<u32>,
    /// Where labs have their directories.
    pub labs: PathBuf,
}

/// QEMU on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QemuFacts {
    /// The program.
    pub program: QemuProgram,
    /// What it can imitate.
    pub devices: BTreeSet<String>,
    /// What runs the guests' instructions.
    pub accel: Accelerator,
    /// Why that isn't KVM.
    pub no_kvm: Option<String>,
}

/// A system for guests with a certain NIC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemFacts {
    /// As it was asked for.
    pub system: System,
    /// The module that drives the NIC.
    pub driver: String,
    /// What is booted, or why there is nothing.
    pub boot: Result<Boot, Unsupported>,
}

/// What is going to be asked for.
#[derive(Debug, Clone)]
pub struct GuestNeeds {
    agent: PathBuf,
    kernel: Option<PathBuf>,
    wanted: BTreeSet<(Option<PathBuf>, String)>,
    disks: BTreeSet<(PathBuf, String)>,
    /// Guests with a NIC of the machine's, or a function of it: what drives that is found out there.
    devices: Vec<Device>,
}

/// A NIC that guests get, or virtual functions of it.
#[derive(Debug, Clone)]
struct Device {
    system: System,
    nic: NicName,
    functions: bool,
}

impl GuestNeeds {
    /// Nothing yet. `agent` is the program that becomes the first process of guests; `kernel` is what
    /// those boot that don't name a kernel of their own, and one is looked for if it is none.
    pub fn new(agent: &Path, kernel: Option<&Path>) -> GuestNeeds {
        let (wanted, disks, devices) = Default::default();
        GuestNeeds { agent: agent.to_owned(), kernel: kernel.map(Path::to_owned), wanted, disks, devices }
    }

    /// What the guests of a lab need.
    #[must_use]
    pub fn of_lab(self, topology: &Topology) -> GuestNeeds {
        topology.guests.iter().fold(self, |needs, guest| {
            let wire = topology.wires.iter().find(|wire| wire.name == guest.wire);
            let at = wire.and_then(|wire| wire.ends.iter().position(|host| *host == guest.host));
            let nic = wire.and_then(|wire| wire.nics.clone()).zip(at).map(|(Cable(nics), at)| nics[at].clone());
            needs.with(&guest.system, &guest.attach, nic.as_slice())
        })
    }

    /// What the rows of a study need.
    #[must_use]
    pub fn of_study(self, study: &Study) -> GuestNeeds {
        let nics = study.rows.iter().filter_map(|row| study.attach(*row));
        let cabled: Vec<NicName> = study.cables.iter().flat_map(|Cable(nics)| nics.clone()).collect();
        nics.fold(self, |needs, nic| needs.with(&study.guest.system, &nic, &cabled))
    }

    /// What every kind of NIC needs, as [`availability`](crate::availability) and
    /// [`guest_availability`](crate::guest_availability) tell of them.
    #[must_use]
    pub fn of_methods(self) -> GuestNeeds {
        let defaults = GuestDefaults::default();
        let nics = Flavour::ALL.into_iter().filter_map(|flavour| defaults.attach(Row::Device(flavour)));
        nics.fold(self, |needs, nic| needs.with(&defaults.system, &nic, &[]))
    }

    /// Whether there are no guests at all.
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty() && self.disks.is_empty() && self.devices.is_empty()
    }

    /// What a guest needs whose NIC that module drives in it.
    #[must_use]
    pub fn with_driver(mut self, system: &System, driver: &str) -> GuestNeeds {
        let driver = driver.to_owned();
        match system {
            System::Own { kernel } => self.wanted.insert((kernel.clone(), driver)),
            System::Disk { image } => self.disks.insert((image.clone(), driver)),
        };
        self
    }

    /// `cabled` are the NICs that it may get, if it gets one.
    fn with(mut self, system: &System, attach: &Attach, cabled: &[NicName]) -> GuestNeeds {
        if !attach.is_device() {
            // Each backend of virtio-net has the same driver.
            return self.with_driver(system, attach.flavour().map_or("virtio_net", nic::driver));
        }
        let functions = matches!(attach, Attach::SrIov(_));
        let device = |nic: &NicName| Device { system: system.clone(), nic: nic.clone(), functions };
        self.devices.extend(cabled.iter().map(device));
        self
    }

    /// With the drivers of the NICs, of those that this machine has.
    fn resolved(self, pci: &PciFacts) -> GuestNeeds {
        let driver = |device: &Device| driver_of(pci.find(device.nic.as_str()).ok()?, device.functions, pci);
        let found: Vec<(System, String)> =
            self.devices.iter().filter_map(|device| Some((device.system.clone(), driver(device)?))).collect();
        found.iter().fold(self, |needs, (system, driver)| needs.with_driver(system, driver))
    }
}

impl Facts {
    /// Looks at what this machine has for guests too, unless none are needed.
    #[must_use]
    pub fn with_guests(self, world: &World, needs: &GuestNeeds) -> Facts {
        let guests = (!needs.is_empty()).then(|| GuestFacts::gather(world, &needs.clone().resolved(&self.pci)));
        Facts { guests, ..self }
    }

    /// Where the guests of a lab have their directories.
    pub(crate) fn guests_directory(&self, lab: &Name) -> PathBuf {
        let labs = self.guests.as_ref().map(|guests| guests.labs.as_path());
        labs.unwrap_or(Path::new("")).join(lab.as_str()).join("guests")
    }
}

impl GuestFacts {
    pub(crate) fn gather(world: &World, needs: &GuestNeeds) -> GuestFacts {
        let mut systems = systems(needs);
        let qemu = QemuFacts::gather(needs, &systems).map_err(refused);
        if qemu.as_ref().is_ok_and(|qemu| qemu.accel == Accelerator::Tcg) {
            tell_clock(&mut systems);
        }
        GuestFacts {
            qemu,
            tap: probe_tap().map_err(refused),
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

    /// What a guest boots.
    pub(crate) fn boot(&self, system: &System, driver: &str) -> Result<Boot, Unsupported> {
        let found = self.systems.iter().find(|facts| facts.system == *system && facts.driver == driver);
        found.map_or_else(
            || {
                let why = format!("nobody has looked for a system with the driver `{driver}`");
                Err(Unsupported { why, remedy: "ask for guests by the name of their method".to_owned() })
            },
            |facts| facts.boot.clone(),
        )
    }
}

impl QemuFacts {
    /// KVM is tried with the first system that there is.
    fn gather(needs: &GuestNeeds, systems: &[SystemFacts]) -> Result<QemuFacts, GuestError> {
        let program = QemuProgram::find()?;
        let devices = program.devices()?;
        let verdict = try_kvm(&program, needs, systems);
        Ok(QemuFacts { program, devices, accel: verdict.accel, no_kvm: verdict.why })
    }
}

/// The trial needs a kernel and an initramfs, which guests with disks of their own don't have.
fn try_kvm(program: &QemuProgram, needs: &GuestNeeds, systems: &[SystemFacts]) -> AcceleratorChoice {
    let tcg = |error: GuestError| AcceleratorChoice {
        accel: Accelerator::Tcg,
        why: Some(format!("KVM can't be tried: {error}")),
    };
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
    tried.unwrap_or_else(tcg)
}

fn systems(needs: &GuestNeeds) -> Vec<SystemFacts> {
    let own = needs.wanted.iter().map(|(kernel, driver)| SystemFacts {
        system: System::Own { kernel: kernel.clone() },
        driver: driver.clone(),
        boot: own_system(needs, kernel.as_deref(), driver).map_err(refused),
    });
    let disks = needs.disks.iter().map(|(image, driver)| SystemFacts {
        system: System::Disk { image: image.clone() },
        driver: driver.clone(),
        boot: disk(needs, image).map_err(refused),
    });
    own.chain(disks).collect()
}

/// A translated guest has this machine's time stamp counter. Left to itself Linux measures it against a
/// timer that QEMU serves late: of guests that boot together on busy CPUs, some then take a second for
/// many, and give up waiting for what is on its way.
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

/// The agent's port, and the NIC.
fn drivers(nic: &str) -> [&str; 3] {
    ["virtio_pci", "virtio_console", nic]
}

fn disk(needs: &GuestNeeds, image: &Path) -> Result<Boot, GuestError> {
    let (disk, format) = disk::inspect(image)?;
    image::agent(&needs.agent)?;
    Ok(Boot::Disk { disk, format, keep: false })
}

fn vhost() -> Result<(), Unsupported> {
    const DEVICE: &str = "/dev/vhost-net";
    let opened = OpenOptions::new().read(true).write(true).open(DEVICE);
    opened.map(drop).map_err(|error| Unsupported {
        why: format!("{DEVICE} can't be opened: {error}"),
        remedy:
            "load the module `vhost_net` (CONFIG_VHOST_NET) and let this user open it, or use backend = \"userspace\""
                .to_owned(),
    })
}

/// A bridge with taps needs no file of the machine's.
fn no_macvtap(error: SysError) -> Unsupported {
    let Unsupported { why, remedy } = match error {
        SysError::NoSuchKind { kind } => Unsupported {
            why: format!("this kernel has no link kind {kind}"),
            remedy: "load or install the module `macvtap` (CONFIG_MACVTAP)".to_owned(),
        },
        error => refused(error),
    };
    Unsupported { why: format!("vnet = \"macvtap\": {why}"), remedy: format!("{remedy}, or use vnet = \"bridge\"") }
}

fn huge_pages() -> ByteSize {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = field(&text, "HugePages_Free").unwrap_or(0);
    ByteSize(free * meminfo("Hugepagesize").map_or(0, |size| size.0))
}

/// A figure in kB (which are KiB, proc_meminfo(5)).
fn meminfo(name: &str) -> Option<ByteSize> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    Some(ByteSize(field(&text, name)? << 10))
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

/// What the error says comes first, what mends it after its last semicolon.
fn refused(error: impl std::error::Error) -> Unsupported {
    let text = error.to_string();
    match text.rsplit_once("; ") {
        Some((why, remedy)) => Unsupported { why: why.to_owned(), remedy: remedy.to_owned() },
        None => Unsupported { why: text, remedy: "mend that, or use a zone method (bridge comes nearest)".to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use vtax_model::guest::EmulatedNic;

    use super::*;

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
        let drivers: Vec<&str> = needs.wanted.iter().map(|(_, driver)| driver.as_str()).collect();
        assert_eq!(drivers, ["8139cp", "e1000e", "igb", "virtio_net", "vmxnet3"]);
        let disk = System::Disk { image: "/no/such/image".into() };
        let needs =
            GuestNeeds::new(Path::new("/agent"), None).with(&disk, &Attach::Emulated { model: EmulatedNic::Igb }, &[]);
        let facts = systems(&needs);
        let error = facts[0].boot.as_ref().expect_err("it isn't there");
        assert!(error.why.contains("/no/such/image"), "{error}");
    }

    #[test]
    fn a_remedy_is_what_comes_last() {
        let error = GuestError::NoQemu { looked: vec!["/bin".into()] };
        let Unsupported { why, remedy } = refused(error);
        assert!(why.starts_with("guests need QEMU") && remedy.starts_with("install it"), "{why}; {remedy}");
    }
}
