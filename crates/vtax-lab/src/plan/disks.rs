//! Disks of a plan's guests, as passed to QEMU, and reasons why one is unavailable.

use std::collections::BTreeMap;

use vtax_guest::{
    launch::DiskFormat,
    vdisk::{self, DiskFile, DiskLaunch, DiskPaths, DiskSource},
};
use vtax_model::{
    disk::{DiskAttach, DiskDevice},
    method::Unsupported,
    topology::{Guest, GuestDisk, Topology},
};
use vtax_sys::pci::PciAddress;

use super::error::PlanError;
use crate::{
    facts::{DiskBackendFacts, Facts, PciDevice},
    nic::PlannedDisks,
};

/// If no storage daemon answers for this many seconds, the guest gets an error: a lab's daemons are not restarted.
const TIMEOUT: u32 = 10;
/// The class of NVMe controllers (PCI Code and ID Assignment Specification).
const NVME: u32 = 0x01_0802;

/// Checks that guests can have a disk in this way here. The facts must have been gathered for it.
pub fn disk_availability(attach: &DiskAttach, facts: &Facts) -> Result<(), Unsupported> {
    if attach.device == DiskDevice::AssignedNvme {
        facts.pci.for_guests()?;
        let has_one = facts.pci.devices.iter().any(|device| device.class == NVME);
        let elsewhere = "use nvme, or a machine with an unused NVMe disk";
        return if has_one { Ok(()) } else { Err(Unsupported::new("this machine has no NVMe controller", elsewhere)) };
    }
    let nobody_looked = || Unsupported::new("no search was made for QEMU", "request guests with disks");
    let machine = facts.guests.as_ref().ok_or_else(nobody_looked)?;
    let qemu = machine.qemu.as_ref().map_err(Clone::clone)?;
    if let Some(missing) = vdisk::models(attach.device).iter().find(|model| !qemu.devices.contains(**model)) {
        let why = format!("{} has no device {missing}", qemu.program.path.display());
        return Err(Unsupported::new(why, "install a QEMU with all devices, or use virtio-blk"));
    }
    machine.disks.can(attach)
}

/// The disks of a guest, or why it can't have one of them.
pub(super) fn admit(guest: &Guest, facts: &Facts) -> Result<PlannedDisks, PlanError> {
    let count = guest.disks.len();
    if count > DiskLaunch::MOST as usize {
        return Err(PlanError::Disks { guest: guest.name.clone(), count, most: DiskLaunch::MOST });
    }
    let mut planned = PlannedDisks::default();
    for (port, disk) in (0..).zip(&guest.disks) {
        disk.check(&guest.size).map_err(|error| PlanError::BadGuest { guest: guest.name.clone(), error })?;
        let refused = |unsupported| {
            let GuestDisk { path, attach } = disk.clone();
            PlanError::Disk { guest: guest.name.clone(), path, attach, unsupported }
        };
        disk_availability(&disk.attach, facts).map_err(refused)?;
        let is_ide = |other: &&GuestDisk| other.attach.device == DiskDevice::Ide;
        if guest.disks[..port as usize].iter().chain([disk]).filter(is_ide).count() > 1 {
            let why = "a machine has one IDE controller of this kind, at fixed I/O ports, and it already has a disk";
            return Err(refused(Unsupported::new(why, "give the other disk to another guest, or use ahci")));
        }
        let backend = facts
            .guests
            .as_ref()
            .map_or_else(|| Err("it was not examined".to_owned()), |machine| machine.disks.backend(&disk.path));
        let unusable = |why| PlanError::DiskBackend { guest: guest.name.clone(), path: disk.path.clone(), why };
        let backend = backend.map_err(unusable)?;
        let source = match disk.attach.device {
            DiskDevice::AssignedNvme => {
                let controller = controller(backend, facts).map_err(refused)?;
                planned.controllers.push(controller.clone());
                DiskSource::Controller { device: controller.device }
            }
            device => source(device, backend),
        };
        let serial = format!("vtax-{port}");
        planned.disks.push(DiskLaunch { port, serial, read_only: false, attach: Some(disk.attach), source });
    }
    Ok(planned)
}

/// All paths have the same blocks, so none may cache them in the host's memory or lock them.
fn source(device: DiskDevice, backend: &DiskBackendFacts) -> DiskSource {
    let file = DiskFile {
        path: backend.path.clone(),
        format: DiskFormat::Raw,
        is_device: backend.is_device,
        slice: None,
        exclusive: false,
        shared: true,
        direct: true,
    };
    match device.is_served() {
        true => DiskSource::Paths(DiskPaths { files: vec![file], timeout: Some(TIMEOUT) }),
        false => DiskSource::File(file),
    }
}

fn controller<'a>(backend: &DiskBackendFacts, facts: &'a Facts) -> Result<&'a PciDevice, Unsupported> {
    let of_nvme = |address: &PciAddress| facts.pci.device(*address).filter(|device| device.class == NVME);
    let on: Vec<&PciDevice> = backend.on.iter().filter_map(of_nvme).collect();
    let [controller] = on.as_slice() else {
        let why = format!("{} is on {} NVMe controllers", backend.path.display(), on.len());
        return Err(Unsupported::new(why, "name a disk on a single NVMe controller, such as /dev/nvme0n1"));
    };
    if facts.ordinary_user {
        return Err(Unsupported::new("only the machine's root may assign PCI devices", "run as root"));
    }
    let lent = || facts.lent.get(&controller.device).map(|owner| format!("{owner} has it"));
    if let Some(why) = controller.kept.clone().or_else(lent) {
        return Err(Unsupported::new(format!("{} must stay: {why}", controller.device), "name a disk that is free"));
    }
    let others: Vec<String> = facts.pci.group_of(controller.device).map(|other| other.device.to_string()).collect();
    if !others.is_empty() {
        let why = format!("{} cannot be assigned without {} (same IOMMU group)", controller.device, others.join(", "));
        return Err(Unsupported::new(why, "put the disk into a slot with a separate IOMMU group"));
    }
    Ok(controller)
}

/// A controller assigned to one guest is removed from the host, with all disks on it.
pub(super) fn check_apart<'a>(
    topology: &'a Topology,
    facts: &Facts,
    controllers: impl Fn(&Guest) -> &'a [PciDevice],
) -> Result<(), PlanError> {
    let Some(machine) = &facts.guests else { return Ok(()) };
    let mut whole: BTreeMap<PciAddress, usize> = BTreeMap::new();
    let all = topology.guests.iter().flat_map(controllers);
    all.for_each(|controller| *whole.entry(controller.device).or_default() += 1);
    for guest in &topology.guests {
        for disk in &guest.disks {
            let Ok(backend) = machine.disks.backend(&disk.path) else { continue };
            let is_whole = disk.attach.device == DiskDevice::AssignedNvme;
            let most = usize::from(is_whole);
            if let Some(device) = backend.on.iter().find(|device| whole.get(device).is_some_and(|has| *has > most)) {
                let GuestDisk { path, attach } = disk.clone();
                let why = format!("a guest of this lab gets the controller {device} whole, and this disk is on it");
                let unsupported = Unsupported::new(why, "measure the two in separate labs");
                return Err(PlanError::Disk { guest: guest.name.clone(), path, attach, unsupported });
            }
        }
    }
    Ok(())
}
