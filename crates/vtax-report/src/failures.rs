//! Samples that could not be taken.

use std::collections::BTreeSet;

use vtax_model::{foreign::ForeignText, measurement::EndReport, result::ResultDocument, run::Failure};

use super::{
    blocks::{self, distinct},
    labels,
    number::{counted, grouped},
    view::Section,
};

/// Grouped by row and error.
pub(crate) fn section(document: &ResultDocument) -> Option<Section> {
    let key = |failure: &Failure| {
        let row = document.cells.get(failure.cell).map(|record| record.cell.row.to_string());
        (row.unwrap_or_else(|| format!("cell {}", failure.cell)), failure.error.clone())
    };
    let seen = blocks::grouped(document.failures.iter().map(|failure| (key(failure), failure)));
    let line = |((row, error), failures): &((String, ForeignText), Vec<&Failure>)| {
        let rest = partial(failures).map_or(String::new(), |text| format!(" ({text})"));
        format!("{row}, {}: {error}{rest}", whereabouts(document, failures))
    };
    let title = format!("Failed: {}", counted(document.failures.len() as u32, "sample"));
    Section::bullets(title, seen.iter().map(line).collect())
}

/// Returns e.g. `ended after 0.42 s with 4,210 transactions; not counted` for the sample that got furthest.
fn partial(failures: &[&Failure]) -> Option<String> {
    let ends = failures.iter().filter_map(|failure| failure.partial.as_ref());
    let ends: Vec<&EndReport> = ends.flat_map(|partial| [&partial.initiator, &partial.responder]).flatten().collect();
    let furthest = ends.into_iter().max_by(|a, b| (a.transactions, a.bytes).cmp(&(b.transactions, b.bytes)))?;
    let EndReport { seconds, transactions, bytes, .. } = furthest;
    let what = match (transactions, bytes) {
        (0, bytes) => format!("{} bytes", grouped(*bytes)),
        (transactions, _) => format!("{} transactions", grouped(*transactions)),
    };
    let which = if failures.len() > 1 { "the furthest one " } else { "" };
    Some(format!("{which}ended after {seconds:.2} s with {what}; not counted"))
}

/// Returns e.g. `4 samples of TCP RR, UDP RR in rounds 5, 10`.
fn whereabouts(document: &ResultDocument, failures: &[&Failure]) -> String {
    let cells: BTreeSet<usize> = failures.iter().map(|failure| failure.cell).collect();
    let rounds: BTreeSet<u32> = failures.iter().map(|failure| failure.round).collect();
    let records = cells.iter().filter_map(|index| document.cells.get(*index));
    let tests = distinct(records.map(|record| labels::test(&record.cell)));
    let rounds: Vec<String> = rounds.iter().map(u32::to_string).collect();
    let word = if rounds.len() == 1 { "round" } else { "rounds" };
    let samples = counted(failures.len() as u32, "sample");
    format!("{samples} of {} in {word} {}", tests.join(", "), rounds.join(", "))
}
