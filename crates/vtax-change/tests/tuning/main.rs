//! The tuning journal, on an invented machine: it survives its process and reboots, and one process has it at a time.

mod kept;

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use vtax_change::{Change, ChangeJournal, ChangeJournalError, ChangesSnapshot, ForcedRevert, HostAccess, PastChanges};
use vtax_journal::{BatchState, JournalError, JournalState, UndoBatchError};

/// Environment variables of a process that tunes for another test: the machine's root, and the task there.
const ROOT: &str = "VTAX_TEST_ROOT";
const DEED: &str = "VTAX_TEST_DEED";
/// Time for which a process waits to be killed.
const PATIENCE: Duration = Duration::from_secs(60);

struct Machine {
    root: PathBuf,
    _folder: Option<tempfile::TempDir>,
    /// A new process has copies of all open files, and so of the locks of other tests, until it executes its program.
    _alone: Option<MutexGuard<'static, ()>>,
}

static ONE_TEST_AT_A_TIME: Mutex<()> = Mutex::new(());

impl Machine {
    fn new() -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let alone = ONE_TEST_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let machine = Machine { root: folder.path().to_owned(), _folder: Some(folder), _alone: Some(alone) };
        fs::create_dir_all(machine.root.join("proc/sys/net/core")).unwrap();
        fs::create_dir_all(machine.root.join("proc/sys/kernel/random")).unwrap();
        fs::create_dir_all(machine.root.join("sys")).unwrap();
        machine.put("net/core/rmem_max", "212992");
        machine.put("net/core/wmem_max", "212992");
        machine.put("kernel/random/boot_id", "11111111-2222");
        machine
    }

    fn at(root: &Path) -> Machine {
        Machine { root: root.to_owned(), _folder: None, _alone: None }
    }

    fn put(&self, key: &str, value: &str) {
        fs::write(self.root.join("proc/sys").join(key), format!("{value}\n")).unwrap();
    }

    fn values(&self) -> [String; 2] {
        let value = |key: &str| fs::read_to_string(self.root.join("proc/sys/net/core").join(key)).unwrap();
        ["rmem_max", "wmem_max"].map(|key| value(key).trim().to_owned())
    }

    fn host(&self) -> HostAccess {
        HostAccess::below(&self.root).unwrap()
    }

    fn directory(&self) -> PathBuf {
        self.root.join("tuning")
    }

    fn file(&self) -> PathBuf {
        self.directory().join("tuning.journal")
    }

    fn start(&self) -> ChangeJournal {
        let (journal, recovered) = ChangeJournal::start(&self.directory(), self.host()).unwrap();
        assert!(recovered.before_reboot.is_none() && recovered.interrupted.is_empty(), "{recovered:?}");
        journal
    }

    fn past(&self) -> PastChanges {
        PastChanges::open(&self.directory(), self.host()).unwrap().expect("there is a journal")
    }

    /// Starts another process. Returns when it has completed its task.
    fn process(&self, deed: &str) -> Process {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "another_process", "--nocapture"])
            .envs([(ROOT, self.root.as_os_str()), (DEED, deed.as_ref())])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let done = lines.map_while(Result::ok).any(|line| line.contains("the deed is done"));
        assert!(done, "it has ended");
        Process(child)
    }
}

/// Killed when it is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

fn rmem(journal: &mut ChangeJournal, value: &str) -> Vec<Change> {
    vec![sysctl(journal, "net.core.rmem_max", value)]
}

fn sysctl(journal: &mut ChangeJournal, key: &str, value: &str) -> Change {
    Change::plan_sysctl(journal.host(), None, key.parse().unwrap(), value).unwrap()
}

/// Not a test by itself: the others start it in separate processes.
#[test]
fn another_process() {
    let (Some(root), Ok(deed)) = (env::var_os(ROOT), env::var(DEED)) else { return };
    let machine = Machine::at(Path::new(&root));
    let (mut journal, _) = ChangeJournal::start(&machine.directory(), machine.host()).unwrap();
    let changes = rmem(&mut journal, "1000000");
    match deed.as_str() {
        "hold" => {}
        "apply" => drop(journal.apply(changes).unwrap()),
        "try" => drop(journal.try_out(changes).unwrap()),
        _ => panic!("{deed}"),
    }
    println!("the deed is done");
    thread::sleep(PATIENCE);
}

