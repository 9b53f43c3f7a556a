//! Batches are done and undone one by one, and wherever the process dies, the previous values are restored.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use vtax_journal::{
    BatchId, BatchState, ForeignChange, Journal, JournalState, Snapshot, Step, StepCause, UndoBatchError, Undone,
};

type Values = BTreeMap<u8, u32>;

/// Settings with values, and the journal's file at each change of one.
#[derive(Debug, Default)]
struct World {
    values: Values,
    fail_apply: Option<u32>,
    fail_read_back: Option<u32>,
    fail_undo: Option<u32>,
    file: PathBuf,
    /// Values after each change, with the file at that time. The first entry precedes all changes.
    history: Vec<(Vec<u8>, Values)>,
    /// File before it was removed.
    last: Vec<u8>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Set {
    key: u8,
    value: u32,
    was: u32,
}

#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{0} is stuck")]
struct Refused(u32);

impl Step for Set {
    type World = World;
    type Receipt = ();
    type Error = Refused;

    fn describe(&self) -> String {
        format!("set {} to {}", self.key, self.value)
    }

    fn apply(&self, world: &mut World) -> Result<(), Refused> {
        assert_eq!(world.values[&self.key], self.was, "it is planned with the value that is there");
        if world.fail_apply == Some(self.value) {
            return Err(Refused(self.value));
        }
        world.set(self.key, self.value);
        Ok(())
    }

    fn read_back(&self, (): &(), world: &mut World) -> Result<(), Refused> {
        if world.fail_read_back == Some(self.value) { Err(Refused(self.value)) } else { Ok(()) }
    }

    fn undo(&self, _: Option<&()>, world: &mut World) -> Result<Undone, Refused> {
        if world.fail_undo == Some(self.value) {
            return Err(Refused(self.value));
        }
        match world.values[&self.key] {
            found if found == self.value => {
                world.set(self.key, self.was);
                Ok(Undone::Reverted)
            }
            found if found == self.was => Ok(Undone::AlreadyGone),
            found => Ok(Undone::Foreign { found: found.to_string() }),
        }
    }

    fn changes_the_same(&self, other: &Set) -> bool {
        self.key == other.key
    }

    fn finish(world: &mut World) {
        world.last = fs::read(&world.file).unwrap_or_default();
    }
}

const KEYS: u8 = 4;

fn before() -> Values {
    (0..KEYS).map(|key| (key, u32::from(key))).collect()
}

impl World {
    fn new(directory: &Path) -> World {
        let world = World { values: before(), file: directory.join("tuning.journal"), ..World::default() };
        World { history: vec![(Vec::new(), before())], ..world }
    }

    fn set(&mut self, key: u8, value: u32) {
        self.values.insert(key, value);
        self.history.push((fs::read(&self.file).unwrap_or_default(), self.values.clone()));
    }

    /// Returns the files that a killed process may have left, with the values at that time. An action precedes its
    /// line. Lines are appended, or the file is replaced as a whole.
    fn moments(&self) -> Vec<(&[u8], &Values)> {
        let mut moments = Vec::new();
        for (index, (file, values)) in self.history.iter().enumerate() {
            let next = self.history.get(index + 1).map_or(&self.last, |(next, _)| next);
            let cuts = if next.starts_with(file) { file.len()..next.len() } else { 0..0 };
            moments.extend(cuts.map(|cut| (&next[..cut], values)));
            moments.extend([(file.as_slice(), values), (next.as_slice(), values)]);
        }
        // The journal gets its name with its first lines.
        moments.retain(|(file, _)| file.iter().filter(|byte| **byte == b'\n').count() >= 2);
        moments
    }

