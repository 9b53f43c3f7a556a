//! Round trips as bars: one for each row at each swept size, next to the published figure.

use vtax_model::{
    cell::{Cell, TestWork},
    metric::FigureUnit,
    published::Published,
    result::{CellRecord, CellStatus, ResultDocument},
    study::Row,
};

use super::{
    blocks::{distinct, rows_head},
    column_unit::ColumnUnit,
    labels,
    record::{is_of_one_path, primary},
    view::{Column, Group, Section, SectionPart, Table, TableRow, Value},
};

/// Returns a table for each transport, number of streams and MTU that has round trips of several sizes or pairs.
pub(crate) fn section(document: &ResultDocument) -> Option<Section> {
    let tables = charts(document).into_iter().map(|chart| SectionPart::Table(chart.table()));
    Section::new("Round-trip overview", tables.collect())
}

/// Returns the legend of the bars and the source of the published figures in them.
pub(crate) fn reading(document: &ResultDocument) -> Vec<String> {
    let charts = charts(document);
    if charts.is_empty() {
        return Vec::new();
    }
    let baseline = document.baseline;
    let ratio = format!("\"× {baseline}\" is the ratio to {baseline} at the same size, paired round by round");
    let published =
        if charts.iter().any(Chart::has_published) { "; published: ratio of the two published figures" } else { "" };
    vec![format!("{ratio}{published}.")]
}

/// Returns the source if published figures appear in the bars whatever the options are.
pub(crate) fn cites(document: &ResultDocument) -> Option<Published> {
    charts(document).iter().any(Chart::has_published).then(|| Published::of(&document.study)).flatten()
}

struct Chart<'a> {
    baseline: Row,
    records: Vec<&'a CellRecord>,
    /// Set for MTU and number of streams, in this order, if the document has several of them.
    several: [bool; 2],
}

fn charts(document: &ResultDocument) -> Vec<Chart<'_>> {
    if is_of_one_path(document) {
        return Vec::new();
    }
    let all = || document.cells.iter().filter(|record| record.cell.kind().is_round_trips());
    let key = |cell: &Cell| (cell.medium(), cell.parallel(), cell.column());
    let several = [
        distinct(all().map(|record| record.cell.column())).len() > 1,
        distinct(all().map(|record| record.cell.parallel())).len() > 1,
    ];
    let chart = |wanted| {
        let records = all().filter(|record| key(&record.cell) == wanted).collect();
        Chart { baseline: document.baseline, records, several }
    };
    let charts = distinct(all().map(|record| key(&record.cell))).into_iter().map(chart);
    charts.filter(Chart::is_worth_it).collect()
}

impl Chart<'_> {
    fn is_worth_it(&self) -> bool {
        let measured = self.records.iter().any(|record| primary(record).is_some());
        measured && (self.sizes().len() > 1 || self.pairs().is_some())
    }

    fn sizes(&self) -> Vec<TestWork> {
        distinct(self.records.iter().map(|record| record.cell.work()))
    }

    fn pairs(&self) -> Option<u32> {
        let several = |record: &&CellRecord| Some(record.summary.as_ref()?.parallel.as_ref()?.pairs.len() as u32);
        self.records.iter().find_map(several)
    }

    fn has_published(&self) -> bool {
        self.records.iter().any(|record| record.published.is_some())
    }

    fn table(&self) -> Table {
        let rows = distinct(self.records.iter().map(|record| record.cell.row));
        let cells = self.sizes().into_iter().flat_map(|size| rows.iter().map(move |row| (size, *row)));
        Table {
            caption: self.caption(),
            labels: vec!["size".to_owned(), rows_head(&rows).to_owned()],
            groups: self.groups(),
            rows: cells.filter_map(|(size, row)| self.line(size, row)).collect(),
            ..Table::default()
        }
    }

    fn caption(&self) -> String {
        let Some(first) = self.records.first() else { return String::new() };
        let [columns, parallel] = self.several;
        let cell = &first.cell;
        let parts = [
            Some(labels::test(cell)),
            columns.then(|| cell.column().label()),
            (parallel || cell.parallel() > 1).then(|| cell.medium().counted(cell.parallel())),
            self.pairs().map(|pairs| format!("{pairs} concurrent pairs")),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// Unit of our round trips and the published ones.
    fn unit(&self) -> ColumnUnit {
        let ours = self.records.iter().filter_map(|record| Some(primary(record)?.mean));
        let theirs = self.records.iter().filter_map(|record| record.published);
        ColumnUnit::of(FigureUnit::Microseconds, ours.chain(theirs))
    }

    fn groups(&self) -> Vec<Group> {
        let published = self.has_published();
        let theirs =
            Group::right("published", [format!("RTT ({})", self.unit().text()), format!("× {}", self.baseline)]);
        let ours = std::iter::once(Column::left("from zero")).chain(theirs.columns.clone()).collect();
        let ours = Group { title: if published { "here".into() } else { String::new() }, columns: ours };
        std::iter::once(ours).chain(published.then_some(theirs)).collect()
    }

    fn record(&self, size: TestWork, row: Row) -> Option<&CellRecord> {
        self.records.iter().find(|record| record.cell.work() == size && record.cell.row == row).copied()
    }

    fn line(&self, size: TestWork, row: Row) -> Option<TableRow> {
        let record = self.record(size, row)?;
        let most = self.records.iter().filter_map(|record| Some(primary(record)?.mean)).fold(0.0, f64::max);
        let ours = primary(record).map(|estimate| estimate.mean);
        let mut figures = vec![
            ours.map_or_else(|| absence(record).into(), |mean| Value::Bar(mean / most)),
            self.unit().optional(ours),
            Value::figure(self.ratio(record)),
        ];
        if self.has_published() {
            let theirs = record.published;
            let baseline = self.record(size, self.baseline).and_then(|baseline| baseline.published);
            figures.push(self.unit().optional(theirs));
            figures.push(Value::figure(theirs.zip(baseline).map(|(theirs, baseline)| theirs / baseline)));
        }
        Some(TableRow::new(vec![labels::size(&record.cell), row.to_string()], figures))
    }

    fn ratio(&self, record: &CellRecord) -> Option<f64> {
        match &record.tax {
            Some(tax) => Some(tax.ratio),
            None => (record.cell.row == self.baseline && primary(record).is_some()).then_some(1.0),
        }
    }
}

fn absence(record: &CellRecord) -> &'static str {
    match record.status {
        CellStatus::Measured => "—",
        CellStatus::Unavailable { .. } => "not available",
        CellStatus::Failed { .. } => "failed",
        CellStatus::Missing => "not run",
    }
}
