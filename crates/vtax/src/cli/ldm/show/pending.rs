//! What is pending: a bound domain has one thing, and is to have another when it boots again.

use std::collections::BTreeMap;

use vtax_model::{
    domain::{Configuration, Constraints, LinkProp, VirtualNic},
    topology::Name,
};

use super::resources::Resource;

/// What bound domains have at the moment.
pub(super) type NowByDomain = BTreeMap<Name, Constraints>;

/// The resources that are pending.
pub(super) fn pending(now: &Constraints, wanted: &Constraints) -> Vec<Resource> {
    Resource::ALL.iter().copied().filter(|resource| differs(*resource, now, wanted)).collect()
}

pub(super) fn differs(resource: Resource, now: &Constraints, wanted: &Constraints) -> bool {
    match resource {
        // Masters and the failure policy change at once.
        Resource::Domain => now.variables != wanted.variables,
        Resource::Cpu => now.cpus != wanted.cpus,
        Resource::Memory => now.memory != wanted.memory,
        Resource::Network => now.vnets != wanted.vnets,
        Resource::Disk => now.disks != wanted.disks,
        Resource::Physio => now.io != wanted.io,
        Resource::Console => now.console != wanted.console,
    }
}

/// The blocks of a resource, as it is now and as it is to be: `MEMORY now` and `MEMORY pending`. A block that is empty is
/// left out.
pub(super) fn both(now: &str, wanted: &str) -> String {
    marked(now, "now") + &marked(wanted, "pending")
}

fn marked(block: &str, mark: &str) -> String {
    block.split_once('\n').map_or(String::new(), |(head, rest)| format!("{head} {mark}\n{rest}"))
}

/// What a line of a vnet doesn't show, and may be what is pending.
pub(super) fn details(vnet: &VirtualNic, all: &Configuration) -> String {
    let mtu = all.switches.get(&vnet.switch).map(|switch| vnet.mtu_on(switch)).or(vnet.mtu);
    let mut text = format!("id={}", vnet.id);
    text.extend(mtu.map(|mtu| format!(" mtu={mtu}")));
    text.extend(vnet.maxbw.map(|rate| format!(" maxbw={rate}")));
    if vnet.linkprop == LinkProp::PhysState {
        text += " linkprop=phys-state";
    }
    text
}
