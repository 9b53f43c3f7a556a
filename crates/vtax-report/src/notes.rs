//! Footnotes: each text once, numbered in the order in which the tables refer to it.

use vtax_model::result::{CellRecord, CellStatus};

use super::view::{Section, SectionPart};

#[derive(Debug, Default)]
pub(crate) struct Notes {
    texts: Vec<String>,
}

impl Notes {
    /// Returns the mark of a text, e.g. `[1]`.
    pub(crate) fn mark(&mut self, text: String) -> String {
        let known = self.texts.iter().position(|known| *known == text);
        let index = known.unwrap_or_else(|| {
            self.texts.push(text);
            self.texts.len() - 1
        });
        format!("[{}]", index + 1)
    }

    /// Number of notes so far.
    pub(crate) fn count(&self) -> usize {
        self.texts.len()
    }

    /// Returns the mark of the reason why a cell has no figures; empty if there is no reason to state.
    pub(crate) fn of_record(&mut self, record: &CellRecord) -> String {
        match &record.status {
            CellStatus::Unavailable { why, remedy } => {
                self.mark(format!("{} is not available: {why}; {remedy}", record.cell.row))
            }
            CellStatus::Failed { why } => self.mark(format!("every sample failed, the last one with: {why}")),
            CellStatus::Measured | CellStatus::Missing => String::new(),
        }
    }

    /// List of marks and texts; `None` without notes.
    pub(crate) fn section(self) -> Option<Section> {
        let numbered = |(index, text)| (format!("[{}]", index + 1), text);
        let list: Vec<_> = self.texts.into_iter().enumerate().map(numbered).collect();
        (!list.is_empty()).then(|| Section::of(String::new(), vec![SectionPart::List(list)]))
    }
}
