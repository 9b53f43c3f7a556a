//! Errors of binding, starting, stopping and unbinding domains.

use std::{fmt, io, path::Path, time::Duration};

use vtax_change::pci::PciChangeError;
use vtax_guest::{GuestError, locate::LocateError, migration::MigrationError};
use vtax_journal::{ExecuteError, JournalError, UndoBatchError, UndoErrors};
use vtax_lab::{
    LabError,
    io::{AssignError, VfError},
};
use vtax_libvirt::LibvirtError;
use vtax_model::{
    domain::{DomainError, DomainState, PortRange, UserName},
    endpoint::LabHost,
    method::Unsupported,
    topology::{BadName, Name},
    units::ByteSize,
};
use vtax_step::StepError;
use vtax_sys::{SysError, process::Pid};

use crate::{
    backend::BackendError,
    migration::{MigrationNames, ObstacleText},
    ports_apart::PortsApart,
    store::DomainStoreError,
};

/// Reason why a domain can't be bound, started, stopped or unbound.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum BindError {
    #[error(transparent)]
    #[diagnostic(transparent)]
    Domain(#[from] DomainError),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Store(#[from] DomainStoreError),
    #[error(
        "binding, starting, stopping, unbinding and measuring domains and changing virtual functions require root; run \
         this command with sudo"
    )]
    #[diagnostic(code("not-root"))]
    NotRoot,
    #[error(transparent)]
    #[diagnostic(transparent)]
    NoAgent(#[from] LocateError),
    #[error("{object} is left unchanged because its record cannot be read: {error}{}", remedy_for(object, error))]
    #[diagnostic(forward(error))]
    Unreadable { object: Name, error: JournalError },
    #[error("{domain} is {state}; {remedy}")]
    #[diagnostic(code("domain-state"))]
    State { domain: Name, state: DomainState, remedy: &'static str },
    #[error("some switches or domains could not be started: {failed}; all others are running")]
    #[diagnostic(code("not-all-started"))]
    NotAllStarted { failed: String },
    #[error("primary is this host, which vtax does not crash; to crash it, run as root: echo c >/proc/sysrq-trigger")]
    #[diagnostic(code("is-primary"))]
    PanicOfPrimary,
    #[error(
        "init-system requires a host without domains and services, and this one has some; run set-spconfig \
         factory-default first, or add those in the file to them (-f)"
    )]
    #[diagnostic(code("not-factory-default"))]
    NotFactoryDefault,
    #[error("there is no core {id}: this host has cores 0 to {last} (vtax ldm list-devices -a core)")]
    #[diagnostic(code("no-such-object"))]
    NoSuchCore { id: u32, last: usize },
    #[error("users: this host has no user `{user}`; see getent passwd")]
    #[diagnostic(code("no-such-user"))]
    NoUser { user: UserName },
    #[error(
        "{domain} is {state} and uses it as {disk}; stop and unbind the domain first, or remove the disk (vtax ldm \
         rm-vdisk {disk} {domain})"
    )]
    #[diagnostic(code("domain-state"))]
    VolumeInUse { domain: Name, state: DomainState, disk: Name },
    #[error("{host} is a host of a lab, which has no PCI devices; omit --in to use this machine's")]
    #[diagnostic(code("device-not-assignable"))]
    LabDevices { host: LabHost },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Assignable(#[from] Box<AssignError>),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Function(#[from] Box<VfError>),
    #[error("{name} has {there} virtual functions, and Linux removes all of them together, not {wanted}; use -n max")]
    #[diagnostic(code("bad-property"))]
    FunctionCount { name: String, there: usize, wanted: u32 },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Libvirt(#[from] Box<LibvirtError>),
    #[error("{error}; choose another name here: --as DOMAIN")]
    #[diagnostic(code("bad-name"))]
    ImportName { error: BadName },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Backend(#[from] Box<BackendError>),
    #[error(
        "LDom {domain} stop timed out: it has not shut down within {seconds} s and is still running; wait, or stop it immediately \
         (vtax ldm stop -f {domain})"
    )]
    #[diagnostic(code("not-shut-down"))]
    NotShutDown { domain: Name, seconds: u64 },
    #[error(
        "the QEMU of {domain} doesn't answer, so {domain} has no supervisor; kill it with vtax ldm stop -f {domain} \
         ({error})"
    )]
    #[diagnostic(code("domain-hung"))]
    Hung { domain: Name, error: Box<GuestError> },
    #[error("{domain} has no memory yet; add some: vtax ldm set-memory 1G {domain}")]
    #[diagnostic(code("domain-incomplete"))]
    NoMemory { domain: Name },
    #[error("{domain} has no CPUs yet; add some: vtax ldm set-vcpu 1 {domain}, or set-core for whole cores")]
    #[diagnostic(code("domain-incomplete"))]
    NoCpus { domain: Name },
    #[error(
        "{domain}: {wanted} of memory requested, {available} available{who}; request less, or unbind another domain"
    )]
    #[diagnostic(code("not-enough-memory"))]
    Memory { domain: Name, wanted: ByteSize, available: ByteSize, who: String },
    #[error("{domain}: {wanted} {what} requested, {free} available{who}; request fewer, or unbind a domain")]
    #[diagnostic(code("not-enough-cpus"))]
    Cpus { domain: Name, wanted: u32, free: usize, what: &'static str, who: String },
    #[error(
        "{domain} cannot have core {id}: this host has cores 0 to {last} (vtax ldm list-devices -a core); choose \
         others: vtax ldm set-core cid=… {domain}"
    )]
    #[diagnostic(code("not-enough-cpus"))]
    NoCore { domain: Name, id: u32, last: usize },
    #[error(
        "{domain} cannot have core {id}: {other} has it; choose another (vtax ldm set-core cid=…), or unbind {other}"
    )]
    #[diagnostic(code("not-enough-cpus"))]
    CoreTaken { domain: Name, id: u32, other: Name },
    #[error("the console service {service} has no free port in {ports}; extend its range (set-vcc port-range=…)")]
    #[diagnostic(code("console-port-taken"))]
    NoPort { service: Name, ports: PortRange },
    #[error(
        "{domain} cannot have its console on port {port}: the group {group} has it; choose another (set-vcons port=…)"
    )]
    #[diagnostic(code("console-port-taken"))]
    PortInUse { domain: Name, port: u16, group: Name },
    #[error("{domain} cannot run on this host: {0}", unsupported, domain = domain)]
    #[diagnostic(code("no-guests"))]
    Unsupported { domain: Name, unsupported: Unsupported },
    #[error("the link {link} does not exist; plug it in, or choose another (set-vsw net-dev=…)")]
    #[diagnostic(code("no-such-link"))]
    NoLink { link: String },
    #[error("the link {link} cannot be used: {why}; choose another (set-vsw net-dev=…)")]
    #[diagnostic(code("link-in-use"))]
    LinkInUse { link: String, why: String },
    #[error("the link {link} has mtu {has}, and the switch {wanted}; first run ip link set {link} mtu {wanted}")]
    #[diagnostic(code("mtu-too-large"))]
    LinkMtu { link: String, has: u32, wanted: u32 },
    #[error(
        "the link {link} already exists and was not created by vtax; rename it, or choose another name for the switch"
    )]
    #[diagnostic(code("link-in-use"))]
    LinkName { link: String },
    #[error(
        "the switch {switch} or one of its vnets uses VLANs, and this kernel's bridges cannot isolate VLANs; omit pvid \
         and vid, or use a kernel with CONFIG_BRIDGE_VLAN_FILTERING"
    )]
    #[diagnostic(code("no-vlans"))]
    NoVlans { switch: Name },
    #[error("{domain} cannot have its disk {disk}: {error}")]
    #[diagnostic(forward(error))]
    Disk { domain: Name, disk: Name, error: Box<BackendError> },
    #[error("{domain} cannot have its device: {error}")]
    #[diagnostic(forward(error))]
    Assign { domain: Name, error: Box<AssignError> },
    #[error(
        "{function} cannot be configured: its physical function has no link in this network namespace; bind its usual \
         driver to it"
    )]
    #[diagnostic(code("no-network-link"))]
    NoFunctionLink { function: String },
    #[error("{function} works only while the link of its physical function is up; first run ip link set {link} up")]
    #[diagnostic(code("nic-down"))]
    PhysicalDown { function: String, link: String },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Device(#[from] PciChangeError),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Step(#[from] StepError),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Guest(#[from] GuestError),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Lab(#[from] LabError),
    #[error("{object}: {error}")]
    #[diagnostic(code("not-bound"))]
    Build { object: Name, error: Box<ExecuteError<StepError>> },
    #[error(transparent)]
    #[diagnostic(code("not-unbound"))]
    Undo(#[from] Box<UndoErrors<StepError>>),
    #[error(transparent)]
    #[diagnostic(code("not-unbound"))]
    UndoBatch(#[from] Box<UndoBatchError<StepError>>),
    #[error("{domain} has no virtual NIC; add one (vtax ldm add-vnet NAME SWITCH {domain}), and restart the domain")]
    #[diagnostic(code("no-shared-switch"))]
    NoNic { domain: Name },
    #[error("this host has no virtual switch; create one: vtax ldm add-vsw NAME primary")]
    #[diagnostic(code("no-shared-switch"))]
    NoSwitch,
    #[error("{domain} doesn't currently have the vnet {vnet}: changes take effect at its next boot; stop and start it")]
    #[diagnostic(code("domain-state"))]
    PendingNic { vnet: Name, domain: Name },
    #[error(
        "{} is on the switch {}, and {} on {}: no frame passes between them; add a vnet for one of them on the other's \
         switch: {}",
        .0.one, .0.one_switch, .0.other, .0.other_switch, .0.remedy
    )]
    #[diagnostic(code("no-shared-switch"))]
    NoSharedSwitch(Box<PortsApart>),
    #[error(
        "{} is in {} of the switch {}, and {} in {}: no frame passes between them; choose other vnets, or put both \
         into one VLAN: {}",
        .0.one, .0.one_vlan, .0.one_switch, .0.other, .0.other_vlan, .0.remedy
    )]
    #[diagnostic(code("no-shared-vlan"))]
    VlansApart(Box<PortsApart>),
    #[error(
        "198.18.0.0/15 has no pair of addresses left that the endpoints neither use nor route to; assign both endpoints \
         addresses in one network, and vtax measures over these"
    )]
    #[diagnostic(code("no-free-addresses"))]
    NoFreeNet,
    #[error("{object}: {error}")]
    #[diagnostic(code("kernel"))]
    Lend { object: String, error: Box<ExecuteError<StepError>> },
    #[error("the description of {domain} by its host is invalid: {why}")]
    #[diagnostic(code("bad-offer"))]
    BadOffer { domain: Name, why: &'static str },
    #[error("{domain} cannot migrate to {target}: {reasons}")]
    #[diagnostic(code("cannot-migrate"))]
    CannotMigrate { domain: Name, target: String, reasons: String },
    #[error(
        "{domain} cannot migrate: it would see another machine at the target ({differences}); stop it first (vtax ldm \
         stop-domain {domain})"
    )]
    #[diagnostic(code("cannot-migrate"))]
    LaunchDiffers { domain: Name, differences: String },
    #[error("{domain} was started or stopped while its migration began; try again")]
    #[diagnostic(code("domain-state"))]
    Changed { domain: Name },
    #[error("{domain} is migrating to {target}; wait for its end, or cancel it (vtax ldm migrate-domain -c {domain})")]
    #[diagnostic(code("domain-migrates"))]
    Migrates { domain: Name, target: String },
    #[error(
        "{domain} is still migrating: the process that moves it (pid {mover}) has not responded to the cancellation for \
         {} s; kill it, and vtax settles the migration within seconds",
        waited.as_secs()
    )]
    #[diagnostic(code("migration-mover-silent"))]
    MoverSilent { domain: Name, mover: Pid, waited: Duration },
    #[error("{domain} is not migrating (vtax ldm list)")]
    #[diagnostic(code("not-migrating"))]
    NotMigrating { domain: Name },
    #[error("{domain} is not expected here: its migration was cancelled, or never prepared")]
    #[diagnostic(code("not-expected"))]
    NotExpected { domain: Name },
    #[error("{domain} keeps running here: {target} received its memory, but could not load it; see the messages there")]
    #[diagnostic(code("migration-target-lost"))]
    NotTaken { domain: Name, target: String },
    #[error("cannot give an order to {target}: {why}")]
    #[diagnostic(code("migration-target"))]
    MigrationTarget { target: String, why: String },
    #[error(
        "{target} may have {domain}, and cannot be asked ({why}), so {domain} waits here, suspended if the switchover had \
         begun; restore the connection: vtax asks again every minute, and lets it continue here or removes it"
    )]
    #[diagnostic(code("migration-unsettled"))]
    Unsettled { domain: Name, target: String, why: String },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Migration(#[from] MigrationError),
    #[error("{domain}: its supervisor {why}")]
    #[diagnostic(code("no-supervisor"))]
    Supervisor { domain: Name, why: String },
}

