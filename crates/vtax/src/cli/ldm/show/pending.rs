//! Pending changes: differences between a bound domain's resources and its constraints at the next boot.

use std::collections::BTreeMap;

use vtax_model::{
    domain::{Configuration, Configured, Constraints, Property, VirtualNic},
    topology::Name,
};

use super::resources::Resource;

/// Current resources of bound domains.
pub(super) type NowByDomain = BTreeMap<Name, Constraints>;

/// Returns the pending resources.
pub(super) fn pending(now: &Constraints, wanted: &Constraints) -> Vec<Resource> {
    Resource::ALL.iter().copied().filter(|resource| differs(*resource, now, wanted)).collect()
}

pub(super) fn differs(resource: Resource, now: &Constraints, wanted: &Constraints) -> bool {
    match resource {
        // Masters and the failure policy change immediately.
        Resource::Domain => now.variables != wanted.variables,
        Resource::Cpu => now.cpus != wanted.cpus,
        Resource::Memory => now.memory != wanted.memory,
        Resource::Network => now.vnets != wanted.vnets,
        Resource::Disk => now.disks != wanted.disks,
        Resource::Physio => now.io != wanted.io,
        Resource::Console => now.console != wanted.console,
        Resource::Util => false,
    }
}

/// Returns the blocks of a resource, current and pending, as `MEMORY now` and `MEMORY pending`. Empty blocks are
/// omitted.
pub(super) fn both(now: &str, wanted: &str) -> String {
    marked(now, "now") + &marked(wanted, "pending")
}

fn marked(block: &str, mark: &str) -> String {
    block.split_once('\n').map_or(String::new(), |(head, rest)| format!("{head} {mark}\n{rest}"))
}

/// Returns properties that a vnet's line doesn't show, but that may be pending.
pub(super) fn details(vnet: &VirtualNic, all: &Configuration) -> String {
    let shown = |property: &Property<VirtualNic>| Some((property.key, property.printed_in(vnet, all)?));
    let details = VirtualNic::PROPERTIES.iter().filter(|property| property.is_detail).filter_map(shown);
    format!("id={}", vnet.id) + &details.map(|(key, value)| format!(" {key}={value}")).collect::<String>()
}
