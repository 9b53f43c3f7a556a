//! Changes that lines in vtax's own files persist across a reboot.

use vtax_change::{KeptLine, OwnFile};

use super::*;

const HEADER: &str = "# Written by `vtax tune apply --persist`; `vtax tune revert` removes its lines.\n";
const DRAFT: &str = "etc/sysctl.d/.90-vtax.conf.new";

fn machine() -> Machine {
    let machine = Machine::new();
    fs::create_dir_all(machine.root.join("etc/sysctl.d")).unwrap();
    machine
}

fn place(machine: &Machine) -> PathBuf {
    machine.root.join("etc/sysctl.d/90-vtax.conf")
}

/// Returns the contents of our file after its first line.
fn lines(machine: &Machine) -> Option<Vec<String>> {
    let text = fs::read_to_string(place(machine)).ok()?;
    Some(text.strip_prefix(HEADER).expect("our first line").lines().map(str::to_owned).collect())
}

fn add(machine: &Machine, line: &str) {
    let text = fs::read_to_string(place(machine)).unwrap();
    fs::write(place(machine), format!("{text}{line}\n")).unwrap();
}

fn kept(journal: &mut ChangeJournal, change: &Change, key: &str, value: &str) -> Change {
    let line = KeptLine { file: OwnFile::Sysctl, before: format!("{key} = "), after: String::new() };
    Change::plan_kept(journal.host(), line, value, change.clone()).unwrap()
}

/// Returns a change and the line that persists it.
fn both(journal: &mut ChangeJournal, key: &str, value: &str) -> Vec<Change> {
    let change = sysctl(journal, key, value);
    let line = kept(journal, &change, key, value);
    vec![change, line]
}

fn apply(machine: &Machine, key: &str, value: &str) -> vtax_journal::BatchId {
    let mut journal = machine.start();
    let changes = both(&mut journal, key, value);
    journal.apply(changes).unwrap()
}

/// Emulates a reboot: the kernel has its own values, and then those of vtax's file.
fn restart(machine: &Machine, boot: &str) {
    machine.put("kernel/random/boot_id", boot);
    machine.put("net/core/rmem_max", "212992");
    machine.put("net/core/wmem_max", "212992");
    for line in lines(machine).unwrap_or_default() {
        let (key, value) = line.split_once(" = ").unwrap();
        machine.put(&key.replace('.', "/"), value);
    }
}

#[test]
fn a_line_is_added_and_removed_with_its_change() {
    let machine = machine();
    let first = apply(&machine, "net.core.rmem_max", "1000000");
    assert_eq!(fs::read_to_string(place(&machine)).unwrap(), format!("{HEADER}net.core.rmem_max = 1000000\n"));
    let second = apply(&machine, "net.core.wmem_max", "2000000");
    assert_eq!(lines(&machine).unwrap(), ["net.core.rmem_max = 1000000", "net.core.wmem_max = 2000000"]);
    let mut past = machine.past();
    assert_eq!(past.revert(first).unwrap().reverted, 2);
    assert_eq!(lines(&machine).unwrap(), ["net.core.wmem_max = 2000000"]);
    assert_eq!(past.revert(second).unwrap().reverted, 2);
    past.close().unwrap();
    assert!(!place(&machine).exists());
    assert_eq!(machine.values(), ["212992", "212992"]);
}

#[test]
fn a_line_that_is_changed_again_gets_its_earlier_value_back() {
    let machine = machine();
    apply(&machine, "net.core.rmem_max", "1000000");
    let second = apply(&machine, "net.core.rmem_max", "2000000");
    assert_eq!(lines(&machine).unwrap(), ["net.core.rmem_max = 2000000"]);
    machine.past().revert(second).unwrap();
    assert_eq!(lines(&machine).unwrap(), ["net.core.rmem_max = 1000000"]);
}

/// With an empty journal, the lines once stayed forever.
#[test]
fn lines_are_found_by_their_files_if_the_journal_is_empty() {
    let machine = machine();
    apply(&machine, "net.core.rmem_max", "1000000");
    add(&machine, "# mine");
    fs::write(machine.file(), "").unwrap();
    let forced = ForcedRevert::carry_out(&machine.directory(), machine.host()).unwrap();
    let file = "/etc/sysctl.d/90-vtax.conf: ";
    assert_eq!(forced.lines, [format!("{file}net.core.rmem_max = 1000000"), format!("{file}# mine")]);
    assert!(!place(&machine).exists() && forced.kept.is_some());
    // Its previous value is lost with the journal.
    assert_eq!(machine.values()[0], "1000000");
}