/// Returns what to do about a record, as the end of a message.
fn remedy_for(object: &Name, error: &JournalError) -> String {
    match error.is_damage() {
        true => format!("; vtax ldm release {object} releases its resources, and sets a damaged file aside"),
        false => String::new(),
    }
}

impl BindError {
    pub(crate) fn cannot_migrate(names: &MigrationNames, reasons: &[ObstacleText]) -> BindError {
        let MigrationNames { domain, target } = names.clone();
        let reasons: Vec<String> = reasons.iter().map(ObstacleText::to_string).collect();
        BindError::CannotMigrate { domain, target, reasons: reasons.join("; ") }
    }

    pub(crate) fn kernel(object: impl fmt::Display) -> impl FnOnce(SysError) -> BindError {
        let wrong = StepError::kernel(object.to_string());
        move |error| wrong(error).into()
    }

    pub(crate) fn file(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BindError {
        let wrong = StepError::file(operation, path);
        move |error| wrong(error).into()
    }

    /// Returns true if the cause is the user's input, not the host.
    pub fn is_of_input(&self) -> bool {
        use BindError::*;
        if let Libvirt(error) = self {
            return error.is_of_input();
        }
        matches!(
            self,
            NoAgent(LocateError { named: true, .. })
                | Domain(_)
                | State { .. }
                | PanicOfPrimary
                | NotFactoryDefault
                | NoSuchCore { .. }
                | NoUser { .. }
                | VolumeInUse { .. }
                | Backend(_)
                | LabDevices { .. }
                | Assignable(_)
                | Function(_)
                | FunctionCount { .. }
                | ImportName { .. }
                | Store(
                    DomainStoreError::NoSaved { .. }
                        | DomainStoreError::SavedExists { .. }
                        | DomainStoreError::FactoryDefault
                )
                | NoMemory { .. }
                | NoCpus { .. }
                | Memory { .. }
                | Cpus { .. }
                | NoCore { .. }
                | CoreTaken { .. }
                | NoPort { .. }
                | PortInUse { .. }
                | NoLink { .. }
                | LinkInUse { .. }
                | LinkMtu { .. }
                | LinkName { .. }
                | NoNic { .. }
                | NoSwitch
                | PendingNic { .. }
                | NoSharedSwitch(_)
                | VlansApart(_)
                | Assign { .. }
                | Disk { .. }
                | NoFunctionLink { .. }
                | PhysicalDown { .. }
                | BadOffer { .. }
                | CannotMigrate { .. }
                | LaunchDiffers { .. }
                | Changed { .. }
                | Migrates { .. }
                | NotMigrating { .. }
                | NotExpected { .. }
        )
    }
}