    /// Returns a batch that changes these settings to values that no other batch has.
    fn plan(&self, keys: &[u8], number: usize) -> Vec<Set> {
        let mut values = self.values.clone();
        let step = |(index, key): (usize, &u8)| {
            let value = 1000 * (number as u32 + 1) + index as u32;
            let was = values.insert(*key, value).expect("each key has a value");
            Set { key: *key, value, was }
        };
        keys.iter().enumerate().map(step).collect()
    }
}

fn create(directory: &Path) -> Journal<Set> {
    Journal::create(directory, "tuning", "test", &()).expect("a free name")
}

fn open(directory: &Path) -> Journal<Set> {
    Journal::open(directory, "tuning").expect("nobody else has it")
}

fn states(journal: &Journal<Set>) -> Vec<BatchState> {
    journal.batches().map(|batch| batch.state()).collect()
}

fn batch(number: usize) -> BatchId {
    number.to_string().parse().expect("a number")
}

#[test]
fn a_failure_undoes_its_own_batch_and_the_journal_continues() {
    for read_back in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let mut world = World::new(directory.path());
        let mut journal = create(directory.path());
        let first = journal.execute(world.plan(&[0, 1], 0), &mut world).expect("nothing fails");
        let kept = world.values.clone();
        *(if read_back { &mut world.fail_read_back } else { &mut world.fail_apply }) = Some(2001);
        let error = journal.execute(world.plan(&[2, 3, 2], 1), &mut world).expect_err("its second step fails");
        assert_eq!((error.index, error.step.as_str()), (3, "set 3 to 2001"));
        assert!(matches!(
            (read_back, &error.cause),
            (true, StepCause::ReadBack(Refused(2001))) | (false, StepCause::Apply(Refused(2001)))
        ));
        assert!(error.left.is_none());
        assert_eq!(world.values, kept);
        let third = journal.execute(world.plan(&[2], 2), &mut world).expect("nothing fails");
        assert_eq!((first, third), (batch(1), batch(3)));
        assert_eq!(states(&journal), [BatchState::Done, BatchState::Undone, BatchState::Done]);
        drop(journal);
        let journal = open(directory.path());
        assert_eq!(states(&journal), [BatchState::Done, BatchState::Undone, BatchState::Done]);
        let counts = journal.undo(&mut world).expect("nothing fails");
        assert_eq!(world.values, before());
        assert_eq!((counts.reverted, counts.already_gone), (3, 0), "the failed batch was undone before");
    }
}

#[test]
fn a_batch_that_could_not_be_undone_is_tried_again_alone() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new(directory.path());
    let mut journal = create(directory.path());
    journal.execute(world.plan(&[0], 0), &mut world).expect("nothing fails");
    (world.fail_apply, world.fail_undo) = (Some(2001), Some(2000));
    let error = journal.execute(world.plan(&[1, 2], 1), &mut world).expect_err("its second step fails");
    assert_eq!(error.left.expect("one is stuck").steps[0].error, Refused(2000));
    assert_eq!(states(&journal), [BatchState::Done, BatchState::Partial]);
    let stuck = journal.undo_batch(batch(2), &mut world).expect_err("still stuck");
    assert!(matches!(&stuck, UndoBatchError::Steps(errors) if errors.steps.len() == 1), "{stuck}");
    world.fail_undo = None;
    let counts = journal.undo_batch(batch(2), &mut world).expect("no longer stuck");
    assert_eq!((counts.reverted, counts.already_gone), (1, 1));
    assert_eq!(world.values, Values::from([(0, 1000), (1, 1), (2, 2), (3, 3)]));
}

#[test]
fn further_steps_are_a_part_of_the_last_batch() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new(directory.path());
    let mut journal = create(directory.path());
    journal.execute(world.plan(&[0], 0), &mut world).expect("nothing fails");
    journal.keep().unwrap();
    journal.execute(world.plan(&[1], 1), &mut world).expect("nothing fails");
    world.fail_apply = Some(3001);
    journal.extend(world.plan(&[2, 3], 2), &mut world).expect_err("its second step fails");
    assert_eq!(world.values, Values::from([(0, 1000), (1, 2000), (2, 2), (3, 3)]), "the steps before stay");
    world.fail_apply = None;
    journal.extend(world.plan(&[2], 3), &mut world).expect("nothing fails");
    // As left by a killed process: the batch was never completed.
    drop(journal);
    let mut journal = open(directory.path());
    let sizes: Vec<_> = journal.batches().map(|batch| (batch.records.len(), batch.is_abandoned())).collect();
    assert_eq!(sizes, [(1, false), (4, true)]);
    // Includes the step that was undone when its extension failed.
    assert_eq!(journal.undo_batch(batch(2), &mut world).expect("nothing fails").reverted, 3);
    assert_eq!(world.values, Values::from([(0, 1000), (1, 1), (2, 2), (3, 3)]));
}

