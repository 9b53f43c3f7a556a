//! Whatever fails and wherever the process dies, recovery ends with an empty world.

use std::{collections::BTreeMap, fs, path::Path};

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use vtax_journal::{
    BatchState, Journal, JournalError, JournalState, Opened, Snapshot, Step, StepCause, UndoReport, Undone, checksum,
    scan,
};

/// Named boxes, some inside others, whose changes fail on demand.
#[derive(Debug, Default, Clone)]
struct World {
    /// Name of each box, with the box that contains it.
    boxes: BTreeMap<usize, Option<usize>>,
    fail_apply: Option<usize>,
    fail_read_back: Option<usize>,
    fail_undo: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Make {
    name: usize,
    within: Option<usize>,
}

#[derive(Debug, PartialEq, thiserror::Error)]
#[error("box {0} is stuck")]
struct Stuck(usize);

impl Step for Make {
    type World = World;
    type Receipt = String;
    type Error = Stuck;

    fn describe(&self) -> String {
        format!("make box {}", self.name)
    }

    fn apply(&self, world: &mut World) -> Result<String, Stuck> {
        // A failing step leaves half of its work.
        world.boxes.insert(self.name, self.within);
        if world.fail_apply == Some(self.name) { Err(Stuck(self.name)) } else { Ok(format!("serial {}", self.name)) }
    }

    fn read_back(&self, receipt: &String, world: &mut World) -> Result<(), Stuck> {
        assert_eq!(*receipt, format!("serial {}", self.name));
        if world.fail_read_back == Some(self.name) { Err(Stuck(self.name)) } else { Ok(()) }
    }

    fn undo(&self, receipt: Option<&String>, world: &mut World) -> Result<Undone, Stuck> {
        assert!(receipt.is_none_or(|receipt| *receipt == format!("serial {}", self.name)));
        if world.fail_undo.contains(&self.name) {
            return Err(Stuck(self.name));
        }
        if self.within.is_some() {
            return Ok(Undone::Contained);
        }
        world.boxes.retain(|_, within| *within != Some(self.name));
        Ok(if world.boxes.remove(&self.name).is_some() { Undone::Reverted } else { Undone::AlreadyGone })
    }
}

/// Returns a job with the outer boxes 0 and 3, which contain 1 and 2, and 4 and 5.
fn job() -> Vec<Make> {
    (0..6).map(|name| Make { name, within: (name % 3 != 0).then_some(name - name % 3) }).collect()
}

fn create(directory: &Path) -> Journal<Make> {
    Journal::create(directory, "rack", "test", &"the rack").expect("a free name")
}

/// Returns a journal whose job is done.
fn done(directory: &Path, world: &mut World) -> Journal<Make> {
    let mut journal = create(directory);
    journal.execute(job(), world).expect("nothing fails");
    journal
}

fn journals(directory: &Path) -> usize {
    scan::<Make>(directory).expect("a directory").len()
}

#[test]
fn a_job_is_done_and_undone() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::default();
    let journal = done(directory.path(), &mut world);
    assert_eq!(world.boxes.len(), 6);
    let tally = journal.undo(&mut world).expect("nothing fails");
    assert_eq!(tally, UndoReport { reverted: 2, contained: 4, ..UndoReport::default() });
    assert!(world.boxes.is_empty());
    assert_eq!(journals(directory.path()), 0);
}

#[test]
fn a_failure_at_any_step_leaves_nothing() {
    for name in 0..6 {
        for read_back in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let mut world = World::default();
            *(if read_back { &mut world.fail_read_back } else { &mut world.fail_apply }) = Some(name);
            let mut journal = create(directory.path());
            let error = journal.execute(job(), &mut world).expect_err("a step fails");
            assert_eq!((error.index, error.step.as_str()), (name, format!("make box {name}").as_str()));
            assert!(
                matches!((read_back, error.cause), (true, StepCause::ReadBack(Stuck(n))) | (false, StepCause::Apply(Stuck(n))) if n == name)
            );
            assert!(error.left.is_none());
            assert!(world.boxes.is_empty(), "{world:?}");
            assert!(journal.batches().all(|batch| batch.state() == BatchState::Undone));
            journal.undo(&mut world).expect("nothing is left");
            assert_eq!(journals(directory.path()), 0);
        }
    }
}

