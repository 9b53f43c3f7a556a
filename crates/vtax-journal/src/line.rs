//! The file: one JSON value a line. Lines are only ever appended.
//!
//! ```text
//! {"header":{"format":1,"id":"rack","kind":"lab","owner":{…},"about":{…}}}
//! {"intend":{"step":0,"what":{…}}}
//! {"intend":{"step":1,"what":{…}}}
//! {"done":{"step":0,"receipt":{…}}}
//! "kept"
//! "undoing"
//! {"undone":{"step":0,"how":"reverted"}}
//! ```
//!
//! A process that dies while it writes leaves a last line without a newline. This line is ignored: either its
//! step had not begun, or the step's `intend` line is in the file.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{
    error::JournalError,
    owner::Owner,
    snapshot::{Record, StepProgress},
    step::{Step, Undone},
};

/// The version of the file's format.
pub const FORMAT: u64 = 1;

/// The first line: the journal's owner and job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`] of the vtax that wrote it.
    pub format: u64,
    /// The journal's name.
    pub id: String,
    /// The kind of job, such as "lab".
    pub kind: String,
    /// Who started it.
    pub owner: Owner,
    /// What the owner wants to find again.
    pub about: serde_json::Value,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum JournalLine<S, R> {
    Header(Header),
    Intend { step: usize, what: S },
    Done { step: usize, receipt: R },
    Kept,
    Undoing,
    Undone { step: usize, how: Undone },
}

impl<S: Serialize, R: Serialize> JournalLine<S, R> {
    /// Appends the line with its newline.
    pub(crate) fn write_to(&self, buffer: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        serde_json::to_writer(&mut *buffer, self)?;
        buffer.push(b'\n');
        Ok(())
    }
}

/// The content of a file.
pub(crate) struct Contents<S: Step> {
    pub(crate) header: Option<Header>,
    pub(crate) records: Vec<Record<S>>,
    pub(crate) kept: bool,
    /// Bytes up to the end of the last complete line.
    pub(crate) whole: u64,
}

impl<S: Step> Contents<S> {
    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Self, JournalError> {
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let mut contents = Contents { header: None, records: Vec::new(), kept: false, whole: whole as u64 };
        for (index, line) in bytes[..whole].split_inclusive(|byte| *byte == b'\n').enumerate() {
            if index == 0 {
                check_format(path, line)?;
            }
            let corrupt = |why: String| JournalError::Corrupt { path: path.to_owned(), line: index + 1, why };
            let line = serde_json::from_slice(line).map_err(|error| corrupt(error.to_string()))?;
            contents.take(line).map_err(|why| corrupt(why.to_owned()))?;
        }
        Ok(contents)
    }

    fn take(&mut self, line: JournalLine<S, S::Receipt>) -> Result<(), &'static str> {
        match (line, &self.header) {
            (JournalLine::Header(header), None) => self.header = Some(header),
            (JournalLine::Header(_), Some(_)) => return Err("a second header"),
            (_, None) => return Err("a line before the header"),
            (JournalLine::Intend { step, what }, _) if step == self.records.len() => {
                self.records.push(Record { step: what, progress: StepProgress::Intended });
            }
            (JournalLine::Intend { .. }, _) => return Err("a step out of order"),
            (JournalLine::Done { step, receipt }, _) => self.record(step)?.progress = StepProgress::Done(receipt),
            (JournalLine::Undone { step, how }, _) => self.record(step)?.progress = StepProgress::Undone(how),
            (JournalLine::Kept, _) => self.kept = true,
            (JournalLine::Undoing, _) => self.kept = false,
        }
        Ok(())
    }

    fn record(&mut self, step: usize) -> Result<&mut Record<S>, &'static str> {
        self.records.get_mut(step).ok_or("a step that was never intended")
    }
}

/// A later format may have other lines, so its number is checked before anything else is read.
fn check_format(path: &Path, first: &[u8]) -> Result<(), JournalError> {
    let value: serde_json::Value = serde_json::from_slice(first).unwrap_or_default();
    match value.pointer("/header/format").and_then(serde_json::Value::as_u64) {
        Some(found) if found != FORMAT => Err(JournalError::Format { path: path.to_owned(), found }),
        _ => Ok(()),
    }
}
