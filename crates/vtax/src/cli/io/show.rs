//! Tables of devices.

use vtax_lab::{
    facts::{Netdev, PciDevice, PciFacts},
    io::{IoEntry, IoKind, IoList},
};
use vtax_sys::netlink::Vf;

/// Returns a line for each, in the format of `ldm list-io`; if `long`, with its details below.
pub(super) fn entries(entries: &[&IoEntry], list: &IoList, long: bool) -> String {
    let width = |of: &dyn Fn(&IoEntry) -> usize, least: usize| {
        entries.iter().map(|entry| of(entry)).chain([least]).max().unwrap_or(least)
    };
    let name = width(&|entry| entry.name.len(), 4);
    let bus = width(&|entry| entry.bus.len(), 3);
    let domain = width(&|entry| entry.domain.len(), 7);
    let line = |cells: [&str; 5]| {
        let [one, two, three, four, five] = cells;
        format!("{one:name$}  {two:4}  {three:bus$}  {four:domain$}  {five}").trim_end().to_owned() + "\n"
    };
    let mut text = line(["NAME", "TYPE", "BUS", "DOMAIN", "STATUS"]);
    for entry in entries {
        let status = entry.status.map_or("", Into::into);
        text += &line([&entry.name, entry.kind.into(), &entry.bus, &entry.domain, status]);
        if long {
            details(entry, list.facts()).iter().for_each(|detail| text += &format!("    {detail}\n"));
        }
    }
    text
}

/// Returns the capabilities of physical functions, as far as they are reported.
pub(super) fn capabilities(entries: &[&IoEntry], list: &IoList) -> String {
    let functions = entries.iter().filter_map(|entry| entry.function.as_ref());
    functions.map(|function| capability(function, list)).collect()
}

fn capability(function: &PciDevice, list: &IoList) -> String {
    let Some(sriov) = &function.sriov else { return String::new() };
    let probed = if sriov.autoprobe { "drivers bind to new ones" } else { "no driver binds to new ones" };
    let vf = list.facts().devices.iter().filter(|it| it.physfn == Some(function.device)).find_map(|it| it.vf.as_ref());
    let mtu = function.netdev.as_ref().and_then(|netdev| netdev.max_mtu);
    let mut lines = vec![
        format!("virtual functions: at most {}, now {} ({probed})", sriov.total, sriov.num),
        format!("largest MTU: {}", mtu.map_or("not reported by its driver".to_owned(), |mtu| format!("{mtu} bytes"))),
    ];
    lines.push(match vf {
        Some(vf) => {
            let told = [
                Some("MAC address"),
                Some("VLAN"),
                vf.spoof_check.map(|_| "spoof check"),
                vf.trust.map(|_| "trust"),
                vf.link_state.map(|_| "link state"),
            ];
            let told: Vec<&str> = told.into_iter().flatten().collect();
            format!("settings of each that its driver reports: {}", told.join(", "))
        }
        None => "settings of each: reported by its driver once there is one (vtax io create-vf)".to_owned(),
    });
    lines.iter().fold(format!("{}\n", function.name), |text, line| format!("{text}    {line}\n"))
}

fn details(entry: &IoEntry, facts: &PciFacts) -> Vec<String> {
    if entry.kind == IoKind::Bus {
        return complex(entry, facts);
    }
    let Some(function) = &entry.function else { return Vec::new() };
    let mut lines = vec![hardware(function)];
    lines.extend(function.netdev.as_ref().map(netdev));
    lines.extend(function.vf.as_ref().map(kept_to));
    lines.extend(entry.depends_on.as_ref().map(|owner| format!("depends on {owner}, which has the physical function")));
    lines.extend(function.kept.as_ref().map(|why| format!("cannot be assigned: {why}")));
    lines
}

/// Returns the reasons why the devices below it, or all of them together, cannot be assigned to a guest.
fn complex(entry: &IoEntry, facts: &PciFacts) -> Vec<String> {
    let lent = facts.vfio.as_ref().err().map(|error| format!("devices below cannot be assigned to guests: {error}"));
    let kept: Vec<&str> =
        facts.below(&entry.name).filter(|it| it.kept.is_some()).map(|device| device.name.as_str()).collect();
    let whole = (!kept.is_empty()).then(|| format!("cannot be assigned whole: the host needs {}", kept.join(", ")));
    lent.into_iter().chain(whole).collect()
}

