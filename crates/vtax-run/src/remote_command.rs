//! Commands that an agent runs.

use std::ffi::OsString;

use miette::miette;

/// Returns a word of the command as a string, because the control protocol is text. `place` is
/// where the command runs.
pub fn word(word: OsString, place: &str) -> miette::Result<String> {
    word.into_string()
        .map_err(|word| miette!(code = "not-utf8", "{word:?} is not UTF-8 and cannot be passed to a {place}"))
}
