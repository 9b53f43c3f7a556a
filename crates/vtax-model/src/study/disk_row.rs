//! Rows of a disk study.

use std::{fmt, str::FromStr};

use arrayvec::ArrayString;

use crate::disk::{DiskAttach, DiskAttachError};

/// Disks that a row measures, and where they are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DiskRow {
    /// The study's disks, by the host itself.
    Native,
    /// The study's disks, by a guest to which they are attached in this way.
    Guest(DiskAttach),
    /// Existing disks, by the name that the run has for them: `disk:vda`.
    Named(DiskLabel),
}

/// Name of disks in a row. Rows are copied often, so the text is stored inline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskLabel(ArrayString<{ DiskLabel::LONGEST }>);

const NATIVE: &str = "native-disk";
const NAMED: &str = "disk:";

impl DiskRow {
    /// The row of the host itself.
    pub const NATIVE: &str = NATIVE;

    /// Returns true if it has its own, existing disks.
    pub fn is_named(self) -> bool {
        matches!(self, DiskRow::Named(_))
    }
}

impl DiskLabel {
    /// In bytes. Longer names are truncated.
    pub const LONGEST: usize = 40;

    /// Returns a label for this name. Invalid characters become `_`, and of a long name the end is kept, where names
    /// differ.
    pub fn of(name: &str) -> DiskLabel {
        let good = |letter: char| if DiskLabel::has(letter) { letter } else { '_' };
        let letters: Vec<char> = name.chars().map(good).collect();
        let kept = &letters[letters.len().saturating_sub(DiskLabel::LONGEST)..];
        let mut label = ArrayString::new();
        kept.iter().for_each(|letter| label.push(*letter));
        if label.is_empty() {
            label.push('_');
        }
        DiskLabel(label)
    }

    fn has(letter: char) -> bool {
        letter.is_ascii_alphanumeric() || "-_./".contains(letter)
    }
}

impl FromStr for DiskLabel {
    type Err = ();

    fn from_str(text: &str) -> Result<DiskLabel, ()> {
        match ArrayString::from(text) {
            Ok(label) if !text.is_empty() && text.chars().all(DiskLabel::has) => Ok(DiskLabel(label)),
            _ => Err(()),
        }
    }
}

impl fmt::Display for DiskLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for DiskRow {
    type Err = Option<DiskAttachError>;

    /// Returns the device as the error if it is known but has an invalid setting.
    fn from_str(text: &str) -> Result<DiskRow, Option<DiskAttachError>> {
        if text == NATIVE {
            return Ok(DiskRow::Native);
        }
        if let Some(label) = text.strip_prefix(NAMED) {
            return label.parse().map(DiskRow::Named).map_err(|()| None);
        }
        text.parse().map(DiskRow::Guest).map_err(|error| match error {
            DiskAttachError::Device(_) => None,
            error => Some(error),
        })
    }
}

impl fmt::Display for DiskRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskRow::Native => f.pad(NATIVE),
            DiskRow::Guest(attach) => attach.fmt(f),
            DiskRow::Named(label) => f.pad(&format!("{NAMED}{label}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_disks_is_read_back_as_written() {
        for text in ["native-disk", "virtio-blk:aio=native", "disk:web/data"] {
            assert_eq!(text.parse::<DiskRow>().map(|row| row.to_string()), Ok(text.to_owned()));
        }
        for text in ["disk:", "disk:a b", "bridge"] {
            assert_eq!(text.parse::<DiskRow>(), Err(None), "{text}");
        }
        assert!(matches!("ide:iothread".parse::<DiskRow>(), Err(Some(DiskAttachError::NotFor { .. }))));
    }

    #[test]
    fn any_name_gives_a_label() {
        let label = |name: &str| DiskLabel::of(name).to_string();
        assert_eq!(label("my disk ä"), "my_disk__");
        assert_eq!(label(""), "_");
        assert_eq!(label(&format!("{}end", "x".repeat(60))), format!("{}end", "x".repeat(37)));
        assert!(label("/dev/disk/by-id/x").parse::<DiskLabel>().is_ok());
    }
}
