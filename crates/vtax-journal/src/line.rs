//! The file format: a checksum and a JSON value per line.
//!
//! ```text
//! 5f9d0b1e {"header":{"format":4,"id":"rack","kind":"lab","owner":{…},"about":{…}}}
//! 41c6e2d7 {"sealed":7}
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
//! `"sealed"` is how many lines the file had below this one when it was written as a whole, and synced, before it got its
//! name. That is done for each batch that is intended, kept or undone. So a file that is empty, has no header or has fewer
//! lines than it was sealed with was never left by a killed process, a full disk or a power cut: it is damaged.
//!
//! Other lines are appended. A process that dies while it writes one leaves a last line without a newline. This line is
//! ignored: the step's `intend` line is in the file.
//!
//! An `intend` line without a number of its batch is of the first batch. So a journal with one batch is what it was before
//! there were several, and an older vtax can undo one with more, as a whole.
//!
//! Format 3 had no seal: its lines were appended one by one, so that a cut is not seen. Format 2 had no
//! `{"foreign":{"found":…}}` in its `undone` lines either, and format 1 no checksums. Their files are still read, and
//! continue in their own form.

use std::{collections::BTreeMap, ops::RangeInclusive, path::Path};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    batch::BatchId,
    checksum,
    error::JournalError,
    owner::Owner,
    record::{Record, StepProgress},
    step::{Step, Undone},
};

/// The version of the file's format.
pub const FORMAT: u64 = 4;
/// The first version whose files are sealed.
const SEALED: u64 = 4;
/// Bound on a file: the journals of the largest labs have some MB. A command that reads one of this length takes 2 s.
pub(crate) const LONGEST: u64 = 32 << 20;
/// Bound on a file whose steps have not begun. The other half of [`LONGEST`] is for their receipts and their undoing, so a
/// journal that vtax has written can always be read.
pub(crate) const LONGEST_INTENDED: u64 = LONGEST / 2;

/// The form of a file's lines. A file has one form, that of its first line.
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
    /// The process that started it.
    pub owner: Owner,
    /// The owner's own data.
    pub about: serde_json::Value,
}

impl Header {
    pub(crate) fn is_sealed(&self) -> bool {
        self.format >= SEALED
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum JournalLine<S, R> {
    Header(Header),
    Sealed(usize),
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
    pub(crate) header: Header,
    pub(crate) records: Vec<Record<S>>,
    pub(crate) kept: bool,
    /// The undoing of the whole journal has begun.
    pub(crate) undoing: bool,
    pub(crate) form: LineForm,
    /// Bytes up to the end of the last complete line.
    pub(crate) whole: u64,
    /// The bytes of the first line, and of the seal.
    pub(crate) head: usize,
}

/// The lines that a file begins with.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum FirstLine {
    Header(Header),
    Sealed(usize),
}

/// The first line of a file, whatever the others are. None if it can't be read.
pub(crate) fn header(path: &Path, bytes: &[u8]) -> Option<Header> {
    Lines { path, form: LineForm::of(bytes), rest: bytes, taken: 0 }.header().ok()
}

/// Returns the steps in complete lines of a damaged file that no line marks as undone, in order.
pub(crate) fn readable<S: Step>(path: &Path, bytes: &[u8]) -> Vec<Record<S>> {
    let mut records = BTreeMap::new();
    // The text after the last newline may also be a complete line whose newline was altered.
    let ended = [bytes, b"\n"].concat();
    let mut lines = Lines { path, form: LineForm::of(bytes), rest: &ended, taken: 0 };
    while !lines.rest.is_empty() {
        let Ok(Some(line)) = lines.next() else { continue };
        match lines.read::<JournalLine<S, S::Receipt>>(line) {
            Ok(JournalLine::Intend { step, batch, what }) => drop(records.insert(step, Record::new(what, batch))),
            Ok(JournalLine::Done { step, receipt }) => {
                let record = records.get_mut(&step);
                if let Some(record) = record {
                    record.progress = StepProgress::Done(receipt);
                }
            }
            Ok(JournalLine::Undone { step, .. }) => drop(records.remove(&step)),
            _ => {}
        }
    }
    records.into_values().collect()
}

/// The lines of a file that have their newlines, each with its number.
struct Lines<'a> {
    path: &'a Path,
    form: LineForm,
    rest: &'a [u8],
    taken: usize,
}

