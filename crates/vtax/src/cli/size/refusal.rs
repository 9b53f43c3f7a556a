//! Determines who can fix a target without a size.

use miette::{Diagnostic, miette};
use vtax_model::size::SizeError;

use crate::exit::Stop;

/// A refused load is the user's error; an unknown cost is missing on this machine.
pub(super) fn stopped(error: SizeError) -> Stop {
    let code = error.code().map(|code| code.to_string());
    match code.as_deref() {
        Some("bad-rate" | "bad-target") => Stop::input(error),
        _ => Stop::infrastructure(error),
    }
}

/// Error for a load that lacks what a measurement requires.
pub(super) fn lacking(by: &str, what: &str, example: &str) -> Stop {
    Stop::input(miette!(code = "bad-target", "{by} requires {what}; add e.g. {example}"))
}
