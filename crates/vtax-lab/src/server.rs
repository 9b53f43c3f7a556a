//! The emulated server: a guest that is a whole machine with NICs that are cabled in pairs.
//!
//! The vtax that runs in the server builds the labs in it. Like a lab, the server has a journal, an owner and last
//! words, and can be an unprivileged user's.

use std::path::{Path, PathBuf};

use vtax_guest::{
    GuestError,
    image::{self, Tools},
    kernel::Kernel,
    launch::{Boot, DOMAIN_DRIVERS, GuestEngine, Launch, server_drivers},
    process::Qemu,
    threads::GuestPins,
};
use vtax_model::{
    guest::{GuestSize, System},
    method::Unsupported,
    server::ServerSpec,
    topology::Name,
    units::ByteSize,
};
use vtax_step::StartGuest;

use crate::{
    error::LabError,
    facts::{GuestFacts, QemuFacts},
    holding::Holding,
    live_holding::LiveHolding,
    step::LabStep,
    survey::GuestNeeds,
    world::{Lifetime, World},
};

/// The name of the kept server.
pub const KEPT: &str = "emulated";
const GUEST: &str = "server";
/// The namespace that QEMU runs in. It has no links, since QEMU itself connects the NICs.
const HOST: &str = "host";
/// The devices that QEMU must be able to emulate.
const DEVICES: [&str; 8] =
    ["igb", "intel-iommu", "nvme", "pcie-root-port", "pvpanic-pci", "pxb-pcie", "virtio-9p-pci", "virtio-blk-pci"];

/// Reason why there can be no emulated server here.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum ServerError {
    #[error("cannot start an emulated server: {0}")]
    #[diagnostic(code("no-emulated-server"))]
    Unsupported(Unsupported),
    #[error("cannot start an emulated server: {0}")]
    #[diagnostic(forward(0))]
    Guest(#[from] GuestError),
    #[error(
        "cannot start an emulated server: {} (QEMU {}) has no {}; install QEMU 8.0 or later, or set VTAX_QEMU to one",
        qemu.program.path.display(),
        qemu.program.version,
        missing.join(", ")
    )]
    #[diagnostic(code("qemu-too-old"))]
    Devices { qemu: Box<QemuFacts>, missing: Vec<&'static str> },
    #[error(
        "an emulated server of {wanted}, including its empty disks, does not fit in memory: {} MiB free; request less \
         (--server emulated:memory=2GiB,nvmes=0), or stop programs that use memory",
        available.0 >> 20
    )]
    #[diagnostic(code("not-enough-memory"))]
    Memory { wanted: ByteSize, available: ByteSize },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Lab(#[from] LabError),
}

/// The plan of an emulated server.
#[derive(Debug)]
pub struct ServerPlan {
    pub name: Name,
    pub spec: ServerSpec,
    pub qemu: QemuFacts,
    launch: Launch,
}

/// Plans a server. Boot files for it and its guests are put into the cache, since unpacking takes long in the server.
pub fn plan(
    name: &Name,
    spec: &ServerSpec,
    world: &World,
    agent: &Path,
    kernel: Option<&Path>,
) -> Result<ServerPlan, ServerError> {
    let system = System::default();
    let needs = GuestNeeds::new(agent, kernel).of_methods();
    // The drivers for a NIC assigned to a guest in the server, and for one of its virtual functions; and those of a
    // logical domain.
    let domain = [&DOMAIN_DRIVERS[..], &["-igb", "-igbvf"]].concat().join(",");
    let needs = ["igb", "igbvf", &domain].into_iter().fold(needs, |needs, driver| needs.with_driver(&system, driver));
    let facts = GuestFacts::gather(world, &needs);
    let qemu = check(spec, &facts)?;
    let boot = facts.boot(&system, "virtio_net").map_err(ServerError::Unsupported)?;
    let initramfs = image::build(&Kernel::find(kernel)?, agent, &server_drivers(), Tools::None)?;
    let directory = facts.labs.join(name.as_str()).join("guests").join(GUEST);
    let launch = launch(spec, qemu.engine(with_initramfs(boot, initramfs)), directory);
    Ok(ServerPlan { name: name.clone(), spec: *spec, qemu, launch })
}

impl ServerPlan {
    /// Starts the server.
    pub fn up(self, world: &World, lifetime: Lifetime) -> Result<LiveHolding, LabError> {
        LiveHolding::up(world, &self.name, Holding::Server(self.spec), steps(self.launch), lifetime)
    }
}

/// The server's QEMU; [`LabError::NoGuest`] if this is not an emulated server.
pub fn server(held: &LiveHolding) -> Result<Qemu, LabError> {
    held.guest(&name(GUEST))
}

