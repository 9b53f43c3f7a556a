//! CPUs: model, count, idle states, what the hypervisor and the mitigations do to them.

use super::Tree;

const CPU: &str = "sys/devices/system/cpu";

pub(super) fn model(tree: &Tree) -> String {
    cpuinfo(tree, "model name").unwrap_or_default()
}

pub(super) fn online(tree: &Tree) -> u32 {
    tree.text(&format!("{CPU}/online")).map_or(0, |list| list_length(&list))
}

pub(super) fn numa_nodes(tree: &Tree) -> u32 {
    tree.text("sys/devices/system/node/online").map_or(1, |list| list_length(&list))
}

pub(super) fn governor(tree: &Tree) -> String {
    tree.text(&format!("{CPU}/cpu0/cpufreq/scaling_governor")).unwrap_or_else(|| "none".to_owned())
}

pub(super) fn deepest_idle_us(tree: &Tree) -> Option<u32> {
    let idle = format!("{CPU}/cpu0/cpuidle");
    tree.names(&idle).iter().filter_map(|state| tree.number(&format!("{idle}/{state}/latency"))).max()
}

pub(super) fn smt(tree: &Tree) -> String {
    tree.text(&format!("{CPU}/smt/control")).unwrap_or_default()
}

/// The hypervisor under this machine: its name where Xen or the firmware's vendor tells it, else
/// just that there is one (the CPU's `hypervisor` flag).
pub(super) fn hypervisor(tree: &Tree) -> String {
    let flagged = cpuinfo(tree, "flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    let named = tree.text("sys/hypervisor/type");
    match (named, flagged) {
        (Some(name), _) => name,
        (None, true) => tree.text("sys/class/dmi/id/sys_vendor").unwrap_or_else(|| "yes, of unknown make".to_owned()),
        (None, false) => "none".to_owned(),
    }
}

pub(super) fn mitigations(tree: &Tree) -> Vec<(String, String)> {
    let folder = format!("{CPU}/vulnerabilities");
    let state = |name: String| Some((tree.text(&format!("{folder}/{name}"))?, name));
    tree.names(&folder).into_iter().filter_map(state).map(|(state, name)| (name, state)).collect()
}

fn cpuinfo(tree: &Tree, key: &str) -> Option<String> {
    let text = tree.text("proc/cpuinfo")?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
}

/// How many numbers a kernel list as `0-3,6` names.
fn list_length(list: &str) -> u32 {
    let range = |part: &str| -> Option<u32> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.split(',').filter_map(range).fold(0, u32::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_lists_are_counted() {
        for (list, count) in [("0", 1), ("0-3", 4), ("0-3,6,8-9", 7), ("", 0), ("3-1", 0), ("x", 0)] {
            assert_eq!(list_length(list), count, "{list}");
        }
    }
}
