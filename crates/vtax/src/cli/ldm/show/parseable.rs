//! Lists for programs: one line per item, with `|`-separated fields named as in `ldm -p`.

use std::fmt::{Display, Write};

use vtax_domain::{Bindings, BoundDisk, DomainRow, ServiceUtilization};
use vtax_lab::io::{IoEntry, IoKind};
use vtax_model::{
    domain::{Configuration, Configured, Constraints, CpuDemand, DomainDevice, Property},
    topology::Name,
};

use super::{
    disks::{self, PathsByDisk},
    layout,
    pending::{NowByDomain, differs},
    resources::{Resource, list, options},
};

/// Returns the lines of domains and their resources.
pub(super) fn domains(
    rows: &[DomainRow],
    all: &Configuration,
    now: &NowByDomain,
    paths: &PathsByDisk,
    resources: &[Resource],
) -> String {
    let mut text = layout::parseable_head();
    for row in rows {
        text += &layout::parseable_domain(row, &row.flags.words().join(","));
        let domain = all.domain(&row.name).expect("rows are of domains");
        let now = now.get(&row.name);
        for resource in resources {
            if *resource == Resource::Domain {
                text += &control(domain, all);
            }
            let now = now.filter(|now| differs(*resource, now, domain));
            text += &resource_lines(*resource, now.unwrap_or(domain), all);
            match resource {
                Resource::Disk => text += &disks::parseable_paths(&row.name, paths),
                Resource::Util => text.extend(row.service.as_ref().map(service)),
                _ => {}
            }
            if now.is_some() {
                let pending = resource_lines(*resource, domain, all);
                text.extend(pending.lines().map(|line| format!("PENDING|{line}\n")));
            }
        }
    }
    text
}

fn control(domain: &Constraints, all: &Configuration) -> String {
    let masters = domain.masters.iter().map(Name::as_str).collect::<Vec<_>>().join(",");
    object("CONTROL", &[], domain, all) + &format!("DEPENDENCY|master={masters}\n")
}

fn resource_lines(resource: Resource, domain: &Constraints, all: &Configuration) -> String {
    match resource {
        Resource::Domain => {
            domain.variables.iter().map(|(variable, value)| format!("VARIABLES|{variable}={value}\n")).collect()
        }
        Resource::Disk => disks::parseable(&domain.disks, all),
        Resource::Physio => domain.io.iter().map(device).collect(),
        Resource::Network => {
            domain.vnets.iter().map(|vnet| object("VNET", &[("name", &vnet.name)], vnet, all)).collect()
        }
        Resource::Memory => domain.memory.map(|size| format!("MEMORY|size={}\n", size.0)).unwrap_or_default(),
        Resource::Cpu => match &domain.cpus {
            Some(CpuDemand::Cids(ids)) => format!("CORE|count={}|cid={}\n", ids.len(), list(ids.iter())),
            Some(CpuDemand::Cores(count)) => format!("CORE|count={count}\n"),
            Some(CpuDemand::Vcpus(count)) => format!("VCPU|count={count}\n"),
            None => String::new(),
        },
        Resource::Console => object("VCONS", &[], &domain.console, all),
        // Measured, not configured.
        Resource::Util => String::new(),
    }
}

fn service(of: &ServiceUtilization) -> String {
    format!("HOSTCPU|{}\n", layout::parseable_host_cpu(of))
}

/// Returns the line of an object: its names, and the fields of its table.
pub(super) fn object<T: Configured>(
    kind: &str,
    names: &[(&str, &dyn Display)],
    object: &T,
    all: &Configuration,
) -> String {
    let names: String = names.iter().map(|(key, name)| format!("|{key}={name}")).collect();
    let listed = T::PROPERTIES.iter().filter(|property| !property.field.is_empty());
    let field =
        |property: &Property<T>| format!("|{}={}", property.field, property.shown_in(object, all).unwrap_or_default());
    format!("{kind}{names}{}\n", listed.map(field).collect::<String>())
}

fn device(device: &DomainDevice) -> String {
    format!("IO|dev={}|type={}|options={}\n", device.name, device.kind, options(device))
}

/// Returns a domain's constraints.
pub(super) fn constraints(name: &Name, domain: &Constraints, all: &Configuration) -> String {
    format!("DOMAIN|name={name}\n{}", of_domain(domain, all))
}

fn of_domain(domain: &Constraints, all: &Configuration) -> String {
    control(domain, all)
        + &Resource::ALL.iter().map(|resource| resource_lines(*resource, domain, all)).collect::<String>()
}

