//! File format: one JSON value per line, with a checksum.
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
//! `"kept"` applies to the batches before it: later ones are undone if their process is killed.
//!
//! `"sealed"` is the number of lines below it when the file was written as a whole, synced, and then renamed to its
//! name. This happens for each batch that is intended, kept or undone. So a file that is empty, has no header or has
//! fewer lines than its seal states is damaged: neither a killed process nor a full disk nor a power failure leaves
//! such a file.
//!
//! Other lines are appended. A process that dies while writing one leaves a last line without a newline. This line is
//! ignored: the `intend` line of the step is already in the file.
//!
//! An `intend` line without a batch number belongs to the first batch. So a journal with one batch has the format from
//! before there were several, and an older vtax can undo a journal with more, as a whole.
//!
//! Format 3 had no seal: its lines were appended one by one, so truncation is not detected. Format 2 also had no
//! `{"foreign":{"found":…}}` in its `undone` lines, and format 1 no checksums. Such files can still be read, and are
//! continued in their own format.

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

/// Version of the file format.
pub const FORMAT: u64 = 4;
/// First version whose files are sealed.
const SEALED: u64 = 4;
/// Maximum length of a file. The journals of the largest labs have some MB; a command that reads one of this length
/// takes 2 s.
pub(crate) const LONGEST: u64 = 32 << 20;
/// Maximum length of a file whose steps have not begun. The other half of [`LONGEST`] is reserved for their receipts
/// and their undo, so a journal that vtax has written can always be read.
pub(crate) const LONGEST_INTENDED: u64 = LONGEST / 2;

/// Form of a file's lines. The first line determines that of the whole file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineForm {
    Plain,
    Checked,
}

impl LineForm {
    fn of(bytes: &[u8]) -> LineForm {
        if bytes.starts_with(b"{") { LineForm::Plain } else { LineForm::Checked }
    }

    /// Returns the readable formats that have such lines.
    fn formats(self) -> RangeInclusive<u64> {
        match self {
            LineForm::Plain => 1..=1,
            LineForm::Checked => 2..=FORMAT,
        }
    }

    /// Returns the JSON of a line, which is passed without its newline.
    fn content(self, line: &[u8]) -> Result<&[u8], &'static str> {
        match self {
            LineForm::Plain => Ok(line),
            LineForm::Checked => checksum::content(line),
        }
    }
}

/// First line of a file: the journal's owner and job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Format of the file: [`FORMAT`] if this version of vtax created it.
    pub format: u64,
    /// Name of the journal.
    pub id: String,
    /// Kind of job, e.g. "lab".
    pub kind: String,
    /// Process that started the job.
    pub owner: Owner,
    /// Data of the owner.
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
    /// Appends the line and its newline to the buffer.
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

/// Contents of a file.
pub(crate) struct Contents<S: Step> {
    pub(crate) header: Header,
    pub(crate) records: Vec<Record<S>>,
    pub(crate) kept: bool,
    /// Set if the undo of the whole journal has begun.
    pub(crate) undoing: bool,
    pub(crate) form: LineForm,
    /// Number of bytes up to the end of the last complete line.
    pub(crate) whole: u64,
    /// Number of bytes of the first line and the seal.
    pub(crate) head: usize,
}

/// Lines with which a file begins.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum FirstLine {
    Header(Header),
    Sealed(usize),
}

/// Returns the first line of a file, whatever the others are; `None` if it can't be read.
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

/// Complete lines of a file, each with its number.
struct Lines<'a> {
    path: &'a Path,
    form: LineForm,
    rest: &'a [u8],
    taken: usize,
}

impl<'a> Lines<'a> {
    /// Returns the JSON of the next line.
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
            // The checksum is correct, so the line is unaltered: another version wrote it.
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

    /// Returns the minimum number of lines that must follow.
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

    /// Notes that an undo begins. Resuming one appends another such line.
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

/// Returns `true` if a process that died may have left this end of a file. A complete line with another byte in place
/// of its newline is damage.
fn is_torn(end: &[u8], form: LineForm) -> bool {
    let Some((_, line)) = end.split_last() else { return true };
    form == LineForm::Plain || form.content(line).is_err()
}

/// Checks the format before anything else is read, because a later format may have other lines.
fn check_format(path: &Path, first: &[u8], form: LineForm) -> Result<(), JournalError> {
    let value: serde_json::Value = serde_json::from_slice(first).unwrap_or_default();
    match value.pointer("/header/format").and_then(serde_json::Value::as_u64) {
        Some(found) if !form.formats().contains(&found) => Err(JournalError::Format { path: path.to_owned(), found }),
        _ => Ok(()),
    }
}
