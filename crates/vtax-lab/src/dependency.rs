//! Guests' dependencies, and whether they could migrate live.
//!
//! As with `ldm`, a guest can only move if all its I/O is virtual. QEMU can't read the state of a device assigned
//! through vfio-pci, and refuses to move such a guest. vtax reports that in advance.

use std::fmt;

use serde::{Deserialize, Serialize};
use vtax_guest::{
    LinkName,
    launch::{Boot, Launch, NicKind},
    vdisk::DiskSource,
};
use vtax_model::{
    guest::{Accelerator, Attach},
    method::MethodVariant,
    topology::Name,
};
use vtax_sys::pci::PciAddress;

use crate::{
    blueprint::{Blueprint, PlannedGuest},
    plan::Plan,
    step::LabStep,
};

/// Link between a guest and its lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ties {
    /// Without any of these the guest has no network, or isn't started.
    pub depends_on: Vec<Dependency>,
    /// Live migration capability.
    pub migration: Migration,
}

/// Dependencies of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Dependency {
    /// The host that serves the guest's vnet: the vnet is attached to a virtual switch there, or to the wire's end.
    Switch { host: Name, link: LinkName },
    /// The host that has the physical function of the guest's virtual function.
    PhysicalFunction { host: Name, device: PciAddress },
    /// A guest that is started before it.
    Master { guest: Name },
}

/// Live migration capability of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migration {
    pub live: bool,
    pub blocked_by: Vec<Blocker>,
    pub needs: Vec<String>,
}

/// Something of a guest that can't move while it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocker {
    /// Description, e.g. `virtual function 0000:01:10.0`.
    pub what: String,
    /// Reason why it cannot.
    pub why: String,
}

const NINE_P: &str = "QEMU does not migrate a guest that has host files mounted";

/// A guest of a plan with its ties.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GuestTies {
    /// Name of a guest that the plan starts.
    pub guest: Name,
    /// Dependencies of the guest, and whether it could migrate live.
    #[serde(flatten)]
    pub ties: Ties,
}

/// The ties of each guest that a plan starts, in that order.
pub fn of_plan(plan: &Plan) -> Vec<GuestTies> {
    let started = plan.steps.iter().filter_map(|step| match step {
        LabStep::StartGuest(start) => Some(&start.launch),
        _ => None,
    });
    let ties = |launch| Ties::of(launch, &plan.blueprint, &plan.steps);
    started.map(|launch| GuestTies { guest: launch.name.clone(), ties: ties(launch) }).collect()
}

impl Ties {
    /// The ties of a guest that `launch` starts. `steps` are the steps of its lab.
    pub(crate) fn of<'a>(launch: &Launch, blueprint: &Blueprint, steps: impl IntoIterator<Item = &'a LabStep>) -> Ties {
        let planned = blueprint.guests.iter().find(|guest| guest.name == launch.name);
        let attached = planned.and_then(|guest| service(guest, blueprint, steps));
        let masters = planned.map_or(&[][..], |guest| &guest.masters).iter();
        let masters = masters.map(|guest| Dependency::Master { guest: guest.clone() });
        let migration = Migration::of(launch, planned.map(|guest| &guest.attach));
        Ties { depends_on: attached.into_iter().chain(masters).collect(), migration }
    }

    /// The ties of a guest that is in no lab.
    pub(crate) fn alone(launch: &Launch) -> Ties {
        Ties { depends_on: Vec::new(), migration: Migration::of(launch, None) }
    }
}

impl Migration {
    fn of(launch: &Launch, attach: Option<&Attach>) -> Migration {
        let blocked_by = blockers(launch, attach);
        Migration { live: blocked_by.is_empty(), blocked_by, needs: needs(launch) }
    }
}

/// Backend of the guest's NIC. Nothing serves a guest with a whole NIC.
fn service<'a>(
    guest: &PlannedGuest,
    blueprint: &Blueprint,
    steps: impl IntoIterator<Item = &'a LabStep>,
) -> Option<Dependency> {
    let stack = &blueprint.guest(&guest.name)?.stack;
    match guest.attach {
        Attach::Paravirtual(_) | Attach::Emulated { .. } => {
            let below = stack.get(1)?;
            Some(Dependency::Switch { host: below.namespace.clone(), link: below.link.clone() })
        }
        Attach::SrIov(_) => {
            let physical = stack.last()?;
            let device = steps.into_iter().find_map(|step| match step {
                LabStep::TakeNic(step) if step.at == *physical => Some(step.device),
                _ => None,
            });
            Some(Dependency::PhysicalFunction { host: physical.namespace.clone(), device: device? })
        }
        Attach::Assigned | Attach::RootDomain => None,
    }
}

fn blockers(launch: &Launch, attach: Option<&Attach>) -> Vec<Blocker> {
    let kind = if matches!(attach, Some(Attach::SrIov(_))) { "virtual function" } else { "NIC" };
    let virtual_nic = "give the guest a paravirtual NIC";
    let nics = launch.nics.iter().filter_map(|nic| match nic.kind {
        NicKind::Vfio { device, .. } => {
            blocker(format!("{kind} {device}"), attach.unwrap_or(&Attach::Assigned), virtual_nic)
        }
        _ => None,
    });
    let others = launch.devices.iter().map(|device| format!("PCI device {device}"));
    let others = others.filter_map(|what| blocker(what, &Attach::Assigned, virtual_nic));
    let controllers = launch.disks.disks.iter().filter_map(|disk| match disk.source {
        DiskSource::Controller { device } => {
            blocker(format!("NVMe controller {device}"), &Attach::Assigned, "attach the disk by virtio-blk")
        }
        _ => None,
    });
    let devices = nics.chain(others).chain(controllers);
    // An emulated server sees this machine's files.
    let files = launch.server.map(|_| "its files, by 9p");
    let lent = launch.lent.as_ref().map(|_| "a directory shared with it over 9p");
    let files = files.into_iter().chain(lent).map(|what| Blocker { what: what.to_owned(), why: NINE_P.to_owned() });
    devices.chain(files).collect()
}

/// Returns an assigned device as a blocker, unless the table of capabilities says that it can move.
fn blocker(what: String, attach: &Attach, remedy: &str) -> Option<Blocker> {
    let reason = MethodVariant::of_guest(attach).capabilities().live_migration.reason()?;
    Some(Blocker { what, why: format!("{reason}; {remedy}") })
}

/// Requirements that not every machine meets. A seed doesn't block a migration: the guest may not write to it
/// (`vvfat_open`).
fn needs(launch: &Launch) -> Vec<String> {
    let processor = (launch.accel == Accelerator::Kvm).then_some("a CPU with all features of this one (-cpu host)");
    let pages = launch.hugepages.then_some("the same amount of free huge pages");
    let disk = match launch.boot {
        Boot::Kernel { .. } => None,
        Boot::Disk { keep: true, .. } => Some("its disk"),
        Boot::Disk { keep: false, .. } => Some("its disk image, and a copy of its writes, stored in a file here"),
    };
    [processor, pages, disk].into_iter().flatten().map(str::to_owned).collect()
}

impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dependency::Switch { host, link } => write!(f, "{host} ({link})"),
            Dependency::PhysicalFunction { host, device } => write!(f, "{host} (PF {device})"),
            Dependency::Master { guest } => write!(f, "{guest} (master)"),
        }
    }
}

impl fmt::Display for Migration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.blocked_by.as_slice() {
            [] => f.write_str("yes"),
            blockers => {
                let what: Vec<&str> = blockers.iter().map(|blocker| blocker.what.as_str()).collect();
                write!(f, "no: {}", what.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests;
