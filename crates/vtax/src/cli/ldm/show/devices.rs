//! PCI devices, in the columns of `ldm list-io`.

use std::fmt::Write;

use clap::Args;
use vtax_domain::ViewDepth;
use vtax_lab::{
    facts::PciDevice,
    io::{IoEntry, IoKind, IoStatus},
};
use vtax_model::{
    domain::{Configuration, DeviceOwner, FunctionSettings, PRIMARY},
    units::Mtu,
};

use super::{super::target::LdmTarget, parseable};
use crate::{
    exit::{Blamed, Exit, Stop},
    terminal::print,
};

/// Placeholder for values that aren't reported.
const UNKNOWN: &str = "unknown";

#[derive(Debug, Args)]
pub(crate) struct ListIoArgs {
    /// Show each device's path and settings
    #[arg(short, conflicts_with = "details")]
    long: bool,
    /// Show the capabilities of a physical function
    #[arg(short, requires = "name", conflicts_with = "parseable")]
    details: bool,
    /// Print machine-readable output with |-separated fields
    #[arg(short)]
    parseable: bool,
    /// Device to list, with everything below it [default: all]
    name: Option<String>,
}

pub(in crate::cli::ldm) fn devices(host: &LdmTarget<'_>, args: &ListIoArgs) -> Result<Exit, Stop> {
    let all = host.look(ViewDepth::Stored)?.state.configuration;
    let list = host.devices()?;
    let entries: Vec<&IoEntry> = match &args.name {
        Some(name) => list.select(name).or_input()?,
        None => list.entries.iter().collect(),
    };
    if args.details {
        let physical = entries.iter().find_map(|entry| entry.function.as_ref().filter(|it| it.is_pf()));
        let physical = physical.ok_or_else(|| {
            Stop::input(miette::miette!(code = "no-sriov", "only a physical function (TYPE PF) has such parameters"))
        })?;
        print(&parameters(physical))?;
    } else if args.parseable {
        print(&lines(&entries, &all, args.long))?;
    } else {
        print(&table(&entries, &all, args.long))?;
    }
    Ok(Exit::Done)
}

/// Returns the list for programs.
fn lines(entries: &[&IoEntry], all: &Configuration, long: bool) -> String {
    let mut text = super::layout::parseable_head() + "IO\n";
    for entry in entries {
        text += &parseable::io(entry, owner(entry, all), status(entry, all));
        if let Some(function) = entry.function.as_ref().filter(|_| long) {
            let described = properties(function, entry.kind, settings(&entry.name, all));
            let fields = described.lines().filter_map(|line| line.trim().split_once(" = "));
            text.extend(fields.map(|(key, value)| format!("|{key}={value}\n")));
        }
    }
    text
}

fn table(entries: &[&IoEntry], all: &Configuration, long: bool) -> String {
    let mut text =
        line(["NAME", "TYPE", "BUS", "DOMAIN", "STATUS"]) + &line(["----", "----", "---", "------", "------"]);
    for entry in entries {
        text += &line([&entry.name, entry.kind.into(), &entry.bus, owner(entry, all), status(entry, all)]);
        if let Some(function) = entry.function.as_ref().filter(|_| long) {
            text += &properties(function, entry.kind, settings(&entry.name, all));
        }
    }
    text
}

/// Returns the domain that a device is assigned to, bound or not. Devices that primary has released belong to nobody.
pub(super) fn owner<'a>(entry: &'a IoEntry, all: &'a Configuration) -> &'a str {
    match all.owner_of(&entry.name) {
        DeviceOwner::Domain(domain) => domain.as_str(),
        _ if entry.domain != PRIMARY => &entry.domain,
        DeviceOwner::Nobody => "",
        DeviceOwner::Primary => PRIMARY,
    }
}

/// In ldm, each root complex must be explicitly enabled before domains can have the devices below it.
fn status(entry: &IoEntry, all: &Configuration) -> &'static str {
    let said = all.devices.iov.get(&entry.name) == Some(&true);
    entry.status.filter(|status| *status != IoStatus::Iov || said).map_or("", Into::into)
}

