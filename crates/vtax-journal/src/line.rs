//! The file: a checksum and one JSON value a line. Lines are only ever appended.
//!
//! ```text
//! 5f9d0b1e {"header":{"format":3,"id":"rack","kind":"lab","owner":{…},"about":{…}}}
//! 0c6a1f77 {"intend":{"step":0,"what":{…}}}
//! e8b15a02 {"intend":{"step":1,"what":{…}}}
//! 91d3c4aa {"done":{"step":0,"receipt":{…}}}
//! 7c20bb19 {"done":{"step":1,"receipt":{…}}}
//! 2be40d18 "kept"
//! 30f1d6a2 {"intend":{"step":2,"batch":2,"what":{…}}}
//! d4410e8c {"done":{"step":2,"receipt":{…}}}
//! a07c93f5 "undoing"
//! 6d20e8b9 {"undone":{"step":2,"how":{"foreign":{"found":"…"}}}}
//! 19c3f70e {"undone":{"step":1,"how":"reverted"}}
//! ```
//!
//! `"kept"` holds for the batches before it: what comes later is undone if its process is killed.
//!
//! A process that dies while it writes leaves a last line without a newline. This line is ignored: either its
//! step had not begun, or the step's `intend` line is in the file.
//!
//! An `intend` line without a number of its batch is of the first batch. So a journal with one batch is what it was before
//! there were several, and an older vtax can undo one with more, as a whole.
//!
//! Format 2 had no `{"foreign":{"found":…}}` in its `undone` lines, and format 1 no checksums either. Their files are still
//! read, and go on in their own form.

use std::{ops::RangeInclusive, path::Path};

use serde::{Deserialize, Serialize};

use crate::{
    batch::BatchId,
    checksum,
    error::JournalError,
    owner::Owner,
    record::{Record, StepProgress},
    step::{Step, Undone},
};

/// The version of the file's format.
pub const FORMAT: u64 = 3;

/// How the lines of a file are written. A file has one form, that of its first line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineForm {
    Plain,
    Checked,
}

impl LineForm {
    fn of(bytes: &[u8]) -> LineForm {
        if bytes.starts_with(b"{") { LineForm::Plain } else { LineForm::Checked }
    }

    /// The formats that have such lines, and can be read.
    fn formats(self) -> RangeInclusive<u64> {
        match self {
            LineForm::Plain => 1..=1,
            LineForm::Checked => 2..=FORMAT,
        }
    }

    /// A line's JSON. `line` is without its newline.
    fn content(self, line: &[u8]) -> Result<&[u8], &'static str> {
        match self {
            LineForm::Plain => Ok(line),
            LineForm::Checked => checksum::content(line),
        }
    }
}

/// The first line: the journal's owner and job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The format of the file: [`FORMAT`], if this vtax made it.
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
    Intend {
        step: usize,
        #[serde(default = "BatchId::first", skip_serializing_if = "BatchId::is_first")]
        batch: BatchId,
        what: S,
    },
    Done {
        step: usize,
        receipt: R,
    },
    Kept,
    Undoing,
    Undone {
        step: usize,
        how: Undone,
    },
}

impl<S: Serialize, R: Serialize> JournalLine<S, R> {
    /// Appends the line with its newline.
    pub(crate) fn write_to(&self, buffer: &mut Vec<u8>, form: LineForm) -> Result<(), serde_json::Error> {
        let content = serde_json::to_vec(self)?;
        match form {
            LineForm::Plain => {
                buffer.extend(content);
                buffer.push(b'\n');
            }
            LineForm::Checked => buffer.extend(checksum::line(&content)),
        }
        Ok(())
    }
}

/// The content of a file.
pub(crate) struct Contents<S: Step> {
    pub(crate) header: Option<Header>,
    pub(crate) records: Vec<Record<S>>,
    pub(crate) kept: bool,
    /// The undoing of the whole journal has begun.
    pub(crate) undoing: bool,
    pub(crate) form: LineForm,
    /// Bytes up to the end of the last complete line.
    pub(crate) whole: u64,
}

