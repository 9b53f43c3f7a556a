//! Whether a lab's links are as they should be, and their MTU.
//!
//! One list of links a namespace is all that is asked of the kernel, however many links of
//! the lab are in it.

use std::{
    collections::HashMap,
    thread,
    time::{Duration, Instant},
};

use vtax_model::{topology::Name, units::Mtu};
use vtax_sys::netlink::Link;

use crate::{
    error::LabError,
    limit::Limit,
    place::Place,
    plan::{Blueprint, PlannedLink},
    site::Site,
};

/// Carrier changes are worked off by a kernel thread (`linkwatch`), at most a second late.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(1);

/// Waits until every link carries packets; looks at its mark and its MTU.
pub(crate) fn up(site: &mut Site, blueprint: &Blueprint) -> Result<(), LabError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = Found::look(site, blueprint)?;
        let waiting =
            blueprint.links.iter().find(|planned| !found.get(&planned.place).is_some_and(|link| link.running));
        match waiting {
            Some(_) if Instant::now() < deadline => thread::sleep(PAUSE),
            _ => return found.check_all(blueprint, blueprint.mtu),
        }
    }
}

/// Whether these links carry packets, whatever their MTU is now.
pub(crate) fn carriers(site: &mut Site, blueprint: &Blueprint, places: &[Place]) -> Result<(), LabError> {
    let found = Found::look(site, blueprint)?;
    let mut passed = blueprint.links.iter().filter(|planned| places.contains(&planned.place));
    passed.try_for_each(|planned| found.carries(planned, blueprint).map(|_| ()))
}

/// Gives every link the MTU that goes with this one of the wires.
///
/// Links that stand on others can't have more than those, so what grows is changed from the
/// wires upwards, and what shrinks from the zones downwards. The kernel follows up some of
/// the changes by itself (a bridge takes the least of its ports, a macvlan shrinks with its
/// wire), which does no harm.
pub(crate) fn set_mtu(site: &mut Site, blueprint: &Blueprint, mtu: Mtu) -> Result<(), LabError> {
    let found = Found::look(site, blueprint)?;
    let now = |planned: &PlannedLink| found.get(&planned.place).map_or(0, |link| link.mtu);
    // A link's limit must let its largest packet through at any moment.
    let grows = blueprint.links.iter().any(|planned| now(planned) < planned.mtu(mtu));
    if grows {
        limit_rates(site, blueprint, mtu)?;
    }
    for planned in blueprint.links.iter().filter(|planned| now(planned) < planned.mtu(mtu)) {
        site.set_mtu(&planned.place, planned.mtu(mtu))?;
    }
    for planned in blueprint.links.iter().rev().filter(|planned| now(planned) > planned.mtu(mtu)) {
        site.set_mtu(&planned.place, planned.mtu(mtu))?;
    }
    if !grows {
        limit_rates(site, blueprint, mtu)?;
    }
    Found::look(site, blueprint)?.check_all(blueprint, mtu)
}

/// Gives the wires with a rate the burst and the queue that go with this MTU.
fn limit_rates(site: &mut Site, blueprint: &Blueprint, mtu: Mtu) -> Result<(), LabError> {
    for wire in &blueprint.wires {
        let Some(shape) = &wire.shape else { continue };
        let limit = Limit::of(shape, mtu);
        for end in &wire.ends {
            site.limit_rate(end, limit)?;
            site.has_limit(end, limit)?;
        }
    }
    Ok(())
}

impl PlannedLink {
    fn mtu(&self, wire: Mtu) -> u32 {
        wire.get().saturating_sub(self.less)
    }
}

/// The links of all namespaces of a lab.
struct Found {
    links: HashMap<Name, Vec<Link>>,
}

impl Found {
    fn look(site: &mut Site, blueprint: &Blueprint) -> Result<Found, LabError> {
        let mut links = HashMap::new();
        for namespace in blueprint.links.iter().map(|planned| &planned.place.namespace) {
            if !links.contains_key(namespace) {
                let mut here = site.links(namespace)?;
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

    fn check_all(&self, blueprint: &Blueprint, mtu: Mtu) -> Result<(), LabError> {
        blueprint.links.iter().try_for_each(|planned| self.check(planned, blueprint, mtu))
    }

    fn check(&self, planned: &PlannedLink, blueprint: &Blueprint, mtu: Mtu) -> Result<(), LabError> {
        let (wanted, found) = (planned.mtu(mtu), self.carries(planned, blueprint)?.mtu);
        let (lab, place) = (blueprint.lab.clone(), planned.place.clone());
        if wanted == found { Ok(()) } else { Err(LabError::Mtu { lab, place, wanted, found }) }
    }

    /// The link, if it is ours and carries packets.
    fn carries(&self, planned: &PlannedLink, blueprint: &Blueprint) -> Result<&Link, LabError> {
        let (lab, place) = (blueprint.lab.clone(), planned.place.clone());
        let wrong = |why| Err(LabError::Link { lab, place, why });
        match self.get(&planned.place) {
            None => wrong("is gone"),
            Some(link) if link.alias.as_ref() != Some(&planned.mark) => wrong("doesn't carry the lab's mark"),
            Some(link) if !link.up => wrong("is switched off"),
            Some(link) if !link.running => wrong("has no carrier"),
            Some(link) => Ok(link),
        }
    }
}
