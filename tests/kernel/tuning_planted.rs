//! Bad settings, set one at a time in the zones and hosts of a lab: `vtax tune check` finds each one, and nothing else.

use std::{fs, path::Path};

use vtax_sys::{ethtool::Ethtool, netns::NetNs, tree::FileTree};

use super::{
    Bench, json,
    labs::{Up, lab_file},
};

const LAB: &str = "t-planted";
const DOMAINS: [&str; 6] = ["sut", "peer", "web-1", "web-2", "lan", "tun"];
/// Zones in addition to those behind a bridge.
const MORE: &str = r#"
[[zone]]
name = "lan"
host = "peer"
method = "macvlan"
[[zone]]
name = "tun"
host = "sut"
method = "vxlan"
"#;

/// Location and bad value of a setting.
enum Plant {
    /// A file below `/proc/sys`.
    Sysctl(&'static str, &'static str),
    /// An offload of `eth0`, which is disabled.
    Off(&'static str),
    /// A file of a link in `/sys/class/net`.
    Link(&'static str, &'static str),
}

use Plant::{Link, Off, Sysctl};

/// The kernel's default, in each namespace with a bridge if the module br_netfilter is loaded.
const NETFILTER: Plant = Sysctl("net/bridge/bridge-nf-call-iptables", "1");

/// The rule that must find each setting, the location, and the setting.
const PLANTED: [(&str, &str, Plant); 16] = [
    ("tcp-buffers", "web-1", Sysctl("net/ipv4/tcp_wmem", "4096 4096 8192")),
    ("tcp-buffers", "lan", Sysctl("net/ipv4/tcp_rmem", "4096 4096 8192")),
    ("tcp-buffers", "peer", Sysctl("net/ipv4/tcp_window_scaling", "0")),
    ("moderate-rcvbuf", "web-2", Sysctl("net/ipv4/tcp_moderate_rcvbuf", "0")),
    ("offloads", "web-1", Off("tx-tcp-segmentation")),
    ("offloads", "web-1", Off("tx-generic-segmentation")),
    ("offloads", "web-2", Off("tx-checksum-ip-generic")),
    ("offloads", "web-2", Off("tx-scatter-gather")),
    ("offloads", "tun", Off("tx-tcp-segmentation")),
    ("offloads", "tun", Off("rx-gro")),
    ("mtu", "web-1", Link("eth0/mtu", "600")),
    ("mtu", "tun", Link("eth0/mtu", "600")),
    // A port of a bridge whose other ports have an MTU of 1500.
    ("mtu", "sut", Link("vnet0/mtu", "1400")),
    ("rps", "web-1", Link("eth0/queues/rx-0/rps_cpus", "1")),
    ("irq-deferral", "lan", Link("eth0/gro_flush_timeout", "5000000")),
    ("bridge-netfilter", "sut", NETFILTER),
];

#[test]
fn each_planted_setting_of_a_zone_is_found_and_nothing_where_all_is_well() {
    let bench = Bench::new().with("lab.toml", &(lab_file(LAB, "") + MORE));
    let _up = Up::new(&bench, LAB);
    NETFILTER.change(&bench, "sut", "0");
    let all_is_well = || {
        for domain in DOMAINS {
            assert_eq!(found(&bench, domain), [""; 0], "{domain}");
        }
    };
    all_is_well();
    let mut planted = 0;
    for (rule, domain, plant) in &PLANTED {
        let Some(was) = plant.change(&bench, domain, plant.bad()) else { continue };
        let found = found(&bench, domain);
        assert!(!found.is_empty() && found.iter().all(|found| found == rule), "{rule} in {domain}: {found:?}");
        plant.change(&bench, domain, &was);
        planted += 1;
    }
    all_is_well();
    assert!(planted >= PLANTED.len() - 1, "every kernel has all but br_netfilter: {planted}");
}

impl Plant {
    fn bad(&self) -> &'static str {
        match self {
            Sysctl(_, bad) | Link(_, bad) => bad,
            Off(_) => "off",
        }
    }

    /// Writes another value without vtax's own code for changes, and returns the previous one; `None` if there is no
    /// such setting.
    fn change(&self, bench: &Bench, domain: &str, value: &str) -> Option<String> {
        let pin = bench.labs().join("labs").join(LAB).join("netns").join(domain);
        let inside = NetNs::open(&pin).expect("a domain of the lab");
        let sys = FileTree::sysfs_of(&inside).expect("its /sys");
        let file = |path: &Path| {
            let was = fs::read_to_string(path).ok()?;
            fs::write(path, value).expect("it can be written");
            Some(was)
        };
        let change = || match self {
            Sysctl(path, _) => file(&Path::new("/proc/sys").join(path)),
            Link(path, _) => file(&sys.path().join("class/net").join(path)),
            Off(feature) => {
                let driver = Ethtool::open(&"eth0".parse().expect("a name")).expect("a link");
                let was = driver.feature(feature).expect("it tells")?;
                driver.set_feature(feature, value == "on").expect("it can be set");
                assert_eq!(driver.feature(feature).expect("it tells"), Some(value == "on"), "{feature}");
                Some(if was { "on" } else { "off" }.to_owned())
            }
        };
        inside.run(change).expect("a thread")
    }
}

/// Returns the rules with findings.
fn found(bench: &Bench, domain: &str) -> Vec<String> {
    let check = json(bench, &["tune", "check", "--host", &format!("zone:{LAB}/{domain}"), "--json"]);
    let findings = check["findings"].as_array().expect("a list").iter();
    findings.map(|finding| finding["rule"].as_str().expect("a name").to_owned()).collect()
}
