//! Properties of virtual functions.

use super::{Configured, Property, PropertyEffect, set, set_removable, written};
use crate::domain::{FunctionChange, FunctionSettings};

type FunctionProperty = Property<FunctionSettings>;

impl Configured for FunctionSettings {
    type Change = FunctionChange;
    const EFFECT: PropertyEffect<FunctionSettings> = PropertyEffect::AtBoot;
    const PROPERTIES: &'static [Property<FunctionSettings>] = &[
        FunctionProperty::new(
            "mac-addr",
            "MAC",
            "Its address, which the NIC enforces. vtax chooses one by default",
            |change, text| set(&mut change.mac_addr, text),
            |settings| written(settings.mac_addr),
        ),
        FunctionProperty::new(
            "pvid",
            "VLAN",
            "VLAN of all its frames. The NIC adds and removes the tag",
            |change, text| set_removable(&mut change.pvid, text),
            |settings| written(settings.pvid),
        )
        .removable()
        .now(|settings, wanted| settings.pvid = wanted.pvid),
        FunctionProperty::new(
            "mtu",
            "BYTES",
            "MTU that the domain should use; only the domain can set it",
            |change, text| set(&mut change.mtu, text),
            |settings| written(settings.mtu),
        ),
    ];
}
