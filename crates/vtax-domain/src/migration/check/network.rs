use std::collections::BTreeMap;

use vtax_model::{
    domain::{Constraints, Switch, VirtualNic},
    topology::Name,
};

use super::super::{NetworkObstacle, offer::MigrationOffer, target::TargetFacts};

pub(super) fn obstacles(
    offer: &MigrationOffer,
    constraints: &Constraints,
    facts: &TargetFacts<'_>,
) -> Vec<NetworkObstacle> {
    let (all, is_live) = (&facts.state.configuration, offer.running().is_some());
    let mut missing: BTreeMap<&Name, Vec<Name>> = BTreeMap::new();
    let mut found = Vec::new();
    for vnet in &constraints.vnets {
        match (offer.configuration.switch(&vnet.switch), all.switch(&vnet.switch)) {
            (Ok(here), Ok(there)) => found.extend(of_vnet(vnet, (here, there), is_live, facts.abilities.vlans)),
            _ => missing.entry(&vnet.switch).or_default().push(vnet.name.clone()),
        }
    }
    let missing = missing.into_iter();
    found.extend(missing.map(|(switch, vnets)| NetworkObstacle::NoSwitch { switch: switch.clone(), vnets }));
    found.extend(all.taken_macs(&constraints.vnets).into_iter().map(|(vnet, mac, nic, domain)| {
        NetworkObstacle::MacInUse { vnet: vnet.clone(), mac, nic: nic.into(), domain }
    }));
    found
}

/// Compares a vnet on the source's switch with the same on the target's.
fn of_vnet(
    vnet: &VirtualNic,
    (here, there): (&Switch, &Switch),
    is_live: bool,
    has_vlans: bool,
) -> Vec<NetworkObstacle> {
    let (name, switch) = (|| vnet.name.clone(), || vnet.switch.clone());
    let mut found = Vec::new();
    let (wanted, has) = (vnet.pvid_on(here), vnet.pvid_on(there));
    if wanted != has {
        found.push(NetworkObstacle::Untagged { vnet: name(), switch: switch(), wanted, there: has });
    }
    let is_plain = has == there.default_vlan && vnet.vlans.vids.is_empty();
    if !has_vlans && !is_plain {
        found.push(NetworkObstacle::NoVlans { vnet: name(), switch: switch() });
    }
    let (wanted, has) = (vnet.mtu_on(here), vnet.mtu_on(there));
    // A running system already knows its MTU. A vnet may have a larger MTU than its switch, if the user wants that.
    let is_kept = !is_live || wanted == has;
    if !is_kept || (wanted > there.mtu && there.mtu < here.mtu) {
        found.push(NetworkObstacle::Mtu { vnet: name(), switch: switch(), wanted, there: there.mtu });
    }
    found
}