#[test]
fn a_failed_undo_is_reported_and_retried() {
    for fails in 0..6 {
        for stuck in (0..=fails).filter(|name| name % 3 == 0) {
            let directory = tempfile::tempdir().unwrap();
            let mut world = World { fail_apply: Some(fails), fail_undo: vec![stuck], ..World::default() };
            let mut journal = create(directory.path());
            let error = journal.execute(job(), &mut world).expect_err("a step fails");
            let left = error.left.expect("a step is stuck");
            drop(journal);
            assert_eq!(left.steps.iter().map(|left| &left.error).collect::<Vec<_>>(), [&Stuck(stuck)]);
            assert!(world.boxes.contains_key(&stuck));
            world.fail_undo.clear();
            Journal::<Make>::open(directory.path(), "rack").unwrap().undo(&mut world).expect("no longer stuck");
            assert!(world.boxes.is_empty(), "{world:?}");
            assert_eq!(journals(directory.path()), 0);
        }
    }
}

#[test]
fn every_undo_error_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World { fail_undo: vec![0, 2, 3], ..World::default() };
    let journal = done(directory.path(), &mut world);
    let errors = journal.undo(&mut world).expect_err("three are stuck");
    assert_eq!(
        errors.to_string(),
        concat!(
            "`rack` is not completely undone; could not undo \"make box 3\": box 3 is stuck; ",
            "could not undo \"make box 2\": box 2 is stuck; could not undo \"make box 0\": box 0 is stuck"
        )
    );
}

/// Returns the world after each line that the journal writes after the intents: six steps done, the line that marks the
/// beginning of the undo, then six steps undone.
fn history() -> Vec<World> {
    let mut world = World::default();
    let mut history = vec![world.clone()];
    for step in job() {
        step.apply(&mut world).unwrap();
        history.push(world.clone());
    }
    history.push(world.clone());
    for step in job().iter().rev() {
        step.undo(None, &mut world).unwrap();
        history.push(world.clone());
    }
    history
}

/// Returns the bytes of a journal whose job was done, and then undone except for the last step.
fn whole_file() -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World { fail_undo: vec![0], ..World::default() };
    let journal = done(directory.path(), &mut world);
    journal.undo(&mut world).expect_err("the file is needed");
    fs::read(directory.path().join("rack.journal")).unwrap()
}

/// Returns the same file as written by the first version.
fn former_file() -> Vec<u8> {
    let whole = whole_file();
    let lines = whole.split_inclusive(|byte| *byte == b'\n').map(|line| &line[9..]);
    let unsealed = lines.filter(|line| !line.starts_with(b"{\"sealed\""));
    let text = String::from_utf8(unsealed.collect::<Vec<_>>().concat()).unwrap();
    assert!(text.contains("{\"format\":4"), "{text}");
    text.replacen("{\"format\":4", "{\"format\":1", 1).into_bytes()
}

/// Returns the same file as written by the second or the third version.
fn later_file(format: u32) -> Vec<u8> {
    let format = format!("{{\"format\":{format}");
    let former = String::from_utf8(former_file()).unwrap().replacen("{\"format\":1", &format, 1);
    former.lines().flat_map(|line| checksum::line(line.as_bytes())).collect()
}

#[test]
fn a_kill_at_any_byte_is_recovered() {
    recover_at_any_byte(&whole_file(), 8);
    for bytes in [former_file(), later_file(2), later_file(3)] {
        recover_at_any_byte(&bytes, 1);
    }
}

