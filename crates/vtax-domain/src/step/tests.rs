use std::fs;

use vtax_journal::{Snapshot, Step};

use super::*;

/// A journal as vtax wrote it before labs and domains shared steps, and its steps in words.
const JOURNAL: &str = include_str!("tests/mars.journal");
const WORDS: &str = include_str!("tests/mars.txt");

#[test]
fn a_journal_of_the_previous_version_is_read_and_its_steps_are_written_as_before() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("mars.journal"), JOURNAL).expect("a file");
    let read = Snapshot::<DomainStep>::read(folder.path(), "mars").expect("it can be read");
    let written = JOURNAL.lines().filter_map(|line| {
        let line: serde_json::Value = serde_json::from_str(line.split_once(' ')?.1).expect("JSON");
        line.pointer("/intend/what").cloned()
    });
    let written: Vec<serde_json::Value> = written.collect();
    let now: Vec<serde_json::Value> =
        read.records.iter().map(|record| serde_json::to_value(&record.step).expect("a step")).collect();
    assert_eq!(now, written);
    let words: Vec<String> = read.records.iter().map(|record| record.step.describe()).collect();
    assert_eq!(words, WORDS.lines().collect::<Vec<_>>());
}
