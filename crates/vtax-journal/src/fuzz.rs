//! Journals as left by a dying process, a full disk or another program.

use std::{convert::Infallible, fs};

use serde::{Deserialize, Serialize};
use vtax_fuzz::fuzz;

use crate::{BatchId, BatchState, Journal, JournalError, Snapshot, Step, Undone};

/// Step without effects. Its undos are counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Fake {
    Make { name: String, within: Option<u32> },
    Check,
}

impl Step for Fake {
    type World = usize;
    type Receipt = Option<u64>;
    type Error = Infallible;

    fn describe(&self) -> String {
        format!("{self:?}")
    }

    fn apply(&self, _: &mut usize) -> Result<Option<u64>, Infallible> {
        Ok(None)
    }

    fn undo(&self, _: Option<&Option<u64>>, undone: &mut usize) -> Result<Undone, Infallible> {
        *undone += 1;
        Ok(Undone::Reverted)
    }
}

const JOURNAL: &str = r#"{"header":{"format":1,"id":"rack","kind":"lab","owner":{"pid":1,"started":2,"command":"vtax","since":3},"about":{"a":[1,2.5]}}}
{"intend":{"step":0,"what":{"make":{"name":"web","within":1}}}}
{"intend":{"step":1,"what":"check"}}
{"done":{"step":0,"receipt":9}}
"kept"
"undoing"
{"undone":{"step":1,"how":"already-gone"}}
{"done":{"st"#;

/// Journal as written by this version, except for the checksums.
const SEALED: &[&str] = &[
    r#"{"header":{"format":4,"id":"rack","kind":"lab","owner":{"pid":1,"started":2,"command":"vtax","since":3},"about":null}}"#,
    r#"{"sealed":2}"#,
    r#"{"intend":{"step":0,"what":"check"}}"#,
    r#""kept""#,
    r#"{"undone":{"step":0,"how":"reverted"}}"#,
];

const BATCHES: &str = r#"{"header":{"format":1,"id":"rack","kind":"tuning","owner":{"pid":1,"started":2,"command":"vtax","since":3},"about":null}}
{"intend":{"step":0,"what":"check"}}
{"done":{"step":0,"receipt":null}}
"kept"
{"intend":{"step":1,"batch":2,"what":"check"}}
{"intend":{"step":2,"batch":2,"what":{"make":{"name":"web","within":null}}}}
{"done":{"step":1,"receipt":9}}
{"undone":{"step":2,"how":"already-gone"}}
{"undone":{"step":1,"how":{"foreign":{"found":"9000"}}}}
{"intend":{"step":3,"batch":4,"what":"check"}}
"#;

/// Whatever the file contains, it can be listed, an error names one of its lines, and its readable part can be undone.
#[test]
fn fuzz_journals() {
    let folder = tempfile::tempdir().expect("a folder");
    let sealed: Vec<u8> = SEALED.iter().flat_map(|line| crate::checksum::line(line.as_bytes())).collect();
    let sealed = String::from_utf8(sealed).expect("text");
    fuzz("journals", &[JOURNAL, BATCHES, &sealed], move |bytes| {
        fs::write(folder.path().join("rack.journal"), bytes).expect("written");
        let read = Snapshot::<Fake>::read(folder.path(), "rack");
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        if let Err(JournalError::Corrupt { line, .. } | JournalError::OtherVersion { line, .. }) = &read {
            assert!((1..=lines + 1).contains(line), "line {line} of {lines}");
        }
        let read = read.ok()?;
        let mut journal = Journal::<Fake>::open(folder.path(), "rack").expect("it can be read, and nobody else has it");
        assert_eq!((journal.header(), journal.records().len()), (&read.header, read.records.len()));
        // Only the incomplete last line of a truncated file is lost.
        let again = Snapshot::<Fake>::read(folder.path(), "rack").expect("it is whole now");
        let steps =
            |records: &[crate::Record<Fake>]| records.iter().map(|record| record.step.clone()).collect::<Vec<_>>();
        assert_eq!((&again.header, steps(&again.records)), (&read.header, steps(&read.records)));
        let mut undone = 0;
        let ids: Vec<BatchId> = journal.batches().map(|batch| batch.id).collect();
        assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
        if let Some(id) = ids.first() {
            journal.undo_batch(*id, &mut undone).expect("nothing fails here");
            assert_eq!(journal.batches().next().map(|batch| batch.state()), Some(BatchState::Undone));
        }
        let report = journal.undo(&mut undone).expect("nothing fails here");
        let reported = report.reverted + report.already_gone + report.contained + report.foreign.len();
        assert!(reported <= read.records.len());
        assert!(undone <= read.records.len());
        Some(())
    });
}