#[test]
fn lines_of_another_program_in_the_file_stay() {
    let machine = machine();
    apply(&machine, "net.core.rmem_max", "1000000");
    apply(&machine, "net.core.wmem_max", "2000000");
    add(&machine, "# mine");
    let text = fs::read_to_string(place(&machine)).unwrap().replace("2000000", "3000000");
    fs::write(place(&machine), text).unwrap();
    let report = machine.past().revert_all().unwrap();
    let foreign: Vec<_> = report.foreign.iter().map(|left| (left.step.as_str(), left.found.as_str())).collect();
    let line = "line `net.core.wmem_max` of /etc/sysctl.d/90-vtax.conf: (no line) -> 2000000";
    assert_eq!((report.reverted, foreign), (3, vec![(line, "3000000")]));
    assert_eq!(lines(&machine).unwrap(), ["net.core.wmem_max = 3000000", "# mine"]);
}

#[test]
fn a_restart_leaves_what_is_kept_and_revert_takes_line_and_value_back() {
    let machine = machine();
    apply(&machine, "net.core.rmem_max", "1000000");
    let mut journal = machine.start();
    let forgotten = sysctl(&mut journal, "net.core.wmem_max", "2000000");
    journal.apply(vec![forgotten]).unwrap();
    drop(journal);
    restart(&machine, "33333333-4444");
    assert_eq!(machine.values(), ["1000000", "212992"]);
    let seen = ChangesSnapshot::read(&machine.directory(), &mut machine.host()).unwrap().expect("a journal");
    assert!(seen.rebooted);

    let (mut journal, recovered) = ChangeJournal::start(&machine.directory(), machine.host()).unwrap();
    let report = recovered.before_reboot.expect("the change that nothing kept");
    assert_eq!((report.already_gone, report.foreign.len(), recovered.interrupted.len()), (1, 0, 0));
    assert_eq!(lines(&machine).unwrap(), ["net.core.rmem_max = 1000000"]);
    // Further changes are of this boot.
    let changes = both(&mut journal, "net.core.wmem_max", "5000000");
    let third = journal.apply(changes).unwrap();
    assert_eq!(third.to_string(), "3");
    drop(journal);
    assert_eq!(machine.past().revert(third).unwrap().reverted, 2);
    assert_eq!(machine.values(), ["1000000", "212992"]);

    let report = machine.past().revert_all().unwrap();
    assert_eq!((report.reverted, report.foreign.len()), (1, 0), "{report:?}");
    assert_eq!((machine.values(), place(&machine).exists()), (["212992", "212992"].map(str::to_owned), false));
}

/// As after `vtax tune prove`: the change is made first, and its line is added later.
#[test]
fn a_separate_line_persists_an_earlier_change_and_is_removed_before_it() {
    let machine = machine();
    let mut journal = machine.start();
    let change = sysctl(&mut journal, "net.core.rmem_max", "1000000");
    let first = journal.apply(vec![change.clone()]).unwrap();
    let line = kept(&mut journal, &change, "net.core.rmem_max", "1000000");
    journal.apply(vec![line]).unwrap();
    drop(journal);
    let error = machine.past().revert(first).expect_err("the line would restore it").to_string();
    assert!(error.contains("undo batch 2 first"), "{error}");
    restart(&machine, "33333333-4444");
    let (journal, recovered) = ChangeJournal::start(&machine.directory(), machine.host()).unwrap();
    assert_eq!(recovered.before_reboot, None);
    drop(journal);
    let report = machine.past().revert_all().unwrap();
    assert_eq!((report.reverted, report.already_gone, report.foreign.len()), (1, 1, 0));
    assert_eq!((machine.values()[0].as_str(), place(&machine).exists()), ("212992", false));
}

/// Another program may have set the value again. vtax's line is removed, and the value stays.
#[test]
fn after_a_restart_a_value_that_is_not_that_of_the_line_stays() {
    let machine = machine();
    apply(&machine, "net.core.rmem_max", "1000000");
    restart(&machine, "33333333-4444");
    machine.put("net/core/rmem_max", "77");
    let report = machine.past().revert_all().unwrap();
    assert_eq!((report.reverted, report.foreign.len()), (1, 1));
    assert_eq!((machine.values()[0].as_str(), place(&machine).exists()), ("77", false));
}

/// Someone has removed the file, so the value doesn't come from it.
#[test]
fn after_a_restart_a_value_without_its_line_stays() {
    let machine = machine();
    apply(&machine, "net.core.rmem_max", "1000000");
    fs::remove_file(place(&machine)).unwrap();
    restart(&machine, "33333333-4444");
    machine.put("net/core/rmem_max", "1000000");
    let report = machine.past().revert_all().unwrap();
    assert_eq!((report.reverted, report.already_gone, report.foreign.len()), (0, 1, 1));
    assert_eq!(machine.values()[0], "1000000");
}

