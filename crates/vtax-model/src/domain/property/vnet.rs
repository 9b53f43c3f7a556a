//! Properties of virtual NICs.

use super::{Configured, Property, PropertyEffect, PropertyVerb, XML_ADDRESS, joined, set, set_number, written};
use crate::domain::{Configuration, LinkProp, VirtualNic, VnetChange};

type VnetProperty = Property<VirtualNic>;

impl Configured for VirtualNic {
    type Change = VnetChange;
    const EFFECT: PropertyEffect<VirtualNic> = PropertyEffect::AtBoot;
    const PROPERTIES: &'static [Property<VirtualNic>] = &[
        VnetProperty::new(
            "vswitch",
            "SWITCH",
            "Switch that it is a port of",
            |change, text| set(&mut change.switch, text),
            |vnet| written(Some(&vnet.switch)),
        )
        .only(&[PropertyVerb::Set])
        .xml("service_name")
        .required()
        .shown("service", service),
        VnetProperty::new(
            "mac-addr",
            "MAC",
            "Its address. vtax chooses one by default",
            |change, text| set(&mut change.mac, text),
            |vnet| written(Some(vnet.mac)),
        )
        .xml(XML_ADDRESS)
        .required(),
        VnetProperty::new(
            "alt-mac-addrs",
            "auto|MAC,…",
            "Further addresses that the domain can send from",
            |change, text| set(&mut change.alt_macs, text),
            |vnet| joined(&vnet.alt_macs),
        )
        .list()
        .requires("nftables with the family bridge")
        .now(|vnet, wanted| vnet.alt_macs.clone_from(&wanted.alt_macs)),
        VnetProperty::new(
            "pvid",
            "VLAN",
            "VLAN of its untagged frames. Default: `default-vlan-id` of the switch",
            |change, text| set(&mut change.pvid, text),
            |vnet| written(vnet.vlans.pvid),
        )
        .shown("pvid", |vnet, all| written(all.switches.get(&vnet.switch).map(|switch| vnet.pvid_on(switch))))
        .requires("VLAN filtering of bridges")
        .now(|vnet, wanted| vnet.vlans.pvid = wanted.vlans.pvid),
        VnetProperty::new(
            "vid",
            "VLAN,…",
            "VLANs of its tagged frames",
            |change, text| set(&mut change.vids, text),
            |vnet| joined(&vnet.vlans.vids),
        )
        .list()
        .requires("VLAN filtering of bridges")
        .now(|vnet, wanted| vnet.vlans.vids.clone_from(&wanted.vlans.vids)),
        VnetProperty::new(
            "mtu",
            "BYTES",
            "MTU, 1500 to 16000. Default: that of the switch",
            |change, text| set(&mut change.mtu, text),
            |vnet| written(vnet.mtu),
        )
        .shown("mtu", |vnet, all| written(all.switches.get(&vnet.switch).map(|switch| vnet.mtu_on(switch))))
        .detail(),
        VnetProperty::new(
            "id",
            "NUMBER",
            "Its number in the domain, 0 to 15, which determines its position on the PCI bus",
            |change, text| set_number(&mut change.id, text),
            |vnet| written(Some(vnet.id)),
        )
        .required(),
        VnetProperty::new(
            "maxbw",
            "RATE",
            "Maximum bandwidth, separately for sending and receiving, e.g. 100M",
            |change, text| set(&mut change.maxbw, text),
            |vnet| written(vnet.maxbw.map(|rate| rate.bits())),
        )
        .printed(|vnet| written(vnet.maxbw))
        .detail(),
        VnetProperty::new(
            "linkprop",
            "phys-state",
            "It follows the carrier of the switch's `net-dev`",
            |change, text| set(&mut change.linkprop, text),
            |vnet| (vnet.linkprop == LinkProp::PhysState).then(|| "phys-state".to_owned()),
        )
        .removable()
        .requires("`net-dev` of the switch")
        .detail(),
    ];
}

/// Returns the switch with its service domain.
fn service(vnet: &VirtualNic, all: &Configuration) -> Option<String> {
    let service = all.switches.get(&vnet.switch).map(|switch| format!("@{}", switch.service));
    Some(format!("{}{}", vnet.switch, service.unwrap_or_default()))
}