/// Recovers from a kill at each byte. No killed process leaves a file with fewer lines than `sealed`.
fn recover_at_any_byte(bytes: &[u8], sealed: usize) {
    println!("a kill at {} bytes", bytes.len() + 1);
    let history = history();
    let before_first = if sealed > 1 { 8 } else { 7 };
    for cut in 0..=bytes.len() {
        let lines = bytes[..cut].iter().filter(|byte| **byte == b'\n').count();
        if lines < sealed {
            is_damaged(&bytes[..cut]);
            continue;
        }
        // The header and six intents come before the first action. An action comes before its line, so the
        // world may be one step ahead of the file.
        let ahead = match lines.checked_sub(before_first) {
            None => 0..=0,
            Some(done) => done..=(done + 1).min(history.len() - 1),
        };
        for moment in ahead {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join("rack.journal"), &bytes[..cut]).unwrap();
            let mut world = history[moment].clone();
            let found = Snapshot::<Make>::read(directory.path(), "rack").unwrap();
            assert_eq!(found.state, JournalState::Abandoned);
            Journal::<Make>::open(directory.path(), "rack").unwrap().undo(&mut world).unwrap();
            assert!(world.boxes.is_empty(), "cut at {cut}: {world:?}");
            assert_eq!(journals(directory.path()), 0);
        }
    }
}

/// Checks that every reader reports the damage, and that the file is set aside with its contents.
fn is_damaged(bytes: &[u8]) {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("rack.journal"), bytes).unwrap();
    assert_damaged(directory.path(), &format!("{} bytes", bytes.len()));
    assert_eq!(fs::read(directory.path().join("rack.damaged")).unwrap(), bytes);
}

fn assert_damaged(directory: &Path, what: &str) {
    let read = Snapshot::<Make>::read(directory, "rack").expect_err(what);
    let opened = Journal::<Make>::open(directory, "rack").expect_err(what);
    let taken = Journal::<Make>::create(directory, "rack", "test", &()).expect_err(what);
    for error in [read, opened, taken] {
        assert!(error.is_damage() && error.to_string().contains("rack.journal"), "{what}: {error}");
    }
    assert!(matches!(scan::<Make>(directory).unwrap().as_slice(), [(_, Err(error))] if error.is_damage()));
    match Journal::<Make>::open_any(directory, "rack").unwrap() {
        Opened::Damaged(damaged) => assert!(damaged.set_aside().unwrap().1.ends_with("rack.damaged")),
        Opened::Whole(_) => panic!("{what}: it is taken for a journal"),
    }
    assert_eq!(journals(directory), 0);
}

/// A confirmed batch has no line that may be lost: `clean` took a kept job for an abandoned one, and a batch whose
/// intents were truncated was silently undone in part.
#[test]
fn a_cut_at_any_byte_of_what_is_kept_is_damage() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::default();
    let mut journal = done(directory.path(), &mut world);
    journal.keep().unwrap();
    let more = (6..9).map(|name| Make { name, within: None }).collect();
    let batch = journal.execute(more, &mut world).unwrap();
    journal.keep().unwrap();
    let kept = fs::read(directory.path().join("rack.journal")).unwrap();
    journal.undo_batch(batch, &mut world).unwrap();
    for whole in [kept, fs::read(directory.path().join("rack.journal")).unwrap()] {
        println!("{} cuts", whole.len());
        (0..whole.len()).for_each(|cut| is_damaged(&whole[..cut]));
    }
}

/// Function that puts something at a path.
type Put<'a> = &'a dyn Fn(&Path);

#[test]
fn a_journal_that_is_not_a_regular_file_is_damaged() {
    use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
    let node = |path: &Path, kind, device| mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, device).unwrap();
    let kinds: [(&str, Put<'_>); 5] = [
        ("a FIFO", &|path| node(path, FileType::Fifo, 0)),
        ("a device", &|path| node(path, FileType::CharacterDevice, makedev(1, 5))),
        ("a directory", &|path| fs::create_dir(path).unwrap()),
        ("a link", &|path| std::os::unix::fs::symlink("/dev/zero", path).unwrap()),
        ("2 GiB", &|path| fs::File::create(path).unwrap().set_len(2 << 30).unwrap()),
    ];
    for (kind, put) in kinds {
        let directory = tempfile::tempdir().unwrap();
        put(&directory.path().join("rack.journal"));
        assert_damaged(directory.path(), kind);
        // The lock of the directory.
        fs::remove_file(directory.path().join(".lock")).unwrap();
        put(&directory.path().join(".lock"));
        match scan::<Make>(directory.path()) {
            Ok(found) => assert!(kind == "2 GiB" && found.is_empty(), "{kind}"),
            Err(error) => assert!(error.is_damage() && error.to_string().contains(".lock is "), "{kind}: {error}"),
        }
    }
}

