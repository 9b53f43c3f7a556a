//! Inspects this machine, so that a plan can be created from data alone.

mod disks;
mod guests;
mod needs;
mod pci;
mod programs;
mod vhost_user;

use std::fs;

use vtax_step::TranslateAddresses;
use vtax_sys::{SysError, netlink::Rtnl, userns};

pub use needs::GuestNeeds;
#[cfg(test)]
pub(crate) use pci::tests as pci_tests;

use crate::{
    error::LabError,
    facts::{Facts, GuestFacts, InUse, PciFacts},
    inventory, io,
    world::World,
};

impl Facts {
    /// Inspects this machine. To determine the supported kinds of links, it creates one of each in temporary
    /// namespaces.
    pub fn gather(world: &World) -> Result<Facts, LabError> {
        let labs = inventory::list(world)?;
        let mut in_use = own_networks().map_err(LabError::kernel("this machine"))?;
        in_use.extend(
            labs.iter().filter_map(|lab| Some(InUse { net: lab.addresses()?, by: format!("lab `{}`", lab.name) })),
        );
        let rate_limit = vtax_sys::netlink::probe_tbf().err().map(|error| error.to_string());
        let programs = programs::found();
        let probe = |nft| TranslateAddresses::probe(nft).err().map(|error| error.to_string());
        let translation = programs.get("nft").and_then(|nft| probe(nft));
        let kinds = Self::KINDS.into_iter().map(|kind| (kind.to_owned(), why_not(kind)));
        let others = [(Self::RATE_LIMIT, rate_limit), (Self::TRANSLATION, translation)];
        Ok(Facts {
            kinds: kinds.chain(others.map(|(kind, why)| (kind.to_owned(), why))).collect(),
            programs,
            in_use,
            labs: labs.into_iter().map(|lab| lab.name).collect(),
            most_namespaces: number("/proc/sys/user/max_net_namespaces").unwrap_or(u64::MAX),
            pci: PciFacts::gather()?,
            lent: io::lent(world)?,
            ordinary_user: !userns::is_initial(),
            guests: None,
        })
    }

    /// Also inspects what this machine has for guests, unless none are required.
    #[must_use]
    pub fn with_guests(self, world: &World, needs: &GuestNeeds) -> Facts {
        let guests = (!needs.is_empty()).then(|| GuestFacts::gather(world, &needs.clone().resolved(&self.pci)));
        Facts { guests, ..self }
    }
}

fn why_not(kind: &str) -> Option<String> {
    vtax_sys::netlink::probe_kind(kind).err().map(|error| match error {
        // The planner supplies the remedy, which is another for each method.
        SysError::NoSuchKind { kind } => format!("this kernel has no link kind {kind}"),
        error => format!("no {kind} link can be created here: {error}"),
    })
}

/// Addresses and routes of this namespace, without the default route.
fn own_networks() -> Result<Vec<InUse>, SysError> {
    let mut rtnl = Rtnl::open()?;
    let links = rtnl.links()?;
    let name = |index| links.iter().find(|link| link.index == index).map_or("?", |link| link.name.as_str());
    let mut used = Vec::new();
    for address in rtnl.addresses()? {
        let net = address.net;
        used.push(InUse { net: net.trunc(), by: format!("address {net} of {}", name(address.link)) });
    }
    for route in rtnl.routes()? {
        match (route.dest, route.link) {
            (net, Some(link)) if net.prefix_len() > 0 => {
                used.push(InUse { net, by: format!("route to {net} on {}", name(link)) });
            }
            (net, None) if net.prefix_len() > 0 => used.push(InUse { net, by: format!("route to {net}") }),
            _ => {}
        }
    }
    Ok(used)
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
