//! Guests of a plan: unavailable ones, and resources of the others.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};

use vtax_model::{
    guest::{Attach, Mac},
    topology::{Guest, Name, Topology},
    units::ByteSize,
};

use super::{disks, error::PlanError, functions::Functions, ports::Port, segment::WireEnd};
use crate::{
    facts::{Facts, GuestFacts},
    nic::{self, Fitting, PlannedDisks},
};
use vtax_guest::{paths, threads::GuestPins, vdisk::DiskLaunch};

/// Resources of a guest on this machine, and the address of its NIC.
#[derive(Debug, Clone)]
pub(super) struct Admitted {
    pub(super) fitting: Fitting,
    pub(super) mac: Mac,
    /// Directory of its sockets and logs.
    pub(super) directory: PathBuf,
    pub(super) disks: PlannedDisks,
}

/// Checks all guests, in the order of the topology.
pub(super) fn admit(
    topology: &Topology,
    ports: &HashMap<WireEnd, Port>,
    functions: &Functions,
    facts: &Facts,
) -> Result<HashMap<Name, Admitted>, PlanError> {
    let port = |guest: &Guest| ports.get(&WireEnd::of(&guest.host, &guest.wire));
    let macs = macs(topology, |guest| match guest.attach {
        Attach::Assigned | Attach::RootDomain => port(guest).and_then(Port::mac),
        _ => None,
    })?;
    let admitted = topology.guests.iter().zip(macs).map(|(guest, mac)| {
        guest.attach.check(&guest.size).map_err(|error| PlanError::BadGuest { guest: guest.name.clone(), error })?;
        let method = guest.attach.method();
        let unsupported = PlanError::unsupported("guest", &guest.name, method);
        if guest.attach.is_device() && port(guest).is_none() {
            return Err(unsupported(nic::no_cable(method)));
        }
        let driver = functions.driver(&guest.name).or_else(|| port(guest)?.nic.driver.as_deref());
        let fitting = nic::fitting(guest, driver, facts).map_err(unsupported)?;
        let disks = disks::admit(guest, facts)?;
        let directory = directory(facts.guests_directory(&topology.name).join(guest.name.as_str()), &disks);
        Ok((guest.name.clone(), Admitted { fitting, mac, directory, disks }))
    });
    let admitted = admitted.collect::<Result<HashMap<_, _>, PlanError>>()?;
    disks::check_apart(topology, facts, |guest| &admitted[&guest.name].disks.controllers)?;
    if let Some(machine) = &facts.guests {
        memory(topology, machine)?;
        topology.guests.iter().try_for_each(|guest| placement(guest, machine))?;
    }
    topology.guests.iter().try_for_each(|guest| check_path(guest, &admitted[&guest.name].directory))?;
    Ok(admitted)
}

/// Storage daemons have directories next to that of QEMU, so a guest with such disks has one for all of them.
fn directory(own: PathBuf, disks: &PlannedDisks) -> PathBuf {
    match disks.disks.iter().any(DiskLaunch::has_daemons) {
        true => own.join(paths::QEMU),
        false => own,
    }
}

/// The paths of all sockets in a guest's directory must fit into what unix(7) allows.
fn check_path(guest: &Guest, directory: &Path) -> Result<(), PlanError> {
    const LONGEST: usize = 107 - "/console.sock".len();
    match directory.as_os_str().len() <= LONGEST {
        true => Ok(()),
        false => Err(PlanError::LongPath { guest: guest.name.clone(), path: directory.to_owned(), longest: LONGEST }),
    }
}

/// Returns the addresses of the guests' NICs. A NIC of the machine keeps its own.
fn macs(topology: &Topology, own: impl Fn(&Guest) -> Option<Mac>) -> Result<Vec<Mac>, PlanError> {
    let mut owners: BTreeMap<Mac, &Name> = BTreeMap::new();
    let claimed = topology.guests.iter().map(|guest @ Guest { name, mac, .. }| {
        let mac = own(guest).or(*mac).unwrap_or_else(|| Mac::of(&[topology.name.as_str(), name.as_str()]));
        match owners.insert(mac, name) {
            None => Ok(mac),
            Some(first) => Err(PlanError::SameMac { first: first.clone(), second: name.clone(), mac }),
        }
    });
    claimed.collect()
}

fn memory(topology: &Topology, machine: &GuestFacts) -> Result<(), PlanError> {
    let of = |huge| -> u64 {
        let sizes = topology.guests.iter().map(|guest| &guest.size).filter(|size| size.hugepages == huge);
        sizes.map(|size| size.memory.0).sum()
    };
    for (huge, available) in [(false, machine.memory), (true, machine.huge_pages)] {
        let wanted = ByteSize(of(huge));
        if wanted > available {
            return Err(PlanError::Memory { lab: topology.name.clone(), wanted, available, huge });
        }
    }
    Ok(())
}

fn placement(guest: &Guest, machine: &GuestFacts) -> Result<(), PlanError> {
    let missing = |what, number, there: &[u32]| {
        let there = there.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        Err(PlanError::NoSuchPlace { guest: guest.name.clone(), what, number, there })
    };
    if let Some(cpu) = GuestPins::of(&guest.size).all().find(|cpu| !machine.cpus.contains(cpu)) {
        return missing("CPU", cpu, &machine.cpus);
    }
    match guest.size.node.filter(|node| !machine.nodes.contains(node)) {
        Some(node) => missing("NUMA node", node, &machine.nodes),
        None => Ok(()),
    }
}
