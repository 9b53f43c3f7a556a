//! Properties of virtual switches.

use super::{Configured, Property, PropertyEffect, PropertyVerb, XML_ADDRESS, joined, set, written};
use crate::{
    domain::{Switch, SwitchChange},
    vf::Vlan,
};

type SwitchProperty = Property<Switch>;

impl Configured for Switch {
    /// The default VLAN of a new switch, and what can be changed later.
    type Change = (Option<Vlan>, SwitchChange);
    const EFFECT: PropertyEffect<Switch> = PropertyEffect::OnHost;
    const PROPERTIES: &'static [Property<Switch>] = &[
        SwitchProperty::new(
            "net-dev",
            "LINK",
            "Link of the service domain that connects it to the outside",
            |(_, change), text| set(&mut change.net_dev, text),
            |switch| switch.net_dev.clone(),
        )
        .removable(),
        SwitchProperty::new(
            "mac-addr",
            "MAC",
            "Address of the service domain on the switch. Default: that of `net-dev`",
            |(_, change), text| set(&mut change.mac, text),
            |switch| written(switch.mac),
        )
        .xml(XML_ADDRESS)
        .unlisted(),
        SwitchProperty::new(
            "default-vlan-id",
            "VLAN",
            "VLAN of untagged frames at ports without a `pvid`. Default: 1",
            |(default_vlan, _), text| set(default_vlan, text),
            |switch| written(Some(switch.default_vlan)),
        )
        .only(&[PropertyVerb::Add]),
        SwitchProperty::new(
            "pvid",
            "VLAN",
            "VLAN of the service domain's untagged frames. Default: `default-vlan-id`",
            |(_, change), text| set(&mut change.pvid, text),
            |switch| written(Some(switch.pvid)),
        )
        .requires("VLAN filtering of bridges"),
        SwitchProperty::new(
            "vid",
            "VLAN,…",
            "VLANs of the service domain's tagged frames",
            |(_, change), text| set(&mut change.vids, text),
            |switch| joined(&switch.vids),
        )
        .list()
        .requires("VLAN filtering of bridges"),
        SwitchProperty::new(
            "mtu",
            "BYTES",
            "MTU of the switch and of its vnets, 1500 to 16000. Domains see a change at their next boot",
            |(_, change), text| set(&mut change.mtu, text),
            |switch| written(Some(switch.mtu)),
        ),
    ];
}