/// Regression test: the job still counted as kept, and recovery did not continue.
#[test]
fn a_kept_job_whose_undoing_was_killed_is_abandoned() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rack.journal");
    let mut world = World { fail_undo: vec![0], ..World::default() };
    let mut journal = done(directory.path(), &mut world);
    journal.keep().unwrap();
    journal.undo(&mut world).expect_err("the file is needed");
    let bytes = fs::read(&file).unwrap();
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let begun = lines.iter().position(|line| line.ends_with(b" \"undoing\"\n")).expect("it says so");
    for whole in begun..lines.len() {
        fs::write(&file, lines[..whole].concat()).unwrap();
        let expected = if whole == begun { JournalState::Kept } else { JournalState::Abandoned };
        assert_eq!(Snapshot::<Make>::read(directory.path(), "rack").unwrap().state, expected, "{whole} lines");
    }
}

#[test]
fn new_lines_are_not_glued_to_a_torn_one() {
    for mut bytes in [whole_file(), later_file(3), later_file(2), former_file()] {
        let directory = tempfile::tempdir().unwrap();
        bytes.extend_from_slice(br#"{"undone":{"st"#);
        fs::write(directory.path().join("rack.journal"), bytes).unwrap();
        let mut world = World { fail_undo: vec![0], ..World::default() };
        for _ in 0..2 {
            let journal = Journal::<Make>::open(directory.path(), "rack").unwrap();
            journal.undo(&mut world).expect_err("still stuck");
        }
    }
}

#[test]
fn damage_is_named_by_file_and_line() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rack.journal");
    let text = String::from_utf8(whole_file()).unwrap();
    fs::write(&file, text.replacen("\"intend\"", "\"inbend\"", 3)).unwrap();
    let error = Journal::<Make>::open(directory.path(), "rack").expect_err("damaged");
    assert!(matches!(&error, JournalError::Corrupt { path, line: 3, .. } if *path == file), "{error}");
    let scanned = scan::<Make>(directory.path()).unwrap();
    assert!(matches!(scanned[..], [(_, Err(JournalError::Corrupt { line: 3, .. }))]));

    let header = text.lines().next().unwrap()[9..].replacen("{\"format\":4", "{\"format\":9", 1);
    fs::write(&file, checksum::line(header.as_bytes())).unwrap();
    let error = Journal::<Make>::open(directory.path(), "rack").expect_err("from the future");
    assert!(matches!(error, JournalError::Format { found: 9, .. }), "{error}");
}

/// A newer vtax has steps unknown to this one. Their objects may be in use, so the journal must not be mistaken for a
/// damaged one.
#[test]
fn a_line_that_another_version_wrote_isnt_damage() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rack.journal");
    let mut bytes = whole_file();
    bytes.extend(checksum::line(br#"{"intend":{"step":3,"what":{"melt":{"name":"web"}}}}"#));
    fs::write(&file, &bytes).unwrap();
    let last = bytes.iter().filter(|byte| **byte == b'\n').count();
    let is_named = |error: &JournalError| matches!(error, JournalError::OtherVersion { line, .. } if *line == last);
    let error = Journal::<Make>::open_any(directory.path(), "rack").expect_err("another version's");
    assert!(is_named(&error), "{error}");
    let taken = Journal::<Make>::create(directory.path(), "rack", "test", &()).expect_err("taken");
    assert!(is_named(&taken), "{taken}");
    assert_eq!(fs::read(&file).unwrap(), bytes);
}

#[test]
fn a_damaged_journal_keeps_its_name_until_it_is_set_aside_and_is_never_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rack.journal");
    for kept in ["rack.damaged", "rack.damaged-2"] {
        fs::write(&file, format!("damage before {kept}\n")).unwrap();
        let Opened::Damaged(damaged) = Journal::<Make>::open_any(directory.path(), "rack").unwrap() else {
            panic!("it can't be read");
        };
        let again = Journal::<Make>::open_any(directory.path(), "rack").expect_err("in use");
        assert!(matches!(again, JournalError::Busy { .. }), "{again}");
        let taken = Journal::<Make>::create(directory.path(), "rack", "test", &()).expect_err("taken");
        assert!(matches!(taken, JournalError::Corrupt { .. }), "{taken}");
        let (error, path) = damaged.set_aside().unwrap();
        assert!(matches!(error, JournalError::Corrupt { line: 1, .. }), "{error}");
        assert_eq!(fs::read_to_string(path).unwrap(), format!("damage before {kept}\n"));
        assert!(!file.exists() && directory.path().join(kept).exists());
        assert_eq!(journals(directory.path()), 0);
    }
}