#[test]
fn an_earlier_batch_is_undone_alone() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new(directory.path());
    let mut journal = create(directory.path());
    for (number, keys) in [[0, 1], [2, 3]].iter().enumerate() {
        journal.execute(world.plan(keys, number), &mut world).expect("nothing fails");
    }
    journal.keep().unwrap();
    assert_eq!(journal.undo_batch(batch(1), &mut world).expect("nothing fails").reverted, 2);
    assert_eq!(world.values, Values::from([(0, 0), (1, 1), (2, 2000), (3, 2001)]));
    assert_eq!(states(&journal), [BatchState::Undone, BatchState::Done]);
    // The same holds after another process has taken over.
    drop(journal);
    assert_eq!(Snapshot::<Set>::read(directory.path(), "tuning").unwrap().state, JournalState::Kept);
    let mut journal = open(directory.path());
    assert_eq!(journal.undo_batch(batch(1), &mut world).expect("nothing to do").reverted, 2);
    let missing = journal.undo_batch(batch(3), &mut world).expect_err("there are two");
    assert_eq!(missing.to_string(), "`tuning` has no batch 3");
    journal.undo(&mut world).expect("nothing fails");
    assert_eq!(world.values, before());
}

#[test]
fn keeping_holds_for_the_batches_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new(directory.path());
    let mut journal = create(directory.path());
    let abandoned =
        |journal: &Journal<Set>| -> Vec<bool> { journal.batches().map(|batch| batch.is_abandoned()).collect() };
    for number in 0..3_u8 {
        journal.execute(world.plan(&[number], number.into()), &mut world).expect("nothing fails");
        if number == 1 {
            journal.keep().unwrap();
        }
    }
    for _ in 0..2 {
        assert_eq!(abandoned(&journal), [false, false, true]);
        drop(journal);
        journal = open(directory.path());
    }
    // A persistent batch that is half undone must be undone completely.
    world.fail_undo = Some(2000);
    journal.undo_batch(batch(2), &mut world).expect_err("it is stuck");
    assert_eq!(abandoned(&journal), [false, false, true]);
    world.fail_undo = None;
    journal.undo_batch(batch(3), &mut world).expect("nothing fails");
    assert_eq!(abandoned(&journal), [false; 3]);
    // From here on the whole journal must be undone.
    world.fail_undo = Some(1000);
    journal.undo(&mut world).expect_err("it is stuck");
    assert_eq!(abandoned(&open(directory.path())), [true, false, false]);
}

/// When the two were undone in the other order, the value of the first batch was restored instead of the original one.
#[test]
fn a_value_that_two_batches_changed_is_restored_by_the_later_one_first() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new(directory.path());
    let mut journal = create(directory.path());
    for (number, keys) in [[0, 1], [1, 2]].iter().enumerate() {
        journal.execute(world.plan(keys, number), &mut world).expect("nothing fails");
    }
    let changed = world.values.clone();
    let error = journal.undo_batch(batch(1), &mut world).expect_err("the second batch stands on it");
    assert_eq!(
        error.to_string(),
        "batch 2 of `tuning` changed the same as batch 1 (set 1 to 1001): undo batch 2 first"
    );
    assert_eq!(world.values, changed);
    for number in [2, 1] {
        journal.undo_batch(batch(number), &mut world).expect("nothing fails");
    }
    assert_eq!(world.values, before());
}

/// Modification of a journal.
#[derive(Debug, Clone)]
enum Event {
    /// A batch; perhaps one of its steps fails.
    Execute {
        keys: Vec<u8>,
        fails: Option<usize>,
        read_back: bool,
    },
    UndoBatch(usize),
    Keep,
    /// Another process takes over.
    Reopen,
}

fn event() -> impl Strategy<Value = Event> {
    let keys = proptest::collection::vec(0..KEYS, 1..4);
    let execute = (keys, proptest::option::weighted(0.4, 0..4_usize), any::<bool>());
    prop_oneof![
        4 => execute.prop_map(|(keys, fails, read_back)| Event::Execute { keys, fails, read_back }),
        2 => (1..6_usize).prop_map(Event::UndoBatch),
        1 => Just(Event::Keep),
        1 => Just(Event::Reopen),
    ]
}

