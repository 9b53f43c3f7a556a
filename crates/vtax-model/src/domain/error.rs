//! Reasons why a change of a configuration is refused. Nothing has been changed then.

use super::{CpuDemand, VolumeName};
use crate::{guest::Mac, spelling::available, topology::Name};

/// Reason why a change of a configuration is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum DomainError {
    #[error("there is no {what} `{name}`; {there}")]
    #[diagnostic(code("no-such-object"))]
    Unknown { what: &'static str, name: Name, there: String },
    #[error("the {what} `{name}` already exists; choose another name")]
    #[diagnostic(code("object-exists"))]
    Exists { what: &'static str, name: Name },
    #[error("{domain} already has a vnet `{vnet}`; change it (set-vnet), or choose another name")]
    #[diagnostic(code("object-exists"))]
    VnetExists { vnet: Name, domain: Name },
    #[error("at most {most} {what} are supported; remove one first")]
    #[diagnostic(code("too-many-objects"))]
    TooMany { what: &'static str, most: usize },
    #[error(
        "{domain} is configured with {had}, which {}; {}",
        had.verbs().0,
        had.verbs().1,
    )]
    #[diagnostic(code("bad-property"))]
    OtherCpuUnit { domain: Name, had: CpuDemand },
    #[error("cannot remove {by}: there are only {had}")]
    #[diagnostic(code("bad-property"))]
    TooMuch { by: String, had: String },
    #[error("invalid {what} `{value}`: must be {range}")]
    #[diagnostic(code("bad-property"))]
    Value { what: &'static str, value: String, range: &'static str },
    #[error("primary is this host: it has all remaining resources, and cannot be created, sized or removed")]
    #[diagnostic(code("is-primary"))]
    Primary,
    #[error("{domain} cannot run a console or disk service: only primary can; use primary")]
    #[diagnostic(code("service-in-guest"))]
    ServiceInGuest { domain: Name },
    #[error("{domain} still runs the service {service}; remove that first")]
    #[diagnostic(code("object-in-use"))]
    Serves { domain: Name, service: Name },
    #[error("{slave} has {master} as a master; unset it first (set-domain master= {slave})")]
    #[diagnostic(code("object-in-use"))]
    IsMaster { master: Name, slave: Name },
    #[error("the switch {switch} has the vnet {vnet} of {domain}; remove that first (rm-vnet {vnet} {domain})")]
    #[diagnostic(code("object-in-use"))]
    SwitchInUse { switch: Name, vnet: Name, domain: Name },
    #[error("the console of {domain} uses the service {service}; set another first (set-vcons service=… {domain})")]
    #[diagnostic(code("object-in-use"))]
    ConsoleInUse { service: Name, domain: Name },
    #[error("the switch {switch} belongs to {service}, not to {named}; specify {service}, or omit the domain")]
    #[diagnostic(code("no-such-object"))]
    OtherService { switch: Name, service: Name, named: Name },
    #[error("the link {link} is already a port of the switch {switch}; a link can be a port of one switch only")]
    #[diagnostic(code("object-in-use"))]
    NetDevTaken { link: String, switch: Name },
    #[error("{nic} of {domain} already has the address {mac}; choose another, or omit it")]
    #[diagnostic(code("address-taken"))]
    MacTaken { mac: Mac, nic: String, domain: String },
    #[error("{domain} already has {name}; nothing to do")]
    #[diagnostic(code("object-exists"))]
    DeviceThere { name: String, domain: Name },
    #[error("cannot assign {name}: {domain} has {has}; first: vtax ldm rm-io {has} {domain}")]
    #[diagnostic(code("device-taken"))]
    DeviceTaken { name: String, domain: Name, has: String },
    #[error(
        "{name} belongs to primary; release it first: vtax ldm start-reconf primary, vtax ldm rm-io {name} primary, \
         vtax ldm apply-reconf"
    )]
    #[diagnostic(code("device-taken"))]
    OfPrimary { name: String },
    #[error(
        "primary has already released {name}, or the device that contains it; assign it to a domain: vtax ldm add-io {name} DOMAIN"
    )]
    #[diagnostic(code("object-exists"))]
    Released { name: String },
    #[error("{name} requires its physical function {physical} in primary, which has released it")]
    #[diagnostic(code("device-taken"))]
    NoPhysical { name: String, physical: String },
    #[error("{domain} does not have {name}; it has {has}")]
    #[diagnostic(code("no-such-object"))]
    NoDevice { name: String, domain: Name, has: String },
    #[error("{name} is below {bus}, which has iov=off; first: vtax ldm set-io iov=on {bus}")]
    #[diagnostic(code("iov"))]
    IovOff { name: String, bus: String },
    #[error(
        "primary is already in a delayed reconfiguration; change it, or end it (apply-reconf, cancel-reconf primary)"
    )]
    #[diagnostic(code("delayed-reconfiguration"))]
    Reconfiguring,
    #[error("primary is not in a delayed reconfiguration; start one first: vtax ldm start-reconf primary")]
    #[diagnostic(code("delayed-reconfiguration"))]
    NotReconfiguring,
    #[error(
        "primary is in a delayed reconfiguration, and no other domain can be changed before it ends; reboot the host, or \
         vtax ldm apply-reconf, or vtax ldm cancel-reconf primary"
    )]
    #[diagnostic(code("delayed-reconfiguration"))]
    OthersWait,
    #[error(
        "Delayed reconfiguration of LDom {domain} is not permitted: only primary waits for a reboot; change {domain} \
         directly: the change takes effect at its next boot"
    )]
    #[diagnostic(code("delayed-reconfiguration"))]
    OnlyPrimary { domain: Name },
    #[error("cannot set iov=off on {bus}: {domain} has {has}; first: vtax ldm rm-io {has} {domain}")]
    #[diagnostic(code("iov"))]
    IovUsed { bus: String, domain: Name, has: String },
    #[error("{bus} already has iov={iov}; nothing to do")]
    #[diagnostic(code("iov"))]
    IovThere { bus: String, iov: &'static str },
    #[error("the vnet {vnet} of {domain} already has id {id}; choose another, or omit it")]
    #[diagnostic(code("object-exists"))]
    IdTaken { id: u32, vnet: Name, domain: Name },
    #[error("{domain} already has a disk `{disk}`; change it (set-vdisk), or choose another name")]
    #[diagnostic(code("object-exists"))]
    DiskExists { disk: Name, domain: Name },
    #[error("the disk {disk} of {domain} already has id {id}; choose another, or omit it")]
    #[diagnostic(code("object-exists"))]
    DiskIdTaken { id: u32, disk: Name, domain: Name },
    #[error("the volume {volume} already exists; change it (set-vdsdev), or choose another name")]
    #[diagnostic(code("object-exists"))]
    VolumeExists { volume: VolumeName },
    #[error(
        "the disk service {service} still exports {volume}; remove that first (rm-vdsdev {volume}@{service}), or use -f"
    )]
    #[diagnostic(code("object-in-use"))]
    VolumesLeft { service: Name, volume: Name },
    #[error("{domain} has the disk {disk} of {volume}; remove that first (rm-vdisk {disk} {domain}), or use -f")]
    #[diagnostic(code("object-in-use"))]
    VolumeInUse { volume: VolumeName, disk: Name, domain: Name },
    #[error(
        "{volume} cannot be a second disk: {domain} has it, or another path of its mpgroup, as {disk}; two would destroy each \
         other's data; export it with options=ro, or remove that disk"
    )]
    #[diagnostic(code("backend-in-use"))]
    VolumeTaken { volume: VolumeName, disk: Name, domain: Name },
    #[error(
        "{volume} must remain options=ro: {domain} has it as {disk}, and {other} has it too; remove one disk first"
    )]
    #[diagnostic(code("backend-in-use"))]
    VolumeShared { volume: VolumeName, disk: Name, domain: Name, other: Name },
    #[error(
        "{backend} is already exported as {volume}; two disks would destroy each other's data: export both with options=ro, \
         as slices that don't overlap, or as paths of one mpgroup"
    )]
    #[diagnostic(code("backend-in-use"))]
    BackendTaken { backend: String, volume: VolumeName },
    #[error(
        "{volume} and {other} cannot be paths of one mpgroup: they differ in options, slice or format; make them equal"
    )]
    #[diagnostic(code("bad-property"))]
    GroupDiffers { volume: VolumeName, other: VolumeName },
    #[error(
        "{volume} cannot have both slice=OFFSET+SIZE and options=slice, which requires a partition as backend; omit one"
    )]
    #[diagnostic(code("bad-property"))]
    SliceTwice { volume: VolumeName },
    #[error(
        "{volume} cannot be in an mpgroup: the user of a qcow2 image keeps part of it in memory, which would be lost with a path; use a \
         raw file or a device"
    )]
    #[diagnostic(code("bad-property"))]
    GroupOfImages { volume: VolumeName },
    #[error("{volume} cannot be a slice of a qcow2 image; omit slice=, or use a raw file or a device")]
    #[diagnostic(code("bad-property"))]
    SliceOfImage { volume: VolumeName },
    #[error("the ports {ports} overlap with those of the console service {service}; choose others")]
    #[diagnostic(code("console-port-taken"))]
    PortsTaken { ports: String, service: Name },
    #[error(
        "port {port} is used by the console of {domain}; choose another, or put both in one group (set-vcons group=…)"
    )]
    #[diagnostic(code("console-port-taken"))]
    PortTaken { port: u16, domain: Name },
    #[error("Dependency cycle detected: LDom \"{domain}\" indicates \"{master}\" as its master")]
    #[diagnostic(code("dependency-cycle"))]
    Cycle { domain: Name, master: Name },
    #[error("{domain} would have {count} masters; a domain has {most} at most")]
    #[diagnostic(code("too-many-objects"))]
    TooManyMasters { domain: Name, count: usize, most: usize },
}

impl DomainError {
    pub(super) fn value(what: &'static str, value: &str, range: &'static str) -> DomainError {
        DomainError::Value { what, value: value.to_owned(), range }
    }

    pub(super) fn unknown<'a>(what: &'static str, name: &Name, known: impl Iterator<Item = &'a Name>) -> DomainError {
        let known: Vec<&str> = known.map(Name::as_str).collect();
        let there = match known.as_slice() {
            [] => "none exists yet".to_owned(),
            _ => available(name.as_str(), &known),
        };
        DomainError::Unknown { what, name: name.clone(), there }
    }
}