fn settings(name: &str, all: &Configuration) -> FunctionSettings {
    let own = all.all_devices().find(|(_, device)| device.name == name).map(|(_, device)| device.settings);
    own.or(all.devices.functions.get(name).copied()).unwrap_or_default()
}

fn line(cells: [&str; 5]) -> String {
    let [name, kind, bus, domain, status] = cells;
    format!("{name:<41} {kind:<6} {bus:<8} {domain:<8} {status:<9}\n")
}

fn properties(function: &PciDevice, kind: IoKind, settings: FunctionSettings) -> String {
    let mut text = format!("[{}]\n", function.device);
    match (kind, &function.sriov, &function.netdev) {
        (IoKind::Pf, Some(sriov), _) => {
            let _ = writeln!(text, "    maxvfs = {}", sriov.total);
        }
        (IoKind::Vf, _, netdev) => {
            let own = netdev.as_ref().and_then(|netdev| netdev.mac);
            let kept_to = || function.vf.as_ref().map(|vf| vf.mac).filter(|mac| mac.0 != [0; 6]);
            let told = own.or_else(kept_to).map(|mac| mac.to_string());
            let mac = settings.mac_addr.map(|mac| mac.to_string()).or(told).unwrap_or_else(|| UNKNOWN.to_owned());
            let mtu = settings.mtu.map(Mtu::get).or(netdev.as_ref().map(|netdev| netdev.mtu));
            let mtu = mtu.unwrap_or(Mtu::ETHERNET.get());
            let _ = writeln!(text, "    Class properties [NETWORK]\n        mac-addr = {mac}\n        mtu = {mtu}");
            if let Some(pvid) = settings.pvid {
                let _ = writeln!(text, "        pvid = {pvid}");
            }
        }
        _ => {}
    }
    text
}

/// Returns the capabilities of a physical function. Linux reports the first two; the others are settings of the NIC's
/// firmware for which it has no file.
fn parameters(function: &PciDevice) -> String {
    let known = |value: Option<u32>| value.map_or(UNKNOWN.to_owned(), |value| value.to_string());
    let most = known(function.sriov.as_ref().map(|sriov| sriov.total));
    let mtu = known(function.netdev.as_ref().and_then(|netdev| netdev.max_mtu));
    let mut text = "Device-specific Parameters\n--------------------------\n".to_owned();
    for (name, flags, default, what) in [
        ("max-config-vfs", "PR", most.as_str(), "Max number of configurable VFs"),
        ("max-vf-mtu", "VR", mtu.as_str(), "Max MTU supported for a VF"),
        ("max-vlans", "VR", UNKNOWN, "Max number of VLAN filters supported"),
        ("pvid-exclusive", "VR", UNKNOWN, "Exclusive configuration of pvid required"),
        ("unicast-slots", "PV", UNKNOWN, "Number of unicast mac-address slots"),
    ] {
        // Only this one has its own limits.
        let limits = if name == "unicast-slots" { format!(" Min = {UNKNOWN} Max = {UNKNOWN}") } else { String::new() };
        let _ = writeln!(text, "{name}\n    Flags = {flags}\n    Default = {default}{limits}\n    Descr = {what}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Layout as in an article of 2014.
    #[test]
    fn the_columns_are_those_of_ldm() {
        let head = line(["NAME", "TYPE", "BUS", "DOMAIN", "STATUS"]);
        assert_eq!(head, "NAME                                      TYPE   BUS      DOMAIN   STATUS   \n");
        let offsets = ["NAME", "TYPE", "BUS", "DOMAIN", "STATUS"].map(|name| head.find(name).unwrap_or_default());
        assert_eq!(offsets, [0, 42, 49, 58, 67]);
        assert_eq!(
            line(["/SYS/MB/NET2/IOVNET.PF1.VF0", "VF", "pci_1", "mars", ""]),
            "/SYS/MB/NET2/IOVNET.PF1.VF0               VF     pci_1    mars              \n"
        );
    }
}
