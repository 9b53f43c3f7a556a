//! Domains' constraints, resource by resource.

use std::fmt::{Display, Write};

use clap::ValueEnum;
use serde::Serialize;
use strum::VariantArray;
use vtax_domain::{Bindings, DomainRow, ServedSwitch, ServiceUtilization};
use vtax_model::{
    domain::{
        Configuration, Configured, Constraints, CpuDemand, DomainDevice, FunctionSettings, PRIMARY, Property, Switch,
        VirtualNic,
    },
    topology::Name,
};

use super::{
    disks::{self, PathsByDisk},
    layout,
    pending::{NowByDomain, both, details, differs},
};

/// Resources that lists can be limited to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, VariantArray, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Resource {
    /// The domain itself: failure policy and masters
    Domain,
    /// CPUs
    #[value(alias = "core")]
    Cpu,
    /// Memory
    Memory,
    /// Virtual NICs
    Network,
    /// Virtual disks
    Disk,
    /// PCI devices
    Physio,
    /// Console settings
    Console,
    /// CPU time that the host spends on the domain's behalf
    #[value(alias = "utilization")]
    Util,
}

impl Resource {
    pub(super) const ALL: &[Resource] = Resource::VARIANTS;
}

/// Returns each domain's name or complete line, and the blocks of these resources.
pub(super) fn blocks(
    rows: &[DomainRow],
    all: &Configuration,
    now: &NowByDomain,
    paths: &PathsByDisk,
    resources: &[Resource],
    long: bool,
) -> String {
    let block = |row: &DomainRow| {
        let head = if long { layout::domains(std::slice::from_ref(row)) } else { format!("NAME\n{}\n", row.name) };
        let domain = all.domain(&row.name).expect("rows are of domains");
        let now = now.get(&row.name);
        let of_resource = |resource: &Resource| {
            let watched = match resource {
                Resource::Disk => disks::path_lines(&row.name, paths),
                Resource::Util => row.service.as_ref().map(service).unwrap_or_default(),
                _ => String::new(),
            };
            with_pending(*resource, &row.name, now, domain, all) + &watched
        };
        head + "\n" + &resources.iter().map(of_resource).collect::<String>()
    };
    rows.iter()
        .map(block)
        .collect::<Vec<_>>()
        .join("------------------------------------------------------------------------------\n")
}

/// Returns all of a domain's constraints.
pub(super) fn constraints(name: &Name, domain: &Constraints, all: &Configuration) -> String {
    format!("DOMAIN\n{name}\n\n{}", of_domain(name, domain, all, Resource::ALL))
}

/// Returns a domain's bindings: its line, its constraints when it was bound, and where each of them is.
pub(super) fn bindings(row: &DomainRow, bindings: &Bindings, dropped: &[(Name, u64)], all: &Configuration) -> String {
    let mut text = layout::domains(std::slice::from_ref(row)) + "\n";
    text += &of_domain(&row.name, &bindings.constraints, all, Resource::ALL);
    let cpus: Vec<String> = bindings.cpus.iter().map(u32::to_string).collect();
    let cpus = if cpus.is_empty() { "shared with others".to_owned() } else { cpus.join(",") };
    let _ = writeln!(text, "BINDINGS\n    host's CPUs: {cpus}");
    for nic in &bindings.nics {
        let frames = dropped.iter().find(|(vnet, _)| *vnet == nic.vnet).map_or(0, |(_, frames)| *frames);
        let _ = writeln!(
            text,
            "    {}: link {}, port of {}; {frames} frames with foreign source addresses dropped",
            nic.vnet, nic.tap, nic.switch
        );
    }
    for served in &bindings.served {
        let ServedSwitch { switch, link, tap, mac, net_dev, .. } = served;
        let _ = writeln!(
            text,
            "    {switch}: link {tap}, port of {link}; in {}, {mac} and {net_dev} are one bridge",
            row.name
        );
    }
    bindings.disks.iter().for_each(|disk| text += &disks::bound(disk));
    for device in &bindings.devices {
        let functions: Vec<String> = device.functions.iter().map(ToString::to_string).collect();
        let name = bindings.functions().find(|(_, function)| function.name == device.name);
        let name = name.map(|(name, _)| format!(", {name} for measurements")).unwrap_or_default();
        let _ = writeln!(text, "    {}: {}{name}", device.name, functions.join(", "));
    }
    if let Some(console) = &bindings.console {
        let _ = writeln!(text, "    console: port {} of {}, group {}", console.port, console.service, console.group);
    }
    text
}

