//! The links between two endpoints, as the kernel reports them. They identify the path, and every result has
//! them.

use serde::{Deserialize, Serialize};
use vtax_model::nic::NicFacts;
use vtax_sys::netlink::Link;

use crate::{
    blueprint::{Blueprint, LabEndpoint},
    error::LabError,
    place::Place,
    site::Site,
};

/// One link on a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct LabHop {
    /// The link, and the host or zone that it is in.
    #[serde(flatten)]
    pub place: Place,
    pub kind: String,
    pub mtu: u32,
    pub mac: Option<String>,
    pub tx_queues: Option<u32>,
    pub rx_queues: Option<u32>,
    pub qdisc: Option<String>,
    /// Driver, offloads, rings, interrupts.
    #[serde(default)]
    pub nic: NicFacts,
}

/// Asks the kernel for every link from one endpoint to the other.
pub(crate) fn hops(
    site: &mut Site,
    blueprint: &Blueprint,
    from: &LabEndpoint,
    to: &LabEndpoint,
) -> Result<Vec<LabHop>, LabError> {
    let places =
        blueprint.path(from, to).ok_or_else(|| LabError::NoPath { from: from.name.clone(), to: to.name.clone() })?;
    // The agent in a guest tells of the links there.
    let ours = places.into_iter().filter(|place| blueprint.links.iter().any(|link| link.place == *place));
    ours.map(|place| hop(site, blueprint, place)).collect()
}

fn hop(site: &mut Site, blueprint: &Blueprint, place: Place) -> Result<LabHop, LabError> {
    let links = site.links(&place.namespace)?;
    let gone = || LabError::Link { lab: blueprint.lab.clone(), place: place.clone(), why: "is gone" };
    let link = links.into_iter().find(|link| link.name.as_str() == place.link.as_str()).ok_or_else(gone)?;
    let nic = site.nic(&place)?;
    let Link { kind, mtu, mac, tx_queues, rx_queues, qdisc, .. } = link;
    let (kind, mac) = (kind.unwrap_or_default(), mac.map(|mac| mac.to_string()));
    Ok(LabHop { place, kind, mtu, mac, tx_queues, rx_queues, qdisc, nic })
}
