//! Properties of virtual switches.

use super::{Configured, Property, PropertyEffect, PropertyVerb, XML_ADDRESS, joined, set, written};
use crate::{
    domain::{Switch, SwitchChange},
    vf::Vlan,
};

type SwitchProperty = Property<Switch>;

impl Configured for Switch {
    /// The default VLAN of a new switch, and the properties that can be changed later.
    type Change = (Option<Vlan>, SwitchChange);
    const EFFECT: PropertyEffect<Switch> = PropertyEffect::OnHost;
    const PROPERTIES: &'static [Property<Switch>] = &[
        SwitchProperty::new("net-dev", "LINK", |(_, to), text| set(&mut to.net_dev, text), |it| it.net_dev.clone())
            .means("Link of the service domain that connects it to the outside")
            .removable(),
        SwitchProperty::new("mac-addr", "MAC", |(_, to), text| set(&mut to.mac, text), |it| written(it.mac))
            .means("Address of the service domain on the switch. Default: that of `net-dev`")
            .xml(XML_ADDRESS)
            .unlisted(),
        SwitchProperty::new(
            "default-vlan-id",
            "VLAN",
            |(default_vlan, _), text| set(default_vlan, text),
            |it| written(Some(it.default_vlan)),
        )
        .means("VLAN of untagged frames at ports without a `pvid`. Default: 1")
        .only(&[PropertyVerb::Add]),
        SwitchProperty::new("pvid", "VLAN", |(_, to), text| set(&mut to.pvid, text), |it| written(Some(it.pvid)))
            .means("VLAN of the service domain's untagged frames. Default: `default-vlan-id`")
            .requires("VLAN filtering of bridges"),
        SwitchProperty::new("vid", "VLAN,…", |(_, to), text| set(&mut to.vids, text), |it| joined(&it.vids))
            .means("VLANs of the service domain's tagged frames")
            .list()
            .requires("VLAN filtering of bridges"),
        SwitchProperty::new("mtu", "BYTES", |(_, to), text| set(&mut to.mtu, text), |it| written(Some(it.mtu)))
            .means("MTU of the switch and of its vnets, 1500 to 16000. Domains see a change at their next boot"),
    ];
}
