//! The links between two endpoints, as the kernel reports them. They identify the path, and every result has them.

use vtax_model::run::Hop;
use vtax_step::{Place, StepSite};

use crate::{
    blueprint::{Blueprint, LabEndpoint},
    error::LabError,
};

/// Queries the kernel for every link from one endpoint to the other.
pub(crate) fn hops(
    site: &mut StepSite,
    blueprint: &Blueprint,
    from: &LabEndpoint,
    to: &LabEndpoint,
) -> Result<Vec<Hop>, LabError> {
    let places =
        blueprint.path(from, to).ok_or_else(|| LabError::NoPath { from: from.name.clone(), to: to.name.clone() })?;
    // The agent in a guest reports the links there.
    let ours = places.into_iter().filter(|place| blueprint.links.iter().any(|link| link.place == *place));
    ours.map(|place| hop(site, blueprint, place)).collect()
}

fn hop(site: &mut StepSite, blueprint: &Blueprint, place: Place) -> Result<Hop, LabError> {
    let links = site.at(&place)?.links()?;
    let gone = || LabError::link(&blueprint.lab, &place, "no longer exists");
    let link = links.into_iter().find(|link| link.name.as_str() == place.link.as_str()).ok_or_else(gone)?;
    Ok(Hop {
        domain: place.namespace.to_string().into(),
        link: place.link.to_string().into(),
        kind: link.kind.unwrap_or_default().into(),
        mtu: link.mtu,
        qdisc: link.qdisc.unwrap_or_default().into(),
        tx_queues: link.tx_queues.unwrap_or_default(),
        rx_queues: link.rx_queues.unwrap_or_default(),
        nic: site.at(&place)?.nic(place.link.as_str())?,
    })
}
