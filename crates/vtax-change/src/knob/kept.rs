//! Lines of vtax's files in `/etc`, each of which sets a value at each boot.

use std::fmt;

use serde::{Deserialize, Serialize};
use vtax_journal::Undone;
use vtax_model::foreign::ForeignText;
use vtax_sys::SysError;

use super::{AnyValueChange, ChangeReceipt, FoundValue, Knob, ValueChange};
use crate::{
    change::Change,
    error::ChangeError,
    host::HostAccess,
    own_file::{HEADER, OwnFile},
};

/// A line of a file, identified by the text around its value. Other lines of the file stay unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptLine {
    /// The file that vtax owns, in `/etc`.
    pub file: OwnFile,
    /// The text before the value, such as `net.core.rmem_max = `.
    pub before: String,
    /// The text after the value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub after: String,
}

/// The value of the line. None if there is no such line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeptText(pub Option<String>);

/// A line that persists another change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptChange {
    line: ValueChange<KeptLine>,
    /// The change that it persists. After a reboot, the value that the line has set is vtax's as well.
    keeps: Box<Change>,
}

impl KeptLine {
    fn value<'a>(&self, line: &'a str) -> Option<&'a str> {
        line.strip_prefix(self.before.as_str())?.strip_suffix(self.after.as_str())
    }

    /// Returns the file's text with another value. Of several such lines the last one counts, as it does for the
    /// programs that read the file.
    fn edited(&self, text: &str, value: Option<&str>) -> String {
        let mut lines: Vec<&str> = text.lines().collect();
        let new = value.map(|value| format!("{}{value}{}", self.before, self.after));
        match (lines.iter().rposition(|line| self.value(line).is_some()), &new) {
            (Some(at), Some(new)) => lines[at] = new,
            (Some(at), None) => drop(lines.remove(at)),
            (None, Some(new)) => lines.push(new),
            (None, None) => {}
        }
        lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

impl Knob for KeptLine {
    type Value = KeptText;
    const STAYS: bool = true;

    fn read(&self, host: &mut HostAccess) -> Result<Option<KeptText>, ChangeError> {
        let text = self.file.read(host)?.unwrap_or_default();
        let value = text.lines().rev().find_map(|line| self.value(line));
        Ok(Some(KeptText(value.map(str::to_owned))))
    }

    fn write(&self, host: &mut HostAccess, value: &KeptText) -> Result<(), ChangeError> {
        // The line may come from a journal written by hand.
        let all = [&self.before, &self.after, value.0.as_ref().unwrap_or(&self.after)];
        if let Some(odd) = all.into_iter().find(|text| text.contains(|c: char| c.is_control())) {
            let (value, why) = (odd.clone(), "it has a control character");
            return Err(SysError::Invalid { what: "line of a file", value, why }.into());
        }
        let found = self.file.read(host)?;
        let text = self.edited(found.as_deref().unwrap_or(HEADER), value.0.as_deref());
        // Only vtax's header is left.
        let empty = text.trim_end() == HEADER;
        match (empty, found) {
            (true, None) => Ok(()),
            (true, Some(_)) => Ok(self.file.replace(host, None)?),
            (false, _) => Ok(self.file.replace(host, Some(&text))?),
        }
    }
}

impl KeptChange {
    pub(crate) fn plan(
        knob: KeptLine,
        host: &mut HostAccess,
        value: &str,
        keeps: Change,
    ) -> Result<KeptChange, ChangeError> {
        let line = ValueChange::plan(knob, host, KeptText(Some(value.to_owned())))?;
        Ok(KeptChange { line, keeps: Box::new(keeps) })
    }

    pub(crate) fn keeps(&self) -> &Change {
        &self.keeps
    }
}

impl AnyValueChange for KeptChange {
    fn name(&self) -> String {
        self.line.name()
    }

    fn value(&self) -> String {
        self.line.value()
    }

    fn changes_nothing(&self) -> bool {
        self.line.changes_nothing()
    }

    fn apply(&self, host: &mut HostAccess) -> Result<ChangeReceipt, ChangeError> {
        self.line.apply(host)
    }

    fn read_back(&self, host: &mut HostAccess) -> Result<(), ChangeError> {
        self.line.read_back(host)
    }

    fn found(&self, host: &mut HostAccess) -> Result<FoundValue, ChangeError> {
        self.line.found(host)
    }

    /// Restores the value first: without the line, vtax could no longer recognize the value as its own.
    fn undo(&self, receipt: Option<&ChangeReceipt>, host: &mut HostAccess) -> Result<Undone, ChangeError> {
        if self.line.found(host)?.is_ours {
            self.keeps.undo_again(host)?;
        }
        self.line.undo(receipt, host)
    }

    fn is_forgotten(&self, _: &HostAccess) -> bool {
        false
    }

    fn is_there_again(&self, _: &mut HostAccess) -> Result<bool, ChangeError> {
        Ok(false)
    }

    fn undo_again(&self, _: &mut HostAccess) -> Result<(), ChangeError> {
        Ok(())
    }
}

impl fmt::Display for KeptLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = self.before.trim_end_matches([' ', '=', '"', '\'']);
        write!(f, "line `{}` of {}", ForeignText::from(before), self.file.path())
    }
}

impl fmt::Display for KeptText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => ForeignText::from(value.as_str()).fmt(f),
            None => f.write_str("(no line)"),
        }
    }
}

impl fmt::Display for KeptChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.line.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line() -> KeptLine {
        KeptLine { file: OwnFile::Sysctl, before: "net.core.rmem_max = ".to_owned(), after: String::new() }
    }

    proptest! {
        /// Other lines of the file are preserved, and so is the file once the line is removed.
        #[test]
        fn other_lines_stay(others in "([a-z#= \\PC]{0,12}\n){0,6}", value in "[0-9]{1,4}") {
            prop_assume!(others.lines().all(|other| line().value(other).is_none()));
            let kept: Vec<&str> = others.lines().collect();
            let with = line().edited(&others, Some(&value));
            let found: Vec<&str> = with.lines().filter(|text| line().value(text).is_none()).collect();
            prop_assert_eq!(&found, &kept);
            let new = format!("net.core.rmem_max = {value}");
            prop_assert!(with.lines().any(|line| line == new));
            let without = line().edited(&with, None);
            prop_assert_eq!(without.lines().collect::<Vec<_>>(), kept);
        }
    }
}
