//! What every table takes from a cell of a result document, and what kind of document it is.

use vtax_model::{
    result::{CellRecord, CellStatus, Estimate, FileSummary, Metric, ResultDocument},
    study::Row,
};

use super::{layout::Figure, notes::Notes};

/// Whether the rows of a document are engines. They are compared on one path, whatever the cells are.
pub(super) fn compares_engines(document: &ResultDocument) -> bool {
    matches!(document.baseline, Row::Engine(_))
}

/// What stands in a table in place of a figure that is missing.
pub(super) fn absence(record: Option<&CellRecord>, notes: &mut Notes) -> Figure {
    match record.map(|record| (record, &record.status)) {
        None | Some((_, CellStatus::Measured)) => Figure::absent(),
        Some((_, CellStatus::Missing)) => Figure::text("not run"),
        Some((record, CellStatus::Unavailable { .. })) => Figure::text(format!("n/a {}", notes.of_record(record))),
        Some((record, CellStatus::Failed { .. })) => Figure::text(format!("failed {}", notes.of_record(record))),
    }
}

/// The figure that a cell is judged by.
pub(super) fn primary(record: &CellRecord) -> Option<Estimate> {
    let summary = record.summary.as_ref()?;
    match Metric::of(record.cell.workload.kind()) {
        Metric::Cpu => summary.cpu_threads_us_per_transaction.or(summary.cpu_threads_ns_per_kb),
        Metric::Rtt => summary.rtt_us.as_ref().map(|rtt| rtt.mean),
        Metric::Goodput => summary.goodput_mbps,
        Metric::Real => file(record).map(|file| file.real),
    }
}

/// What was measured of a file that was sent.
pub(super) fn file(record: &CellRecord) -> Option<&FileSummary> {
    record.summary.as_ref()?.file.as_ref()
}