impl<S: Step> Contents<S> {
    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Self, JournalError> {
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let (complete, rest) = bytes.split_at(end);
        let (form, whole) = (LineForm::of(bytes), end as u64);
        let mut contents = Contents { header: None, records: Vec::new(), kept: false, undoing: false, form, whole };
        let corrupt = |index: usize, why: String| JournalError::Corrupt { path: path.to_owned(), line: index + 1, why };
        let mut lines = 0;

        for line in complete.split_inclusive(|byte| *byte == b'\n') {
            let line = form.content(&line[..line.len() - 1]).map_err(|why| corrupt(lines, why.to_owned()))?;
            if lines == 0 {
                check_format(path, line, form)?;
            }
            let line = serde_json::from_slice(line).map_err(|error| match form {
                // Its checksum is right, so this is what was written.
                LineForm::Checked if error.is_data() => {
                    JournalError::OtherVersion { path: path.to_owned(), line: lines + 1, why: error.to_string() }
                }
                _ => corrupt(lines, error.to_string()),
            })?;
            contents.take(line).map_err(|why| corrupt(lines, why.to_owned()))?;
            lines += 1;
        }
        match is_torn(rest, form) {
            true => Ok(contents),
            false => Err(corrupt(lines, "its end is not that of a line".to_owned())),
        }
    }

    fn take(&mut self, line: JournalLine<S, S::Receipt>) -> Result<(), &'static str> {
        match (line, &self.header) {
            (JournalLine::Header(header), None) => self.header = Some(header),
            (JournalLine::Header(_), Some(_)) => return Err("a second header"),
            (_, None) => return Err("a line before the header"),
            (JournalLine::Intend { step, batch, what }, _) => self.intend(step, batch, what)?,
            (JournalLine::Done { step, receipt }, _) => self.record(step)?.progress = StepProgress::Done(receipt),
            (JournalLine::Undone { step, how }, _) => self.record(step)?.progress = StepProgress::Undone(how),
            (JournalLine::Kept, _) => self.keep(),
            (JournalLine::Undoing, _) => self.begin_undoing(),
        }
        Ok(())
    }

    fn intend(&mut self, step: usize, batch: BatchId, what: S) -> Result<(), &'static str> {
        if step != self.records.len() {
            return Err("a step out of order");
        }
        if self.records.last().is_some_and(|last| batch < last.batch) || batch < BatchId::FIRST {
            return Err("a batch out of order");
        }
        self.records.push(Record::new(what, batch));
        Ok(())
    }

    fn keep(&mut self) {
        (self.kept, self.undoing) = (true, false);
        self.records.iter_mut().for_each(|record| record.kept = true);
    }

    /// There is a further line if somebody goes on with an undoing.
    fn begin_undoing(&mut self) {
        if !self.undoing {
            self.records.iter_mut().for_each(Record::settle);
        }
        (self.kept, self.undoing) = (false, true);
        self.records.iter_mut().for_each(|record| record.kept = false);
    }

    fn record(&mut self, step: usize) -> Result<&mut Record<S>, &'static str> {
        self.records.get_mut(step).ok_or("a step that was never intended")
    }
}

/// Whether a process that died may have left this end of a file. A complete line with another byte in place of its
/// newline is damage.
fn is_torn(end: &[u8], form: LineForm) -> bool {
    let Some((_, line)) = end.split_last() else { return true };
    form == LineForm::Plain || form.content(line).is_err()
}

/// A later format may have other lines, so its number is checked before anything else is read.
fn check_format(path: &Path, first: &[u8], form: LineForm) -> Result<(), JournalError> {
    let value: serde_json::Value = serde_json::from_slice(first).unwrap_or_default();
    match value.pointer("/header/format").and_then(serde_json::Value::as_u64) {
        Some(found) if !form.formats().contains(&found) => Err(JournalError::Format { path: path.to_owned(), found }),
        _ => Ok(()),
    }
}
