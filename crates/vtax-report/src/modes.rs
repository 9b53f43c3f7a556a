//! Tables of each measurement mode: what its cells cost compared with the baseline.

use vtax_model::{
    cell::{ColumnKey, Instrument},
    foreign::ForeignText,
    metric::{FigureUnit, Metric, MetricFamily, SamplePercentile},
    published::PublishedFigure,
    result::{CellRecord, ResultDocument},
    study::Row,
    workload::{TestKind, WorkUnit},
};

use super::{
    Options, answer,
    blocks::{BlockCells, Reported, distinct, quantity, rows_head},
    column_unit::ColumnUnit,
    notes::Notes,
    number::grouped,
    record::{absence, busy, estimate, file, primary, unavailable},
    tax::Costs,
    trouble,
    view::{Group, Section, SectionPart, Table, TableRow, Value},
    words,
};

/// Returns a section for each measurement mode.
pub(crate) fn sections(report: &Reported<'_>, options: &Options, published: bool, notes: &mut Notes) -> Vec<Section> {
    let document = report.document;
    let of_mode = |(mode, blocks): (Instrument, Vec<&BlockCells<'_>>)| {
        let parts = parts(document, options, &blocks, published, notes);
        Section::of(title(document, mode), parts)
    };
    report.modes().into_iter().map(of_mode).collect()
}

