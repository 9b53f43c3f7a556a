//! Finds zones, hosts and guests in running labs.

use std::net::IpAddr;

use miette::miette;
use vtax_lab::{Lab, LabEndpoint, LabState, LabSummary, World, list};
use vtax_model::{method::DomainKind, topology::Name};

use crate::{
    labs::there_is,
    stop::{Blamed, Stop},
};

/// Returns the only running lab with a zone, host or guest of this name.
pub(super) fn lab_of(world: &World, domain: &Name) -> Result<Name, Stop> {
    let held = list(world).or_infrastructure()?;
    let up = held.iter().filter(|held| matches!(held.state, LabState::Kept | LabState::Alive));
    let up: Vec<(&Name, &LabSummary)> = up.filter_map(|held| Some((&held.name, held.lab()?))).collect();
    let has = |lab: &LabSummary| {
        lab.zones.contains(domain) || lab.hosts.contains(domain) || lab.guests.iter().any(|guest| guest.name == *domain)
    };
    let having: Vec<&Name> = up.iter().filter(|(_, lab)| has(lab)).map(|(name, _)| *name).collect();
    match having.as_slice() {
        [only] => Ok((*only).clone()),
        [] => {
            let guests = up.iter().flat_map(|(_, lab)| &lab.guests).map(|guest| &guest.name);
            let domains = up.iter().flat_map(|(_, lab)| lab.hosts.iter().chain(&lab.zones)).chain(guests);
            let there_is = there_is(domains);
            let is_lab = match up.iter().any(|(name, _)| *name == domain) {
                true => {
                    format!(", and {domain} is a lab: use zone:{domain}/NAME, for a disk zone:{domain}/NAME//PATH")
                }
                false => String::new(),
            };
            Err(Stop::input(miette!(
                code = "no-such-domain",
                "no running lab has a zone, host or guest `{domain}`; {there_is}{is_lab}"
            )))
        }
        [first, ..] => {
            let labs: Vec<&str> = having.iter().map(|lab| lab.as_str()).collect();
            let labs = labs.join(", ");
            Err(Stop::input(miette!(
                code = "ambiguous-domain",
                "several labs have a `{domain}`: {labs}; name one, e.g. zone:{first}/{domain}"
            )))
        }
    }
}

/// Returns the endpoints of a lab with this name: one of a zone or guest, and one of a host for each of its wires.
pub(crate) fn candidates(lab: &Lab, domain: &Name, address: Option<IpAddr>) -> Result<Vec<LabEndpoint>, Stop> {
    let named: Vec<&LabEndpoint> = lab.endpoints().iter().filter(|endpoint| endpoint.name == *domain).collect();
    let name = &lab.blueprint().lab;
    if named.is_empty() {
        let mut names: Vec<&Name> = lab.endpoints().iter().map(|endpoint| &endpoint.name).collect();
        names.dedup();
        let there_is = there_is(names.into_iter());
        return Err(Stop::input(miette!(
            code = "no-such-domain",
            "the lab `{name}` has no zone, host or guest `{domain}` that can measure; {there_is}"
        )));
    }
    let fits = |endpoint: &&&LabEndpoint| address.is_none_or(|address| address == endpoint.address);
    let fitting: Vec<LabEndpoint> = named.iter().filter(fits).copied().cloned().collect();
    if fitting.is_empty() {
        let addresses: Vec<String> = named.iter().map(|endpoint| endpoint.address.to_string()).collect();
        let (address, addresses) =
            (address.map(|address| address.to_string()).unwrap_or_default(), addresses.join(", "));
        return Err(Stop::input(miette!(
            code = "no-such-address",
            "zone:{name}/{domain}: the lab assigned no address {address}; use one of: {addresses}"
        )));
    }
    Ok(fitting)
}

/// Returns a pair of these endpoints with a path between them, preferably on one wire.
pub(super) fn joined(lab: &Lab, ones: &[LabEndpoint], others: &[LabEndpoint]) -> Result<[LabEndpoint; 2], Stop> {
    let pairs = ones.iter().flat_map(|one| others.iter().map(move |other| (one, other)));
    let mut joined: Vec<_> = pairs.filter(|(one, other)| lab.blueprint().path(one, other).is_some()).collect();
    joined.sort_by_key(|(one, other)| one.wire != other.wire);
    match joined.first() {
        Some((one, other)) => Ok([(*one).clone(), (*other).clone()]),
        None => {
            let name = |ends: &[LabEndpoint]| ends.first().map(|end| end.name.to_string()).unwrap_or_default();
            let (one, other, lab) = (name(ones), name(others), &lab.blueprint().lab);
            Err(Stop::input(miette!(code = "no-such-wire", "no wire of the lab `{lab}` joins `{one}` and `{other}`")))
        }
    }
}

/// Returns the domain at the other end of an endpoint's wire: preferably the host there.
pub(super) fn counterpart(lab: &Lab, of: &LabEndpoint) -> Result<Name, Stop> {
    let across = |other: &&LabEndpoint| other.wire == of.wire && other.host != of.host;
    let mut across: Vec<&LabEndpoint> = lab.endpoints().iter().filter(across).collect();
    across.sort_by_key(|other| other.kind != DomainKind::Primary);
    let (name, wire, lab) = (&of.name, &of.wire, &lab.blueprint().lab);
    across.first().map(|other| other.name.clone()).ok_or_else(|| {
        Stop::input(miette!(
            code = "no-such-wire",
            "nothing is at the other end of the wire `{wire}` of zone:{lab}/{name}; name the initiator with --from"
        ))
    })
}
