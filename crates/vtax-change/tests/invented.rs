//! Changes to an invented machine: a directory with `proc` and `sys`. Requires no privilege.

use std::{collections::BTreeSet, fs, os::unix::fs::symlink, path::Path};

use proptest::prelude::*;
use vtax_change::{Change, ChangeError, HostAccess};
use vtax_journal::{BatchState, ForeignChange, Journal, Step, StepCause, Undone};

const RMEM: &str = "proc/sys/net/ipv4/tcp_rmem";
const GOVERNOR: &str = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
const RPS: &str = "sys/devices/pci0000:00/0000:00:03.0/net/eth0/queues/rx-0/rps_cpus";
const IFINDEX: &str = "sys/devices/pci0000:00/0000:00:03.0/net/eth0/ifindex";
const IRQ: &str = "proc/irq/24/smp_affinity_list";
const BOOT_ID: &str = "proc/sys/kernel/random/boot_id";
const ACTIONS: &str = "sys/kernel/irq/24/actions";

const FILES: [(&str, &str); 6] = [
    (RMEM, "4096\t131072\t6291456\n"),
    (GOVERNOR, "powersave\n"),
    (RPS, "00000000,00000000\n"),
    (IFINDEX, "2\n"),
    (IRQ, "0-3\n"),
    (ACTIONS, "eth0-rx-0\n"),
];

/// The settings for which changes are planned.
const SETTINGS: [&str; 4] = [RMEM, GOVERNOR, RPS, IRQ];

struct Machine {
    root: tempfile::TempDir,
}

impl Machine {
    fn new() -> Machine {
        let machine = Machine { root: tempfile::tempdir().unwrap() };
        for (path, text) in FILES {
            fs::create_dir_all(machine.path(path).parent().unwrap()).unwrap();
            machine.put(path, text);
        }
        fs::create_dir_all(machine.path("sys/class/net")).unwrap();
        symlink("../../devices/pci0000:00/0000:00:03.0/net/eth0", machine.path("sys/class/net/eth0")).unwrap();
        machine
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.root.path().join(path)
    }

    fn put(&self, path: &str, text: &str) {
        fs::write(self.path(path), text).unwrap();
    }

    fn get(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap().trim_end().to_owned()
    }

    fn host(&self) -> HostAccess {
        HostAccess::below(self.root.path()).unwrap()
    }

    fn values(&self) -> [String; 4] {
        SETTINGS.map(|path| self.get(path))
    }

    fn create(&self) -> Journal<Change> {
        Journal::create(&self.path("journals"), "tuning", "tuning", &()).unwrap()
    }

    fn open(&self) -> Journal<Change> {
        Journal::open(&self.path("journals"), "tuning").unwrap()
    }
}

fn rmem(host: &mut HostAccess, value: &str) -> Change {
    Change::plan_sysctl(host, None, "net.ipv4.tcp_rmem".parse().unwrap(), value).unwrap()
}

fn plan(host: &mut HostAccess) -> Vec<Change> {
    vec![
        rmem(host, "4096 131072 62914560"),
        Change::plan_sysfs(host, None, "devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance").unwrap(),
        Change::plan_sysfs(host, None, "class/net/eth0/queues/rx-0/rps_cpus", "c").unwrap(),
        Change::plan_irq(host, 24, &"2".parse().unwrap()).unwrap(),
    ]
}

const CHANGED: [&str; 4] = ["4096 131072 62914560", "performance", "c", "2"];

#[test]
fn changes_are_made_by_a_journal_and_undone_by_another_process() {
    let machine = Machine::new();
    let before = machine.values();
    let steps = plan(&mut machine.host());
    assert_eq!(machine.values(), before, "planning changes nothing");
    let mut journal = machine.create();
    journal.execute(steps, &mut machine.host()).unwrap();
    assert_eq!(machine.values(), CHANGED);
    journal.keep().unwrap();
    drop(journal);
    let report = machine.open().undo(&mut machine.host()).unwrap();
    assert_eq!(report.reverted, 4);
    assert_eq!(machine.values(), before);
}