fn parts(
    document: &ResultDocument,
    options: &Options,
    blocks: &[&BlockCells<'_>],
    published: bool,
    notes: &mut Notes,
) -> Vec<SectionPart> {
    let tables = blocks.iter().flat_map(|block| figured(block, published, notes));
    let mut parts: Vec<SectionPart> = tables.map(SectionPart::Table).collect();
    let enough = if options.detail || published { None } else { answer::column_that_tells_all(document, blocks) };
    let mut costs = Costs::new(document, options, notes).with_published(published).at(enough);
    let tests = distinct(blocks.iter().flat_map(|block| block.tests()));
    for test in &tests {
        for of in Metric::of_family(*test, MetricFamily::Speed) {
            parts.extend(costs.parts(blocks, *test, of));
        }
    }
    parts
}

/// Returns sections for each measurement mode with the metrics that the short report omits: percentiles and CPU time.
pub(crate) fn other_metrics(report: &Reported<'_>, options: &Options, notes: &mut Notes) -> Vec<Section> {
    let mut sections = Vec::new();
    for (mode, mine) in report.modes() {
        let mut of_families = |families: &[MetricFamily]| -> Vec<SectionPart> {
            let mut costs = Costs::new(report.document, options, notes);
            let tests = distinct(mine.iter().flat_map(|block| block.tests()));
            let of_family = |family: MetricFamily| {
                tests.iter().flat_map(move |test| Metric::of_family(*test, family).map(move |of| (*test, of)))
            };
            let metrics = families.iter().flat_map(|family| of_family(*family));
            let metrics = metrics.filter(|(test, of)| has_table(&mine, *test, *of));
            metrics.flat_map(|(test, of)| costs.parts(&mine, test, of)).collect()
        };
        let mut percentiles = of_families(&[MetricFamily::Percentiles]);
        percentiles.extend(withheld(&mine).map(SectionPart::Paragraph));
        let mut cpu = of_families(&[MetricFamily::Cpu, MetricFamily::HostCpu, MetricFamily::HostCpuParts]);
        cpu.extend(mine.iter().filter_map(|block| processor_time(block)).map(SectionPart::Table));
        for (title, parts) in [("Percentiles", percentiles), ("CPU", cpu)] {
            sections.extend(Section::new(format!("{title}: {}", words::of_instrument(mode)), parts));
        }
    }
    sections
}

/// Returns false for parts of the hosts' CPU time that are not compared: the section of that time has their levels.
fn has_table(blocks: &[&BlockCells<'_>], test: TestKind, of: Metric) -> bool {
    let records = || blocks.iter().flat_map(|block| block.records());
    let is_compared = |record: &CellRecord| record.cell.kind() == test && record.tax_of(of).is_some();
    of.role().is_none() || records().any(is_compared)
}

/// Returns a sentence if a cell has too few transactions for a percentile.
fn withheld(blocks: &[&BlockCells<'_>]) -> Option<String> {
    let records = || blocks.iter().flat_map(|block| block.records());
    let is_withheld = |of: &(Metric, SamplePercentile)| {
        let lacks = |record: &CellRecord| {
            let has_times = record.summary.as_ref().is_some_and(|summary| summary.times().is_some());
            record.cell.kind().metrics().contains(&of.0) && has_times && estimate(record, of.0).is_none()
        };
        records().any(lacks)
    };
    let percentiles = Metric::ALL.into_iter().filter_map(|of| Some((of, of.percentile()?)));
    let told = |(of, percentile): (Metric, SamplePercentile)| {
        format!("{} ({} transactions)", of.noun(), grouped(percentile.least_transactions()))
    };
    let told = words::list(percentiles.filter(is_withheld).map(told), ", ")?;
    Some(format!("Omitted where a sample has too few transactions: {told}. Longer samples (--duration) have more."))
}

/// Blocks with more columns than a level: figures of several published machines, and times of files.
fn figured(block: &BlockCells<'_>, published: bool, notes: &mut Notes) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    let alone = block.figured();
    if !alone.is_empty() && published && block.records().any(|record| !record.published_on.is_empty()) {
        tables.push(Figured { block, published, notes: &mut *notes }.matrix(&alone));
    }
    if let Some(test) = block.tests().into_iter().find(|test| test.is_file()) {
        tables.push(Figured { block, published, notes }.times(test));
    }
    for table in &mut tables {
        table.caption = words::joined([block.title(), table.caption.clone()], ": ");
    }
    tables
}

/// Title with the conditions of the figures below: the two measurement modes answer two questions.
pub(crate) fn title(document: &ResultDocument, instrument: Instrument) -> String {
    let of_instrument = || document.cells.iter().filter(|record| record.cell.instrument == instrument);
    let tcp = of_instrument().find(|record| record.cell.medium().is_tcp());
    let chosen = tcp.and_then(|record| record.cell.options().socket.congestion).map(|chosen| chosen.name().to_owned());
    let congestion = tcp.map(|_| chosen.unwrap_or_else(|| document.environment.congestion_control.to_string()));
    let mut how: Vec<String> = trouble::idle_words(of_instrument()).map(str::to_owned).into_iter().collect();
    how.extend(trouble::priority_words(of_instrument()));
    how.extend(congestion.filter(|name| !name.is_empty()).map(|name| format!("TCP {name}")));
    if instrument == Instrument::Path {
        how.extend(document.placement.path.map(|cpu| format!("both endpoints on CPU {cpu}")));
    }
    words::joined([words::capital(words::of_instrument(instrument)), how.join(", ")], ": ")
}

struct Figured<'a> {
    block: &'a BlockCells<'a>,
    /// Set if the figures of a source with several machines follow ours.
    published: bool,
    notes: &'a mut Notes,
}

impl Figured<'_> {
    /// RTT next to bandwidth, methods down, MTU across.
    fn matrix(mut self, tests: &[TestKind]) -> Table {
        let groups = tests.iter().flat_map(|test| self.groups(*test)).collect();
        let rows = self.block.rows();
        let labels = vec![rows_head(&rows).into()];
        let rows = rows.into_iter().map(|row| self.line(row, tests)).collect();
        Table { labels, groups, rows, ..Table::default() }
    }

    /// Unit of our figures and the published ones.
    fn unit(&self, test: TestKind) -> ColumnUnit {
        let records = || self.block.records().filter(|record| record.cell.kind() == test);
        let ours = records().filter_map(|record| Some(primary(record)?.mean));
        let theirs = records().filter(|_| self.published).flat_map(|record| &record.published_on);
        ColumnUnit::of_metric(Metric::of(test), test, ours.chain(theirs.map(|figure| figure.value)))
    }

    fn groups(&self, test: TestKind) -> Vec<Group> {
        let quantity = quantity(test, self.unit(test));
        let ours = Group::right(&quantity, self.block.columns().into_iter().map(ColumnKey::label));
        let theirs =
            Group::right(format!("{quantity}, published"), self.systems(test).iter().map(ForeignText::to_string));
        [Some(ours), Some(theirs).filter(|group| !group.columns.is_empty())].into_iter().flatten().collect()
    }

    fn line(&mut self, row: Row, tests: &[TestKind]) -> TableRow {
        let columns = self.block.columns();
        let mut figures = Vec::new();
        for test in tests {
            let unit = self.unit(*test);
            let records: Vec<_> = columns.iter().map(|column| self.block.cell(row, *column, *test)).collect();
            figures.extend(records.iter().map(|record| figure(*record, unit, self.notes)));
            for system in self.systems(*test) {
                let published = records.iter().flatten().find_map(|record| published_on(record, &system.to_string()));
                figures.push(published.map_or(Value::Absent, |figure| unit.given(figure.value)));
            }
        }
        TableRow::new(vec![row.to_string()], figures)
    }

    /// Real, user and sys of a file transfer, in the order of the source.
    fn times(mut self, test: TestKind) -> Table {
        let systems = self.systems(test);
        let ours = if systems.is_empty() { "Time (s)" } else { "here (s)" };
        let theirs = systems.iter().map(|system| format!("{system}, published (s)"));
        let titles = std::iter::once(ours.to_owned()).chain(theirs);
        let groups = titles.map(|title| Group::right(title, ["real", "user", "sys"])).collect();
        let (rows, columns) = (self.block.rows(), self.block.columns());
        let labels = vec![rows_head(&rows).into()];
        let keys = rows.iter().flat_map(|row| columns.iter().map(move |column| (*row, *column)));
        let rows = keys.map(|(row, column)| self.times_line(row, (column, test), &systems)).collect();
        Table { labels, groups, rows, ..Table::default() }
    }

    /// Machines of the source, if it has several.
    fn systems(&self, test: TestKind) -> Vec<ForeignText> {
        let of_test = self.block.records().filter(|record| record.cell.kind() == test);
        let figures = of_test.filter(|_| self.published).flat_map(|record| &record.published_on);
        distinct(figures.filter_map(|figure| figure.system.clone()))
    }

    fn times_line(&mut self, row: Row, (column, test): (ColumnKey, TestKind), systems: &[ForeignText]) -> TableRow {
        let record = self.block.cell(row, column, test);
        let label = if self.block.columns().len() > 1 { format!("{row}, {}", column.label()) } else { row.to_string() };
        let labels = vec![label];
        if let Some(text) = record.filter(|_| !self.published).and_then(|record| unavailable(&[record], self.notes)) {
            return TableRow::without_values(labels, text);
        }
        let mut figures = match record.and_then(file) {
            Some(file) => [&file.real, &file.user, &file.sys].map(|time| Value::Seconds(time.mean)).to_vec(),
            None => {
                let unit = ColumnUnit::of(FigureUnit::Seconds, []);
                vec![figure(record, unit, self.notes), Value::Absent, Value::Absent]
            }
        };
        for system in systems {
            let theirs = record.and_then(|record| published_on(record, &system.to_string()));
            let times = [
                theirs.map(|times| times.value),
                theirs.and_then(|times| times.user),
                theirs.and_then(|times| times.sys),
            ];
            figures.extend(times.map(|time| Value::or_absent(time.map(|time| format!("{time:.1}")))));
        }
        TableRow::new(labels, figures)
    }
}

/// Primary figure of a cell, without its interval.
fn figure(record: Option<&CellRecord>, unit: ColumnUnit, notes: &mut Notes) -> Value {
    let level = record.and_then(primary).map(|estimate| unit.figure(estimate.mean));
    level.unwrap_or_else(|| absence(record, notes))
}

fn published_on<'a>(record: &'a CellRecord, system: &str) -> Option<&'a PublishedFigure> {
    record.published_on.iter().find(|figure| figure.system.as_ref().map(ForeignText::raw) == Some(system))
}