impl<'a> Lines<'a> {
    /// The next line's JSON.
    fn next(&mut self) -> Result<Option<&'a [u8]>, JournalError> {
        let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        self.taken += 1;
        let (line, rest) = (&self.rest[..end], &self.rest[end + 1..]);
        self.rest = rest;
        self.form.content(line).map(Some).map_err(|why| self.corrupt(why.to_owned()))
    }

    fn corrupt(&self, why: String) -> JournalError {
        JournalError::Corrupt { path: self.path.to_owned(), line: self.taken.max(1), why }
    }

    fn read<T: DeserializeOwned>(&self, line: &[u8]) -> Result<T, JournalError> {
        serde_json::from_slice(line).map_err(|error| match self.form {
            // Its checksum is right, so this is what was written.
            LineForm::Checked if error.is_data() => {
                JournalError::OtherVersion { path: self.path.to_owned(), line: self.taken, why: error.to_string() }
            }
            _ => self.corrupt(error.to_string()),
        })
    }

    fn header(&mut self) -> Result<Header, JournalError> {
        let Some(line) = self.next()? else {
            let why = if self.rest.is_empty() { "the file is empty" } else { "the first line is incomplete" };
            return Err(self.corrupt(why.to_owned()));
        };
        check_format(self.path, line, self.form)?;
        match self.read(line)? {
            FirstLine::Header(header) => Ok(header),
            FirstLine::Sealed(_) => Err(self.corrupt("a line before the header".to_owned())),
        }
    }

    /// Minimum number of lines that follow.
    fn seal(&mut self, header: &Header) -> Result<usize, JournalError> {
        if !header.is_sealed() {
            return Ok(0);
        }
        match self.next()?.map(|line| self.read(line)).transpose()? {
            Some(FirstLine::Sealed(lines)) => Ok(lines),
            _ => Err(self.corrupt("the number of its lines is missing".to_owned())),
        }
    }
}

impl<S: Step> Contents<S> {
    pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Self, JournalError> {
        let form = LineForm::of(bytes);
        let mut lines = Lines { path, form, rest: bytes, taken: 0 };
        let header = lines.header()?;
        let sealed = lines.seal(&header)?;
        let (head, first) = (bytes.len() - lines.rest.len(), lines.taken);
        let mut contents = Contents { header, records: Vec::new(), kept: false, undoing: false, form, whole: 0, head };
        while let Some(line) = lines.next()? {
            contents.take(lines.read(line)?).map_err(|why| lines.corrupt(why.to_owned()))?;
        }
        contents.whole = (bytes.len() - lines.rest.len()) as u64;
        let found = lines.taken - first;
        let is_torn = is_torn(lines.rest, form);
        lines.taken += 1;
        match () {
            () if found < sealed => {
                Err(lines.corrupt(format!("the file is truncated: it has {found} of {sealed} lines")))
            }
            () if !is_torn => Err(lines.corrupt("it does not end with a complete line".to_owned())),
            () => Ok(contents),
        }
    }

    fn take(&mut self, line: JournalLine<S, S::Receipt>) -> Result<(), &'static str> {
        match line {
            JournalLine::Header(_) => return Err("a second header"),
            JournalLine::Sealed(_) => return Err("a second number of lines"),
            JournalLine::Intend { step, batch, what } => self.intend(step, batch, what)?,
            JournalLine::Done { step, receipt } => self.record(step)?.progress = StepProgress::Done(receipt),
            JournalLine::Undone { step, how } => self.record(step)?.progress = StepProgress::Undone(how),
            JournalLine::Kept => self.keep(),
            JournalLine::Undoing => self.begin_undoing(),
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

    /// Resuming an undo appends another line.
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

/// Returns true if a process that died may have left this end of a file. A complete line with another byte instead of
/// its newline is damage.
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
