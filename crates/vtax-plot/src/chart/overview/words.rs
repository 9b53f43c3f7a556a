//! Words of an overview, shortened to fit.

use super::OverviewCell;
use crate::inert::inert;

/// Returns the words of a cell that fit this width, and the interval if a difference is shown and it fits too.
pub(super) fn words(cell: &OverviewCell, width: f64) -> (&str, Option<&str>) {
    let interval = Some(cell.interval.as_str()).filter(|_| cell.judgement.is_shown());
    let words = if interval.is_some() { &cell.words } else { cell.judgement.words() };
    (words, interval.filter(|interval| length(words, Some(interval)) <= width))
}

/// Returns the width of words in a cell, with a margin for fonts that are wider than ours.
pub(super) fn length(words: &str, interval: Option<&str>) -> f64 {
    let letters = |text: &str| inert(text).chars().count() as f64;
    7.2 * letters(words) + interval.map_or(0.0, |interval| 6.0 * letters(interval) + 5.0)
}

/// Returns the number of letters of plain text that fit.
pub(super) fn letters(width: f64) -> usize {
    (width / 6.1).max(1.0) as usize
}

/// Shortens a text to this width.
pub(super) fn fitted(text: &str, width: f64) -> String {
    let (most, shown) = (letters(width), inert(text));
    match shown.chars().count() > most {
        true => shown.chars().take(most - 1).chain(['…']).collect(),
        false => shown,
    }
}
