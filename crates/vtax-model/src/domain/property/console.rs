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
            |(ports, _), text| set(ports, text),
            |it| written(Some(it.ports)),
        )
        .means("Ports of its groups, from 1024. Bound domains keep theirs. Default: 5000-5255")
        .xml(""),
        ServiceProperty::new(
            "users",
            "USER,…",
            |(_, users), text| set_all::<UserName, _>(users, text),
            |it| joined(it.users.iter().flatten()),
        )
        .means("Users of the host who can use its consoles. Default: all")
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
            |to, text| set(&mut to.service, text),
            |it| written(it.service.as_ref()),
        )
        .means("Console service. Default: the only one")
        .xml("service_name")
        .unlisted(),
        ConsoleProperty::new("group", "GROUP", |to, text| set(&mut to.group, text), |it| written(it.group.as_ref()))
            .means("Group of domains that share a port and a menu. Default: a separate group with the domain's name"),
        ConsoleProperty::new("port", "PORT", |to, text| set_number(&mut to.port, text), |it| written(it.port)).means(
            "Port of its group, from 1024. Default: the first free one of the service, when the domain is bound",
        ),
    ];
}