#[test]
fn the_lock_tells_the_living_from_the_dead() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::default();
    let state = || Snapshot::<Make>::read(directory.path(), "rack").unwrap().state;
    let journal = done(directory.path(), &mut world);
    assert_eq!(state(), JournalState::Alive);
    let taken = Journal::<Make>::create(directory.path(), "rack", "test", &()).expect_err("taken");
    assert!(matches!(&taken, JournalError::Taken { state: JournalState::Alive, .. }), "{taken}");
    let busy = Journal::<Make>::open(directory.path(), "rack").expect_err("busy");
    assert!(matches!(&busy, JournalError::Busy { by: Some(holder), .. } if holder.pid == std::process::id()), "{busy}");
    drop(journal);
    assert_eq!(state(), JournalState::Abandoned);
    let mut journal = Journal::<Make>::open(directory.path(), "rack").unwrap();
    assert_eq!(journal.header().about, "the rack");
    journal.keep().unwrap();
    assert_eq!(state(), JournalState::Kept);
    drop(journal);
    assert_eq!(state(), JournalState::Kept);
    let missing = Journal::<Make>::open(directory.path(), "tack").expect_err("another");
    assert!(matches!(missing, JournalError::Missing { .. }), "{missing}");
    let bad = Journal::<Make>::open(directory.path(), "../rack").expect_err("no name");
    assert!(matches!(bad, JournalError::BadId { .. }), "{bad}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_changed_byte_is_seen(at: proptest::sample::Index, byte: u8) {
        let directory = tempfile::tempdir().unwrap();
        let mut bytes = whole_file();
        let at = at.index(bytes.len());
        prop_assume!(bytes[at] != byte);
        bytes[at] = byte;
        fs::write(directory.path().join("rack.journal"), bytes).unwrap();
        let read = Snapshot::<Make>::read(directory.path(), "rack");
        let seen = matches!(read, Err(JournalError::Corrupt { .. }));
        prop_assert!(seen, "{at} {byte}: {read:?}");
    }

    #[test]
    fn a_damaged_file_of_the_version_before_is_an_error_or_a_journal(at: proptest::sample::Index, byte: u8) {
        let directory = tempfile::tempdir().unwrap();
        let mut bytes = former_file();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        fs::write(directory.path().join("rack.journal"), bytes).unwrap();
        let read = Snapshot::<Make>::read(directory.path(), "rack");
        let typed = matches!(read, Ok(_) | Err(JournalError::Corrupt { .. } | JournalError::Format { .. }));
        prop_assert!(typed);
    }
}

/// The bytes that matter most: line endings, and those that distinguish a line of the previous version.
#[test]
fn a_changed_end_or_begin_of_a_line_is_seen() {
    let whole = whole_file();
    for at in (0..whole.len()).filter(|at| *at == 0 || whole[*at] == b'\n' || whole[*at - 1] == b'\n') {
        for byte in [b'\n', b'{', b'"', b' ', 0, 0xff, whole[at] ^ 0x20] {
            let directory = tempfile::tempdir().unwrap();
            let mut bytes = whole.clone();
            bytes[at] = byte;
            if bytes == whole {
                continue;
            }
            fs::write(directory.path().join("rack.journal"), bytes).unwrap();
            let read = Snapshot::<Make>::read(directory.path(), "rack");
            assert!(matches!(read, Err(JournalError::Corrupt { .. })), "{at} {byte}: {read:?}");
        }
    }
}
