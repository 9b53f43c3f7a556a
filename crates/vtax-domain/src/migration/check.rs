//! Comparison of an offer with a host: a pure function, apart from inspecting files and ports.

mod disks;
mod network;

use vtax_model::{
    domain::{Configuration, Constraints, CpuDemand, DomainState, PRIMARY},
    foreign::ForeignText,
    topology::Name,
};

use super::{
    MigrationVerdict, Obstacle, ProcessorObstacle, ResourceObstacle, ServiceObstacle,
    offer::{MigrationOffer, OfferedGuest},
    target::{TargetFacts, TargetGuests},
};
use crate::{
    error::BindError,
    plan::{self, BindRequest},
};

/// Returns the obstacles to moving the domain of a checked offer to this host under this name, and what else would
/// move.
pub(super) fn verdict(
    offer: &MigrationOffer,
    name: &Name,
    facts: &TargetFacts<'_>,
) -> Result<MigrationVerdict, BindError> {
    let constraints = offer.constraints()?;
    let mut found: Vec<Obstacle> = services(offer, name, facts).into_iter().map(Obstacle::from).collect();
    found.extend(network::obstacles(offer, constraints, facts).into_iter().map(Obstacle::from));
    let (of_disks, copies) = disks::compare(offer, constraints, facts);
    found.extend(of_disks.into_iter().map(Obstacle::from));
    if offer.state != DomainState::Inactive {
        found.extend(resources(offer, name, constraints, facts)?);
        match &facts.guests {
            Ok(guests) => found.extend(offer.running().into_iter().flat_map(|guest| processor(guest, guests))),
            Err(why) => found.push(ProcessorObstacle::NoGuests { why: why.clone() }.into()),
        }
    }
    Ok(MigrationVerdict { obstacles: found, copies, ..MigrationVerdict::default() })
}

fn services(offer: &MigrationOffer, name: &Name, facts: &TargetFacts<'_>) -> Vec<ServiceObstacle> {
    let all = &facts.state.configuration;
    let mut found = Vec::new();
    found.extend(facts.state.pending.is_some().then_some(ServiceObstacle::Reconfiguring));
    let is_taken = name.as_str() == PRIMARY
        || all.domains.contains_key(name)
        || facts.others.iter().any(|other| other.domain == *name);
    found.extend(is_taken.then(|| ServiceObstacle::NameTaken { name: name.clone() }));
    let is_full = all.domains.len() >= Configuration::MOST_DOMAINS;
    found.extend(is_full.then_some(ServiceObstacle::Full { most: Configuration::MOST_DOMAINS as u32 }));
    let missing = offer.masters.iter().filter(|master| all.domain(master).is_err());
    found.extend(missing.map(|master| ServiceObstacle::NoMaster { master: master.clone() }));
    found
}

/// Returns the missing resources of this host for binding it.
fn resources(
    offer: &MigrationOffer,
    name: &Name,
    constraints: &Constraints,
    facts: &TargetFacts<'_>,
) -> Result<Vec<Obstacle>, BindError> {
    let request = BindRequest {
        domain: name,
        configuration: &facts.state.configuration,
        capacity: facts.capacity,
        others: facts.others,
        own: None,
        devices: Vec::new(),
        disks: Vec::new(),
        is_free: facts.is_free,
    };
    let mut found: Vec<Obstacle> = Vec::new();
    found.extend(plan::memory(name, constraints, &request).err().map(|error| refused(error, constraints)).transpose()?);
    match plan::cpus(name, constraints, &request) {
        Ok(cpus) => {
            let vcpus = if cpus.is_empty() { constraints.vcpus(1) } else { cpus.len() as u32 };
            let threads = offer.running().map(|guest| guest.launch.vcpus).filter(|had| *had != vcpus);
            found.extend(threads.map(|had| ResourceObstacle::Threads { vcpus: had, there: vcpus }.into()));
        }
        Err(error) => found.push(refused(error, constraints)?),
    }
    found.extend(plan::console(&request, constraints).err().map(|error| refused(error, constraints)).transpose()?);
    Ok(found)
}

/// Returns the obstacle that an error of binding is.
fn refused(error: BindError, constraints: &Constraints) -> Result<Obstacle, BindError> {
    let is_shared = matches!(constraints.cpus, Some(CpuDemand::Vcpus(_)));
    Ok(match error {
        BindError::Memory { wanted, available, who, .. } => {
            ResourceObstacle::Memory { wanted, available, who: plain(&who) }.into()
        }
        BindError::Cpus { wanted, free, who, .. } => {
            let (free, who) = (u32::try_from(free).unwrap_or(u32::MAX), plain(&who));
            match is_shared {
                true => ResourceObstacle::Vcpus { wanted, free, who }.into(),
                false => ResourceObstacle::Cores { wanted, free, who }.into(),
            }
        }
        BindError::NoCore { id, last, .. } => {
            ResourceObstacle::NoCore { id, last: u32::try_from(last).unwrap_or(u32::MAX) }.into()
        }
        BindError::CoreTaken { id, other, .. } => ResourceObstacle::CoreTaken { id, other }.into(),
        BindError::NoPort { service, ports } => ServiceObstacle::NoConsolePort { service, ports }.into(),
        BindError::PortInUse { port, group, .. } => ServiceObstacle::ConsolePort { port, group }.into(),
        BindError::Domain(_) if constraints.console.service.is_some() => {
            ServiceObstacle::NoConsoleService { service: constraints.console.service.clone().expect("it was checked") }
                .into()
        }
        error => return Err(error),
    })
}

/// Errors name the other owners after a colon.
fn plain(who: &str) -> ForeignText {
    who.trim_start_matches(": ").into()
}

/// Returns the processor differences that a running system doesn't survive. A stopped one adapts at its start.
fn processor(guest: &OfferedGuest, guests: &TargetGuests) -> Vec<Obstacle> {
    let mut found = Vec::new();
    let (needs, has) = (guest.launch.qemu.version, guests.qemu);
    found.extend((has < needs).then_some(ProcessorObstacle::Machine { needs, has }));
    let lacks_firmware = guest.launch.qboot.is_some() && !guests.has_qboot;
    found.extend(lacks_firmware.then_some(ProcessorObstacle::Firmware));
    let (here, there) = (guest.launch.accel, guests.accel);
    if here != there {
        // The features of the two are unrelated.
        found.push(ProcessorObstacle::Accelerator { here, there });
    } else {
        let missing: Vec<_> = guest.features.difference(&guests.features).cloned().collect();
        found.extend((!missing.is_empty()).then_some(ProcessorObstacle::Features { missing }));
    }
    found.into_iter().map(Obstacle::from).collect()
}