/// Executes all events, and undoes the journal. The world records the moments at which it changed.
fn play(directory: &Path, events: &[Event]) -> World {
    let mut world = World::new(directory);
    let mut journal = create(directory);
    for (number, event) in events.iter().enumerate() {
        match event {
            Event::Execute { keys, fails, read_back } => {
                let steps = world.plan(keys, number);
                let fails = fails.and_then(|index| steps.get(index)).map(|step| step.value);
                (world.fail_apply, world.fail_read_back) = if *read_back { (None, fails) } else { (fails, None) };
                let kept = world.values.clone();
                let done = journal.execute(steps, &mut world);
                assert_eq!(done.is_err(), fails.is_some());
                assert!(done.is_ok() || world.values == kept, "a failed batch leaves nothing");
            }
            Event::UndoBatch(number) => drop(journal.undo_batch(batch(*number), &mut world)),
            Event::Keep => journal.keep().expect("there is room"),
            Event::Reopen => {
                drop(journal);
                journal = open(directory);
            }
        }
    }
    journal.undo(&mut world).expect("nothing fails");
    assert_eq!(world.values, before());
    world
}

/// Resumes after a kill that left this file: undoes half-done batches, or only opens the journal, and then undoes
/// everything. A file that a killed process can't have left is damaged.
fn recover(file: &[u8], values: &Values) {
    for partial_first in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let mut after = World { values: values.clone(), ..World::new(directory.path()) };
        fs::write(&after.file, file).unwrap();
        let mut journal = match Journal::open(directory.path(), "tuning") {
            Err(error) => return assert!(error.is_damage() && is_cut(file), "{error}"),
            Ok(journal) => journal,
        };
        if partial_first {
            let partial = journal.batches().filter(|batch| batch.state() == BatchState::Partial);
            for id in partial.map(|batch| batch.id).collect::<Vec<_>>().into_iter().rev() {
                journal.undo_batch(id, &mut after).expect("nothing has changed its values since");
            }
            assert!(!states(&journal).contains(&BatchState::Partial));
        }
        journal.undo(&mut after).expect("nothing fails");
        assert_eq!(after.values, before(), "{}", String::from_utf8_lossy(file));
    }
}

/// Returns `true` if the file has fewer lines than its seal states.
fn is_cut(file: &[u8]) -> bool {
    let text = String::from_utf8_lossy(file);
    let seal = text.lines().nth(1).and_then(|line| line.split_once("{\"sealed\":")?.1.strip_suffix('}')?.parse().ok());
    seal.is_none_or(|sealed: usize| file.iter().filter(|byte| **byte == b'\n').count() < sealed + 2)
}

#[test]
fn a_kill_at_any_byte_between_batches_is_recovered() {
    let directory = tempfile::tempdir().unwrap();
    let execute = |keys: &[u8], fails| Event::Execute { keys: keys.to_vec(), fails, read_back: false };
    let events = [
        execute(&[0, 1], None),
        Event::Keep,
        execute(&[1, 2, 3], Some(1)),
        execute(&[2], None),
        Event::UndoBatch(1),
        Event::Reopen,
        execute(&[0, 0], None),
    ];
    let world = play(directory.path(), &events);
    let moments = world.moments();
    println!("a kill at {} moments", moments.len());
    moments.into_iter().for_each(|(file, values)| recover(file, values));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_kill_in_any_line_of_any_history_is_recovered(events in proptest::collection::vec(event(), 1..7)) {
        let directory = tempfile::tempdir().unwrap();
        let world = play(directory.path(), &events);
        let moments = world.moments();
        let step = moments.len().div_ceil(150);
        moments.into_iter().step_by(step).for_each(|(file, values)| recover(file, values));
    }
}

/// An undo that another process completes also reports what the first one found.
#[test]
fn changes_by_another_program_are_kept_and_reported() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new(directory.path());
    let mut journal = create(directory.path());
    journal.execute(world.plan(&[0, 1, 2], 0), &mut world).expect("nothing fails");
    world.values.insert(1, 77);
    world.fail_undo = Some(1000);
    journal.undo(&mut world).expect_err("the first step is stuck");
    // The value found is recorded immediately, so that a later one isn't mistaken for it.
    (world.fail_undo, world.values) = (None, Values::from([(0, 1000), (1, 78), (2, 2), (3, 3)]));
    let journal = open(directory.path());
    let report = journal.undo(&mut world).expect("that is not an error");
    let foreign = [ForeignChange { step: "set 1 to 1001".to_owned(), found: "77".to_owned() }];
    assert_eq!((report.reverted, report.foreign.as_slice()), (2, foreign.as_slice()));
    assert_eq!(world.values, Values::from([(0, 0), (1, 78), (2, 2), (3, 3)]));
    assert!(!world.file.exists());
}

