//! Journals as a dying process, a full disk or a stranger may leave them.

use std::{convert::Infallible, fs};

use serde::{Deserialize, Serialize};
use vtax_fuzz::fuzz;

use crate::{Journal, JournalError, Snapshot, Step, Undone};

/// A step without a world. What it undoes is counted.
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

/// Whatever is in the file: it can be listed, an error names a line of it, and what can be read can be undone.
#[test]
fn fuzz_journals() {
    let folder = tempfile::tempdir().expect("a folder");
    fuzz("journals", &[JOURNAL], move |bytes| {
        fs::write(folder.path().join("rack.journal"), bytes).expect("written");
        let read = Snapshot::<Fake>::read(folder.path(), "rack");
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        if let Err(JournalError::Corrupt { line, .. }) = &read {
            assert!((1..=lines + 1).contains(line), "line {line} of {lines}");
        }
        let read = read.ok()?;
        let journal = Journal::<Fake>::open(folder.path(), "rack").expect("it can be read, and nobody else has it");
        assert_eq!((journal.header(), journal.records().len()), (read.header.as_ref(), read.records.len()));
        // The end of a line that was cut is gone, and nothing else.
        let again = Snapshot::<Fake>::read(folder.path(), "rack").expect("it is whole now");
        let steps =
            |records: &[crate::Record<Fake>]| records.iter().map(|record| record.step.clone()).collect::<Vec<_>>();
        assert_eq!((&again.header, steps(&again.records)), (&read.header, steps(&read.records)));
        let mut undone = 0;
        let counts = journal.undo(&mut undone).expect("nothing fails here");
        assert_eq!(counts.reverted + counts.already_gone + counts.contained, read.records.len());
        assert!(undone <= read.records.len());
        Some(())
    });
}