/// Returns the block of a resource, or two if the domain's current and pending resources differ.
fn with_pending(
    resource: Resource,
    name: &Name,
    now: Option<&Constraints>,
    domain: &Constraints,
    all: &Configuration,
) -> String {
    match now.filter(|now| differs(resource, now, domain)) {
        None => of_resource(resource, name, domain, all),
        Some(now) if resource == Resource::Domain => control(domain) + &both(&variables(now), &variables(domain)),
        Some(now) if resource == Resource::Network => {
            both(&network(&now.vnets, all, true), &network(&domain.vnets, all, true))
        }
        Some(now) => both(&of_resource(resource, name, now, all), &of_resource(resource, name, domain, all)),
    }
}

fn of_domain(name: &Name, domain: &Constraints, all: &Configuration, resources: &[Resource]) -> String {
    resources.iter().map(|resource| of_resource(*resource, name, domain, all)).filter(|text| !text.is_empty()).collect()
}

/// Returns a block followed by an empty line; empty if the domain has none of the resource.
fn of_resource(resource: Resource, name: &Name, domain: &Constraints, all: &Configuration) -> String {
    match resource {
        Resource::Domain => control(domain) + &variables(domain),
        Resource::Cpu => domain.cpus.as_ref().map(cpus).unwrap_or_default(),
        Resource::Memory => {
            domain.memory.map(|size| format!("MEMORY\n    SIZE\n    {}\n\n", layout::memory(size))).unwrap_or_default()
        }
        Resource::Network => network(&domain.vnets, all, false),
        Resource::Disk => disks::disks(&domain.disks, all),
        Resource::Physio => devices(&domain.io),
        Resource::Console if name.as_str() == PRIMARY => String::new(),
        Resource::Console => console(name, domain, all),
        // Measured, not configured.
        Resource::Util => String::new(),
    }
}

/// Returns the block of the host's CPU time, in percent of one CPU.
fn service(of: &ServiceUtilization) -> String {
    let ServiceUtilization { vhost, iothread, daemon, qemu } = *of;
    let heads = ["VHOST", "IOTHREAD", "DAEMON", "QEMU", "TOTAL"];
    let line = |cells: [String; 5]| cells.map(|cell| format!("{cell:<10}")).concat();
    let figures = [vhost, iothread, daemon, qemu, of.total()].map(|share| format!("{share:.1}%"));
    let (heads, figures) = (line(heads.map(str::to_owned)), line(figures));
    format!("HOST CPU\n    {}\n    {}\n\n", heads.trim_end(), figures.trim_end())
}

fn control(domain: &Constraints) -> String {
    let masters = domain.masters.iter().map(Name::as_str).collect::<Vec<_>>().join(",");
    let autostart = if domain.autostart { "    autostart=yes\n" } else { "" };
    format!("CONTROL\n    failure-policy={}\n{autostart}\nDEPENDENCY\n    master={masters}\n\n", domain.failure_policy)
}

fn variables(domain: &Constraints) -> String {
    if domain.variables.is_empty() {
        return String::new();
    }
    let mut text = "VARIABLES\n".to_owned();
    for (variable, value) in &domain.variables {
        let _ = writeln!(text, "    {variable}={value}");
    }
    text + "\n"
}

fn cpus(cpus: &CpuDemand) -> String {
    match cpus {
        CpuDemand::Cids(ids) => format!("CORE\n    CID\n    {}\n\n", list(ids.iter())),
        CpuDemand::Cores(count) => format!("CORE\n    COUNT\n    {count}\n\n"),
        CpuDemand::Vcpus(count) => format!("VCPU\n    COUNT\n    {count}\n\n"),
    }
}

