//! The name of a NIC in a row.

use std::{fmt, str::FromStr};

use arrayvec::ArrayString;

/// Name of a NIC. Rows are copied often, so the text is stored inline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NicLabel(ArrayString<{ NicLabel::LONGEST }>);

/// Invalid name of a NIC.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("invalid NIC label `{0}`: use 1 to 32 letters, digits, `-`, `_` and `.`")]
#[diagnostic(code("bad-name"))]
pub struct BadNicLabel(String);

impl NicLabel {
    /// In bytes: the maximum length of a virtual NIC's name.
    pub const LONGEST: usize = 32;
}

impl FromStr for NicLabel {
    type Err = BadNicLabel;

    fn from_str(text: &str) -> Result<NicLabel, BadNicLabel> {
        let good = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        match ArrayString::from(text) {
            Ok(name) if !text.is_empty() && text.chars().all(good) => Ok(NicLabel(name)),
            _ => Err(BadNicLabel(text.to_owned())),
        }
    }
}

impl fmt::Display for NicLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