#[test]
fn two_processes_do_not_tune_simultaneously() {
    let machine = Machine::new();
    let process = machine.process("hold");
    let error = ChangeJournal::start(&machine.directory(), machine.host()).expect_err("the other one has it");
    assert!(matches!(&error, ChangeJournalError::Journal(JournalError::Busy { by: Some(_), .. })), "{error:?}");
    let text = error.to_string();
    let pid = process.0.id();
    assert!(
        text.starts_with(&format!("`tuning` is in use by pid {pid}, `")) && text.contains("another_process"),
        "{text}"
    );
    assert!(text.ends_with("wait until it exits, or stop it"), "{text}");
    assert!(PastChanges::open(&machine.directory(), machine.host()).is_err());
    // Reading is allowed.
    let seen = ChangesSnapshot::read(&machine.directory(), &mut machine.host()).unwrap().expect("a journal");
    assert_eq!((seen.snapshot.state, seen.rebooted), (JournalState::Alive, false));
    drop(process);
    machine.start();
}

/// The process that created the journal has ended long ago, but was once named as the one to end.
#[test]
fn the_process_that_has_the_journal_is_named_and_not_the_one_that_made_it() {
    let machine = Machine::new();
    drop(machine.process("apply"));
    let process = machine.process("hold");
    let error = PastChanges::open(&machine.directory(), machine.host()).expect_err("the other one has it").to_string();
    assert!(error.contains(&format!("pid {}", process.0.id())), "{error}");
}

#[test]
fn applied_changes_outlive_their_process_and_another_one_reverts_them() {
    let machine = Machine::new();
    drop(machine.process("apply"));
    assert_eq!(machine.values(), ["1000000", "212992"]);
    let mut journal = machine.start();
    let second = sysctl(&mut journal, "net.core.wmem_max", "2000000");
    let second = journal.apply(vec![second]).unwrap();
    drop(journal);
    let mut past = machine.past();
    let lines: Vec<String> =
        past.batches().flat_map(|batch| batch.records).map(|record| record.step.to_string()).collect();
    assert_eq!(
        lines,
        [
            "sysctl net.core.rmem_max of this machine: 212992 -> 1000000",
            "sysctl net.core.wmem_max of this machine: 212992 -> 2000000"
        ]
    );
    assert_eq!(past.revert(second).unwrap().reverted, 1);
    assert_eq!(machine.values(), ["1000000", "212992"]);
    past.close().unwrap();
    assert!(machine.file().exists(), "a batch is left");
    let report = machine.past().revert_all().unwrap();
    assert_eq!((report.reverted, machine.values()), (1, ["212992", "212992"].map(str::to_owned)));
    assert!(!machine.file().exists());
    assert!(PastChanges::open(&machine.directory(), machine.host()).unwrap().is_none());
}

#[test]
fn trial_changes_are_reverted_after_a_kill() {
    let machine = Machine::new();
    let mut journal = machine.start();
    let kept = sysctl(&mut journal, "net.core.wmem_max", "2000000");
    journal.apply(vec![kept]).unwrap();
    drop(journal);
    drop(machine.process("try"));
    assert_eq!(machine.values(), ["1000000", "2000000"]);
    let (journal, recovered) = ChangeJournal::start(&machine.directory(), machine.host()).unwrap();
    let [(batch, report)] = &recovered.interrupted[..] else { panic!("{recovered:?}") };
    assert_eq!((batch.to_string().as_str(), report.reverted), ("2", 1));
    assert_eq!(machine.values(), ["212992", "2000000"]);
    let states: Vec<_> = journal.batches().map(|batch| (batch.state(), batch.is_abandoned())).collect();
    assert_eq!(states, [(BatchState::Done, false), (BatchState::Undone, false)]);
}

