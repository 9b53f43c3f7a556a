//! The kernel: release, clock, memory, what it lets us do.

use super::Tree;

pub(super) fn hostname(tree: &Tree) -> String {
    tree.text("proc/sys/kernel/hostname").unwrap_or_default()
}

pub(super) fn release(tree: &Tree) -> String {
    tree.text("proc/sys/kernel/osrelease").unwrap_or_default()
}

pub(super) fn memory_bytes(tree: &Tree) -> u64 {
    let meminfo = tree.text("proc/meminfo").unwrap_or_default();
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

pub(super) fn clocksource(tree: &Tree) -> String {
    tree.text("sys/devices/system/clocksource/clocksource0/current_clocksource").unwrap_or_default()
}

pub(super) fn congestion_control(tree: &Tree) -> String {
    tree.text("proc/sys/net/ipv4/tcp_congestion_control").unwrap_or_default()
}

/// `root` where user 0 is the machine's own root, which the initial namespace's identity map
/// shows (user_namespaces(7)); else a user namespace.
pub(super) fn privilege(tree: &Tree) -> String {
    let map = tree.text("proc/self/uid_map").unwrap_or_default();
    let identity = map.split_whitespace().eq(["0", "0", "4294967295"]);
    if identity { "root" } else { "user namespace" }.to_owned()
}