/// Tries each possible content of the disk: the old file, with or without a draft of the new one, and the new file.
#[test]
fn a_kill_at_any_point_is_undone() {
    let machine = machine();
    apply(&machine, "net.core.wmem_max", "2000000");
    let mut journal = machine.start();
    let old = fs::read(place(&machine)).unwrap();
    let before = fs::read(machine.file()).unwrap();
    let changes = both(&mut journal, "net.core.rmem_max", "1000000");
    journal.try_out(changes).unwrap();
    drop(journal);
    let (new, after) = (fs::read(place(&machine)).unwrap(), fs::read(machine.file()).unwrap());
    // Two intents, and a line for each when it is done.
    let added: Vec<&[u8]> = after[before.len()..].split_inclusive(|byte| *byte == b'\n').collect();
    assert_eq!(added.len(), 4);
    for rebooted in [false, true] {
        for (written, value, file, draft) in [
            (2, "212992", &old, false),
            (2, "1000000", &old, false),
            (3, "1000000", &old, true),
            (3, "1000000", &new, false),
            (4, "1000000", &new, false),
        ] {
            fs::write(machine.file(), [&before, &added[..written].concat()[..]].concat()).unwrap();
            fs::write(place(&machine), file).unwrap();
            if draft {
                fs::write(machine.root.join(DRAFT), "half a li").unwrap();
            }
            machine.put("net/core/rmem_max", value);
            machine.put("kernel/random/boot_id", "11111111-2222");
            if rebooted {
                restart(&machine, "33333333-4444");
            }
            let (journal, recovered) = ChangeJournal::start(&machine.directory(), machine.host()).unwrap();
            let when = format!("{written} written, {value}, rebooted: {rebooted}");
            assert_eq!((recovered.interrupted.len(), recovered.before_reboot), (1, None), "{when}");
            assert_eq!(
                (machine.values()[0].as_str(), fs::read(place(&machine)).unwrap()),
                ("212992", old.clone()),
                "{when}"
            );
            drop(journal);
        }
    }
    machine.past().revert_all().unwrap();
    assert!(!place(&machine).exists() && !machine.root.join(DRAFT).exists());
}

#[test]
fn a_confirmed_change_is_kept_as_a_part_of_it_or_not_at_all() {
    let machine = machine();
    for obstacle in [false, true] {
        let mut journal = machine.start();
        let change = sysctl(&mut journal, "net.core.rmem_max", "1000000");
        let batch = journal.try_out(vec![change.clone()]).unwrap();
        assert_eq!(lines(&machine), None);
        let line = kept(&mut journal, &change, "net.core.rmem_max", "1000000");
        if obstacle {
            fs::create_dir(place(&machine)).unwrap();
            let error = journal.keep_with(batch, vec![line]).expect_err("a directory is in the way").to_string();
            assert!(error.contains("/etc/sysctl.d/90-vtax.conf"), "{error}");
            assert_eq!(machine.values()[0], "212992");
        } else {
            journal.keep_with(batch, vec![line]).unwrap();
            assert_eq!(lines(&machine).unwrap(), ["net.core.rmem_max = 1000000"]);
            drop(journal);
            assert_eq!(machine.past().revert(batch).unwrap().reverted, 2);
            assert!(!place(&machine).exists());
        }
    }
}

#[test]
fn a_file_of_another_program_and_a_directory_that_nothing_reads_are_obstacles() {
    let machine = machine();
    let obstacle = |file: OwnFile| file.obstacle(&machine.host()).unwrap();
    assert_eq!(obstacle(OwnFile::Sysctl), None);
    assert!(obstacle(OwnFile::Udev).unwrap().contains("/etc/udev/rules.d"));
    fs::write(place(&machine), "net.core.rmem_max = 5\n").unwrap();
    assert!(obstacle(OwnFile::Sysctl).unwrap().contains("was not written by vtax"));
    fs::remove_file(place(&machine)).unwrap();
    std::os::unix::fs::symlink("/dev/null", place(&machine)).unwrap();
    assert!(OwnFile::Sysctl.obstacle(&machine.host()).is_err());
}

/// As written into a journal by hand.
#[test]
fn no_second_line_is_written() {
    let machine = machine();
    let mut journal = machine.start();
    let change = sysctl(&mut journal, "net.core.rmem_max", "1000000");
    let line = kept(&mut journal, &change, "net.core.rmem_max", "1\nkernel.panic = 1");
    let error = journal.apply(vec![line]).expect_err("two lines").to_string();
    assert!(error.contains("control character"), "{error}");
    assert!(!place(&machine).exists());
}
