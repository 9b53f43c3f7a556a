//! All rules on the files of invented hosts and of a recorded one, with one bad setting at a time.

mod hostile;
mod kept;
mod machine;
mod other_hosts;

use std::{collections::BTreeSet, env, fmt::Write as _, fs, path::Path, time::Duration};

use machine::Machine;
use vtax_tune::{HostCheck, PathRtt, RULES, RttSource, TuningCase, TuningGoal, TuningRemedy, check, page};

fn checked(machine: &Machine, goal: TuningGoal, rtt: Option<Duration>) -> HostCheck {
    let host = machine.facts();
    check(&TuningCase { host: &host, observed: None, goal, rtt: rtt.map(given).as_ref(), path: None })
}

fn given(time: Duration) -> PathRtt {
    PathRtt { time, source: RttSource::Given }
}

/// Returns the command's output in short form.
fn told(check: &HostCheck) -> String {
    let mut text = String::new();
    for found in &check.findings {
        let says = &found.says;
        writeln!(text, "FOUND {} ({}, {} risk): {}: {}", found.rule, says.gain, found.risk, says.object, says.seen)
            .expect("a string takes all");
        match &says.remedy {
            TuningRemedy::Change(proposals) => {
                let shown = proposals.iter().take(3).map(|proposal| format!("    {proposal}\n"));
                text.extend(shown);
                if proposals.len() > 3 {
                    writeln!(text, "    and {} more", proposals.len() - 3).expect("a string takes all");
                }
            }
            TuningRemedy::Advice(advice) => writeln!(text, "    {advice}").expect("a string takes all"),
        }
        if let Some(owner) = &says.owner {
            writeln!(text, "    owner: {owner}").expect("a string takes all");
        }
    }
    for (title, rules) in [("good", &check.good), ("not here", &check.not_here), ("unknown", &check.unknown)] {
        for rule in rules {
            writeln!(text, "{title} {}: {}", rule.rule, rule.says).expect("a string takes all");
        }
    }
    text
}

#[test]
fn a_laptop_is_well() {
    let check = checked(&Machine::laptop(), TuningGoal::Both, None);
    assert!(check.findings.is_empty(), "{:#?}", check.findings);
    insta::assert_snapshot!(told(&check));
}

#[test]
fn a_laptop_with_short_round_trips_sleeps_too_deep() {
    insta::assert_snapshot!(told(&checked(&Machine::laptop(), TuningGoal::Latency, Some(Duration::from_micros(200)))));
}

/// As in the source: 8 sockets of 20 CPUs, and a 10 GbE port whose interrupts are delivered to all of them.
#[test]
fn eight_sockets_spread_their_network_work() {
    let rtt = Some(Duration::from_millis(100));
    insta::assert_snapshot!(told(&checked(&Machine::eight_sockets(), TuningGoal::Both, rtt)));
}

#[test]
fn a_kvm_host_with_libvirt_and_docker_is_well() {
    let check = checked(&Machine::kvm_host(), TuningGoal::Both, None);
    assert!(check.findings.is_empty(), "{:#?}", check.findings);
    insta::assert_snapshot!(told(&check));
}

#[test]
fn a_cloud_guest_is_well() {
    let check = checked(&Machine::cloud_guest(), TuningGoal::Both, None);
    assert!(check.findings.is_empty(), "{:#?}", check.findings);
    insta::assert_snapshot!(told(&check));
}

#[test]
fn a_recorded_machine_is_well() {
    let check = checked(&Machine::two_vcpus(), TuningGoal::Both, None);
    assert!(check.findings.is_empty(), "{:#?}", check.findings);
    insta::assert_snapshot!(told(&check));
}

#[test]
fn an_emulated_server_has_its_network_work_on_the_wrong_node() {
    insta::assert_snapshot!(told(&checked(&Machine::emulated_server(), TuningGoal::Both, None)));
}

#[test]
fn a_machine_without_files_has_no_finding() {
    for goal in [TuningGoal::Latency, TuningGoal::Throughput, TuningGoal::Both] {
        assert!(checked(&Machine::default(), goal, None).findings.is_empty());
    }
}

