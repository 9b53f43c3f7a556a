//! Errors in TOML files that name the file and the line.

mod wording;

use std::{fmt, ops::Range};

use miette::Diagnostic;
use serde::de::DeserializeOwned;

use crate::foreign::ForeignText;
use wording::Worded;

/// A text that a user wrote, and its origin.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The file's name as the user gave it, or a name for a built-in text.
    pub name: &'a str,
    /// Its whole content.
    pub text: &'a str,
}

/// An error in a file: its description and line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {message}")]
pub struct FileError {
    pub file: ForeignText,
    pub line: usize,
    pub message: ForeignText,
    code: String,
}

/// Implemented by hand, because the code is that of the error on the line.
impl Diagnostic for FileError {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(&self.code))
    }
}

impl Source<'_> {
    /// Reads the TOML of this file.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, FileError> {
        toml::from_str(self.text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            let Worded { code, text } = self.in_words(error.message(), &span);
            self.coded(code, &span, text)
        })
    }

    fn in_words(&self, message: &str, span: &Range<usize>) -> Worded {
        let is_blank = |line: &str| line.trim_start().starts_with('#') || line.trim().is_empty();
        if self.text.lines().all(is_blank) {
            return Worded::coded("empty-file", "the file is empty; docs/studies.md and docs/labs.md have examples");
        }
        match self.text.parse::<toml::Table>() {
            Ok(_) => wording::in_words(message, self.key_of(span)),
            Err(_) => Worded::coded("not-toml", message.replace('\n', "; ")),
        }
    }

    /// Returns the key of a value's line.
    fn key_of(&self, value: &Range<usize>) -> Option<&str> {
        let before = self.text.get(..value.start)?;
        let line = before.rsplit('\n').next()?;
        Some(line.split_once('=')?.0.trim()).filter(|key| !key.is_empty())
    }

    /// Returns an error about the bytes `span` of this file, which has its own code.
    pub fn refuse(&self, span: &Range<usize>, error: impl Diagnostic) -> FileError {
        let code = error.code().map_or(String::new(), |code| code.to_string());
        self.coded(&code, span, error)
    }

    /// Returns an error with this message about the bytes `span` of this file, with the code by which `docs/errors`
    /// explains it.
    pub fn coded(&self, code: &str, span: &Range<usize>, message: impl fmt::Display) -> FileError {
        let before = self.text.as_bytes().get(..span.start).unwrap_or_default();
        FileError {
            file: self.name.into(),
            line: 1 + before.iter().filter(|byte| **byte == b'\n').count(),
            message: message.to_string().into(),
            code: code.to_owned(),
        }
    }
}
