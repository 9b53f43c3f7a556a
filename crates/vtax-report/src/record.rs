//! Data that every table takes from a cell of a result document, and the kind of the document.

use vtax_model::{
    metric::{Metric, SampleFigure},
    result::{CellRecord, CellStatus, Estimate, FileSummary, ResultDocument},
    study::Row,
};

use super::{notes::Notes, view::Value};

/// Returns `true` if the rows of a document are engines or loads. They are compared on one path, whatever the cells are.
pub(crate) fn is_of_one_path(document: &ResultDocument) -> bool {
    matches!(document.baseline, Row::Engine(_) | Row::Load(_))
}

/// Returns `true` if a document is of disks. A run measures either disks or networks.
pub(crate) fn is_of_disks(document: &ResultDocument) -> bool {
    document.cells.iter().any(|record| record.cell.disk().is_some())
}

/// Returns `true` if a document is of migrations.
pub(crate) fn is_of_migrations(document: &ResultDocument) -> bool {
    document.cells.iter().any(|record| record.cell.migration().is_some())
}

/// Returns `true` if a document is of a network, and so has two endpoints.
pub(crate) fn is_of_network(document: &ResultDocument) -> bool {
    !is_of_disks(document) && !is_of_migrations(document)
}

/// Text of a table in place of a missing figure.
pub(crate) fn absence(record: Option<&CellRecord>, notes: &mut Notes) -> Value {
    match record.map(|record| (record, &record.status)) {
        None | Some((_, CellStatus::Measured)) => Value::Absent,
        Some((_, CellStatus::Missing)) => "not run".into(),
        Some((record, CellStatus::Unavailable { .. })) => format!("n/a {}", notes.of_record(record)).into(),
        Some((record, CellStatus::Failed { .. })) => format!("failed {}", notes.of_record(record)).into(),
    }
}

/// Primary figure of a cell, on which it is judged.
pub(crate) fn primary(record: &CellRecord) -> Option<Estimate> {
    estimate(record, Metric::of(record.cell.kind()))
}

pub(crate) fn estimate(record: &CellRecord, of: Metric) -> Option<Estimate> {
    record.summary.as_ref()?.estimate(of.figure(record.cell.kind()))
}

/// Busy time of both endpoints' machines per transaction or KB, whatever caused it, in the unit of CPU time of the test.
pub(crate) fn busy(record: &CellRecord) -> Option<f64> {
    let cost = record.summary.as_ref()?.estimate_of(SampleFigure::MACHINES)?;
    Some(cost.converted_to(Metric::unit_of_cpu(record.cell.kind()))?.mean)
}

/// Summary of a file transfer.
pub(crate) fn file(record: &CellRecord) -> Option<&FileSummary> {
    record.summary.as_ref()?.file.as_ref()
}

/// One text instead of the figures, if none of a row's cells is available.
pub(crate) fn unavailable(records: &[&CellRecord], notes: &mut Notes) -> Option<String> {
    let none = !records.is_empty() && records.iter().all(|record| record.is_unavailable());
    none.then(|| format!("not available {}", notes.of_record(records[0])))
}