/// Returns a domain's bindings: its constraints when it was bound, each followed by what it has on this host.
pub(super) fn bindings(row: &DomainRow, bindings: &Bindings, dropped: &[(Name, u64)], all: &Configuration) -> String {
    let mut text = layout::parseable_domain(row, &row.flags.words().join(","));
    for line in of_domain(&bindings.constraints, all).lines().filter(|line| !line.starts_with("VCONS|")) {
        let _ = writeln!(text, "{line}");
        let name = line.split('|').find_map(|field| field.strip_prefix("name="));
        match line.split('|').next() {
            Some("CORE" | "VCPU") => text += &cpus(bindings),
            Some("VNET") => text += &nic(name, bindings, dropped),
            Some("VDISK") => {
                bindings.disks.iter().filter(|disk| name == Some(disk.disk.name.as_str())).for_each(|disk| {
                    text += &paths(disk);
                })
            }
            _ => {}
        }
    }
    for device in &bindings.devices {
        let functions: Vec<String> = device.functions.iter().map(ToString::to_string).collect();
        let _ = writeln!(text, "|dev={}|pci={}", device.name, functions.join(","));
    }
    if let Some(console) = &bindings.console {
        let _ = writeln!(text, "VCONS|group={}|service={}|port={}", console.group, console.service, console.port);
    }
    text
}

/// Returns the virtual CPUs with the host's CPUs; a domain that shares them has no dedicated ones.
fn cpus(bindings: &Bindings) -> String {
    let mut own = bindings.cpus.iter();
    let line = |vid: u32| {
        let pid = own.next().map(u32::to_string).unwrap_or_default();
        format!("|vid={vid}|pid={pid}\n")
    };
    (0..bindings.vcpus).map(line).collect()
}

fn nic(name: Option<&str>, bindings: &Bindings, dropped: &[(Name, u64)]) -> String {
    let of_vnet = bindings.nics.iter().filter(|nic| name == Some(nic.vnet.as_str()));
    let line = |nic: &vtax_domain::BoundNic| {
        let frames = dropped.iter().find(|(vnet, _)| *vnet == nic.vnet).map_or(0, |(_, frames)| *frames);
        format!("|link={}|bridge={}|dropped={frames}\n", nic.tap, nic.switch)
    };
    of_vnet.map(line).collect()
}

fn paths(disk: &BoundDisk) -> String {
    let line = |path: &vtax_domain::BoundPath| {
        format!("|vol={}|backend={}|format={}|size={}\n", path.volume, path.backend.display(), path.format, disk.size.0)
    };
    disk.paths.iter().map(line).collect()
}

/// Returns a PCI device. Scripts cut the fields by position.
pub(super) fn io(entry: &IoEntry, domain: &str, status: &str) -> String {
    let function = entry.function.as_ref();
    let device = function.map_or_else(|| entry.bus.clone(), |function| function.device.to_string());
    let is_nic = function.is_some_and(|function| function.is_nic());
    let class = if entry.kind == IoKind::Pf && is_nic { "|class=NETWORK" } else { "" };
    let kind: &str = entry.kind.into();
    format!("|dev={device}|alias={}|status={status}|domain={domain}|type={kind}{class}|bus={}\n", entry.name, entry.bus)
}

/// Returns the console services, the switches and the disk services.
pub(super) fn services(all: &Configuration) -> String {
    let mut text = layout::parseable_head();
    for (name, service) in &all.consoles {
        text += &object("VCC", &[("name", name), ("ldom", &service.domain)], service, all);
    }
    for (name, switch) in &all.switches {
        text += &object("VSW", &[("name", name), ("ldom", &switch.service)], switch, all);
    }
    text + &disks::parseable_services(all)
}

#[cfg(test)]
mod tests {
    use vtax_model::domain::{ConsoleService, NewSwitch, PRIMARY, PortRange, SwitchChange};

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    /// Scripts may cut them by position.
    #[test]
    fn the_fields_of_services_keep_their_order() {
        let mut all = Configuration::new("sun");
        let service = ConsoleService { domain: name(PRIMARY), ports: PortRange::USUAL, users: None };
        all.add_console_service(&name("console"), service).expect("it is new");
        let vids = "12,11".parse().ok();
        let change = SwitchChange { net_dev: Some("eth1".to_owned()), vids, ..SwitchChange::default() };
        let new = NewSwitch { name: name("vsw0"), service: name(PRIMARY), default_vlan: None, change };
        all.add_switch(new).expect("it is new");
        let lines = "VCC|name=console|ldom=primary|port-range=5000-5255\n\
                     VSW|name=vsw0|ldom=primary|net-dev=eth1|default-vlan-id=1|pvid=1|vid=11,12|mtu=1500\n";
        assert_eq!(services(&all), layout::parseable_head() + lines);
    }
}
