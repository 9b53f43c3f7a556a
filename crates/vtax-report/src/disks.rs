//! Facts about measured disks: what is behind each, and whether caches in memory were measured instead.

use vtax_model::{
    result::ResultDocument,
    run::DiskPathRecord,
    study::{DiskRow, Row},
};

use super::{blocks::distinct, notes::Notes, words};

/// Returns a line for each disk: its rows, its path and the program that measured it.
pub(crate) fn facts(document: &ResultDocument) -> Vec<String> {
    let disks = &document.disks;
    let behind = |record: &DiskPathRecord| (record.disk.clone(), record.program.clone(), record.path.clone());
    let lines = distinct(disks.iter().map(behind)).into_iter().map(|known| {
        let (disk, program, path) = &known;
        let mine = disks.iter().filter(|record| behind(record) == known && !is_named_by(record.method, record));
        let rows = words::list(mine.map(|record| record.method.to_string()), ", ");
        let rows = rows.map_or(String::new(), |rows| format!("{rows}: "));
        let named = if path.path == *disk { String::new() } else { format!("{disk} is ") };
        format!("{rows}{named}{path}; measured by {program}")
    });
    lines.collect()
}

/// Returns `true` if the name of a row identifies the disk.
fn is_named_by(row: Row, record: &DiskPathRecord) -> bool {
    matches!(row, Row::Disk(DiskRow::Named(label)) if record.disk.raw().ends_with(&label.to_string()))
}

/// Name of a row, marked with a note if its figures aren't those of a disk.
pub(crate) fn label(document: &ResultDocument, row: Row, notes: &mut Notes) -> String {
    match cached(document, row) {
        Some(caches) => format!("{row} {}", notes.mark(format!("CACHED: figures of {caches}, not of a disk"))),
        None => row.to_string(),
    }
}

/// Warns that memory of the machine was measured.
pub(crate) fn warning(document: &ResultDocument) -> Option<String> {
    let rows = distinct(document.disks.iter().map(|record| record.method));
    let told = |row: Row| Some(format!("{row} ({})", cached(document, row)?));
    let rows = words::list(rows.into_iter().filter_map(told), "; ")?;
    Some(format!(
        "CACHED: I/Os of {rows} may have been served from memory of this machine. To measure the disk itself, use \
         direct=on and a file on a disk."
    ))
}

/// Caches on the paths of a row.
pub(crate) fn cached(document: &ResultDocument, row: Row) -> Option<String> {
    let mine = document.disks.iter().filter(|record| record.method == row);
    let caches = distinct(mine.flat_map(|record| record.path.caches()));
    words::list(caches.iter().map(ToString::to_string), ", ")
}
