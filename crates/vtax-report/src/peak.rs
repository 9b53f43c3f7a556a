//! Published peak figures of a whole study, from a source without a table, next to those measured here.

use vtax_model::{
    cell::ColumnKey,
    metric::{FigureUnit, Metric, SampleFigure},
    published::{Published, PublishedPeak, PublishedSuspend, PublishedTax},
    result::{CellRecord, ResultDocument, TaxRecord},
    study::Row,
};

use super::{
    answer::said,
    blocks::{distinct, rows_head},
    column_unit::ColumnUnit,
    number::grouped,
    view::{Column, Group, Section, SectionPart, Table, TableRow, Value},
};

/// Returns `None` for a source that has its figures cell by cell.
pub(crate) fn section(document: &ResultDocument, published: &Published) -> Option<Section> {
    let cells: Vec<&CellRecord> = document.cells.iter().filter(|record| is_mixed(record)).collect();
    let tables = [
        published.peak.map(|peak| most(peak, &cells)),
        published.tax_percent.and_then(|tax| taxes(document, tax, &cells)),
        published.suspend.and_then(|suspend| shortest(document, suspend)),
    ];
    let mut parts: Vec<SectionPart> = tables.into_iter().flatten().map(SectionPart::Table).collect();
    if !parts.is_empty() {
        let size = published.peak.map_or(String::new(), of_size);
        parts.insert(0, SectionPart::Paragraph(format!("Published on: {}.{size}", published.testbed)));
    }
    Section::new("Comparison with published peaks", parts)
}

/// Explains the size of the I/Os.
fn of_size(PublishedPeak { iops, throughput_gb_s }: PublishedPeak) -> String {
    let size = throughput_gb_s * 1e6 / iops;
    format!(
        " The size of its I/Os is unpublished; {throughput_gb_s} GB/s at {} IOPS is {size:.1} kB for each.",
        grouped(iops as u64)
    )
}

/// The source reports random reads and writes.
fn is_mixed(record: &CellRecord) -> bool {
    let mixed = |share: u32| (1..100).contains(&share);
    record.cell.kind().is_transactions() && record.cell.disk().is_some_and(|disk| mixed(disk.reads.get()))
}

/// Peak of each row; the bandwidth follows from the block size.
fn most(peak: PublishedPeak, cells: &[&CellRecord]) -> Table {
    let rows = rows(cells);
    let highest: Vec<(Row, &CellRecord, f64)> = rows.iter().filter_map(|row| highest(*row, cells)).collect();
    let bandwidth = |record: &CellRecord, iops: f64| Some(iops * record.cell.disk()?.block.get().0 as f64 / 1e6);
    let theirs = peak.throughput_gb_s * 1e3;
    let all = highest.iter().filter_map(|(_, record, iops)| bandwidth(record, *iops)).chain([theirs]);
    let unit = ColumnUnit::of(FigureUnit::MegabytesPerSecond, all);
    let line = |(row, record, iops): &(Row, &CellRecord, f64)| {
        let block = record.cell.disk()?.block;
        let bandwidth = unit.optional(bandwidth(record, *iops));
        let values =
            [Value::Figure(*iops), bandwidth, record.cell.column().to_string().into(), block.to_string().into()];
        Some(TableRow::new(vec![row.to_string()], values))
    };
    let theirs = [Value::Figure(peak.iops), unit.figure(theirs), Value::Absent, "unpublished".into()];
    let published = TableRow::new(vec!["published, bare metal".to_owned()], theirs);
    Table {
        caption: "Peak IOPS, random reads and writes".into(),
        labels: vec![rows_head(&rows).into()],
        groups: vec![Group::right("", ["IOPS", unit.text(), "threads", "I/O size"])],
        rows: std::iter::once(published).chain(highest.iter().filter_map(line)).collect(),
        ..Table::default()
    }
}

/// Cell of a row with the most IOPS.
fn highest<'a>(row: Row, cells: &[&'a CellRecord]) -> Option<(Row, &'a CellRecord, f64)> {
    let iops = |record: &CellRecord| Some(record.summary.as_ref()?.estimate(SampleFigure::Iops)?.mean);
    let of_row = cells.iter().filter(|record| record.cell.row == row);
    let all = of_row.filter_map(|record| Some((row, *record, iops(record)?)));
    all.max_by(|(.., one), (.., other)| one.total_cmp(other))
}

/// Largest tax of each row. Returns `None` if nothing was compared.
fn taxes(document: &ResultDocument, published: PublishedTax, cells: &[&CellRecord]) -> Option<Table> {
    let rows: Vec<Row> = rows(cells);
    let line = |row: &Row| {
        let tax = |record: &CellRecord| record.tax_of(Metric::Response).cloned();
        let of_row = cells.iter().filter(|record| record.cell.row == *row);
        let (record, tax): (_, TaxRecord) = of_row
            .filter_map(|record| Some((*record, tax(record)?)))
            .max_by(|(_, one), (_, other)| one.ratio.total_cmp(&other.ratio))?;
        Some(TableRow::new(vec![row.to_string()], [said(&tax), record.cell.column().to_string()]))
    };
    let ours: Vec<TableRow> = rows.iter().filter_map(line).collect();
    let theirs = |what: &str, text: String| {
        TableRow::new(vec![format!("published, {what} implementation")], [Value::from(text), Value::Absent])
    };
    let PublishedTax { old_implementation_up_to, new_implementation_at_most } = published;
    let theirs = [
        theirs("old", format!("up to {old_implementation_up_to} %")),
        theirs("new", format!("at most {new_implementation_at_most} %")),
    ];
    (!ours.is_empty()).then(|| Table {
        caption: format!("Largest tax on response time compared with {}", document.baseline),
        labels: vec![rows_head(&rows).into()],
        groups: vec![Group::untitled([Column::left("tax [95 %]"), Column::right("threads")])],
        rows: theirs.into_iter().chain(ours).collect(),
        ..Table::default()
    })
}

/// Shortest mean suspend time of each row, and the guest that it is of.
fn shortest(document: &ResultDocument, published: PublishedSuspend) -> Option<Table> {
    let mean = |record: &CellRecord| Some(record.summary.as_ref()?.estimate(SampleFigure::Suspend)?.mean);
    let least = |row: &Row| {
        let of_row = document.cells.iter().filter(|record| record.cell.row == *row);
        let (record, ms) = of_row
            .filter_map(|record| Some((record, mean(record)?)))
            .min_by(|(_, one), (_, other)| one.total_cmp(other))?;
        let memory = record.cell.migration()?.memory.to_string();
        Some(TableRow::new(
            vec![row.to_string()],
            [Value::Figure(ms), memory.into(), record.cell.column().to_string().into()],
        ))
    };
    let rows = distinct(document.cells.iter().map(|record| record.cell.row));
    let ours: Vec<TableRow> = rows.iter().filter_map(least).collect();
    let PublishedSuspend { seconds, cores, advised_cores } = published;
    let theirs = TableRow::new(
        vec![format!("published, control domain with {cores} cores; {advised_cores} advised")],
        [Value::Figure(seconds * 1e3), "unpublished".into(), "very idle".into()],
    );
    (!ours.is_empty()).then(|| Table {
        caption: "Shortest suspend time".into(),
        labels: vec![rows_head(&rows).into()],
        groups: vec![Group::right("", ["ms", "memory", ColumnKey::DirtyRate(None).head()])],
        rows: std::iter::once(theirs).chain(ours).collect(),
        ..Table::default()
    })
}

fn rows(cells: &[&CellRecord]) -> Vec<Row> {
    distinct(cells.iter().map(|record| record.cell.row))
}