#[test]
fn reverted_trial_changes_leave_no_journal() {
    let machine = Machine::new();
    let mut journal = machine.start();
    for value in ["1000000", "2000000", "1000000"] {
        let changes = rmem(&mut journal, value);
        let batch = journal.try_out(changes).unwrap();
        assert_eq!(machine.values()[0], value);
        assert_eq!(journal.revert(batch).unwrap().reverted, 1);
        assert_eq!(machine.values()[0], "212992");
    }
    journal.close().unwrap();
    assert!(!machine.file().exists());
}

#[test]
fn a_change_that_fails_leaves_the_earlier_ones() {
    let machine = Machine::new();
    let mut journal = machine.start();
    let first = rmem(&mut journal, "1000000");
    journal.apply(first).unwrap();
    let second = vec![
        sysctl(&mut journal, "net.core.wmem_max", "2000000"),
        sysctl(&mut journal, "net.core.rmem_max", "3000000"),
    ];
    machine.put("net/core/rmem_max", "77");
    let error = journal.apply(second).expect_err("the value is another now").to_string();
    assert!(
        error.starts_with("the changes were not made: sysctl net.core.rmem_max of this machine: 1000000 -> 3000000: "),
        "{error}"
    );
    assert_eq!(machine.values(), ["77", "212992"]);
    let report = machine_report(journal, &machine);
    assert_eq!(report, ["sysctl net.core.rmem_max of this machine: 212992 -> 1000000 found 77"]);
}

/// Reverts everything, and lists the values that were someone else's.
fn machine_report(journal: ChangeJournal, machine: &Machine) -> Vec<String> {
    drop(journal);
    let report = machine.past().revert_all().unwrap();
    report.foreign.iter().map(|foreign| format!("{} found {}", foreign.step, foreign.found)).collect()
}

#[test]
fn after_a_reboot_the_journal_ends_and_what_is_there_stays() {
    let machine = Machine::new();
    let mut journal = machine.start();
    let changes = vec![
        sysctl(&mut journal, "net.core.rmem_max", "1000000"),
        sysctl(&mut journal, "net.core.wmem_max", "2000000"),
    ];
    journal.apply(changes).unwrap();
    drop(journal);
    // At boot, one setting has the kernel's default, and a sysctl.conf sets the other.
    machine.put("kernel/random/boot_id", "33333333-4444");
    machine.put("net/core/wmem_max", "212992");
    let seen = ChangesSnapshot::read(&machine.directory(), &mut machine.host()).unwrap().expect("a journal");
    assert_eq!((seen.snapshot.state, seen.rebooted), (JournalState::Kept, true));
    let (mut journal, recovered) = ChangeJournal::start(&machine.directory(), machine.host()).unwrap();
    let report = recovered.before_reboot.expect("it is of the boot before");
    assert_eq!((report.reverted, report.already_gone, report.foreign.len()), (0, 1, 1));
    assert_eq!(machine.values(), ["1000000", "212992"]);
    // The new journal is of this boot.
    let changes = rmem(&mut journal, "5000000");
    journal.apply(changes).unwrap();
    drop(journal);
    assert_eq!(machine.past().revert_all().unwrap().reverted, 1);
    assert_eq!(machine.values(), ["1000000", "212992"]);
}

#[test]
fn a_damaged_journal_changes_nothing_and_tells_what_to_do() {
    let machine = Machine::new();
    let mut journal = machine.start();
    let changes = rmem(&mut journal, "1000000");
    journal.apply(changes).unwrap();
    drop(journal);
    let text = fs::read_to_string(machine.file()).unwrap().replacen("212992", "212993", 1);
    fs::write(machine.file(), &text).unwrap();
    for error in [
        PastChanges::open(&machine.directory(), machine.host()).map(drop).expect_err("damaged"),
        ChangeJournal::start(&machine.directory(), machine.host()).map(drop).expect_err("damaged"),
    ] {
        assert!(matches!(error, ChangeJournalError::Damaged(_)));
        let error = error.to_string();
        assert!(error.contains("tuning.journal:3: ") && error.contains("vtax tune revert --force"), "{error}");
    }
    assert_eq!((machine.values()[0].as_str(), fs::read_to_string(machine.file()).unwrap()), ("1000000", text));
}

