//! Remarks about the placement of a run's endpoints.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Prefix of a wrong label where notes are single texts: in files and reports.
const WRONG_LABEL: &str = "WRONG LABEL: ";

/// A sentence about the placement of a run's endpoints.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum PlacementNote {
    /// Unavailable resources of this machine, or placement of vCPUs.
    Remark(String),
    /// The domains of a row are not attached as the row states. The row's figures are those of another method.
    WrongLabel(String),
}

impl PlacementNote {
    /// Returns true if the row's figures are those of another method.
    pub fn is_wrong_label(&self) -> bool {
        matches!(self, PlacementNote::WrongLabel(_))
    }
}

impl fmt::Display for PlacementNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlacementNote::Remark(text) => f.write_str(text),
            PlacementNote::WrongLabel(text) => write!(f, "{WRONG_LABEL}{text}"),
        }
    }
}

/// Reads a note from a file.
impl From<String> for PlacementNote {
    fn from(text: String) -> PlacementNote {
        match text.strip_prefix(WRONG_LABEL) {
            Some(text) => PlacementNote::WrongLabel(text.to_owned()),
            None => PlacementNote::Remark(text),
        }
    }
}

impl From<PlacementNote> for String {
    fn from(note: PlacementNote) -> String {
        note.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_texts_in_files() {
        let notes = [PlacementNote::Remark("CPU 0 is busy.".into()), PlacementNote::WrongLabel("not a macvtap".into())];
        let texts = serde_json::to_string(&notes).unwrap();
        assert_eq!(texts, r#"["CPU 0 is busy.","WRONG LABEL: not a macvtap"]"#);
        assert_eq!(serde_json::from_str::<Vec<PlacementNote>>(&texts).unwrap(), notes);
    }
}
