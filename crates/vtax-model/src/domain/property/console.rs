//! Properties of console services and of domains' consoles.

use std::collections::BTreeSet;

use super::{Configured, Property, PropertyEffect, joined, set, set_all, set_number, written};
use crate::domain::{ConsoleService, PortRange, UserName, VirtualConsole};

type ServiceProperty = Property<ConsoleService>;
type ConsoleProperty = Property<VirtualConsole>;

impl Configured for ConsoleService {
    type Change = (Option<PortRange>, Option<BTreeSet<UserName>>);
    const EFFECT: PropertyEffect<ConsoleService> = PropertyEffect::OnHost;
    const PROPERTIES: &'static [Property<ConsoleService>] = &[
        ServiceProperty::new(
            "port-range",
            "FIRST-LAST",
            "Ports of its groups, from 1024. Default: 5000-5255",
            |(ports, _), text| set(ports, text),
            |service| written(Some(service.ports)),
        )
        .xml(""),
        ServiceProperty::new(
            "users",
            "USER,…",
            "Users of the host who can use its consoles. Default: all",
            |(_, users), text| set_all::<UserName, _>(users, text),
            |service| joined(service.users.iter().flatten()),
        )
        .removable()
        .unlisted(),
    ];
}

impl Configured for VirtualConsole {
    type Change = VirtualConsole;
    const EFFECT: PropertyEffect<VirtualConsole> = PropertyEffect::AtBoot;
    const PROPERTIES: &'static [Property<VirtualConsole>] = &[
        ConsoleProperty::new(
            "service",
            "SERVICE",
            "Console service. Default: the only one",
            |console, text| set(&mut console.service, text),
            |console| written(console.service.as_ref()),
        )
        .xml("service_name")
        .unlisted(),
        ConsoleProperty::new(
            "group",
            "GROUP",
            "Group of domains that share a port and a menu. Default: one of its own, with its name",
            |console, text| set(&mut console.group, text),
            |console| written(console.group.as_ref()),
        ),
        ConsoleProperty::new(
            "port",
            "PORT",
            "Port of its group, from 1024. Default: the first free one of the service, when the domain is bound",
            |console, text| set_number(&mut console.port, text),
            |console| written(console.port),
        ),
    ];
}
