//! What every table takes from a cell of a result document, and what kind of document it is.

use vtax_model::{
    metric::{FigureStyle, Metric},
    result::{CellRecord, CellStatus, Estimate, FileSummary, ResultDocument},
    study::Row,
};

use super::{notes::Notes, view::Value};

/// Whether the rows of a document are engines. They are compared on one path, whatever the cells are.
pub(crate) fn compares_engines(document: &ResultDocument) -> bool {
    matches!(document.baseline, Row::Engine(_))
}

/// Whether a document is of disks. A run measures either these or networks.
pub(crate) fn is_of_disks(document: &ResultDocument) -> bool {
    document.cells.iter().any(|record| record.cell.disk().is_some())
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
    estimate(record, Metric::of(record.cell.kind()))
}

pub(crate) fn estimate(record: &CellRecord, of: Metric) -> Option<Estimate> {
    record.summary.as_ref()?.estimate(of.figure(record.cell.kind()))
}

/// A value of a metric, as tables write it.
pub(crate) fn level(of: Metric, value: f64) -> Value {
    match of.style() {
        FigureStyle::Seconds => Value::Seconds(value),
        FigureStyle::Digits => Value::Figure(value),
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
