//! Network settings. `/proc/sys/net` shows the settings of the reading thread's namespace (`net_ctl_root`,
//! net/sysctl_net.c), and some of them only in the initial namespace.

use std::collections::BTreeMap;

use super::SystemRoot;

const SETTINGS: &[&str] = &[
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.dev_weight",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.rmem_max",
    "net.core.rps_sock_flow_entries",
    "net.core.wmem_max",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_wmem",
];

/// Settings that only tuning looks at.
const TUNED: &[&str] = &[
    "net.bridge.bridge-nf-call-arptables",
    "net.bridge.bridge-nf-call-ip6tables",
    "net.bridge.bridge-nf-call-iptables",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_window_scaling",
    "net.netfilter.nf_conntrack_count",
    "net.netfilter.nf_conntrack_max",
];

pub(super) fn congestion_control(tree: &SystemRoot) -> String {
    setting(tree, "net.ipv4.tcp_congestion_control").unwrap_or_default()
}

pub(super) fn sysctls(tree: &SystemRoot) -> BTreeMap<String, String> {
    read(tree, SETTINGS)
}

/// Settings that tuning checks.
pub(super) fn tuned(tree: &SystemRoot) -> BTreeMap<String, String> {
    let mut found = read(tree, SETTINGS);
    found.extend(read(tree, TUNED));
    found.retain(|name, text| {
        let is_sound = WORDS.contains(&name.as_str()) || text.split_whitespace().all(is_number) && !text.is_empty();
        if !is_sound {
            tree.odd(&path(name), text);
        }
        is_sound
    });
    found
}

/// The settings that aren't numbers.
const WORDS: [&str; 3] =
    ["net.core.default_qdisc", "net.ipv4.tcp_available_congestion_control", "net.ipv4.tcp_congestion_control"];

fn is_number(word: &str) -> bool {
    word.parse::<i64>().is_ok() || word.parse::<u64>().is_ok()
}

fn path(name: &str) -> String {
    format!("proc/sys/{}", name.replace('.', "/"))
}

fn read(tree: &SystemRoot, names: &[&str]) -> BTreeMap<String, String> {
    names.iter().filter_map(|name| Some(((*name).to_owned(), setting(tree, name)?))).collect()
}

/// The kernel separates the numbers of a list by tabs.
fn setting(tree: &SystemRoot, name: &str) -> Option<String> {
    let text = tree.text(&path(name))?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_settings_are_listed_by_name() {
        let tree = SystemRoot::invented([
            ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
            ("proc/sys/net/core/busy_read", "0\n"),
            ("proc/sys/net/core/somaxconn", "4096\n"),
            ("proc/sys/net/ipv4/tcp_congestion_control", "cubic\n"),
        ]);
        let told = [("net.core.busy_read", "0"), ("net.ipv4.tcp_rmem", "4096 131072 6291456")];
        let told = told.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(sysctls(&tree), told.into());
        assert_eq!(congestion_control(&tree), "cubic");
    }
}