#[test]
fn a_batch_that_was_undone_before_is_not_reported_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new(directory.path());
    let mut journal = create(directory.path());
    for number in 0..3_u8 {
        journal.execute(world.plan(&[number], number.into()), &mut world).expect("nothing fails");
    }
    world.values.insert(1, 77);
    let report = journal.undo_batch(batch(2), &mut world).expect("that is not an error");
    assert_eq!(report.foreign, [ForeignChange { step: "set 1 to 2000".to_owned(), found: "77".to_owned() }]);
    assert_eq!(states(&journal), [BatchState::Done, BatchState::Undone, BatchState::Done]);
    drop(journal);
    let report = open(directory.path()).undo(&mut world).expect("nothing fails");
    assert_eq!((report.reverted, report.foreign.len()), (2, 0));
}

#[test]
fn a_number_of_a_batch_is_read_as_it_is_printed() {
    assert_eq!(batch(7).to_string(), "7");
    for text in ["0", "-1", "", "one", "1.0"] {
        let error = text.parse::<BatchId>().expect_err("no number");
        assert_eq!(error.to_string(), format!("invalid batch number `{text}`; use a whole number from 1"));
    }
}

/// Step with a long description, so that a few of them make a long journal.
#[derive(Debug, Serialize, Deserialize)]
struct Bulky {
    text: String,
}

impl Step for Bulky {
    type World = u32;
    type Receipt = ();
    type Error = Refused;

    fn describe(&self) -> String {
        format!("add {} bytes", self.text.len())
    }

    fn apply(&self, standing: &mut u32) -> Result<(), Refused> {
        *standing += 1;
        Ok(())
    }

    fn undo(&self, _: Option<&()>, standing: &mut u32) -> Result<Undone, Refused> {
        *standing -= 1;
        Ok(Undone::Reverted)
    }
}

fn bulky(kib: usize) -> Vec<Bulky> {
    vec![Bulky { text: "x".repeat(kib << 10) }]
}

#[test]
fn batches_that_come_and_go_do_not_make_a_journal_grow() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("tuning.journal");
    let mut standing = 0;
    let mut journal = Journal::<Bulky>::create(directory.path(), "tuning", "test", &()).expect("created");
    for number in 1..=2 {
        assert_eq!(journal.execute(bulky(100), &mut standing).expect("room"), batch(number));
        journal.keep().expect("room");
    }
    for number in 3..60 {
        assert_eq!(journal.execute(bulky(100), &mut standing).expect("room"), batch(number));
        journal.keep().expect("room");
        let length = fs::metadata(&file).expect("written").len();
        assert!(length < 2 << 20, "{length} bytes with {number} batches");
        journal.undo_batch(batch(number), &mut standing).expect("undone");
        assert_eq!(standing, 2);
    }
    // The numbers and states of the remaining batches also agree with the file.
    let here: Vec<_> = journal.batches().map(|batch| (batch.id, batch.state(), batch.is_kept())).collect();
    assert_eq!(here[..2], [(batch(1), BatchState::Done, true), (batch(2), BatchState::Done, true)]);
    assert_eq!(here.last(), Some(&(batch(59), BatchState::Undone, true)));
    drop(journal);
    let snapshot = Snapshot::<Bulky>::read(directory.path(), "tuning").expect("whole");
    assert_eq!(snapshot.state, JournalState::Kept);
    let there: Vec<_> = snapshot.batches().map(|batch| (batch.id, batch.state(), batch.is_kept())).collect();
    assert_eq!(there, here);
    let journal = Journal::<Bulky>::open(directory.path(), "tuning").expect("nobody holds it");
    journal.undo(&mut standing).expect("undone");
    assert_eq!(standing, 0);
}

#[test]
fn a_change_for_which_a_journal_has_no_room_is_refused_before_it_begins() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut standing = 0;
    let mut journal = Journal::<Bulky>::create(directory.path(), "tuning", "test", &()).expect("created");
    let first = journal.execute(bulky(10 << 10), &mut standing).expect("room");
    let error = journal.execute(bulky(10 << 10), &mut standing).expect_err("full");
    assert_eq!(standing, 1);
    assert!(error.to_string().contains("tuning.journal has no room for this change"), "{error}");
    journal.keep().expect("room");
    journal.undo_batch(first, &mut standing).expect("undone");
    assert_eq!(standing, 0);
}