/// Returns the vnets, including properties that aren't in their lines if those may be what differs.
fn network(vnets: &[VirtualNic], all: &Configuration, has_details: bool) -> String {
    if vnets.is_empty() {
        return String::new();
    }
    let service = |vnet: &VirtualNic| match all.switches.get(&vnet.switch) {
        Some(switch) => format!("{}@{}", vnet.switch, switch.service),
        None => vnet.switch.to_string(),
    };
    let mut text = "NETWORK\n".to_owned();
    vnet_line(&mut text, ["NAME", "SERVICE", "MACADDRESS", "PVID|PVLAN|VIDs"]);
    vnet_line(&mut text, ["----", "-------", "----------", "---------------"]);
    for vnet in vnets {
        let vlans = vlans(vnet, all.switches.get(&vnet.switch));
        vnet_line(&mut text, [vnet.name.as_str(), &service(vnet), &vnet.mac.to_string(), &vlans]);
        for mac in &vnet.alt_macs {
            vnet_line(&mut text, ["", "", &mac.to_string(), ""]);
        }
        if has_details {
            let _ = writeln!(text, "        {}", details(vnet, all));
        }
    }
    text + "\n"
}

fn devices(devices: &[DomainDevice]) -> String {
    if devices.is_empty() {
        return String::new();
    }
    let mut text = "IO\n".to_owned();
    device_line(&mut text, ["DEVICE", "TYPE", "OPTIONS"]);
    for device in devices {
        device_line(&mut text, [&device.name, device.kind.into(), &options(device)]);
    }
    text + "\n"
}

fn device_line(text: &mut String, cells: [&str; 3]) {
    let [name, kind, options] = cells;
    let line = format!("    {name:<41} {kind:<6} {options}");
    let _ = writeln!(text, "{}", line.trim_end());
}

/// Returns the properties of a virtual function that are set.
pub(super) fn options(device: &DomainDevice) -> String {
    let set = |property: &Property<FunctionSettings>| {
        property.own(&device.settings).map(|value| format!("{}={value}", property.key))
    };
    FunctionSettings::PROPERTIES.iter().filter_map(set).collect::<Vec<_>>().join(" ")
}

fn vnet_line(text: &mut String, cells: [&str; 4]) {
    let [name, service, mac, vlans] = cells;
    let line = format!("    {name:<16} {service:<28} {mac:<17}   {vlans}");
    let _ = writeln!(text, "{}", line.trim_end());
}

/// Returns the untagged VLAN, private VLANs, which Linux doesn't have, and the tagged VLANs.
fn vlans(vnet: &VirtualNic, switch: Option<&Switch>) -> String {
    let pvid = switch.map(|switch| vnet.pvid_on(switch)).or(vnet.vlans.pvid).unwrap_or_default();
    let vids = list(vnet.vlans.vids.iter());
    format!("{pvid}|--|{}", if vids.is_empty() { "--" } else { &vids })
}

pub(super) fn list<'a, T: Display + 'a>(values: impl Iterator<Item = &'a T>) -> String {
    values.map(T::to_string).collect::<Vec<_>>().join(",")
}

fn console(name: &Name, domain: &Constraints, all: &Configuration) -> String {
    let service = domain.console.service.as_ref().or(all.consoles.keys().next().filter(|_| all.consoles.len() == 1));
    let service = service.map(Name::to_string).unwrap_or_default();
    let group = domain.console.group.as_ref().unwrap_or(name);
    let port = domain.console.port.map(|port| port.to_string()).unwrap_or_default();
    format!("VCONS\n    {:<16} {:<28} {}\n    {:<16} {:<28} {port}\n\n", "NAME", "SERVICE", "PORT", group, service)
}

