//! Hosts whose files are missing, unreadable, nonsensical or too long. Rules claim nothing that is unknown.

use std::{fs, os::unix::fs::symlink, process::Command};

use vtax_change::HostAccess;
use vtax_host::inspect::{HostFacts, SystemRoot};
use vtax_tune::{HostSetting, Proposal, TuningFinding, plan};

use super::*;

const CASES: [(TuningGoal, Option<Duration>); 2] =
    [(TuningGoal::Both, None), (TuningGoal::Latency, Some(Duration::from_micros(100)))];

/// Returns the rules' claims that something is wrong, OK or not applicable.
fn claims(host: &HostFacts, (goal, rtt): (TuningGoal, Option<Duration>)) -> BTreeSet<String> {
    let found = check(&TuningCase { host, observed: None, goal, rtt: rtt.map(given).as_ref(), path: None });
    let wrong = |found: &vtax_tune::CheckedRule<TuningFinding>| {
        format!("{}: {}: {}", found.rule, found.says.object, found.says.seen)
    };
    let says = found.good.iter().chain(&found.not_here).map(|says| format!("{}: {}", says.rule, says.says));
    found.findings.iter().map(wrong).chain(says).collect()
}

/// Returns the number of rules that are undetermined because of this file.
fn doubts(host: &HostFacts, case: (TuningGoal, Option<Duration>), file: &str) -> usize {
    let (goal, rtt) = case;
    let found = check(&TuningCase { host, observed: None, goal, rtt: rtt.map(given).as_ref(), path: None });
    found.unknown.iter().filter(|says| says.says.contains(file)).count()
}

/// Spoils each file of a healthy host in turn, and asserts that rules make no new claim.
fn assert_nothing_new(spoil: impl Fn(&Machine, &str) -> HostFacts, is_told: bool) {
    let well = Machine::kvm_host();
    for case in CASES {
        let before = claims(&well.facts(), case);
        for file in well.paths() {
            let facts = spoil(&well, &file);
            let new: Vec<String> = claims(&facts, case).difference(&before).cloned().collect();
            assert!(new.is_empty(), "{file}: {new:#?}");
            let lost = before.len() - claims(&facts, case).len();
            assert!(
                !is_told || lost == 0 || doubts(&facts, case, &file) > 0,
                "{file}: {lost} claims are gone, and nobody says why"
            );
        }
    }
}

#[test]
fn an_unreadable_file_gives_no_finding() {
    assert_nothing_new(|well, file| well.facts_of(well.tree().with_unreadable(file)), true);
}

/// Files in which any text is valid.
const WORDS: [&str; 10] = [
    "comm",
    "cmdline",
    "uevent",
    "scaling_governor",
    "name",
    "current_driver",
    "hostname",
    "default_qdisc",
    "tcp_congestion_control",
    "control",
];

/// Files that may be empty: some chips never report where an interrupt is delivered, and some nodes have only memory.
const EMPTY: [&str; 2] = ["effective_affinity_list", "cpulist"];

#[test]
fn a_nonsensical_file_gives_no_finding() {
    for nonsense in ["garbage", "", "0x", "7 of 9", "\u{0}\u{fffd}\u{1b}[2J"] {
        let spoil = |well: &Machine, file: &str| {
            let mut host = well.clone();
            let name = file.rsplit('/').next().unwrap_or_default();
            let is_good = WORDS.contains(&name) || EMPTY.contains(&name) && nonsense.is_empty();
            if !is_good {
                host.put(file, nonsense);
            }
            host.facts()
        };
        assert_nothing_new(spoil, true);
    }
}

/// With numbers that no kernel writes and with missing files, no rule panics, and each text is printed on one line.
#[test]
fn odd_numbers_and_missing_files_are_survived() {
    let well = Machine::kvm_host();
    for file in well.paths() {
        for text in
            ["-1", "-9223372036854775808", "18446744073709551615", "99999999999999999999999", "0-4294967295", "1,,2"]
        {
            let mut host = well.clone();
            host.put(&file, text);
            CASES.iter().for_each(|case| drop(claims(&host.facts(), *case)));
        }
        let mut host = well.clone();
        host.remove(&file);
        CASES.iter().for_each(|case| drop(claims(&host.facts(), *case)));
    }
}

#[test]
fn a_nic_whose_node_the_firmware_does_not_tell_is_on_no_node() {
    let mut host = Machine::kvm_host();
    host.put("sys/class/net/eno1/device/numa_node", "-1");
    host.all_interrupts_to("0");
    let found = checked(&host, TuningGoal::Both, None);
    assert!(found.findings.iter().all(|finding| finding.rule != "irq-node"), "{:#?}", found.findings);
    let told = found.unknown.iter().find(|says| says.rule == "irq-node").expect("it can't tell");
    assert!(told.says.contains("does not report its NUMA node"), "{}", told.says);
}