#[test]
fn a_change_is_described_in_one_line() {
    let lines: Vec<String> = plan(&mut Machine::new().host()).iter().map(Change::to_string).collect();
    assert_eq!(
        lines,
        [
            "sysctl net.ipv4.tcp_rmem of this machine: 4096 131072 6291456 -> 4096 131072 62914560",
            "file /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor of this machine: powersave -> performance",
            "file /sys/class/net/eth0/queues/rx-0/rps_cpus of this machine: 00000000,00000000 -> c",
            "CPUs of interrupt 24 (eth0-rx-0): 0-3 -> 2",
        ]
    );
}

/// Contents of journals, which later versions must be able to read.
#[test]
fn a_change_is_written_down_with_the_value_from_before() {
    let steps = plan(&mut Machine::new().host());
    let texts: Vec<String> = steps.iter().map(|step| serde_json::to_string(step).unwrap()).collect();
    assert_eq!(
        texts,
        [
            r#"{"change":"sysctl","key":"net/ipv4/tcp_rmem","value":"4096 131072 62914560","was":"4096\t131072\t6291456"}"#,
            r#"{"change":"sysfs","path":"devices/system/cpu/cpu0/cpufreq/scaling_governor","value":"performance","was":"powersave"}"#,
            r#"{"change":"sysfs","path":"class/net/eth0/queues/rx-0/rps_cpus","link":"2","value":"c","was":"00000000,00000000"}"#,
            r#"{"change":"irq","irq":24,"used_for":"eth0-rx-0","value":"2","was":"0-3"}"#,
        ]
    );
    let read: Vec<Change> = texts.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    assert_eq!(read, steps);
}

#[test]
fn a_value_that_another_program_changed_after_the_plan_is_not_overwritten() {
    let machine = Machine::new();
    let steps = plan(&mut machine.host());
    machine.put(RPS, "00000000,0000000f");
    let mut journal = machine.create();
    let error = journal.execute(steps, &mut machine.host()).expect_err("the third value is another");
    assert_eq!(
        error.to_string(),
        "file /sys/class/net/eth0/queues/rx-0/rps_cpus of this machine: 00000000,00000000 -> c: \
         file /sys/class/net/eth0/queues/rx-0/rps_cpus of this machine was 00000000,00000000 when the change was planned, and \
         is 00000000,0000000f now: another program has changed it; plan again"
    );
    assert!(matches!(error.cause, StepCause::Apply(ChangeError::Meanwhile { .. })));
    assert_eq!(machine.values(), ["4096\t131072\t6291456", "powersave", "00000000,0000000f", "0-3"]);
    assert_eq!(journal.batches().map(|batch| batch.state()).collect::<Vec<_>>(), [BatchState::Undone]);
    journal.undo(&mut machine.host()).unwrap();
}

#[test]
fn a_value_that_another_program_changed_since_is_reported_and_stays() {
    let machine = Machine::new();
    let mut journal = machine.create();
    let steps = plan(&mut machine.host());
    journal.execute(steps, &mut machine.host()).unwrap();
    machine.put(GOVERNOR, "schedutil\n");
    machine.put(IRQ, "0-3\n");
    let report = journal.undo(&mut machine.host()).unwrap();
    let step = "file /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor of this machine: powersave -> performance";
    assert_eq!((report.reverted, report.already_gone), (2, 1));
    assert_eq!(report.foreign, [ForeignChange { step: step.to_owned(), found: "schedutil".to_owned() }]);
    assert_eq!(machine.values(), ["4096\t131072\t6291456", "schedutil", "00000000,00000000", "0-3"]);
}