/// Busy time of both endpoints' machines per transaction or KB, laid out like the figures; `None` if nothing was
/// measured.
fn processor_time(block: &BlockCells<'_>) -> Option<Table> {
    let (tests, columns, rows) = (block.tests(), block.columns(), block.rows());
    let unit = |test: TestKind| {
        let records = block.records().filter(|record| record.cell.kind() == test);
        ColumnUnit::of(Metric::unit_of_cpu(test), records.filter_map(busy))
    };
    let units: Vec<(TestKind, ColumnUnit)> = tests.iter().map(|test| (*test, unit(*test))).collect();
    let keys = || units.iter().flat_map(|of_test| columns.iter().map(move |column| (*of_test, *column)));
    let line = |row: &Row| {
        let cost = |((test, unit), column): ((TestKind, ColumnUnit), ColumnKey)| {
            block.cell(*row, column, test).and_then(busy).map(|cost| unit.figure(cost))
        };
        let costs: Vec<Option<Value>> = keys().map(cost).collect();
        let any = costs.iter().any(Option::is_some);
        any.then(|| TableRow::new(vec![row.to_string()], costs.into_iter().map(Value::or_absent)))
    };
    let heads = || columns.iter().map(|column| column.label());
    let table = Table {
        caption: format!("{}: busy time of both endpoints' machines, whatever caused it", block.title()),
        labels: vec![rows_head(&rows).into()],
        groups: units.iter().map(|(test, unit)| Group::right(processor_quantity(*test, *unit), heads())).collect(),
        rows: rows.iter().filter_map(line).collect(),
        ..Table::default()
    };
    (!table.rows.is_empty()).then_some(table)
}

fn processor_quantity(test: TestKind, unit: ColumnUnit) -> String {
    let unit = match test.work_unit() {
        WorkUnit::Transaction => format!("{} per transaction", unit.text()),
        WorkUnit::Kilobyte => unit.text().to_owned(),
    };
    let of = if test.is_plain() { String::new() } else { format!("{test}, ") };
    format!("busy ({of}{unit})")
}
