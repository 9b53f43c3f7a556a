//! Hosts, domains and journals for tests. None of them requires privilege: objects that the kernel would create are
//! only recorded.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;
use vtax_guest::launch::{Boot, GuestEngine, Launch, QemuProgram, Version};
use vtax_journal::{Header, Owner, Snapshot, checksum};
use vtax_lab::World;
use vtax_model::{
    domain::{Configuration, Constraints, CpuDemand, NewSwitch, NewVnet, PRIMARY, SwitchChange, VnetChange},
    guest::{Accelerator, Backend},
    topology::Name,
    units::{ByteSize, Mtu},
    vf::Vlan,
};
use vtax_step::PlugNic;

use crate::{
    bindings::{Bindings, BoundDevice, BoundDisk, BoundPath},
    bound::BoundDomain,
    capacity::HostCapacity,
    domains::start_step,
    error::BindError,
    host::{DomainHost, HostNet},
    host_change::HostChange,
    ldm_host::{HostFiles, LdmHost},
    notice::DomainNotice,
    order::DomainOrder,
    plan::{self, DomainEngine},
    step::{BeginDomain, DomainStep},
    switch::SwitchAbilities,
};

/// QEMU's process in journals. No process of this machine was started at that time.
pub(crate) const QEMU_PROCESS: &str = "4194303@1";

pub(crate) fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

pub(crate) fn mib(count: u64) -> ByteSize {
    ByteSize(count << 20)
}

pub(crate) fn mtu(bytes: i64) -> Mtu {
    Mtu::try_from(bytes).expect("an MTU")
}

pub(crate) fn vlan(id: i64) -> Vlan {
    Vlan::try_from(id).expect("a VLAN")
}

/// Returns four cores of two threads, and 700 of 1000 MiB available.
pub(crate) fn capacity() -> HostCapacity {
    HostCapacity {
        cores: vec![vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7]],
        memory: mib(1000),
        available: mib(700),
        uptime: Duration::ZERO,
    }
}

/// Returns the resources of a domain without devices.
pub(crate) fn bindings(domain: &str, cpus: &[u32], memory: ByteSize) -> Bindings {
    Bindings {
        domain: name(domain),
        id: 2,
        constraints: Constraints::default(),
        vcpus: cpus.len() as u32,
        cpus: cpus.iter().copied().collect(),
        memory,
        nics: Vec::new(),
        served: Vec::new(),
        disks: Vec::new(),
        devices: Vec::new(),
        console: None,
    }
}

/// Returns the host `sun` with a switch `vsw0` and a domain `mars` of a core and 128 MiB, which has the vnet `net0`.
pub(crate) fn configuration() -> Configuration {
    let mut all = Configuration::new("sun");
    add_switch(&mut all, "vsw0", PRIMARY, SwitchChange::default());
    add_domain(&mut all, "mars");
    add_vnet(&mut all, "net0", VnetChange::default());
    all
}

pub(crate) fn add_domain(all: &mut Configuration, domain: &str) {
    all.add_domain(&name(domain)).expect("it is new");
    all.set_cpus(&name(domain), CpuDemand::Cores(1)).expect("possible");
    all.set_memory(&name(domain), mib(128)).expect("possible");
}

pub(crate) fn add_switch(all: &mut Configuration, switch: &str, service: &str, change: SwitchChange) {
    let new = NewSwitch { name: name(switch), service: name(service), default_vlan: None, change };
    all.add_switch(new).expect("it is new");
}

/// Adds a vnet of `mars` on `vsw0`.
pub(crate) fn add_vnet(all: &mut Configuration, vnet: &str, change: VnetChange) {
    let new = NewVnet { name: name(vnet), switch: name("vsw0"), domain: name("mars"), change };
    all.add_vnet(new).expect("it is new");
}

/// Returns what `mars` gets on a host where nothing else is bound.
pub(crate) fn mars(all: &Configuration) -> Bindings {
    let request = plan::BindRequest {
        domain: &name("mars"),
        configuration: all,
        capacity: &capacity(),
        others: &[],
        own: None,
        devices: Vec::new(),
        disks: Vec::new(),
        is_free: &|_| true,
    };
    plan::bindings(&request).expect("there is room")
}

pub(crate) fn device(device: &str, port: Option<u32>) -> BoundDevice {
    BoundDevice { name: device.to_owned(), functions: vec!["0000:01:10.0".parse().expect("an address")], port }
}

