//! Assignment of virtual functions to zones and guests.

use std::collections::HashMap;

use vtax_change::pci::{DriverState, VfSettings};
use vtax_model::{
    guest::{Attach, Mac},
    method::IoMethod,
    topology::{Name, Topology},
    vf::VfOptions,
};
use vtax_step::{LentVf, VfState};
use vtax_sys::pci::PciAddress;

use super::{
    error::{NicError, PlanError},
    ports::Port,
    segment::{WireEnd, wire_ends},
};
use crate::facts::{Facts, PciDevice};

#[derive(Debug, Clone, Default)]
pub(super) struct Functions {
    /// The NICs on which functions are created, in the order of wires.
    pub(super) made: Vec<Made>,
    by_domain: HashMap<Name, LentVf>,
}

#[derive(Debug, Clone)]
pub(super) struct Made {
    pub(super) pf: PciAddress,
    pub(super) end: WireEnd,
    pub(super) functions: Vec<PciAddress>,
    /// True if the kernel gave new functions a driver before (`sriov_drivers_autoprobe`).
    pub(super) autoprobe: bool,
}

/// A zone or guest that requires a function.
struct Wanting<'a> {
    name: &'a Name,
    mac: Option<Mac>,
    options: VfOptions,
    guest: bool,
}

impl Functions {
    /// Finds one for each zone and guest of the method, or refuses.
    pub(super) fn of(
        topology: &Topology,
        ports: &HashMap<WireEnd, Port>,
        facts: &Facts,
    ) -> Result<Functions, PlanError> {
        let mut functions = Functions::default();
        for end in wire_ends(topology) {
            let wanting = wanting(topology, &end);
            let Some(port) = ports.get(&end).filter(|_| !wanting.is_empty()) else { continue };
            let lent = functions.lend(port, &end, &wanting, topology, facts);
            lent.map_err(|error| port.refuse(&end, error))?;
        }
        Ok(functions)
    }

    pub(super) fn get(&self, domain: &Name) -> &LentVf {
        &self.by_domain[domain]
    }

    /// The module that drives the domain's function, if it has one.
    pub(super) fn driver(&self, domain: &Name) -> Option<&str> {
        self.by_domain.get(domain).map(|function| function.driver.as_str())
    }

    fn lend(
        &mut self,
        port: &Port,
        end: &WireEnd,
        wanting: &[Wanting<'_>],
        lab: &Topology,
        facts: &Facts,
    ) -> Result<(), NicError> {
        if wanting.iter().any(|domain| domain.guest) {
            facts.pci.for_guests()?;
        }
        let of = || NicError::VfDriver(port.nic.driver.clone().unwrap_or_default());
        let driver = facts.pci.driver(&port.nic, true).ok_or_else(of)?;
        let free = free(port, wanting.len(), facts)?;
        let pf = port.nic.device;
        if free.iter().all(|(_, _, was)| was.is_none()) {
            let functions = free.iter().map(|(_, device, _)| *device).collect();
            let autoprobe = port.nic.sriov.as_ref().is_none_or(|sriov| sriov.autoprobe);
            self.made.push(Made { pf, end: end.clone(), functions, autoprobe });
        }
        for (domain, (index, device, was)) in wanting.iter().zip(free) {
            let mac = domain.mac.unwrap_or_else(|| Mac::of(&[lab.name.as_str(), domain.name.as_str()]));
            let set = VfSettings::asked(Some(mac), &domain.options);
            let function = LentVf { pf, index, device, driver: driver.clone(), set, was };
            self.by_domain.insert(domain.name.clone(), function);
        }
        Ok(())
    }
}

fn wanting<'a>(topology: &'a Topology, end: &WireEnd) -> Vec<Wanting<'a>> {
    let here = |host: &Name, wire: &Name| *host == end.host && *wire == end.wire;
    let zones = topology.zones.iter().filter(|zone| zone.method == IoMethod::SrIov && here(&zone.host, &zone.wire));
    let zones = zones.map(|zone| Wanting { name: &zone.name, mac: zone.mac, options: zone.vf, guest: false });
    let guests = topology.guests.iter().filter(|guest| here(&guest.host, &guest.wire));
    let guests = guests.filter_map(|guest| match guest.attach {
        Attach::SrIov(options) => Some(Wanting { name: &guest.name, mac: guest.mac, options, guest: true }),
        _ => None,
    });
    zones.chain(guests).collect()
}

type Free = (u32, PciAddress, Option<VfState>);

/// Returns as many functions as required. A NIC without functions gets new ones; otherwise unused ones are taken.
fn free(port: &Port, wanted: usize, facts: &Facts) -> Result<Vec<Free>, NicError> {
    let sriov = port.nic.sriov.as_ref().ok_or(NicError::NoSriov)?;
    let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
    if wanted > sriov.total {
        return Err(NicError::TooFewVfs { wanted, total: sriov.total });
    }
    if sriov.num == 0 {
        let new = (0..wanted).map(|index| Some((index, sriov.virtfn(port.nic.device, index)?, None)));
        return new.collect::<Option<_>>().ok_or(NicError::VfsUnknown);
    }
    let there = (0..).zip(&port.nic.virtfns).filter_map(|(index, device)| {
        let function = facts.pci.devices.iter().find(|found| found.device == *device)?;
        Some((index, *device, Some(was(function)?)))
    });
    let free: Vec<Free> = there.collect();
    let count = u32::try_from(free.len()).unwrap_or(u32::MAX);
    match count >= wanted {
        true => Ok(free.into_iter().take(wanted as usize).collect()),
        false => Err(NicError::VfsInUse { wanted, num: sriov.num, free: count }),
    }
}

/// The state of an unused function: its link is down, without address or upper link, and no guest's driver has it.
fn was(function: &PciDevice) -> Option<VfState> {
    let unused = match (&function.netdev, &function.driver) {
        (Some(netdev), _) => !netdev.up && netdev.addresses.is_empty() && netdev.upper.is_none(),
        (None, driver) => driver.is_none(),
    };
    let settings = function.vf.as_ref().filter(|_| unused && function.kept.is_none())?;
    let driver = DriverState::from(function);
    Some(VfState { settings: VfSettings::found(settings), driver })
}
