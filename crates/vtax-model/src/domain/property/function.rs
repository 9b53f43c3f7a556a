//! Properties of virtual functions.

use super::{Configured, Property, PropertyEffect, set, set_removable, written};
use crate::domain::{FunctionChange, FunctionSettings};

type FunctionProperty = Property<FunctionSettings>;

impl Configured for FunctionSettings {
    type Change = FunctionChange;
    const EFFECT: PropertyEffect<FunctionSettings> = PropertyEffect::AtBoot;
    const PROPERTIES: &'static [Property<FunctionSettings>] = &[
        FunctionProperty::new("mac-addr", "MAC", |to, text| set(&mut to.mac_addr, text), |it| written(it.mac_addr))
            .means("Its address, which the NIC enforces. vtax chooses one by default"),
        FunctionProperty::new("pvid", "VLAN", |to, text| set_removable(&mut to.pvid, text), |it| written(it.pvid))
            .means("VLAN of all its frames. The NIC adds and removes the tag")
            .removable()
            .now(|settings, wanted| settings.pvid = wanted.pvid),
        FunctionProperty::new("mtu", "BYTES", |to, text| set(&mut to.mtu, text), |it| written(it.mtu))
            .means("MTU that the domain should use; only the domain can set it"),
    ];
}