#[test]
fn an_object_that_no_longer_exists_has_no_change() {
    let machine = Machine::new();
    let mut journal = machine.create();
    let steps = plan(&mut machine.host());
    journal.execute(steps, &mut machine.host()).unwrap();
    // Another link gets the name, and another device the interrupt; both already have the new values.
    machine.put(IFINDEX, "3\n");
    machine.put(ACTIONS, "nvme0q1\n");
    fs::remove_file(machine.path(RMEM)).unwrap();
    let report = journal.undo(&mut machine.host()).unwrap();
    assert_eq!((report.reverted, report.already_gone), (1, 3));
    assert_eq!([machine.get(RPS), machine.get(IRQ)], ["c", "2"]);
}

#[test]
fn after_a_reboot_nothing_is_taken_for_ours() {
    let machine = Machine::new();
    fs::create_dir_all(machine.path(BOOT_ID).parent().unwrap()).unwrap();
    machine.put(BOOT_ID, "11111111-2222\n");
    let mut journal = machine.create();
    let steps = plan(&mut machine.host());
    journal.execute(steps, &mut machine.host()).unwrap();
    // The reboot reset two values. The other two were set to the same by someone else.
    machine.put(RMEM, "4096\t131072\t6291456\n");
    machine.put(RPS, "00000000,00000000\n");
    machine.put(BOOT_ID, "33333333-4444\n");
    let report = journal.undo(&mut machine.host()).unwrap();
    assert_eq!((report.reverted, report.already_gone, report.foreign.len()), (0, 2, 2));
    assert_eq!(machine.values(), ["4096\t131072\t6291456", "performance", "00000000,00000000", "2"]);
}

#[test]
fn a_change_of_a_missing_object_cannot_be_planned() {
    let machine = Machine::new();
    let host = &mut machine.host();
    let text = |planned: Result<Change, ChangeError>| planned.expect_err("it is not there").to_string();
    let key = "net.ipv4.no_such".parse().unwrap();
    assert_eq!(text(Change::plan_sysctl(host, None, key, "1")), "cannot find sysctl net.ipv4.no_such of this machine");
    assert_eq!(
        text(Change::plan_sysfs(host, None, "class/net/eth9/mtu", "1")),
        "cannot find file /sys/class/net/eth9/mtu of this machine"
    );
    assert_eq!(text(Change::plan_irq(host, 99, &"0".parse().unwrap())), "cannot find CPUs of interrupt 99");
}

#[test]
fn no_path_leads_out_of_sysfs() {
    let machine = Machine::new();
    machine.put("secret", "precious");
    symlink("../../../secret", machine.path("sys/class/net/out")).unwrap();
    let host = &mut machine.host();
    for (path, why) in [
        ("../secret", "empty, `.` or `..`"),
        ("/etc/hostname", "omit the leading /sys/"),
        ("class/net/out", "leads out of the kernel's tree"),
        ("class/net/eth0/../../../../secret", "empty, `.` or `..`"),
    ] {
        let error = Change::plan_sysfs(host, None, path, "gone").expect_err(path).to_string();
        assert!(error.contains(why), "{path}: {error}");
    }
    // As written into a journal by hand.
    let text = r#"{"change":"sysfs","path":"../secret","value":"gone","was":"precious"}"#;
    let change: Change = serde_json::from_str(text).unwrap();
    assert!(change.apply(host).is_err() && change.undo(None, host).is_err());
    assert_eq!(machine.get("secret"), "precious");
}

#[test]
fn a_batch_is_not_undone_before_a_later_one_that_depends_on_it() {
    let machine = Machine::new();
    let host = &mut machine.host();
    let mut journal = machine.create();
    let mut batches = Vec::new();
    for value in ["4096 131072 10000000", "4096 131072 20000000"] {
        let steps = vec![rmem(host, value)];
        batches.push(journal.execute(steps, host).unwrap());
    }
    let error = journal.undo_batch(batches[0], host).expect_err("the second batch stands on it").to_string();
    assert!(error.contains("undo batch 2 first") && error.contains("net.ipv4.tcp_rmem"), "{error}");
    for batch in batches.into_iter().rev() {
        assert_eq!(journal.undo_batch(batch, host).unwrap().reverted, 1);
    }
    assert_eq!(machine.get(RMEM), "4096\t131072\t6291456");
}