#[test]
fn four_thousand_cpus_are_looked_at() {
    let mut host = Machine::many_cpus();
    let facts = host.facts();
    assert_eq!((facts.topology.online.len(), facts.topology.nodes.len()), (4096, 8));
    host.all_interrupts_to("4095");
    for case in CASES {
        let found = claims(&host.facts(), case);
        assert!(found.iter().any(|claim| claim.contains("irq-node: eno1")), "{found:#?}");
    }
}

#[test]
fn names_of_links_can_forge_nothing() {
    let mut host = Machine::kvm_host();
    let names = ["a\u{1b}[2Jb", "eth0\nGood", "日本", "%s", "-rf", "a b", "e\u{301}\u{202e}"];
    names.iter().zip(50..).for_each(|(name, index)| host.odd_link(name, index));
    let found = checked(&host, TuningGoal::Both, None);
    let text = told(&found);
    assert!(text.contains("\\u001b[2Jb") && text.contains("日本"), "{text}");
    assert!(!text.contains(|c: char| c.is_control() && c != '\n') && !text.contains("\nGood"), "{text}");
}

/// Files in a real directory.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().expect("a folder"));
        for name in ["proc/sys/net/ipv4", "proc/net", "sys/devices/system/cpu", "etc/sysctl.d"] {
            fs::create_dir_all(folder.0.path().join(name)).expect("a folder");
        }
        folder
    }

    fn put(&self, path: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.0.path().join(path), bytes).expect("a file");
    }

    fn facts(&self) -> HostFacts {
        Machine::default().facts_of(SystemRoot::at(self.0.path()))
    }

    /// Returns the defect of a file.
    fn why(&self, file: &str) -> String {
        let facts = self.facts();
        let found = facts.unusable.iter().find(|unusable| unusable.file == file);
        found.unwrap_or_else(|| panic!("{file} is taken for good: {:?}", facts.unusable)).why.to_string()
    }
}

#[test]
fn files_that_are_too_long_or_fail_are_reported() {
    let folder = Folder::new();
    let long = fs::File::create(folder.0.path().join("proc/cmdline")).expect("a file");
    long.set_len(300 << 20).expect("a file with a hole");
    assert_eq!(folder.why("/proc/cmdline"), "it has more than 4 MiB");
    // An endless file, a pipe without a writer, and a file that fails with EIO.
    let wmem = folder.0.path().join("proc/sys/net/ipv4/tcp_wmem");
    symlink("/dev/zero", &wmem).expect("a link");
    assert_eq!(folder.why("/proc/sys/net/ipv4/tcp_wmem"), "it is not a text file");
    fs::remove_file(&wmem).expect("it is there");
    let made = Command::new("mkfifo").arg(&wmem).status().expect("it runs");
    assert!(made.success());
    assert_eq!(folder.why("/proc/sys/net/ipv4/tcp_wmem"), "it is not a text file");
    fs::remove_file(&wmem).expect("it is there");
    symlink("/proc/self/mem", &wmem).expect("a link");
    assert!(folder.why("/proc/sys/net/ipv4/tcp_wmem").contains("Input/output error"));
    folder.put("proc/sys/net/ipv4/tcp_rmem", b"4096 \xff\xfe 7\n");
    assert!(folder.why("/proc/sys/net/ipv4/tcp_rmem").starts_with("it contains \"4096 "));
    let claimed = claims(&folder.facts(), CASES[0]);
    assert!(
        !claimed.iter().any(|claim| claim.starts_with("tcp-buffers") || claim.starts_with("iommu")),
        "{claimed:#?}"
    );
}

#[test]
fn a_million_interrupts_are_not_looked_at_one_by_one() {
    let folder = Folder::new();
    let rows = (0..1_000_000).map(|number| format!("{number}: 1 2 chip eth0-{number}\n"));
    folder.put("proc/interrupts", "           CPU0       CPU1\n".to_owned() + &rows.collect::<String>());
    assert!(folder.why("/proc/interrupts").contains("more than 65536"), "{}", folder.why("/proc/interrupts"));
}

/// Between the check and the change, another program may write anything.
#[test]
fn a_plan_of_files_that_changed_fails_with_the_name_of_the_file() {
    let folder = Folder::new();
    let setting = HostSetting::Sysctl { key: "net.ipv4.tcp_wmem".to_owned(), value: "1 2 3".into() };
    let proposals = [Proposal { setting, now: "".into() }];
    let refused = || {
        let mut host = HostAccess::below(folder.0.path()).expect("its folders");
        plan(&mut host, None, &proposals).map(|changes| changes.len()).map_err(|error| error.to_string())
    };
    assert!(refused().is_err_and(|error| error.contains("net.ipv4.tcp_wmem")));
    folder.put("proc/sys/net/ipv4/tcp_wmem", b"\xff\xfe");
    assert!(refused().is_err_and(|error| error.contains("tcp_wmem")));
    folder.put("proc/sys/net/ipv4/tcp_wmem", "garbage");
    assert_eq!(refused(), Ok(1));
}