fn hardware(function: &PciDevice) -> String {
    let driver = match (&function.driver, &function.driver_override) {
        (Some(driver), _) => format!("driver {driver}"),
        (None, Some(only)) => format!("no driver (only {only} may bind to it)"),
        (None, None) => "no driver".to_owned(),
    };
    let words = [
        Some(format!("{} {}{}", function.device, function.id, class(function.class))),
        Some(driver),
        Some(function.group.map_or("no IOMMU group".to_owned(), |group| format!("IOMMU group {group}"))),
        function.node.map(|node| format!("NUMA node {node}")),
        function.link.clone(),
        function.sriov.map(|sriov| format!("{} of {} VFs", sriov.num, sriov.total)),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Returns the base class, from the PCI-SIG's list; some have none.
fn class(class: u32) -> &'static str {
    match class >> 16 {
        0x01 => " storage",
        0x02 => " network",
        0x03 => " display",
        0x04 => " multimedia",
        0x05 => " memory",
        0x07 => " communication",
        0x08 => " system",
        0x0c => " serial bus",
        0x0d => " wireless",
        0x10 => " encryption",
        0x12 => " accelerator",
        _ => "",
    }
}

fn netdev(netdev: &Netdev) -> String {
    let mac = netdev.mac.map(|mac| mac.to_string());
    let mut words = vec![[Some(netdev.name.clone()), mac].into_iter().flatten().collect::<Vec<_>>().join(" ")];
    words.push(format!("mtu {}", netdev.mtu));
    words.push(if netdev.up { "up" } else { "down" }.to_owned());
    words.extend(netdev.addresses.iter().map(ToString::to_string));
    words.extend(netdev.upper.as_ref().map(|upper| format!("below {upper}")));
    words.join(", ")
}

/// Returns the settings that its physical function enforces.
fn kept_to(vf: &Vf) -> String {
    let on = |on: bool| if on { "on" } else { "off" };
    let own = vf.mac.0 == [0; 6];
    let words = [
        Some(if own { "chooses its MAC address".to_owned() } else { format!("MAC address {}", vf.mac) }),
        Some(if vf.vlan == 0 { "no VLAN".to_owned() } else { format!("VLAN {}", vf.vlan) }),
        (vf.qos > 0).then(|| format!("priority {}", vf.qos)),
        vf.spoof_check.map(|check| format!("spoof check {}", on(check))),
        vf.trust.map(|trust| format!("trust {}", on(trust))),
        (vf.min_rate > 0).then(|| format!("at least {} Mbit/s", vf.min_rate)),
        (vf.max_rate > 0).then(|| format!("at most {} Mbit/s", vf.max_rate)),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list() -> IoList {
        let function = |name: &str, more: serde_json::Value| {
            let mut function = json!({
                "device": "0000:01:00.0", "name": name, "endpoint": "pci_0/slot2", "root": "pci_0", "id": "8086:10c9",
                "class": 0x02_0000, "driver": "igb", "driver_override": null, "group": 4, "node": 1,
                "link": "2.5 GT/s PCIe x4", "netdev": null, "physfn": null, "virtfns": [], "sriov": null,
                "vf": null, "kept": null,
            });
            let fields = more.as_object().expect("an object").clone();
            function.as_object_mut().expect("an object").extend(fields);
            function
        };
        let pf = function(
            "pci_0/slot2/PF0",
            json!({
                "sriov": { "total": 7, "num": 1, "autoprobe": true, "vf_device": 0x10ca, "offset": 384, "stride": 2 },
                "virtfns": ["0000:01:10.0"], "kept": "it carries the default route (eno1)",
                "netdev": {
                    "name": "eno1", "mac": "02:76:74:00:00:01", "mtu": 9000, "max_mtu": 9216, "up": true,
                    "addresses": ["192.0.2.1/24"], "upper": "br0",
                },
            }),
        );
        let vf = function(
            "pci_0/slot2/PF0.VF0",
            json!({
                "device": "0000:01:10.0", "physfn": "0000:01:00.0", "driver": null, "driver_override": "vfio-pci", "group": 5,
                "link": null,
                "vf": {
                    "index": 0, "mac": "02:00:00:00:00:07", "vlan": 100, "qos": 3, "spoof_check": true, "trust": false,
                    "link_state": "auto", "min_rate": 0, "max_rate": 100,
                },
            }),
        );
        let entry = |name: &str, kind: &str, domain: &str, status: Option<&str>, more: serde_json::Value| {
            let mut entry = json!({
                "name": name, "type": kind, "bus": "pci_0", "domain": domain, "status": status, "depends_on": null,
                "function": null,
            });
            let fields = more.as_object().expect("an object").clone();
            entry.as_object_mut().expect("an object").extend(fields);
            entry
        };
        let entries = json!([
            entry("pci_0", "BUS", "primary", Some("IOV"), json!({})),
            entry("pci_0/slot2", "PCIE", "primary", Some("OCC"), json!({})),
            entry("pci_0/slot2/PF0", "PF", "primary", None, json!({ "function": pf })),
            entry("pci_0/slot2/PF0.VF0", "VF", "demo/web", None, json!({ "function": vf, "depends_on": "primary" })),
        ]);
        let facts = json!({ "iommu": true, "vfio": { "Ok": null }, "roots": [], "slots": [], "devices": [pf, vf] });
        serde_json::from_value(json!({ "entries": entries, "facts": facts })).expect("a list")
    }

    #[test]
    fn the_list_is_laid_out_as_that_of_ldm() {
        let list = list();
        let all: Vec<&IoEntry> = list.entries.iter().collect();
        insta::assert_snapshot!("io_list", entries(&all, &list, false));
        insta::assert_snapshot!("io_list_long", entries(&all, &list, true));
    }

    #[test]
    fn capabilities_are_what_the_driver_tells() {
        let list = list();
        let pf = [&list.entries[2]];
        insta::assert_snapshot!("io_list_details", capabilities(&pf, &list));
        let mut bare = list.clone();
        let function = bare.entries[2].function.as_mut().expect("a function");
        function.device = "0000:02:00.0".parse().expect("an address");
        let text = capabilities(&[&bare.entries[2]], &list);
        assert!(text.contains("once there is one"), "{text}");
    }
}
