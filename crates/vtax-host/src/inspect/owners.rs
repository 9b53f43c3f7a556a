//! Other sources of the host's settings: the files that `sysctl --system` reads, and services that write them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vtax_model::foreign::ForeignText;
use vtax_sys::sysctl::SysctlKey;

use super::{
    SystemRoot,
    link_files::{LinkSource, link_sources},
    unusable::matches,
};

/// A line of a file that sets a setting at boot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SettingSource {
    /// The file, with a leading slash.
    pub file: ForeignText,
    /// The line in it, counted from 1.
    pub line: u32,
    /// The value that it sets.
    pub value: ForeignText,
}

/// Other sources of settings on this host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SettingOwners {
    /// By the setting's path below `/proc/sys`, in the order of reading: the last one wins.
    pub sysctls: BTreeMap<ForeignText, Vec<SettingSource>>,
    /// Sources of link settings when links appear.
    pub links: Vec<LinkSource>,
    /// TuneD's profile, if TuneD is running.
    pub tuned_profile: Option<ForeignText>,
    /// Running services that change network settings themselves, such as `irqbalance`.
    pub services: Vec<ForeignText>,
}

impl SettingOwners {
    pub(super) fn read(tree: &SystemRoot) -> SettingOwners {
        let services = services(tree);
        let tuned = services.iter().any(|name| *name == "tuned");
        SettingOwners {
            sysctls: written(tree),
            links: link_sources(tree),
            tuned_profile: tuned.then(|| tree.text("etc/tuned/active_profile")).flatten().map(ForeignText::from),
            services,
        }
    }

    /// Returns the line that determines a setting, such as `net.core.rmem_max`, at boot.
    pub fn source_of(&self, setting: &str) -> Option<&SettingSource> {
        self.sources_of(setting).last()
    }

    /// All lines that set it. Those that name it exactly come after those with a wildcard in the name: they win.
    pub fn sources_of(&self, setting: &str) -> impl Iterator<Item = &SettingSource> {
        let key = setting.parse::<SysctlKey>().map(|key| key.to_string()).unwrap_or_default();
        let exact = self.sysctls.get(&ForeignText::from(key.as_str()));
        let globs = self.sysctls.iter().filter(move |(glob, _)| glob.raw().contains('*') && matches(glob.raw(), &key));
        globs.map(|(_, sources)| sources).chain(exact).flatten()
    }

    pub fn runs(&self, service: &str) -> bool {
        self.services.iter().any(|name| name == service)
    }
}

/// The directories of systemd-sysctl(8), by precedence. A file hides those of the same name in later ones.
const FOLDERS: [&str; 4] = ["etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d"];

fn written(tree: &SystemRoot) -> BTreeMap<ForeignText, Vec<SettingSource>> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for folder in FOLDERS {
        for name in tree.names(folder).into_iter().filter(|name| name.ends_with(".conf")) {
            files.entry(name).or_insert_with_key(|name| format!("{folder}/{name}"));
        }
    }
    // procps reads it after the directories.
    let files = files.into_values().chain(["etc/sysctl.conf".to_owned()]);
    let mut written: BTreeMap<ForeignText, Vec<SettingSource>> = BTreeMap::new();
    for file in files {
        for (line, text) in tree.whole(&file).unwrap_or_default().lines().enumerate() {
            if let Some((key, value)) = assignment(text) {
                let source =
                    SettingSource { file: format!("/{file}").into(), line: line as u32 + 1, value: value.into() };
                written.entry(key.into()).or_default().push(source);
            }
        }
    }
    written
}

/// `key = value`; a leading dash means that errors are ignored (sysctl.d(5)).
fn assignment(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    if line.starts_with(['#', ';']) {
        return None;
    }
    let (key, value) = line.strip_prefix('-').unwrap_or(line).split_once('=')?;
    let key: SysctlKey = key.trim().parse().ok()?;
    Some((key.to_string(), value.split_whitespace().collect::<Vec<_>>().join(" ")))
}

/// Programs that are known to change CPU, interrupt or network settings.
const SERVICES: [&str; 9] =
    ["NetworkManager", "containerd", "crio", "dockerd", "irqbalance", "kubelet", "libvirtd", "tuned", "virtqemud"];

fn services(tree: &SystemRoot) -> Vec<ForeignText> {
    let names = tree.names("proc");
    let pids = names.iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    let comms = pids.filter_map(|pid| tree.text(&format!("proc/{pid}/comm")));
    let mut found: Vec<String> = comms.filter(|comm| SERVICES.contains(&comm.as_str())).collect();
    found.sort();
    found.dedup();
    found.into_iter().map(ForeignText::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_file_that_is_not_hidden_determines_a_setting() {
        let tree = SystemRoot::invented([
            ("usr/lib/sysctl.d/50-default.conf", "net.core.rmem_max = 1\nnet.core.wmem_max=7\n"),
            ("etc/sysctl.d/50-default.conf", "# hidden\n-net/core/rmem_max = 2\n"),
            ("etc/sysctl.d/90-mine.conf", "\n; x\nnet.ipv4.tcp_rmem = 4096\t8192  16384\nbroken\n"),
            ("etc/sysctl.d/99-no.txt", "net.core.rmem_max = 3\n"),
            ("etc/sysctl.conf", "net.ipv4.conf.eth0/1.forwarding = 1\n"),
        ]);
        let owners = SettingOwners::read(&tree);
        let of = |key| owners.source_of(key).map(|of| format!("{}:{} {}", of.file, of.line, of.value));
        assert_eq!(of("net.core.rmem_max").as_deref(), Some("/etc/sysctl.d/50-default.conf:2 2"));
        assert_eq!(of("net.core.wmem_max"), None);
        assert_eq!(of("net.ipv4.tcp_rmem").as_deref(), Some("/etc/sysctl.d/90-mine.conf:3 4096 8192 16384"));
        assert_eq!(of("net.ipv4.conf.eth0/1.forwarding").as_deref(), Some("/etc/sysctl.conf:1 1"));
    }

    #[test]
    fn all_lines_that_set_a_setting_are_known() {
        let tree = SystemRoot::invented([
            ("etc/sysctl.d/10-a.conf", "net.ipv4.conf.eth0.mtu = 1\n"),
            ("etc/sysctl.d/20-b.conf", "net.ipv4.conf.*.mtu = 2\nnet.*.mtu = 3\n"),
            ("etc/sysctl.d/90-vtax.conf", "net.ipv4.conf.eth0.mtu = 4\n"),
        ]);
        let owners = SettingOwners::read(&tree);
        let values = |key| owners.sources_of(key).map(|of| of.value.raw().to_owned()).collect::<Vec<_>>();
        assert_eq!(values("net.ipv4.conf.eth0.mtu"), ["2", "1", "4"]);
        assert_eq!(values("net.ipv4.conf.eth1.mtu"), ["2"]);
        assert_eq!(values("net.ipv4.conf.eth1.forwarding"), [""; 0]);
    }

    #[test]
    fn services_are_known_by_their_names_and_a_profile_counts_while_tuned_runs() {
        let profile = ("etc/tuned/active_profile", "throughput-performance\n");
        let tree = SystemRoot::invented([profile, ("proc/9/comm", "dockerd\n"), ("proc/8/comm", "sshd\n")]);
        let owners = SettingOwners::read(&tree);
        assert_eq!((owners.services, owners.tuned_profile), (vec!["dockerd".into()], None));
        let tree = SystemRoot::invented([profile, ("proc/9/comm", "tuned\n")]);
        assert_eq!(SettingOwners::read(&tree).tuned_profile, Some("throughput-performance".into()));
    }
}
