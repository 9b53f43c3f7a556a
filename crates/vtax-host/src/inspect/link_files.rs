//! Files that configure links each time they appear: those of systemd, udev, NetworkManager and ifupdown.

use serde::{Deserialize, Serialize};
use vtax_model::foreign::ForeignText;

use super::SystemRoot;

/// A line of such a file. It may apply to one link or to many.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkSource {
    /// The file, with a leading slash.
    pub file: ForeignText,
    /// The line in it, counted from 1.
    pub line: u32,
    /// The setting as spelt in the file: `MTUBytes`, `ATTR{mtu}`, `mtu`.
    pub key: ForeignText,
}

/// Directories, the suffix of their files, and the function that finds the settings in a line.
type Place = (&'static [&'static str], &'static [&'static str], fn(&str) -> Vec<&str>);

const PLACES: [Place; 5] = [
    (
        &["etc/systemd/network", "run/systemd/network", "usr/local/lib/systemd/network", "usr/lib/systemd/network"],
        &[".link", ".network"],
        assigned,
    ),
    (&["etc/udev/rules.d", "run/udev/rules.d", "usr/lib/udev/rules.d"], &[".rules"], attributes),
    (&["etc/NetworkManager/system-connections", "run/NetworkManager/system-connections"], &[".nmconnection"], assigned),
    (&["etc/network"], &["interfaces"], words),
    (&["etc/network/interfaces.d"], &[""], words),
];

/// The longest list that is kept; no host has as many.
const MOST: usize = 1000;

pub(super) fn link_sources(tree: &SystemRoot) -> Vec<LinkSource> {
    let mut sources = Vec::new();
    for (folders, endings, keys) in PLACES {
        for folder in folders {
            let ours = |name: &String| endings.iter().any(|ending| name.ends_with(ending));
            for name in tree.names(folder).into_iter().filter(ours) {
                sources.extend(of_file(tree, &format!("{folder}/{name}"), keys));
            }
        }
    }
    sources.truncate(MOST);
    sources
}

fn of_file(tree: &SystemRoot, file: &str, keys: fn(&str) -> Vec<&str>) -> Vec<LinkSource> {
    let text = tree.whole(file).unwrap_or_default();
    let lines = text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.starts_with(['#', ';']));
    let of_line = |(number, line): (usize, &str)| {
        let source = |key: &str| LinkSource {
            file: format!("/{file}").into(),
            line: u32::try_from(number + 1).unwrap_or(u32::MAX),
            key: key.into(),
        };
        keys(line).into_iter().map(source).collect::<Vec<_>>()
    };
    lines.flat_map(of_line).take(MOST).collect()
}

/// Keys that affect a link's performance, from systemd.link(5), systemd.network(5) and nm-settings-keyfile(5).
const KEYS: [&str; 11] = [
    "GenericReceiveOffload",
    "GenericSegmentationOffload",
    "LargeReceiveOffload",
    "MTUBytes",
    "ReceiveChecksumOffload",
    "ReceivePacketSteeringCPUMask",
    "RxBufferSize",
    "RxCoalesceSec",
    "TCPSegmentationOffload",
    "TransmitChecksumOffload",
    "UseAdaptiveRxCoalesce",
];

/// `Key=value`.
fn assigned(line: &str) -> Vec<&str> {
    let key = line.split_once('=').map(|(key, _)| key.trim());
    key.filter(|key| *key == "mtu" || KEYS.contains(key)).into_iter().collect()
}

/// `ATTR{name}="value"`. With `==` it is a condition.
fn attributes(line: &str) -> Vec<&str> {
    if !line.contains("net") {
        return Vec::new();
    }
    let starts = line.match_indices("ATTR{").map(|(at, _)| &line[at..]);
    let sets =
        |text: &&str| text.split_once('}').is_some_and(|(_, rest)| rest.starts_with('=') && !rest.starts_with("=="));
    starts.filter(sets).filter_map(|text| text.get(..=text.find('}')?)).collect()
}

/// `mtu 9000`.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().next().filter(|word| *word == "mtu").into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_file_is_read() {
        let tree = SystemRoot::invented([
            ("etc/systemd/network/10-lan.link", "[Match]\nMACAddress=52:54:00:00:00:01\n[Link]\nMTUBytes = 9000\n"),
            ("run/systemd/network/10-netplan-eth0.network", "[Link]\n#MTUBytes=1\nMTUBytes=1400\nDHCP=yes\n"),
            ("etc/systemd/network/readme.txt", "MTUBytes=1\n"),
            (
                "etc/udev/rules.d/70-x.rules",
                "SUBSYSTEM==\"net\", ATTR{type}==\"1\", ATTR{mtu}=\"9000\", ATTR{queues/rx-0/rps_cpus}=\"f\"\nKERNEL==\"sda\", ATTR{queue/x}=\"1\"\nnet ATTR{",
            ),
            ("etc/NetworkManager/system-connections/a.nmconnection", "[ethernet]\nmtu=1400\nmtus=1\n"),
            ("etc/network/interfaces", "iface eth0 inet dhcp\n  mtu 1400\n"),
        ]);
        let told: Vec<String> =
            link_sources(&tree).iter().map(|of| format!("{}:{} {}", of.file, of.line, of.key)).collect();
        assert_eq!(
            told,
            [
                "/etc/systemd/network/10-lan.link:4 MTUBytes",
                "/run/systemd/network/10-netplan-eth0.network:3 MTUBytes",
                "/etc/udev/rules.d/70-x.rules:1 ATTR{mtu}",
                "/etc/udev/rules.d/70-x.rules:1 ATTR{queues/rx-0/rps_cpus}",
                "/etc/NetworkManager/system-connections/a.nmconnection:2 mtu",
                "/etc/network/interfaces:2 mtu",
            ]
        );
    }
}
