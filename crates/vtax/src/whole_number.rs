//! Whole numbers on the command line.

use std::{num::ParseIntError, str::FromStr};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("use a whole number, e.g. 5{}", if matches!(.0.kind(), std::num::IntErrorKind::PosOverflow) { "; this one is too large" } else { "" })]
pub(crate) struct NotWhole(ParseIntError);

/// Reads a whole number that isn't negative.
pub(crate) fn whole<T: FromStr<Err = ParseIntError>>(text: &str) -> Result<T, NotWhole> {
    text.parse().map_err(NotWhole)
}
