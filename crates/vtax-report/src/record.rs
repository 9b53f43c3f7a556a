//! What every table takes from a cell of a result document, and what kind of document it is.

use vtax_model::{
    result::{CellRecord, CellStatus, Estimate, FileSummary, Metric, ResultDocument},
    study::Row,
};

use super::{notes::Notes, view::Value};

/// Whether the rows of a document are engines. They are compared on one path, whatever the cells are.
pub(crate) fn compares_engines(document: &ResultDocument) -> bool {
    matches!(document.baseline, Row::Engine(_))
}

/// What stands in a table in place of a figure that is missing.
pub(crate) fn absence(record: Option<&CellRecord>, notes: &mut Notes) -> Value {
    match record.map(|record| (record, &record.status)) {
        None | Some((_, CellStatus::Measured)) => Value::Absent,
        Some((_, CellStatus::Missing)) => "not run".into(),
        Some((record, CellStatus::Unavailable { .. })) => format!("n/a {}", notes.of_record(record)).into(),
        Some((record, CellStatus::Failed { .. })) => format!("failed {}", notes.of_record(record)).into(),
    }
}

/// The figure that a cell is judged by.
pub(crate) fn primary(record: &CellRecord) -> Option<Estimate> {
    estimate(record, Metric::of(record.cell.workload.kind()))
}

pub(crate) fn estimate(record: &CellRecord, of: Metric) -> Option<Estimate> {
    let summary = record.summary.as_ref()?;
    match of {
        Metric::Cpu => summary.cpu_threads_us_per_transaction.or(summary.cpu_threads_ns_per_kb),
        Metric::Rtt => summary.rtt_us.as_ref().map(|rtt| rtt.mean),
        Metric::Goodput => summary.goodput_mbps,
        Metric::Real => file(record).map(|file| file.real),
    }
}

/// What was measured of a file that was sent.
pub(crate) fn file(record: &CellRecord) -> Option<&FileSummary> {
    record.summary.as_ref()?.file.as_ref()
}

/// One text instead of the figures, if none of a row's cells can run here.
pub(crate) fn unavailable(records: &[&CellRecord], notes: &mut Notes) -> Option<String> {
    let none = !records.is_empty() && records.iter().all(|record| record.is_unavailable());
    none.then(|| format!("not available here {}", notes.of_record(records[0])))
}