/// Copies a directory with small files.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => copy(&path, &target),
            kind if kind.is_symlink() => symlink(fs::read_link(&path).unwrap(), &target).unwrap(),
            _ => drop(fs::copy(&path, &target).unwrap()),
        }
    }
}

/// Emulates a kill before or after each write, with the lines of the journal written until then.
#[test]
fn a_kill_between_any_two_lines_is_undone() {
    let machine = Machine::new();
    let before = machine.values();
    let steps = plan(&mut machine.host());
    let mut journal = machine.create();
    journal.execute(steps.clone(), &mut machine.host()).unwrap();
    let file = fs::read(machine.path("journals/tuning.journal")).unwrap();
    let lines: Vec<&[u8]> = file.split_inclusive(|byte| *byte == b'\n').collect();
    assert_eq!(lines.len(), 2 + 2 * steps.len());
    for (done, kept) in (0..=steps.len()).flat_map(|done| [(done, done), (done, done.saturating_sub(1))]) {
        let after = Machine::new();
        fs::remove_dir_all(after.root.path().join("proc")).unwrap();
        fs::remove_dir_all(after.root.path().join("sys")).unwrap();
        let fresh = Machine::new();
        copy(&fresh.path("proc"), &after.path("proc"));
        copy(&fresh.path("sys"), &after.path("sys"));
        let host = &mut after.host();
        steps[..done].iter().for_each(|step| drop(step.apply(host).unwrap()));
        fs::create_dir_all(after.path("journals")).unwrap();
        fs::write(after.path("journals/tuning.journal"), lines[..2 + steps.len() + kept].concat()).unwrap();
        let report = after.open().undo(host).unwrap();
        assert_eq!((report.reverted, report.already_gone), (done, steps.len() - done));
        assert_eq!(after.values(), before, "{done} done, {kept} written");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever another program writes, and whenever, its value stays, and vtax's is reverted.
    #[test]
    fn a_value_of_another_program_is_never_overwritten(
        others in proptest::collection::vec((0..4_usize, "[1-9]"), 0..6),
        early in 0..6_usize,
    ) {
        let machine = Machine::new();
        let before = machine.values();
        let steps = plan(&mut machine.host());
        let mut expected = before.clone();
        let mut interfere = |others: &[(usize, String)]| {
            for (index, value) in others {
                // Two values can't be distinguished from ours, nor from the previous ones.
                let value = format!("{value}0");
                machine.put(SETTINGS[*index], &value);
                expected[*index] = value;
            }
        };
        let (first, second) = others.split_at(early.min(others.len()));
        interfere(first);
        let mut journal = machine.create();
        let done = journal.execute(steps, &mut machine.host());
        prop_assert_eq!(done.is_ok(), first.is_empty());
        interfere(second);
        let report = journal.undo(&mut machine.host()).unwrap();
        prop_assert_eq!(machine.values(), expected);
        // A failed batch is undone immediately, and isn't part of this report.
        let replaced: BTreeSet<usize> = second.iter().map(|(index, _)| *index).filter(|_| first.is_empty()).collect();
        prop_assert_eq!(report.foreign.len(), replaced.len());
    }
}

#[test]
fn undoing_twice_changes_nothing_more() {
    let machine = Machine::new();
    let host = &mut machine.host();
    let change = rmem(host, "1 2 3");
    let receipt = change.apply(host).unwrap();
    assert_eq!(change.undo(Some(&receipt), host).unwrap(), Undone::Reverted);
    assert_eq!(change.undo(Some(&receipt), host).unwrap(), Undone::AlreadyGone);
    assert!(!change.changes_nothing() && rmem(host, "4096 131072 6291456").changes_nothing());
}
