//! Properties of virtual NICs.

use super::{Configured, Property, PropertyEffect, PropertyVerb, XML_ADDRESS, joined, set, set_number, written};
use crate::domain::{Configuration, LinkProp, VirtualNic, VnetChange, VnetProtection};

type VnetProperty = Property<VirtualNic>;

impl Configured for VirtualNic {
    type Change = VnetChange;
    const EFFECT: PropertyEffect<VirtualNic> = PropertyEffect::AtBoot;
    const PROPERTIES: &'static [Property<VirtualNic>] = &[
        VnetProperty::new("vswitch", "SWITCH", |to, text| set(&mut to.switch, text), |it| written(Some(&it.switch)))
            .means("Switch to which it is connected")
            .only(&[PropertyVerb::Set])
            .xml("service_name")
            .required()
            .shown("service", service),
        VnetProperty::new("mac-addr", "MAC", |to, text| set(&mut to.mac, text), |it| written(Some(it.mac)))
            .means("Its address. vtax chooses one by default")
            .xml(XML_ADDRESS)
            .required(),
        VnetProperty::new(
            "alt-mac-addrs",
            "auto|MAC,…",
            |to, text| set(&mut to.alt_macs, text),
            |it| joined(&it.alt_macs),
        )
        .means("Further addresses that the domain can send from")
        .list()
        .requires("nftables with the family bridge")
        .now(|vnet, wanted| vnet.alt_macs.clone_from(&wanted.alt_macs)),
        VnetProperty::new("pvid", "VLAN", |to, text| set(&mut to.pvid, text), |it| written(it.vlans.pvid))
            .means("VLAN of its untagged frames. Default: `default-vlan-id` of the switch")
            .shown("pvid", |vnet, all| written(all.switches.get(&vnet.switch).map(|switch| vnet.pvid_on(switch))))
            .requires("VLAN filtering of bridges")
            .now(|vnet, wanted| vnet.vlans.pvid = wanted.vlans.pvid),
        VnetProperty::new("vid", "VLAN,…", |to, text| set(&mut to.vids, text), |it| joined(&it.vlans.vids))
            .means("VLANs of its tagged frames")
            .list()
            .requires("VLAN filtering of bridges")
            .now(|vnet, wanted| vnet.vlans.vids.clone_from(&wanted.vlans.vids)),
        VnetProperty::new("mtu", "BYTES", |to, text| set(&mut to.mtu, text), |it| written(it.mtu))
            .means("MTU, 1500 to 16000. Default: that of the switch")
            .shown("mtu", |vnet, all| written(all.switches.get(&vnet.switch).map(|switch| vnet.mtu_on(switch))))
            .detail(),
        VnetProperty::new("id", "NUMBER", |to, text| set_number(&mut to.id, text), |it| written(Some(it.id)))
            .means("Its number in the domain, 0 to 15, which determines its position on the PCI bus")
            .required(),
        VnetProperty::new(
            "maxbw",
            "RATE",
            |to, text| set(&mut to.maxbw, text),
            |it| written(it.maxbw.map(|rate| rate.bits())),
        )
        .means("Maximum bandwidth, separately for sending and receiving, e.g. 100M")
        .printed(|vnet| written(vnet.maxbw))
        .detail(),
        VnetProperty::new(
            "linkprop",
            "phys-state",
            |to, text| set(&mut to.linkprop, text),
            |it| (it.linkprop == LinkProp::PhysState).then(|| "phys-state".to_owned()),
        )
        .means("Follow the carrier of the switch's `net-dev`")
        .removable()
        .requires("`net-dev` of the switch")
        .detail(),
        VnetProperty::new(
            "protection",
            "[mac-nospoof]",
            |to, text| set(&mut to.protection, text),
            |it| (it.protection == VnetProtection::Off).then(String::new),
        )
        .means("Addresses that the domain can send from: its own (`mac-nospoof`, the default), or any (empty)")
        .shown("protection", |vnet, _| (vnet.protection != VnetProtection::Off).then(|| "mac-nospoof".to_owned()))
        .printed(|vnet| (vnet.protection == VnetProtection::Off).then(String::new))
        .detail()
        .requires("nftables with the family bridge")
        .now(|vnet, wanted| vnet.protection = wanted.protection),
    ];
}

/// Returns the switch with its service domain.
fn service(vnet: &VirtualNic, all: &Configuration) -> Option<String> {
    let service = all.switches.get(&vnet.switch).map(|switch| format!("@{}", switch.service));
    Some(format!("{}{}", vnet.switch, service.unwrap_or_default()))
}