/// Checks that this machine can have such a server.
fn check(spec: &ServerSpec, facts: &GuestFacts) -> Result<QemuFacts, ServerError> {
    let qemu = facts.qemu.clone().map_err(ServerError::Unsupported)?;
    let missing: Vec<_> = DEVICES.into_iter().filter(|device| !qemu.devices.contains(*device)).collect();
    if !missing.is_empty() {
        return Err(ServerError::Devices { qemu: Box::new(qemu), missing });
    }
    // Its disks are in this machine's memory, too.
    let wanted = ByteSize(spec.memory.0.saturating_add(spec.empty_disks().count() as u64 * ServerSpec::DISK_SIZE.0));
    match wanted > facts.memory {
        true => Err(ServerError::Memory { wanted, available: facts.memory }),
        false => Ok(qemu),
    }
}

fn with_initramfs(boot: Boot, initramfs: PathBuf) -> Boot {
    match boot {
        Boot::Kernel { kernel, append, .. } => Boot::Kernel { kernel, initramfs, append },
        disk @ Boot::Disk { .. } => disk,
    }
}

fn launch(spec: &ServerSpec, engine: GuestEngine, directory: PathBuf) -> Launch {
    let size = GuestSize { vcpus: spec.cpus, memory: spec.memory, ..GuestSize::default() };
    // Its events show whether it reboots.
    // The windows of its root complexes are those that SeaBIOS has configured.
    let launch = Launch::new(name(GUEST), directory, engine, &size);
    Launch { server: Some(*spec), has_events: true, qboot: None, ..launch }
}

fn steps(launch: Launch) -> Vec<LabStep> {
    let host = name(HOST);
    let namespace = LabStep::CreateNamespace { namespace: host.clone() };
    let start = StartGuest { host: Some(host), launch: Box::new(launch), pins: GuestPins::default() };
    vec![namespace, LabStep::StartGuest(start)]
}

fn name(text: &str) -> Name {
    text.parse().expect("it is a name")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use vtax_model::guest::Accelerator;

    use super::*;
    use vtax_guest::launch::{QemuProgram, Version};

    fn facts() -> GuestFacts {
        let program = QemuProgram {
            path: "/usr/bin/qemu-system-x86_64".into(),
            version: Version { major: 8, minor: 0 },
            sandbox: true,
            q35: None,
            qboot: None,
        };
        let devices: BTreeSet<String> = DEVICES.iter().map(|device| (*device).to_owned()).collect();
        let none = || Err(Unsupported::new("nobody asks", "don't"));
        GuestFacts {
            qemu: Ok(QemuFacts { program, devices, accel: Accelerator::Tcg, no_kvm: None }),
            tap: none(),
            macvtap: none(),
            vhost: none(),
            vhost_user: Vec::new(),
            agent: "/agent".into(),
            systems: Vec::new(),
            memory: ByteSize(7 << 30),
            huge_pages: ByteSize(0),
            cpus: vec![0],
            nodes: vec![0],
            labs: "/run/vtax/labs".into(),
            disks: Default::default(),
        }
    }

    #[test]
    fn missing_requirements_are_reported_with_a_remedy() {
        let refuse = |spec: &str, facts: &GuestFacts| {
            check(&spec.parse().expect("a server"), facts).expect_err("unavailable").to_string()
        };
        let mut old = facts();
        if let Ok(qemu) = &mut old.qemu {
            qemu.devices.remove("igb");
        }
        let error = refuse("emulated", &old);
        assert!(error.contains("(QEMU 8.0) has no igb; install QEMU 8.0 or later"), "{error}");
        let error = refuse("emulated:memory=6GiB", &facts());
        assert!(error.contains("of 8 GiB, including its empty disks, does not fit in memory: 7168 MiB"), "{error}");
        let error = refuse("emulated:memory=6GiB,nvmes=0,disks=2", &facts());
        assert!(error.contains("of 8 GiB, including its empty disks, does not fit"), "{error}");
        check(&"emulated:memory=6GiB,nvmes=1".parse().expect("a server"), &facts()).expect("it fits");
        let none = Unsupported::new("QEMU not found", "install it");
        let error = refuse("emulated", &GuestFacts { qemu: Err(none), ..facts() });
        assert!(error.contains("cannot start an emulated server: QEMU not found"), "{error}");
        check(&ServerSpec::default(), &facts()).expect("available");
    }

    #[test]
    fn it_is_one_guest_in_a_separate_namespace() {
        let spec = ServerSpec::default();
        let boot = Boot::Kernel { kernel: "/k".into(), initramfs: "/i".into(), append: Vec::new() };
        let qemu = facts().qemu.expect("there is one");
        let steps = steps(launch(&spec, qemu.engine(with_initramfs(boot, "/server".into())), "/run/g".into()));
        let [LabStep::CreateNamespace { namespace }, LabStep::StartGuest(start)] = &steps[..] else {
            panic!("{steps:?}")
        };
        let launch = &start.launch;
        assert_eq!((Some(namespace), launch.server, launch.vcpus), (start.host.as_ref(), Some(spec), spec.cpus));
        let text = steps[1].to_string();
        assert!(text.ends_with(" 10</k 11</server"), "{text}");
    }
}