/// A bad setting, the goal and the round trip for which it is bad, and the rule that must find it.
type Planted = (&'static str, fn(&mut Machine), TuningGoal, Option<u64>);

/// Bad settings, each on an otherwise healthy host.
const PLANTED: &[Planted] = &[
    ("tcp-buffers", |host| host.put("proc/sys/net/ipv4/tcp_wmem", "4096 4096 8192"), TuningGoal::Both, None),
    ("tcp-buffers", |host| host.put("proc/sys/net/ipv4/tcp_rmem", "4096 -1 8192"), TuningGoal::Both, None),
    ("tcp-buffers", |_| (), TuningGoal::Throughput, Some(50_000)),
    ("tcp-buffers", |host| host.put("proc/sys/net/ipv4/tcp_window_scaling", "0"), TuningGoal::Both, None),
    ("moderate-rcvbuf", |host| host.put("proc/sys/net/ipv4/tcp_moderate_rcvbuf", "0"), TuningGoal::Both, None),
    ("backlog", |host| host.put("proc/sys/net/core/netdev_max_backlog", "10"), TuningGoal::Both, None),
    ("backlog", |host| host.put(DROPS.0, DROPS.1), TuningGoal::Both, None),
    ("offloads", |host| host.offload("eno1", "tx-tcp-segmentation", false), TuningGoal::Both, None),
    ("offloads", |host| host.offload("eno1", "rx-gro", false), TuningGoal::Both, None),
    ("lro", |host| host.offload("eno1", "rx-lro", true), TuningGoal::Both, None),
    ("mtu", |host| host.put("sys/class/net/vnet0/mtu", "600"), TuningGoal::Both, None),
    ("mtu", |host| host.put("sys/class/net/eno1/mtu", "9000"), TuningGoal::Both, None),
    ("rps", |host| host.put("sys/class/net/vnet0/queues/rx-0/rps_cpus", "1"), TuningGoal::Both, None),
    ("rps", |host| host.put("sys/class/net/eno1/queues/rx-0/rps_cpus", "f"), TuningGoal::Both, None),
    ("irq-node", |host| host.put("proc/irq/40/effective_affinity_list", "0"), TuningGoal::Both, None),
    ("host-cpus", |host| host.put("proc/irq/40/effective_affinity_list", "0"), TuningGoal::Both, None),
    ("interrupt-spread", |host| host.all_interrupts_to("8"), TuningGoal::Both, None),
    ("vhost-node", |host| host.put("proc/900/task/905/status", "Cpus_allowed_list:\t0-7"), TuningGoal::Both, None),
    ("vcpu-pinning", |host| host.put("proc/900/task/903/status", "Cpus_allowed_list:\t0-15"), TuningGoal::Both, None),
    (
        "virtio-queues",
        |host| host.put("proc/900/cmdline", "qemu-system-x86_64\0-netdev\0tap,id=a"),
        TuningGoal::Both,
        None,
    ),
    ("coalescing", |host| host.coalescing("eno1", 1000), TuningGoal::Both, None),
    ("coalescing", |host| host.coalescing("eno1", 50), TuningGoal::Latency, Some(100)),
    ("ring-size", |host| host.put("sys/class/net/eno1/statistics/rx_missed_errors", "100000"), TuningGoal::Both, None),
    ("irq-deferral", |host| host.put("sys/class/net/eno1/gro_flush_timeout", "5000000"), TuningGoal::Both, None),
    ("conntrack", |host| host.put("proc/sys/net/netfilter/nf_conntrack_count", "250000"), TuningGoal::Both, None),
    ("governor", |host| host.every_cpu("cpufreq/scaling_governor", "powersave"), TuningGoal::Latency, None),
    ("c-states", |_| (), TuningGoal::Latency, Some(100)),
    ("xps", |host| host.no_xps("eno1"), TuningGoal::Throughput, None),
    ("bridge-netfilter", |host| host.remove("proc/700/comm"), TuningGoal::Both, None),
    ("iommu", |host| host.put("proc/cmdline", "intel_iommu=on iommu.strict=1"), TuningGoal::Both, None),
];

#[test]
fn only_injected_settings_are_found() {
    let well = Machine::kvm_host();
    for (rule, plant, goal, rtt) in PLANTED {
        let mut host = well.clone();
        plant(&mut host);
        let check = checked(&host, *goal, rtt.map(Duration::from_micros));
        let found: Vec<&str> = check.findings.iter().map(|finding| finding.rule).collect();
        assert!(found.contains(rule), "{rule} is not among {found:?}");
        // A bad interrupt is on another node and on another socket, and is reported for both reasons.
        let same = |other: &str| [*rule, "irq-node", "host-cpus"].contains(&other);
        let latency = |other: &str| goal == &TuningGoal::Latency && ["c-states", "coalescing"].contains(&other);
        assert!(found.iter().all(|other| same(other) || latency(other)), "{rule}: {found:?}");
    }
}

/// A rule is satisfied with its own proposal.
#[test]
fn a_rule_is_satisfied_with_its_own_proposal() {
    let well = Machine::kvm_host();
    for (rule, plant, goal, rtt) in PLANTED {
        let mut host = well.clone();
        plant(&mut host);
        let rtt = rtt.map(Duration::from_micros);
        let check = checked(&host, *goal, rtt);
        let found = check.findings.iter().filter(|finding| finding.rule == *rule);
        let proposals: Vec<_> = found.flat_map(|finding| finding.says.proposals()).collect();
        // These rules also read counters of earlier losses, which the change does not reset.
        if proposals.is_empty() || ["backlog", "ring-size"].contains(rule) {
            continue;
        }
        proposals.into_iter().for_each(|proposal| host.apply(proposal));
        let left: Vec<_> = checked(&host, *goal, rtt).findings.into_iter().filter(|left| left.rule == *rule).collect();
        assert!(left.is_empty(), "{rule}: {left:#?}");
    }
}

/// A bridge follows its smallest port. A change of both once failed: after the port's change, the bridge's MTU was not
/// the planned one.
#[test]
fn only_the_port_of_a_bridge_is_reported_for_a_small_mtu() {
    let mut host = Machine::kvm_host();
    ["vnet0", "br0"].iter().for_each(|link| host.put(&format!("sys/class/net/{link}/mtu"), "600"));
    let objects = |host: &Machine| {
        let found = checked(host, TuningGoal::Both, None).findings.into_iter().filter(|found| found.rule == "mtu");
        found.map(|found| found.says.object.raw().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(objects(&host), ["vnet0"]);
    host.put("sys/class/net/vnet0/mtu", "1500");
    assert_eq!(objects(&host), ["br0"], "somebody has set it");
}

const DROPS: (&str, &str) = ("proc/net/softnet_stat", "000fffff 00000fff 0 0 0 0 0 0 0 0 0 0 0");
const BACKLOG: &str = "proc/sys/net/core/netdev_max_backlog";

/// Drops in a zone were once reported as OK: the kernel shows the counters to a zone, but not the setting.
#[test]
fn drops_in_a_zone_are_not_called_good() {
    let mut host = Machine::kvm_host();
    host.put(DROPS.0, DROPS.1);
    host.remove(BACKLOG);
    let check = checked(&host, TuningGoal::Both, None);
    let told = |rules: &[vtax_tune::CheckedRule<String>]| rules.iter().any(|rule| rule.rule == "backlog");
    assert!(told(&check.unknown) && !told(&check.good), "{check:#?}");
}

/// Two findings once proposed different values for one setting.
#[test]
fn a_backlog_that_is_small_and_drops_is_reported_once() {
    let mut host = Machine::kvm_host();
    host.put(DROPS.0, DROPS.1);
    host.put(BACKLOG, "1");
    let found = checked(&host, TuningGoal::Both, None).findings;
    assert!(found.len() == 1 && found[0].says.proposals()[0].to_string().ends_with("1 -> 1000"), "{found:#?}");
}

/// Environment variable. If it is set, the test writes the pages instead of comparing them.
const WRITE: &str = "VTAX_WRITE_PAGES";

#[test]
fn each_rule_has_its_page_in_the_book() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tuning");
    let is_page = |name: &String| name.ends_with(".md") && name != "README.md";
    let names = fs::read_dir(&folder).expect("pages").map(|entry| entry.expect("an entry").file_name());
    let mut left: BTreeSet<String> = names.map(|name| name.into_string().expect("text")).filter(is_page).collect();
    let index = fs::read_to_string(folder.join("README.md")).expect("an index");
    for rule in RULES {
        let name = format!("{}.md", rule.id);
        left.remove(&name);
        assert!(index.contains(&format!("({name})")), "docs/tuning/README.md lacks {name}");
        if env::var_os(WRITE).is_some() {
            fs::write(folder.join(&name), page(rule)).expect("a page");
        }
        let found = fs::read_to_string(folder.join(&name)).unwrap_or_default();
        assert_eq!(found, page(rule), "run this test with {WRITE}=1");
    }
    assert!(left.is_empty(), "no rule has these pages: {left:?}");
}

#[test]
fn rules_are_named_and_described() {
    let mut names: Vec<&str> = RULES.iter().map(|rule| rule.id).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), RULES.len());
    for rule in RULES {
        let is_plain = |c: char| c.is_ascii_lowercase() || c == '-';
        assert!(rule.id.chars().all(is_plain), "{}", rule.id);
        let texts = [rule.title, rule.reads, rule.good, rule.why, rule.persists, rule.source];
        assert!(texts.iter().all(|text| !text.is_empty() && !text.contains("  ")), "{}", rule.id);
    }
}
