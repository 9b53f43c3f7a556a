//! Domains' constraints, resource by resource.

use std::fmt::{Display, Write};

use clap::ValueEnum;
use serde::Serialize;
use strum::VariantArray;
use vtax_domain::{Bindings, DomainRow, ServedSwitch, ServiceUtilization};
use vtax_model::{
    domain::{
        Configuration, Configured, ConsoleService, Constraints, CpuDemand, DomainDevice, FunctionSettings, PRIMARY,
        Property, Switch, VirtualNic,
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
    layout::block("HOST CPU", layout::HOST_CPU, [layout::host_cpu(of)])
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
    let line = |vnet: &VirtualNic| {
        let vlans = vlans(vnet, all.switches.get(&vnet.switch));
        let mut lines = vec![[vnet.name.to_string(), service(vnet), vnet.mac.to_string(), vlans]];
        lines.extend(vnet.alt_macs.iter().map(|mac| [String::new(), String::new(), mac.to_string(), String::new()]));
        let details = has_details.then(|| format!("    {}", details(vnet, all)));
        lines.extend(details.map(|details| [details, String::new(), String::new(), String::new()]));
        lines
    };
    let columns = [("NAME", 16), ("SERVICE", 28), ("MACADDRESS", 19), ("PVID|PVLAN|VIDs", 0)];
    let rule = ["----", "-------", "----------", "---------------"].map(str::to_owned);
    layout::block("NETWORK", columns, std::iter::once(rule).chain(vnets.iter().flat_map(line)))
}

fn devices(devices: &[DomainDevice]) -> String {
    let line = |device: &DomainDevice| {
        let kind: &str = device.kind.into();
        [device.name.to_string(), kind.to_owned(), options(device)]
    };
    layout::block("IO", [("DEVICE", 41), ("TYPE", 6), ("OPTIONS", 0)], devices.iter().map(line))
}

/// Returns the properties of a virtual function that are set.
pub(super) fn options(device: &DomainDevice) -> String {
    let set = |property: &Property<FunctionSettings>| {
        property.own(&device.settings).map(|value| format!("{}={value}", property.key))
    };
    FunctionSettings::PROPERTIES.iter().filter_map(set).collect::<Vec<_>>().join(" ")
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
    let console = |(name, service): (&Name, &ConsoleService)| {
        let users = service.users.as_ref().map_or("all".to_owned(), |users| list(users.iter()));
        [name.to_string(), service.domain.to_string(), service.ports.to_string(), users]
    };
    let switch = |(name, switch): (&Name, &Switch)| {
        [
            name.to_string(),
            switch.service.to_string(),
            switch.mac.map(|mac| mac.to_string()).unwrap_or_default(),
            switch.net_dev.as_deref().unwrap_or_default().to_owned(),
            switch.default_vlan.to_string(),
            switch.pvid.to_string(),
            list(switch.vids.iter()),
            switch.mtu.to_string(),
        ]
    };
    let of_consoles = [("NAME", 16), ("LDOM", 16), ("PORT-RANGE", 13), ("USERS", 0)];
    let [name, domain, mac, link] = [("NAME", 16), ("LDOM", 16), ("MACADDRESS", 17), ("NET-DEV", 9)];
    let of_switches = [name, domain, mac, link, ("DEFAULT-VLAN-ID", 15), ("PVID", 4), ("VID", 20), ("MTU", 0)];
    layout::block("VCC", of_consoles, all.consoles.iter().map(console))
        + &layout::block("VSW", of_switches, all.switches.iter().map(switch))
        + &disks::services(all)
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
    fn pending_resources_are_shown_next_to_current_ones() {
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
