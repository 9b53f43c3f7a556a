//! Persistence across a reboot of the changes that rules propose.

use std::fs;

use tempfile::TempDir;
use vtax_change::HostAccess;
use vtax_host::inspect::HostFacts;
use vtax_tune::{HostSetting, KeptPlan, Proposal, plan_kept};

use super::*;

/// Returns the proposals for a host with these bad settings, and those that are persistent.
fn kept_of(host: &Machine, rules: &[&str]) -> (TempDir, KeptPlan) {
    let facts: HostFacts = host.facts();
    let case = TuningCase { host: &facts, observed: None, goal: TuningGoal::Both, rtt: None, path: None };
    let found = check(&case).findings.into_iter().filter(|found| rules.contains(&found.rule));
    let proposals: Vec<Proposal> = found.flat_map(|found| found.says.proposals().to_vec()).collect();
    kept(host, &proposals)
}

/// Like [`kept_of`], for given proposals: the host's files are written to the disk first.
fn kept(host: &Machine, proposals: &[Proposal]) -> (TempDir, KeptPlan) {
    let root = tempfile::tempdir().expect("a folder");
    for folder in ["proc", "sys", "etc/sysctl.d", "etc/udev/rules.d"] {
        fs::create_dir_all(root.path().join(folder)).expect("a folder");
    }
    host.write_to(root.path(), proposals);
    let mut access = HostAccess::below(root.path()).expect("its folders");
    let plan = plan_kept(&mut access, &host.facts(), None, proposals, &[]).expect("all is there");
    (root, plan)
}

fn lines(plan: &KeptPlan) -> Vec<String> {
    plan.lines.iter().map(ToString::to_string).collect()
}

fn spoilt() -> Machine {
    let mut host = Machine::kvm_host();
    host.put("proc/sys/net/ipv4/tcp_wmem", "4096 4096 8192");
    host.put("proc/sys/net/ipv4/tcp_moderate_rcvbuf", "0");
    host
}

#[test]
fn a_kernel_setting_is_a_line_of_a_file_of_ours() {
    let (_root, plan) = kept_of(&spoilt(), &["tcp-buffers", "moderate-rcvbuf"]);
    assert_eq!((plan.changes.len(), plan.not_kept.len()), (2, 0));
    assert_eq!(
        lines(&plan),
        [
            "line `net.ipv4.tcp_moderate_rcvbuf` of /etc/sysctl.d/90-vtax.conf: (no line) -> 1",
            "line `net.ipv4.tcp_wmem` of /etc/sysctl.d/90-vtax.conf: (no line) -> 4096 4096 4194304",
        ]
    );
}

#[test]
fn a_setting_in_another_file_is_changed_but_not_persisted() {
    let mut host = spoilt();
    host.put("etc/sysctl.d/10-mine.conf", "\nnet.ipv4.tcp_wmem = 4096 4096 8192");
    // An earlier line of ours, which takes precedence over that one.
    host.put("etc/sysctl.d/90-vtax.conf", "net.ipv4.tcp_wmem = 1 2 3");
    let (_root, plan) = kept_of(&host, &["tcp-buffers"]);
    assert_eq!((plan.changes.len(), lines(&plan)), (1, vec![]));
    let [left] = &plan.not_kept[..] else { panic!("{plan:?}") };
    assert_eq!(left.because, "/etc/sysctl.d/10-mine.conf:2 sets it to 4096 4096 8192");
    assert_eq!(left.instead, "change that line of /etc/sysctl.d/10-mine.conf:2");
}

#[test]
fn a_file_that_has_our_name_and_is_not_ours_is_left_alone() {
    let mut host = spoilt();
    host.put("etc/sysctl.d/90-vtax.conf", "# mine");
    let (root, plan) = kept_of(&host, &["tcp-buffers"]);
    assert_eq!((plan.changes.len(), lines(&plan)), (1, vec![]));
    assert!(plan.not_kept[0].because.raw().contains("was not written by vtax"), "{plan:?}");
    assert_eq!(fs::read_to_string(root.path().join("etc/sysctl.d/90-vtax.conf")).expect("a file"), "# mine\n");
}

#[test]
fn interrupts_and_settings_of_modules_are_reported_with_what_would_keep_them() {
    let mut host = spoilt();
    host.put("proc/sys/net/netfilter/nf_conntrack_count", "250000");
    host.all_interrupts_to("8");
    let (_root, plan) = kept_of(&host, &["conntrack", "interrupt-spread"]);
    assert!(plan.lines.is_empty(), "{plan:?}");
    let told: BTreeSet<&str> = plan.not_kept.iter().map(|left| left.because.raw()).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().any(|told| told.contains("module nf_conntrack")), "{told:?}");
    assert_eq!(plan.not_kept.len(), plan.changes.len());
}

/// The rule for a NIC's steering mask matches the NIC by its PCI address.
#[test]
fn a_file_of_a_link_is_a_rule_of_udev() {
    let mut host = Machine::kvm_host();
    host.put("sys/class/net/eno1/queues/rx-0/rps_cpus", "1");
    let (_root, plan) = kept_of(&host, &["rps"]);
    let rule = r#"ACTION=="add", SUBSYSTEM=="net", KERNELS=="0000:3b:00.0", ATTR{queues/rx-0/rps_cpus}"#;
    let line = format!("line `{rule}` of /etc/udev/rules.d/90-vtax.rules: (no line) -> 0");
    assert_eq!((lines(&plan), plan.not_kept.len()), (vec![line], 0));
}

/// A rule's page describes what `--persist` does.
#[test]
fn each_page_states_the_persistence_of_its_changes() {
    for (rule, plant, goal, rtt) in PLANTED {
        let mut host = Machine::kvm_host();
        plant(&mut host);
        let facts = host.facts();
        let rtt = rtt.map(Duration::from_micros).map(given);
        let case = TuningCase { host: &facts, observed: None, goal: *goal, rtt: rtt.as_ref(), path: None };
        let found = check(&case).findings.into_iter().filter(|found| found.rule == *rule);
        let proposals: Vec<Proposal> = found.flat_map(|found| found.says.proposals().to_vec()).collect();
        // Links without a device are irrelevant here, and so are settings that exist only in the kernel.
        let in_files = |proposal: &Proposal| match &proposal.setting {
            HostSetting::Sysctl { .. } | HostSetting::InterruptCpus { .. } => true,
            HostSetting::Sysfs { path, .. } => !path.raw().contains("vnet"),
            _ => false,
        };
        let proposals: Vec<Proposal> = proposals.into_iter().filter(in_files).collect();
        let (_root, plan) = kept(&host, &proposals);
        let page = RULES.iter().find(|known| known.id == *rule).expect("a rule").persists;
        for change in &plan.changes {
            let is_kept = plan.lines.iter().any(|line| line.keeps() == Some(change));
            assert_eq!(is_kept, page.contains("--persist"), "{rule}: {change}: {page}");
        }
    }
}
