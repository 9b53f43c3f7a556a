//! Files that exist but give no information. Unknown must not be mistaken for absent.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};
use vtax_model::foreign::ForeignText;

/// A file or directory that is unreadable or has unexpected contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnusableFile {
    /// Its path, with a leading slash.
    pub file: ForeignText,
    /// The reason.
    pub why: ForeignText,
}

impl UnusableFile {
    /// Returns true if its path matches a pattern, in which an asterisk stands for any name.
    pub fn is_at(&self, pattern: &str) -> bool {
        matches(pattern, self.file.raw())
    }
}

/// Returns true if the components of a path match those of a pattern, in which an asterisk stands for any component.
pub(super) fn matches(pattern: &str, path: &str) -> bool {
    let (mut wanted, mut found) = (pattern.split('/'), path.split('/'));
    loop {
        match (wanted.next(), found.next()) {
            (None, None) => return true,
            (Some("*"), Some(_)) => {}
            (Some(wanted), Some(found)) if wanted == found => {}
            _ => return false,
        }
    }
}

/// More are not listed: one is enough to show that something is wrong.
const MOST: usize = 256;
/// Characters of a file that are quoted.
const QUOTED: usize = 40;

/// Unusable files found while a machine was read.
#[derive(Debug, Clone, Default)]
pub(super) struct UnusableFiles(Arc<Mutex<BTreeMap<String, String>>>);

impl UnusableFiles {
    pub(super) fn add(&self, path: &str, why: impl Into<String>) {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if files.len() < MOST {
            files.insert(format!("/{path}"), why.into());
        }
    }

    /// Adds a file with unexpected contents.
    pub(super) fn add_odd(&self, path: &str, text: &str) {
        let why = match text.is_empty() {
            true => "it is empty".to_owned(),
            false => format!("it contains {:?}", text.chars().take(QUOTED).collect::<String>()),
        };
        self.add(path, why);
    }

    pub(super) fn take(&self) -> Vec<UnusableFile> {
        let files = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        files.into_iter().map(|(file, why)| UnusableFile { file: file.into(), why: why.into() }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_asterisk_matches_one_name() {
        assert!(matches("/a/*/c", "/a/b/c") && matches("*", "x"));
        assert!(!matches("/a/*", "/a/b/c") && !matches("/a/*/c", "/a/c") && !matches("/a", "/a/b"));
    }
}
