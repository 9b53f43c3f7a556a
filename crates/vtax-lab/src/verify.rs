//! Checks that a lab's links have their intended state, and sets their MTU.
//!
//! The kernel is queried for one list of links per namespace, regardless of the number of the lab's links in it.

use std::{
    collections::HashMap,
    thread,
    time::{Duration, Instant},
};

use vtax_model::{topology::Name, units::Mtu};
use vtax_step::{LimitRate, PartStep, Place, StepSite, bucket};
use vtax_sys::netlink::Link;

use crate::{
    blueprint::{Blueprint, PlannedLink},
    error::LabError,
};

/// A kernel thread (`linkwatch`) handles carrier changes, at most a second late.
const PATIENCE: Duration = Duration::from_secs(3);
/// The NICs at both ends of a cable negotiate a speed first, and again after each change of an MTU.
const PATIENCE_WITH_NICS: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(1);

/// Waits until every link carries packets, and checks its mark and its MTU.
pub(crate) fn await_all(site: &mut StepSite, blueprint: &Blueprint, mtu: Mtu) -> Result<(), LabError> {
    let nics = blueprint.links.iter().any(|planned| planned.kind == PlannedLink::NIC);
    let deadline = Instant::now() + if nics { PATIENCE_WITH_NICS } else { PATIENCE };
    loop {
        let found = Found::look(site, blueprint)?;
        let mut links = blueprint.links.iter().filter(|planned| !blueprint.ends_in_guest(&planned.place));
        match links.find(|planned| !found.get(&planned.place).is_some_and(|link| link.running)) {
            Some(_) if Instant::now() < deadline => thread::sleep(PAUSE),
            _ => return blueprint.links.iter().try_for_each(|planned| found.check(planned, blueprint, mtu)),
        }
    }
}

/// Checks that these links carry packets, whatever their current MTU.
pub(crate) fn carriers(site: &mut StepSite, blueprint: &Blueprint, places: &[Place]) -> Result<(), LabError> {
    let found = Found::look(site, blueprint)?;
    let mut passed = blueprint.links.iter().filter(|planned| places.contains(&planned.place));
    passed.try_for_each(|planned| found.carries(planned, blueprint).map(|_| ()))
}

/// Gives every link the MTU that corresponds to this one of the wires.
///
/// A link can't have a larger MTU than its lower link. So a larger MTU is set from the wires upwards, and a smaller one
/// from the zones downwards. The kernel makes some of the changes automatically: a bridge takes the smallest MTU of its
/// ports, and a macvlan shrinks with its wire. That is harmless.
pub(crate) fn set_mtu(site: &mut StepSite, blueprint: &Blueprint, mtu: Mtu) -> Result<(), LabError> {
    let found = Found::look(site, blueprint)?;
    let now = |planned: &PlannedLink| found.get(&planned.place).map_or(0, |link| link.mtu);
    // A link's limit must let its largest packet through at any moment.
    let grows = blueprint.links.iter().any(|planned| now(planned) < planned.mtu(mtu));
    if grows {
        limit_rates(site, blueprint, mtu)?;
    }
    for planned in blueprint.links.iter().filter(|planned| now(planned) < planned.mtu(mtu)) {
        site.at(&planned.place)?.set_mtu(planned.place.link.as_str(), planned.mtu(mtu))?;
    }
    for planned in blueprint.links.iter().rev().filter(|planned| now(planned) > planned.mtu(mtu)) {
        site.at(&planned.place)?.set_mtu(planned.place.link.as_str(), planned.mtu(mtu))?;
    }
    if !grows {
        limit_rates(site, blueprint, mtu)?;
    }
    await_all(site, blueprint, mtu)
}

/// Gives the wires with a rate the burst and the queue that follow from this MTU.
fn limit_rates(site: &mut StepSite, blueprint: &Blueprint, mtu: Mtu) -> Result<(), LabError> {
    for wire in &blueprint.wires {
        let Some(shape) = &wire.shape else { continue };
        let limit = bucket(shape, mtu);
        for end in &wire.ends {
            let step = LimitRate { at: end.clone(), limit };
            step.apply(site)?;
            step.read_back(site)?;
        }
    }
    Ok(())
}

impl PlannedLink {
    fn mtu(&self, wire: Mtu) -> u32 {
        wire.get().saturating_sub(self.less)
    }
}

struct Found {
    links: HashMap<Name, Vec<Link>>,
}

impl Found {
    fn look(site: &mut StepSite, blueprint: &Blueprint) -> Result<Found, LabError> {
        let mut links = HashMap::new();
        for namespace in blueprint.links.iter().map(|planned| &planned.place.namespace) {
            if !links.contains_key(namespace) {
                let mut here = site.stack(Some(namespace))?.links()?;
                here.sort_by(|a, b| a.name.cmp(&b.name));
                links.insert(namespace.clone(), here);
            }
        }
        Ok(Found { links })
    }

    fn get(&self, place: &Place) -> Option<&Link> {
        let here = self.links.get(&place.namespace)?;
        let at = here.binary_search_by(|link| link.name.as_str().cmp(place.link.as_str()));
        at.ok().map(|at| &here[at])
    }

    fn check(&self, planned: &PlannedLink, blueprint: &Blueprint, mtu: Mtu) -> Result<(), LabError> {
        let link = match self.carries(planned, blueprint) {
            // It has a carrier once the guest with the NIC at the other end is up.
            Err(_) if blueprint.ends_in_guest(&planned.place) => self.marked(planned, blueprint)?,
            link => link?,
        };
        let (wanted, found) = (planned.mtu(mtu), link.mtu);
        let (lab, place) = (blueprint.lab.clone(), planned.place.clone());
        if wanted == found { Ok(()) } else { Err(LabError::Mtu { lab, place, wanted, found }) }
    }

    /// The link, if it is the lab's and carries packets.
    fn carries(&self, planned: &PlannedLink, blueprint: &Blueprint) -> Result<&Link, LabError> {
        match self.marked(planned, blueprint)? {
            link if !link.running => Err(LabError::link(&blueprint.lab, &planned.place, "has no carrier")),
            link => Ok(link),
        }
    }

    /// The link, if it is the lab's and up.
    fn marked(&self, planned: &PlannedLink, blueprint: &Blueprint) -> Result<&Link, LabError> {
        let why = match self.get(&planned.place) {
            None => "no longer exists",
            Some(link) if link.alias.as_ref() != Some(&planned.mark) => "lacks the lab's mark",
            Some(link) if !link.up => "is down",
            Some(link) => return Ok(link),
        };
        Err(LabError::link(&blueprint.lab, &planned.place, why))
    }
}