/// Returns a disk of a volume `NAME@primary-vds0`, as its journal has it.
pub(crate) fn disk(disk: &str, id: u32) -> BoundDisk {
    let volume = format!("{disk}@primary-vds0");
    let path: BoundPath = serde_json::from_value(json!({
        "volume": volume, "backend": format!("/srv/{disk}.img"), "format": "raw", "id": { "device": 65024, "inode": id },
        "slice": null,
    }))
    .expect("a path");
    let whole = json!({ "name": disk, "volume": volume, "id": id, "size": 1 << 30, "paths": [path] });
    serde_json::from_value(whole).expect("a disk")
}

pub(crate) fn engine() -> DomainEngine {
    let qemu = QemuProgram {
        path: "/usr/bin/qemu".into(),
        version: Version { major: 9, minor: 2 },
        sandbox: true,
        q35: None,
        qboot: None,
    };
    let (kernel, initramfs) = (PathBuf::from("/boot/vmlinuz"), PathBuf::from("/run/initramfs"));
    let boot = Boot::Kernel { kernel, initramfs, append: Vec::new() };
    let engine = GuestEngine { qemu, accel: Accelerator::Kvm, boot };
    DomainEngine { engine, backend: Backend::Vhost, directory: "/run/vtax/domains/mars/qemu".into() }
}

pub(crate) fn launch(bindings: &Bindings, all: &Configuration) -> Launch {
    plan::launch(bindings, all, engine()).expect("its switches exist")
}

/// Returns the steps that plug a vnet of the configuration into a running domain.
pub(crate) fn plug(bindings: &Bindings, all: &Configuration, vnet: &str, port: u32) -> Vec<DomainStep> {
    let vnet = all.vnet(&bindings.domain, &name(vnet)).expect("it was added");
    let (bound, switch) = (plan::bound_nic(bindings.id, vnet), all.switch(&vnet.switch).expect("it exists"));
    let able = SwitchAbilities { vlans: true, guards_addresses: true };
    let steps = plan::steps_of(&bindings.domain, vnet, &bound, all, able, Some("eno1".to_owned()));
    let (launch, nic) = (Box::new(launch(bindings, all)), Box::new(plan::nic(vnet, &bound, switch, Backend::Vhost)));
    let plug = DomainStep::PlugNic(PlugNic { launch, process: QEMU_PROCESS.to_owned(), port, nic });
    steps.expect("its switch exists").into_iter().chain([plug]).collect()
}

/// Journal of a bound domain. Its steps were never executed.
pub(crate) struct DomainJournal {
    bindings: Bindings,
    batches: Vec<(Vec<DomainStep>, RecordedEnd)>,
    is_kept: bool,
}

/// End of a recorded batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordedEnd {
    Done,
    /// vtax was killed before its last step was done.
    Cut,
    Undone,
}

impl DomainJournal {
    /// Returns the journal of a domain that has these resources, and no QEMU yet.
    pub(crate) fn new(bindings: &Bindings) -> DomainJournal {
        let begin = DomainStep::Begin(BeginDomain { directory: "/run/vtax/domains/mars".into() });
        let batches = vec![(vec![begin], RecordedEnd::Done)];
        DomainJournal { bindings: bindings.clone(), batches, is_kept: true }
    }

    /// Adds its QEMU, which has exited.
    pub(crate) fn started(self, all: &Configuration) -> DomainJournal {
        let step = start_step(launch(&self.bindings, all), &self.bindings);
        self.batch([step])
    }

    pub(crate) fn batch(self, steps: impl IntoIterator<Item = DomainStep>) -> DomainJournal {
        self.ended(steps, RecordedEnd::Done)
    }

    pub(crate) fn ended(mut self, steps: impl IntoIterator<Item = DomainStep>, end: RecordedEnd) -> DomainJournal {
        self.batches.push((steps.into_iter().collect(), end));
        self
    }

    /// Its process was killed before it kept the journal.
    pub(crate) fn abandoned(mut self) -> DomainJournal {
        self.is_kept = false;
        self
    }

    /// Writes it below the directory of domains' run-time files.
    pub(crate) fn write(&self, domains: &Path) {
        let journals = domains.join("journals");
        fs::create_dir_all(&journals).expect("a directory");
        let lines = self.lines();
        let about = serde_json::to_value(&self.bindings).expect("JSON");
        let id = self.bindings.domain.to_string();
        let header = Header { format: vtax_journal::FORMAT, id, kind: "domain".into(), owner: Owner::current(), about };
        let first = [json!({ "header": header }), json!({ "sealed": lines.len() })];
        let text = first.iter().chain(&lines).flat_map(|line| checksum::line(line.to_string().as_bytes()));
        fs::write(journals.join(format!("{}.journal", self.bindings.domain)), text.collect::<Vec<u8>>())
            .expect("a file");
    }

