//! Owners of devices, from the journals of labs and the claims of logical domains. An abandoned lab keeps its devices
//! until it is cleaned.

use std::collections::BTreeMap;

use vtax_guest::launch::{Launch, NicKind};
use vtax_journal::{Record, StepProgress, scan};
use vtax_model::topology::Name;
use vtax_step::{Place, StartGuest, TakeNic};
use vtax_sys::{
    netlink::{IfName, Link, Rtnl, Vf},
    netns::NetNs,
    pci::PciAddress,
};

use crate::{
    error::LabError,
    facts::{Netdev, PciFacts},
    site::{PINS, Site},
    step::LabStep,
    world::World,
};

/// The owner of a device that no lab has.
pub const PRIMARY: &str = "primary";

#[derive(Debug, Default)]
pub(super) struct Owners(BTreeMap<PciAddress, FunctionOwner>);

#[derive(Debug, Clone)]
pub(super) struct FunctionOwner {
    /// The lab, if it is not a logical domain of this host.
    lab: Option<Name>,
    domain: Name,
    /// Location of the device's link. A guest's device has none here.
    at: Option<Place>,
}

impl Owners {
    /// The devices of a lab with an unreadable journal are found by their marks.
    pub(super) fn look(world: &World) -> Result<Owners, LabError> {
        let mut owners = Owners::default();
        for (id, snapshot) in scan::<LabStep>(&world.journals())? {
            let Ok(lab) = Name::try_from(id) else { continue };
            let Ok(snapshot) = snapshot else {
                owners.take_marked(&lab, &Site::new(&lab, &world.lab_directory(&lab)))?;
                continue;
            };
            for Record { step, progress, .. } in &snapshot.records {
                if matches!(progress, StepProgress::Done(_)) {
                    owners.take(&lab, step);
                }
            }
        }
        for claim in world.device_claims().all()? {
            owners.claim(claim.device, claim.owner);
        }
        Ok(owners)
    }

    /// Records that a logical domain has the device.
    pub(super) fn claim(&mut self, device: PciAddress, domain: Name) {
        self.0.insert(device, FunctionOwner { lab: None, domain, at: None });
    }

    /// The marks don't identify the guest that has a device.
    fn take_marked(&mut self, lab: &Name, site: &Site) -> Result<(), LabError> {
        let unknown: Name = "unknown".parse().expect("a name");
        for (_, step) in site.marked_devices()? {
            let device = match &step {
                LabStep::AssignDevice(step) => step.device,
                LabStep::LendVf(step) => step.function.device,
                step => {
                    self.take(lab, step);
                    continue;
                }
            };
            let owner = FunctionOwner { lab: Some(lab.clone()), domain: unknown.clone(), at: None };
            self.0.insert(device, owner);
        }
        Ok(())
    }

    /// The later step counts: a NIC belongs to the host before it is given to a guest.
    pub(super) fn take(&mut self, lab: &Name, step: &LabStep) {
        match step {
            LabStep::TakeNic(TakeNic { device, at, .. }) => {
                let owner =
                    FunctionOwner { lab: Some(lab.clone()), domain: at.namespace.clone(), at: Some(at.clone()) };
                self.0.insert(*device, owner);
            }
            LabStep::StartGuest(StartGuest { launch, .. }) => {
                let owner = FunctionOwner { lab: Some(lab.clone()), domain: launch.name.clone(), at: None };
                self.0.extend(devices(launch).map(|device| (device, owner.clone())));
            }
            _ => {}
        }
    }

    pub(super) fn domain(&self, device: PciAddress) -> String {
        self.0.get(&device).map_or(PRIMARY.to_owned(), |owner| match &owner.lab {
            Some(lab) => format!("{lab}/{}", owner.domain),
            None => owner.domain.to_string(),
        })
    }

    pub(super) fn all(&self) -> BTreeMap<PciAddress, String> {
        self.0.keys().map(|device| (*device, self.domain(*device))).collect()
    }

    /// Adds information from links inside labs. An unreachable link is omitted.
    pub(super) fn look_into(&self, world: &World, facts: &mut PciFacts) {
        for (device, owner) in &self.0 {
            let (Some(at), Some(lab)) = (&owner.at, &owner.lab) else { continue };
            let namespace = world.lab_directory(lab).join(PINS).join(at.namespace.as_str());
            let Some((netdev, vfs)) = NetNs::open(&namespace).ok().and_then(|namespace| look_there(&namespace, at))
            else {
                continue;
            };
            let Some(found) = facts.devices.iter_mut().find(|found| found.device == *device) else { continue };
            found.netdev = Some(netdev);
            let virtfns = found.virtfns.clone();
            for function in &mut facts.devices {
                let index = virtfns.iter().position(|vf| *vf == function.device);
                let vf = index.and_then(|index| vfs.iter().find(|vf| usize::try_from(vf.index) == Ok(index)));
                if let Some(vf) = vf {
                    function.vf = Some(vf.clone());
                }
            }
        }
    }
}

/// The virtual functions and whole NICs of a guest, and the devices assigned along with those NICs.
fn devices(launch: &Launch) -> impl Iterator<Item = PciAddress> {
    let nics = launch.nics.iter().filter_map(|nic| match &nic.kind {
        NicKind::Vfio { device, .. } => Some(*device),
        _ => None,
    });
    nics.chain(launch.devices.iter().copied())
}

fn look_there(namespace: &NetNs, at: &Place) -> Option<(Netdev, Vec<Vf>)> {
    let mut rtnl = Rtnl::open_in(namespace).ok()?;
    let name: IfName = at.link.as_str().parse().ok()?;
    let links = rtnl.links().ok()?;
    let link = links.iter().find(|link| link.name == name)?;
    let vfs = rtnl.vfs(link.index).ok()?;
    let upper = |other: &&Link| {
        Some(other.index) == link.master || (other.parent == Some(link.index) && !other.parent_elsewhere)
    };
    let upper = links.iter().find(upper).map(|upper| upper.name.to_string());
    Some((Netdev { upper, ..Netdev::of(link, &rtnl.addresses().ok()?) }, vfs))
}