/// Returns the console services, the switches and the disk services.
pub(super) fn services(all: &Configuration) -> String {
    let mut text = String::new();
    if !all.consoles.is_empty() {
        text += "VCC\n    NAME             LDOM             PORT-RANGE    USERS\n";
        for (name, service) in &all.consoles {
            let users = service.users.as_ref().map_or("all".to_owned(), |users| list(users.iter()));
            let _ = writeln!(text, "    {name:<16} {:<16} {:<13} {users}", service.domain, service.ports.to_string());
        }
        text.push('\n');
    }
    if !all.switches.is_empty() {
        text += "VSW\n";
        switch_line(&mut text, ["NAME", "LDOM", "MACADDRESS", "NET-DEV", "DEFAULT-VLAN-ID", "PVID", "VID", "MTU"]);
        for (name, switch) in &all.switches {
            switch_line(
                &mut text,
                [
                    name.as_str(),
                    switch.service.as_str(),
                    &switch.mac.map(|mac| mac.to_string()).unwrap_or_default(),
                    switch.net_dev.as_deref().unwrap_or_default(),
                    &switch.default_vlan.to_string(),
                    &switch.pvid.to_string(),
                    &list(switch.vids.iter()),
                    &switch.mtu.to_string(),
                ],
            );
        }
        text.push('\n');
    }
    text + &disks::services(all)
}

fn switch_line(text: &mut String, cells: [&str; 8]) {
    let [name, domain, mac, link, default, pvid, vids, mtu] = cells;
    let line = format!("    {name:<16} {domain:<16} {mac:<17} {link:<9} {default:<15} {pvid:<4} {vids:<20} {mtu}");
    let _ = writeln!(text, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use vtax_domain::DomainFlags;
    use vtax_model::domain::{DomainState, NewSwitch, NewVnet, SwitchChange, Variable, VnetChange};

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    /// The domain mars is bound, and later changes are still pending.
    fn changed_since() -> (Configuration, NowByDomain) {
        let mut all = Configuration::new("sun");
        let (mars, service) = (name("mars"), name(PRIMARY));
        let change = SwitchChange::default();
        all.add_switch(NewSwitch { name: name("vsw0"), service, default_vlan: None, change }).expect("it is new");
        all.add_domain(&mars).expect("it is new");
        all.set_cpus(&mars, CpuDemand::Vcpus(1)).expect("possible");
        all.set_memory(&mars, "128M".parse().expect("a size")).expect("possible");
        let change = VnetChange { mac: "2:0:0:0:0:1".parse().ok(), ..VnetChange::default() };
        let new = NewVnet { name: name("net0"), switch: name("vsw0"), domain: mars.clone(), change };
        all.add_vnet(new).expect("it is new");
        let now = [(mars.clone(), all.domain(&mars).expect("it is there").clone())].into();
        all.set_memory(&mars, "160M".parse().expect("a size")).expect("possible");
        all.set_variable(&mars, Variable::BootArgs, "quiet".to_owned()).expect("possible");
        all.set_masters(&mars, vec![name(PRIMARY)]).expect("no circle");
        let change = VnetChange { mtu: "9000".parse().ok(), ..VnetChange::default() };
        all.set_vnet(&mars, &name("net0"), change).expect("possible");
        (all, now)
    }

    fn row() -> DomainRow {
        DomainRow {
            name: name("mars"),
            state: DomainState::Active,
            flags: DomainFlags::default(),
            console: None,
            vcpus: 1,
            memory: "128M".parse().expect("a size"),
            utilization: Some(0.5),
            service: Some(ServiceUtilization { vhost: 12.0, qemu: 3.5, ..ServiceUtilization::default() }),
            uptime: Some(Duration::from_secs(60)),
        }
    }

    #[test]
    fn what_is_pending_stands_beside_what_is_now() {
        let (all, now) = changed_since();
        insta::assert_snapshot!(blocks(&[row()], &all, &now, &PathsByDisk::new(), Resource::ALL, true));
        insta::assert_snapshot!(super::super::parseable::domains(
            &[row()],
            &all,
            &now,
            &PathsByDisk::new(),
            Resource::ALL
        ));
    }

    #[test]
    fn nothing_is_pending_where_nothing_was_changed() {
        let (all, _) = changed_since();
        let same: NowByDomain = all.domains.clone();
        let told = blocks(&[row()], &all, &same, &PathsByDisk::new(), Resource::ALL, true);
        assert_eq!(told, blocks(&[row()], &all, &NowByDomain::new(), &PathsByDisk::new(), Resource::ALL, true));
        assert!(!told.contains("pending") && !told.contains(" now"), "{told}");
    }
}
