//! CPUs: their model and number, the hypervisor below them, and the mitigations in force.

use std::collections::BTreeMap;

use vtax_model::cpus::CpuSet;

use super::SystemRoot;

const NODE: &str = "sys/devices/system/node";
pub(super) const FOLDER: &str = "sys/devices/system/cpu";

pub(super) fn model(tree: &SystemRoot) -> String {
    cpuinfo(tree, "model name").unwrap_or_default()
}

pub(super) fn online(tree: &SystemRoot) -> u32 {
    tree.text(&format!("{FOLDER}/online")).map_or(0, |list| list_length(&list))
}

pub(super) fn numa_nodes(tree: &SystemRoot) -> u32 {
    tree.text(&format!("{NODE}/online")).map_or(1, |list| list_length(&list))
}

/// The CPUs of each NUMA node.
pub(crate) fn node_cpus(tree: &SystemRoot) -> BTreeMap<u32, CpuSet> {
    let node = |name: String| {
        let node: u32 = name.strip_prefix("node")?.parse().ok()?;
        Some((node, tree.parsed(&format!("{NODE}/{name}/cpulist"))?))
    };
    tree.names(NODE).into_iter().filter_map(node).collect()
}

/// The CPUs that have a directory in sysfs, in ascending order: present ones, and those that could be hotplugged.
pub(super) fn numbers(tree: &SystemRoot) -> Vec<u32> {
    let names = tree.names(FOLDER);
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.strip_prefix("cpu")?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

/// The hypervisor below this machine: its name if Xen, the firmware's vendor or a device of QEMU reports one. Otherwise
/// only whether there is one (the CPU's `hypervisor` flag).
pub(super) fn hypervisor(tree: &SystemRoot) -> String {
    let flagged = cpuinfo(tree, "flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    let named = tree.text("sys/hypervisor/type");
    // qboot, the firmware of our guests, reports no vendor. The ACPI tables are QEMU's with any firmware.
    let is_qemu = || tree.names("sys/bus/acpi/devices").iter().any(|name| name.starts_with("QEMU"));
    let vendor = || tree.text("sys/class/dmi/id/sys_vendor").or_else(|| is_qemu().then(|| "QEMU".to_owned()));
    match (named, flagged) {
        (Some(name), _) => name,
        (None, true) => vendor().unwrap_or_else(|| "yes, of unknown make".to_owned()),
        (None, false) => "none".to_owned(),
    }
}

pub(super) fn mitigations(tree: &SystemRoot) -> Vec<(String, String)> {
    let folder = format!("{FOLDER}/vulnerabilities");
    let state = |name: String| Some((tree.text(&format!("{folder}/{name}"))?, name));
    tree.names(&folder).into_iter().filter_map(state).map(|(state, name)| (name, state)).collect()
}

/// A non-empty list of CPUs.
pub(super) fn some_cpus(text: &str) -> Option<CpuSet> {
    text.parse().ok().filter(|cpus: &CpuSet| !cpus.is_empty())
}

/// A mask of CPUs as the kernel writes it: words of 32 bits in hexadecimal, the highest first
/// (`bitmap_print_to_pagebuf`).
pub(super) fn mask(text: &str) -> Option<CpuSet> {
    let words: Vec<&str> = text.split(',').rev().collect();
    let mut cpus = Vec::new();
    for (word, base) in words.into_iter().zip((0..CpuSet::MOST).step_by(32)) {
        let bits = u32::from_str_radix(word, 16).ok()?;
        cpus.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| base + bit));
    }
    Some(cpus.into_iter().collect())
}

fn cpuinfo(tree: &SystemRoot, key: &str) -> Option<String> {
    let text = tree.text("proc/cpuinfo")?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
}

/// Returns the count of numbers in a kernel list such as `0-3,6`.
fn list_length(list: &str) -> u32 {
    list.parse::<CpuSet>().map_or(0, |set| set.len() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_sets_of_cpus() {
        for (text, cpus) in [("0", ""), ("f", "0-3"), ("80000001,00000002", "1,32,63"), ("00,00000000", "")] {
            assert_eq!(mask(text).map(|set| set.to_string()), Some(cpus.to_owned()), "{text}");
        }
        for text in ["", "x", "1ffffffff", "1,,1"] {
            assert_eq!(mask(text), None, "{text}");
        }
    }

    #[test]
    fn a_guest_of_qemu_knows_it_with_any_firmware() {
        let cpuinfo = ("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu hypervisor\n");
        let bios = ("sys/class/dmi/id/sys_vendor", "QEMU\n");
        let device = ("sys/bus/acpi/devices/QEMU0002:00/hid", "QEMU0002\n");
        for file in [bios, device] {
            assert_eq!(hypervisor(&SystemRoot::invented([cpuinfo, file])), "QEMU");
        }
        assert_eq!(hypervisor(&SystemRoot::invented([cpuinfo])), "yes, of unknown make");
    }

    #[test]
    fn kernel_lists_are_counted() {
        for (list, count) in [("0", 1), ("0-3", 4), ("0-3,6,8-9", 7), ("", 0), ("3-1", 0), ("x", 0)] {
            assert_eq!(list_length(list), count, "{list}");
        }
    }
}