/// `status` once reported no changes, and `revert` that everything was reverted, when the journal was empty or
/// truncated.
#[test]
fn a_journal_that_is_cut_at_any_byte_is_damage_to_every_reader_and_is_kept() {
    let machine = Machine::new();
    let mut journal = machine.start();
    let changes = [rmem(&mut journal, "1000000"), vec![sysctl(&mut journal, "net.core.wmem_max", "2000000")]].concat();
    journal.apply(changes).unwrap();
    drop(journal);
    let whole = fs::read(machine.file()).unwrap();
    for cut in 0..whole.len() {
        fs::write(machine.file(), &whole[..cut]).unwrap();
        let errors = [
            ChangesSnapshot::read(&machine.directory(), &mut machine.host()).map(drop),
            PastChanges::open(&machine.directory(), machine.host()).map(drop),
            ChangeJournal::start(&machine.directory(), machine.host()).map(drop),
        ];
        for error in errors {
            let error = error.expect_err("it is cut");
            assert!(matches!(error, ChangeJournalError::Damaged(_)), "{cut}: {error}");
        }
        assert_eq!(fs::read(machine.file()).unwrap(), whole[..cut]);
    }
    assert_eq!(machine.values(), ["1000000", "2000000"]);
}

#[test]
fn a_damaged_journal_is_reverted_by_force_as_far_as_readable_and_kept() {
    let lines_of = |text: &[u8]| text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>();
    for lost in 0..8 {
        let machine = Machine::new();
        let mut journal = machine.start();
        let wmem = sysctl(&mut journal, "net.core.wmem_max", "2000000");
        let changes = [rmem(&mut journal, "1000000"), vec![wmem]].concat();
        journal.apply(changes).unwrap();
        drop(journal);
        let mut lines = lines_of(&fs::read(machine.file()).unwrap());
        // The header, the seal, two intents, their completion and the confirmation.
        lines[lost.min(6)][12] ^= 1;
        let damaged = if lost == 7 { Vec::new() } else { lines.concat() };
        fs::write(machine.file(), &damaged).unwrap();
        let forced = ForcedRevert::carry_out(&machine.directory(), machine.host()).unwrap();
        let expected = match lost {
            2 => ["1000000", "212992"],
            3 => ["212992", "2000000"],
            7 => ["1000000", "2000000"],
            _ => ["212992", "212992"],
        };
        assert_eq!(machine.values(), expected, "line {lost}");
        let left = expected.iter().filter(|value| **value == "212992").count();
        assert_eq!((forced.report.reverted, forced.lines.len()), (left, 0));
        let (error, kept) = forced.kept.expect("it was damaged");
        assert!(error.is_damage() && kept.ends_with("tuning.damaged"), "{error}");
        assert_eq!(fs::read(kept).unwrap(), damaged);
        assert!(!machine.file().exists());
        let again = ForcedRevert::carry_out(&machine.directory(), machine.host()).unwrap();
        assert!(again.kept.is_none() && again.report.reverted == 0);
    }
}

#[test]
fn a_directory_that_others_can_write_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let machine = Machine::new();
    drop(machine.start());
    fs::set_permissions(machine.directory(), fs::Permissions::from_mode(0o777)).unwrap();
    let error = PastChanges::open(&machine.directory(), machine.host()).expect_err("anybody's").to_string();
    assert!(error.contains("is writable by others"), "{error}");
}

#[test]
fn a_batch_that_does_not_exist_is_named() {
    let machine = Machine::new();
    let mut journal = machine.start();
    let changes = rmem(&mut journal, "1000000");
    journal.apply(changes).unwrap();
    let error = journal.revert("7".parse().unwrap()).expect_err("there is one");
    assert!(matches!(&error, ChangeJournalError::Batch(UndoBatchError::Missing { .. })), "{error}");
    assert_eq!(error.to_string(), "`tuning` has no batch 7");
}