    fn lines(&self) -> Vec<Value> {
        let (mut lines, mut number) = (Vec::new(), 0);
        for (batch, (steps, end)) in (1..).zip(&self.batches) {
            let mut ends = Vec::new();
            for (place, step) in steps.iter().enumerate() {
                lines.push(json!({ "intend": { "step": number, "batch": batch, "what": step } }));
                let is_start = matches!(step, DomainStep::StartGuest(_));
                let receipt = is_start.then_some(QEMU_PROCESS);
                match end {
                    RecordedEnd::Cut if place + 1 == steps.len() => {}
                    RecordedEnd::Undone => ends.push(json!({ "undone": { "step": number, "how": "reverted" } })),
                    _ => ends.push(json!({ "done": { "step": number, "receipt": receipt } })),
                }
                number += 1;
            }
            lines.extend(ends);
        }
        lines.extend(self.is_kept.then(|| json!("kept")));
        lines
    }

    /// Returns the domain according to this journal alone.
    pub(crate) fn read(&self) -> BoundDomain {
        let folder = tempfile::tempdir().expect("a directory");
        self.write(folder.path());
        self.read_below(folder.path()).expect("it is whole")
    }

    /// Writes it, and returns the domain, whose own files may be there.
    pub(crate) fn read_below(&self, domains: &Path) -> Result<BoundDomain, vtax_journal::JournalError> {
        self.write(domains);
        let snapshot = Snapshot::read(&domains.join("journals"), self.bindings.domain.as_str())?;
        BoundDomain::of(snapshot, domains)
    }
}

/// Host whose state and run-time files are in a directory of the test.
pub(crate) struct TestHost {
    folder: TempDir,
    pub(crate) host: LdmHost,
    notices: Arc<Mutex<Vec<DomainNotice>>>,
}

impl TestHost {
    /// Returns a host as an unprivileged user has it: orders only change the stored state.
    pub(crate) fn of_user() -> TestHost {
        TestHost::new(|_| None)
    }

    /// Returns a host whose bound domains are those with a record in [`TestHost::domains`].
    pub(crate) fn with_domains() -> TestHost {
        TestHost::new(|folder| Some(World::below(folder.join("run"))))
    }

    fn new(world: impl Fn(&Path) -> Option<World>) -> TestHost {
        let folder = tempfile::tempdir().expect("a directory");
        let files = HostFiles { state: folder.path().join("state"), agent: Some("/bin/sh".into()) };
        let notices: Arc<Mutex<Vec<DomainNotice>>> = Arc::default();
        let (heard, world) = (Arc::clone(&notices), world(folder.path()));
        let net = HostNet::here().expect("a namespace");
        let host = LdmHost::in_world(
            DomainHost { within: None },
            net,
            files,
            Box::new(move || Ok(world.clone())),
            move |notice| heard.lock().expect("no test panics while it listens").push(notice),
        );
        TestHost { folder, host, notices }
    }

    /// Returns the directory of domains' run-time files.
    pub(crate) fn domains(&self) -> PathBuf {
        self.folder.path().join("run/domains")
    }

    /// Stores a configuration of this host.
    pub(crate) fn store(&self, all: &Configuration) {
        let all = Configuration { host: self.host.id().to_owned(), ..all.clone() };
        let locked = self.host.store().lock().expect("it is free");
        let mut state = locked.read(self.host.id()).expect("it can be read");
        state.configuration = all;
        locked.write(&state).expect("there is room");
    }

    /// Returns the stored configuration.
    pub(crate) fn stored(&self) -> Configuration {
        self.host.read().expect("it can be read").configuration
    }

    /// Carries out a change.
    pub(crate) fn order(&self, change: crate::DomainChange) -> Result<(), BindError> {
        self.host.execute(DomainOrder::Change(Box::new(change))).map(drop)
    }

    /// Acts on the host under its lock.
    pub(crate) fn change<T>(&self, act: impl FnOnce(&HostChange<'_>) -> Result<T, BindError>) -> T {
        self.host.change(act).expect("it is possible")
    }

    /// Returns the notices since the last call.
    pub(crate) fn heard(&self) -> Vec<DomainNotice> {
        std::mem::take(&mut self.notices.lock().expect("nobody panicked"))
    }
}
