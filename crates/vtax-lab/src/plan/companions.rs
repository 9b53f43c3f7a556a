//! The devices assigned to a guest together with its NIC.

use std::collections::HashMap;

use vtax_model::{
    guest::Attach,
    method::IoMethod,
    topology::{Guest, Name, Topology},
};
use vtax_sys::pci::PciAddress;

use super::{
    error::{NicError, PlanError},
    member::Member,
    ports::Port,
    segment::{WireEnd, wire_ends},
};
use crate::facts::{Facts, PciDevice};

/// For each guest with a whole NIC, the other devices assigned to it.
#[derive(Debug, Default)]
pub(super) struct Companions(HashMap<Name, Vec<PciDevice>>);

/// Reason why a device is assigned to the guest, too.
type Bond = &'static str;

const SAME_GROUP: Bond = "in the same IOMMU group";
const SAME_ROOT: Bond = "below the same root complex";

impl Companions {
    /// Finds them. None may be at an end of another wire or go to another guest.
    pub(super) fn of(
        topology: &Topology,
        ports: &HashMap<WireEnd, Port>,
        members: &[Member<'_>],
        facts: &Facts,
    ) -> Result<Companions, PlanError> {
        let mut companions = Companions::default();
        let mut owners: HashMap<PciAddress, &Name> = HashMap::new();
        for end in wire_ends(topology) {
            let (Some(port), Some(guest)) = (ports.get(&end), owner(topology, &end)) else { continue };
            let refuse = |error| port.refuse(&end, error);
            let whole_root = guest.attach == Attach::RootDomain;
            let found = companions_of(port, whole_root, facts).map_err(refuse)?;
            let own = (port.nic.device, if whole_root { SAME_ROOT } else { SAME_GROUP });
            for (device, bond) in found.iter().map(|(other, bond)| (other.device, *bond)).chain([own]) {
                let wired = ports.iter().find(|(other, port)| **other != end && port.nic.device == device);
                let wired = wired.map(|(other, _)| at_another_wire(other, members));
                let taken =
                    owners.insert(device, &guest.name).map(|other| format!("it is assigned to the guest `{other}`"));
                if let Some(why) = wired.or(taken) {
                    return Err(refuse(NicError::Bound { member: device.to_string(), bond, why }));
                }
            }
            let found = found.into_iter().map(|(companion, _)| companion).collect();
            companions.0.insert(guest.name.clone(), found);
        }
        Ok(companions)
    }

    pub(super) fn get(&self, guest: &Name) -> &[PciDevice] {
        self.0.get(guest).map_or(&[], Vec::as_slice)
    }
}

/// The guest to which the whole NIC at this end is assigned.
fn owner<'a>(topology: &'a Topology, end: &WireEnd) -> Option<&'a Guest> {
    let whole = |guest: &&Guest| matches!(guest.attach, Attach::Assigned | Attach::RootDomain);
    topology.guests.iter().filter(whole).find(|guest| guest.host == end.host && guest.wire == end.wire)
}

fn at_another_wire(end: &WireEnd, members: &[Member<'_>]) -> String {
    let lends = members.iter().find(|member| member.method == IoMethod::SrIov && member.is_at(end));
    let lends = lends.map(|domain| format!(", and a virtual function of it is assigned to `{}`", domain.name));
    format!("it is the NIC of the wire `{}` at `{}`{}", end.wire, end.host, lends.unwrap_or_default())
}

/// Devices that the kernel assigns only together with a function: its IOMMU group, or all below its root complex. All
/// must be free.
fn companions_of(port: &Port, whole_root: bool, facts: &Facts) -> Result<Vec<(PciDevice, Bond)>, NicError> {
    facts.pci.for_guests()?;
    let own = port.nic.device;
    let below = facts.pci.below(&port.nic.root).filter(|_| whole_root).filter(|device| device.device != own);
    let mut companions: Vec<(PciDevice, Bond)> = below.map(|device| (device.clone(), SAME_ROOT)).collect();
    let heads: Vec<PciAddress> = companions.iter().map(|(device, _)| device.device).chain([own]).collect();
    for member in heads.iter().flat_map(|head| facts.pci.group_of(*head)) {
        if member.device != own && companions.iter().all(|(known, _)| known.device != member.device) {
            companions.push((member.clone(), SAME_GROUP));
        }
    }
    has_no_functions(&port.nic)?;
    companions.iter().try_for_each(|(member, bond)| check(member, bond, facts))?;
    Ok(companions)
}

fn has_no_functions(nic: &PciDevice) -> Result<(), NicError> {
    match nic.sriov.map_or(0, |sriov| sriov.num) {
        0 => Ok(()),
        num => Err(NicError::HasVfs { name: nic.name.clone(), num }),
    }
}

fn check(member: &PciDevice, bond: Bond, facts: &Facts) -> Result<(), NicError> {
    has_no_functions(member)?;
    let lent = || facts.lent.get(&member.device).map(|owner| format!("{owner} has it"));
    let used = || {
        let netdev = member.netdev.as_ref()?;
        netdev.given_address().map(|address| format!("its link {} has the address {address}", netdev.name))
    };
    match member.kept.clone().or_else(lent).or_else(used) {
        Some(why) => Err(NicError::Bound { member: format!("{} ({})", member.device, member.name), bond, why }),
        None => Ok(()),
    }
}
