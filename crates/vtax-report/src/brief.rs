//! One-line summary of a result for a list.

use vtax_model::{
    metric::Metric,
    result::{CellRecord, CellStatus, ResultDocument, TaxRecord},
    workload::TestKind,
};
use vtax_stats::Verdict;

use super::{answer::quantity, column_unit::sized, labels, number::brief_change, record::primary};

/// Maximum number of figures on a line.
const FIGURES: usize = 2;

/// Returns e.g. `vxlan +37 % UDP RTT`: the largest shown difference in the measurement mode that answers the question,
/// or a text that no difference is shown or that all are too noisy. For a run that compares nothing, returns its
/// figures if they are few. Returns `failed` if all samples failed, and an empty string if there is nothing to report.
pub fn in_brief(document: &ResultDocument) -> String {
    let answering = document.instruments().first().copied();
    let of_answer = |record: &&CellRecord| Some(record.cell.instrument) == answering && record.summary.is_some();
    let cells: Vec<&CellRecord> = document.cells.iter().filter(of_answer).collect();
    let taxes = cells.iter().filter_map(|record| Some((*record, record.tax_of(Metric::of(test(record)))?)));
    let taxes: Vec<(&CellRecord, &TaxRecord)> = taxes.collect();
    let size = |tax: &TaxRecord| tax.of.cost_ratio(tax.ratio).ln().abs();
    let shown = taxes.iter().filter(|(_, tax)| tax.verdict.is_shown());
    match shown.max_by(|(_, one), (_, other)| size(one).total_cmp(&size(other))) {
        Some((record, tax)) => {
            let cell = &record.cell;
            let medium = cell.net().map_or(String::new(), |net| format!("{} ", net.transport));
            format!("{} {} {medium}{}", cell.row, brief_change(tax.ratio), quantity(test(record)))
        }
        None if !taxes.is_empty() && taxes.iter().all(|(_, tax)| tax.verdict == Verdict::TooNoisy) => {
            "too noisy to tell".to_owned()
        }
        None if !taxes.is_empty() => "no difference shown".to_owned(),
        None if cells.is_empty() && document.cells.iter().any(has_failed) => "failed".to_owned(),
        None if cells.len() <= FIGURES => {
            cells.iter().filter_map(|record| figure(record)).collect::<Vec<_>>().join(", ")
        }
        None => String::new(),
    }
}

fn has_failed(record: &CellRecord) -> bool {
    matches!(record.status, CellStatus::Failed { .. })
}

fn test(record: &CellRecord) -> TestKind {
    record.cell.kind()
}

/// Returns e.g. `TCP RR 12.3 µs`.
fn figure(record: &CellRecord) -> Option<String> {
    let unit = Metric::of(test(record)).figure(test(record)).unit();
    Some(format!("{} {}", labels::test(&record.cell), sized(primary(record)?.mean, unit)))
}
