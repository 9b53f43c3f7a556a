//! A run's report: for each instrument what each method costs against the baseline, then what could not be
//! measured, and the answer in sentences.

use std::collections::BTreeSet;

use vtax_model::{
    cell::Instrument,
    measurement::EndReport,
    published::{Published, PublishedFigure},
    result::{CellRecord, CellStatus, Metric, ResultDocument, SummaryRecord},
    run::Failure,
    study::Row,
    units::Mtu,
    workload::{TestKind, Transport},
};

use super::{
    Options, answer, bars, beside,
    blocks::{BlockCells, blocks, distinct, quantity, rows_head},
    detail, heading, host_cpu, labels,
    layout::{Column, Figure, Group, Report, RowValues, Section, SectionPart, Table, TableRow},
    machine, measure,
    notes::Notes,
    number::{counted, grouped, seconds, three_digits},
    pairs, path, processor, reading,
    record::{absence, compares_engines, file, primary},
    series, stages,
    tax::Costs,
    trouble, words,
};

pub(super) fn report(document: &ResultDocument, options: &Options) -> Report {
    let wanted = options.published.unwrap_or_else(|| beside::is_worth_it(document));
    let published = wanted.then(|| Published::of(&document.study)).flatten();
    let mut notes = Notes::default();
    let mut sections: Vec<Section> = bars::section(document, options).into_iter().collect();
    match compares_engines(document) {
        true => sections.extend(measure::sections(document, options, &mut notes)),
        false => sections.extend(instruments(document, options, published.is_some(), &mut notes)),
    }
    let pairs = pairs::section(document, options.detail);
    sections.extend([stages::section(document), pairs, host_cpu::section(document)].into_iter().flatten());
    sections.extend(path::ends(document, options.detail));
    if options.detail {
        sections.extend(detailed(document));
    }
    sections.extend(noted(notes));
    sections.extend(failures(document));
    sections.push(reading::section(document, published.as_ref(), options));
    Report {
        title: document.title.clone(),
        warnings: heading::warnings(document),
        facts: heading::facts(document, options.detail),
        sections,
        answer: answer::section(document, options.detail),
    }
    .with_caveat(document.caveat.as_deref())
}

fn detailed(document: &ResultDocument) -> Vec<Section> {
    let mut sections: Vec<Section> = match compares_engines(document) {
        true => measure::detail(document).into_iter().collect(),
        false => blocks(document).iter().filter_map(detail::section).collect(),
    };
    let others =
        [detail::noise_floor(document), series::section(document), path::section(document), machine::section(document)];
    sections.extend(others.into_iter().flatten());
    sections
}

/// A section for each instrument, the one that answers the study's question first: figures of two of them answer two
/// questions and share no table.
fn instruments(document: &ResultDocument, options: &Options, published: bool, notes: &mut Notes) -> Vec<Section> {
    let all = blocks(document);
    let mut sections = Vec::new();
    for instrument in document.instruments() {
        let mine: Vec<&BlockCells<'_>> = all.iter().filter(|block| block.instrument == instrument).collect();
        let mut parts = parts(document, options, &mine, published, notes);
        // The CPU time of the other instrument is for --detail, where each has all tables of it.
        if !options.detail && sections.is_empty() {
            parts.extend(processor::table(&mut Costs::new(document, options, notes), &mine).map(SectionPart::Table));
        }
        sections.push(Section { title: instrument_title(document, instrument), parts });
    }
    sections
}

fn parts(
    document: &ResultDocument,
    options: &Options,
    blocks: &[&BlockCells<'_>],
    published: bool,
    notes: &mut Notes,
) -> Vec<SectionPart> {
    let mut tables = Vec::new();
    for block in blocks {
        tables.extend(figured(document, block, published, notes));
    }
    let mut costs = Costs::new(document, options, notes);
    let tests = distinct(blocks.iter().flat_map(|block| block.tests()));
    for test in &tests {
        tables.extend(costs.tables(blocks, *test, Metric::of(*test)));
    }
    if options.detail {
        tests.iter().for_each(|test| tables.extend(costs.tables(blocks, *test, Metric::Cpu)));
        tables.extend(blocks.iter().filter_map(|block| processor_time(block)));
    }
    tables.into_iter().map(SectionPart::Table).collect()
}

/// What has more columns than a level: published figures beside ours, and the times of files.
fn figured(document: &ResultDocument, block: &BlockCells<'_>, published: bool, notes: &mut Notes) -> Vec<Table> {
    let (beside, alone): (Vec<TestKind>, Vec<TestKind>) =
        block.figured().into_iter().partition(|test| published && beside::is_of(block, *test));
    let mut tables: Vec<Table> = beside.into_iter().map(|test| beside::table(document, block, test, notes)).collect();
    let of_several = published && block.records().any(|record| !record.published_on.is_empty());
    if !alone.is_empty() && of_several {
        tables.push(Figured { block, published, notes: &mut *notes }.matrix(&alone));
    }
    if block.tests().contains(&TestKind::File) {
        tables.push(Figured { block, published, notes }.times());
    }
    for table in &mut tables {
        table.caption = [block.title(), table.caption.clone()]
            .into_iter()
            .filter(|text| !text.is_empty())
            .collect::<Vec<_>>()
            .join(": ");
    }
    tables
}

/// How the figures below were measured: the two instruments answer two questions.
fn instrument_title(document: &ResultDocument, instrument: Instrument) -> String {
    let of_instrument = || document.cells.iter().filter(|record| record.cell.instrument == instrument);
    let tcp = of_instrument().find(|record| record.cell.transport == Transport::Tcp);
    let chosen = tcp.and_then(|record| record.cell.options.socket.congestion).map(|chosen| chosen.name().to_owned());
    let congestion = tcp.map(|_| chosen.unwrap_or_else(|| document.environment.congestion_control.clone()));
    let mut how: Vec<String> = trouble::idle_words(of_instrument()).map(str::to_owned).into_iter().collect();
    how.extend(congestion.filter(|name| !name.is_empty()).map(|name| format!("TCP {name}")));
    if instrument == Instrument::Path {
        how.extend(document.placement.path.map(|cpu| format!("both ends on CPU {cpu}")));
    }
    let how = if how.is_empty() { String::new() } else { format!(": {}", how.join(", ")) };
    format!("{}{how}", words::capital(words::of_instrument(instrument)))
}

/// Builds the tables of figures of one block.
struct Figured<'a> {
    block: &'a BlockCells<'a>,
    /// Those of a source with several machines, after ours.
    published: bool,
    notes: &'a mut Notes,
}

impl<'a> Figured<'a> {
    /// RTT beside bandwidth, methods down, MTU across.
    fn matrix(mut self, tests: &[TestKind]) -> Table {
        let groups = tests.iter().flat_map(|test| self.groups(*test)).collect();
        let (rows, mtus) = (self.block.rows(), self.block.mtus());
        let labels = vec![rows_head(&rows).into()];
        let lines = rows.into_iter().map(|row| self.line(row, tests, &mtus)).collect();
        Table { labels, groups, rows: lines, ..Table::default() }
    }

    fn groups(&self, test: TestKind) -> Vec<Group> {
        let systems = self.systems(test);
        let columns = self.block.mtus().into_iter().map(|mtu| Column::right(format!("MTU {mtu}"))).collect();
        let of_systems = Group {
            title: format!("{}, published", quantity(test)),
            columns: systems.iter().map(Column::right).collect(),
        };
        let mut groups = vec![Group { title: quantity(test).into(), columns }];
        groups.extend((!systems.is_empty()).then_some(of_systems));
        groups
    }

    fn line(&mut self, row: Row, tests: &[TestKind], mtus: &[Mtu]) -> TableRow {
        let mut figures = Vec::new();
        for test in tests {
            let systems = self.systems(*test);
            for mtu in mtus {
                let record = self.block.cell(row, *mtu, *test);
                figures.push(figure(record, self.notes));
            }
            let all = || mtus.iter().filter_map(|mtu| self.block.cell(row, *mtu, *test));
            let on = |system: &String| all().find_map(|record| published_on(record, system)).map(|figure| figure.value);
            figures.extend(systems.iter().map(|system| published_figure(on(system))));
        }
        let records = self.records(row, tests, mtus);
        self.row(row.to_string(), records, figures)
    }

    fn records(&self, row: Row, tests: &[TestKind], mtus: &[Mtu]) -> Vec<&'a CellRecord> {
        let keys = tests.iter().flat_map(|test| mtus.iter().map(move |mtu| (*test, *mtu)));
        keys.filter_map(|(test, mtu)| self.block.cell(row, mtu, test)).collect()
    }

    /// One text instead of the figures if the row can't run here and nobody published any.
    fn row(&mut self, label: String, records: Vec<&CellRecord>, figures: Vec<Figure>) -> TableRow {
        let unavailable = |record: &&CellRecord| matches!(record.status, CellStatus::Unavailable { .. });
        match records.first() {
            Some(first) if !self.published && records.iter().all(unavailable) => {
                let text = format!("not available here {}", self.notes.of_record(first));
                TableRow { labels: vec![label], figures: RowValues::None(text) }
            }
            _ => TableRow::new(label, figures),
        }
    }

    /// Real, user and sys of a file transfer, in the order of the source.
    fn times(mut self) -> Table {
        let systems = self.systems(TestKind::File);
        let ours = if systems.is_empty() { "Time (s)" } else { "here (s)" };
        let theirs = systems.iter().map(|system| format!("{system}, published (s)"));
        let titles = std::iter::once(ours.to_owned()).chain(theirs);
        let groups = titles.map(|title| Group { title, columns: ["real", "user", "sys"].map(Column::right).into() });
        let groups = groups.collect();
        let (rows, mtus) = (self.block.rows(), self.block.mtus());
        let labels = vec![rows_head(&rows).into()];
        let keys = rows.iter().flat_map(|row| mtus.iter().map(move |mtu| (*row, *mtu)));
        let lines = keys.map(|(row, mtu)| self.times_line(row, mtu, &systems)).collect();
        Table { labels, groups, rows: lines, ..Table::default() }
    }

    /// The machines of the source, if it has several.
    fn systems(&self, test: TestKind) -> Vec<String> {
        let of_test = self.block.records().filter(|record| record.cell.workload.kind() == test);
        let figures = of_test.filter(|_| self.published).flat_map(|record| &record.published_on);
        distinct(figures.filter_map(|figure| figure.system.clone()))
    }

    fn times_line(&mut self, row: Row, mtu: Mtu, systems: &[String]) -> TableRow {
        let record = self.block.cell(row, mtu, TestKind::File);
        let mut figures = match record.and_then(file) {
            Some(file) => [&file.real, &file.user, &file.sys].map(|time| Figure::text(seconds(time.mean))).to_vec(),
            None => vec![figure(record, self.notes), Figure::absent(), Figure::absent()],
        };
        let text = |time: Option<f64>| time.map_or(Figure::absent(), |time| Figure::text(format!("{time:.1}")));
        for system in systems {
            let theirs = record.and_then(|record| published_on(record, system));
            let [user, sys] = [theirs.and_then(|times| times.user), theirs.and_then(|times| times.sys)];
            figures.extend([theirs.map(|times| times.value), user, sys].map(text));
        }
        let label = if self.block.mtus().len() > 1 { format!("{row}, MTU {mtu}") } else { row.to_string() };
        self.row(label, record.into_iter().collect(), figures)
    }
}

/// What a cell is judged by, without its interval.
fn figure(record: Option<&CellRecord>, notes: &mut Notes) -> Figure {
    let measured = record.and_then(primary).map(|estimate| Figure::text(three_digits(estimate.mean)));
    measured.unwrap_or_else(|| absence(record, notes))
}

fn published_on<'a>(record: &'a CellRecord, system: &str) -> Option<&'a PublishedFigure> {
    record.published_on.iter().find(|figure| figure.system.as_deref() == Some(system))
}

fn published_figure(figure: Option<f64>) -> Figure {
    figure.map_or(Figure::absent(), |figure| Figure::text(figure.to_string()))
}

/// CPU of both ends for each transaction or KB, laid out as the figures; none if nothing was measured.
fn processor_time(block: &BlockCells<'_>) -> Option<Table> {
    let (tests, mtus) = (block.tests(), block.mtus());
    let columns = || mtus.iter().map(|mtu| Column::right(format!("MTU {mtu}"))).collect();
    let groups = tests.iter().map(|test| Group { title: processor_quantity(*test), columns: columns() });
    let groups = groups.collect();
    let keys = || tests.iter().flat_map(|test| mtus.iter().map(move |mtu| (*test, *mtu)));
    let line = |row: Row| {
        let costs: Vec<_> = keys().map(|(test, mtu)| block.cell(row, mtu, test).and_then(processor_cost)).collect();
        let figure = |cost: &Option<f64>| cost.map_or(Figure::absent(), |cost| Figure::text(three_digits(cost)));
        costs.iter().any(Option::is_some).then(|| TableRow::new(row.to_string(), costs.iter().map(figure).collect()))
    };
    let all = block.rows();
    let labels = vec![rows_head(&all).into()];
    let rows: Vec<TableRow> = all.into_iter().filter_map(line).collect();
    let caption = format!("{}: CPU time of both ends' machines, whatever it was spent on", block.title());
    (!rows.is_empty()).then_some(Table { caption, labels, groups, rows, ..Table::default() })
}

fn processor_quantity(test: TestKind) -> String {
    let unit = if test.is_transactions() { "transaction" } else { "KB" };
    let of = match test {
        TestKind::Rr | TestKind::Stream | TestKind::File => String::new(),
        other => format!("{other}, "),
    };
    format!("CPU ({of}µs per {unit})")
}

fn processor_cost(record: &CellRecord) -> Option<f64> {
    let SummaryRecord { cpu_us_per_transaction, cpu_us_per_kb, .. } = record.summary.as_ref()?;
    cpu_us_per_transaction.or(*cpu_us_per_kb).map(|cost| cost.mean)
}

fn noted(notes: Notes) -> Option<Section> {
    let list = notes.into_list();
    (!list.is_empty()).then(|| Section { title: String::new(), parts: vec![SectionPart::List(list)] })
}

/// Samples that could not be taken, those of one row with one error together.
fn failures(document: &ResultDocument) -> Option<Section> {
    let mut seen: Vec<((String, &str), Vec<&Failure>)> = Vec::new();
    for failure in &document.failures {
        let row = document.cells.get(failure.cell).map(|record| record.cell.row.to_string());
        let key = (row.unwrap_or_else(|| format!("cell {}", failure.cell)), failure.error.as_str());
        match seen.iter_mut().find(|(known, _)| *known == key) {
            Some((_, failures)) => failures.push(failure),
            None => seen.push((key, vec![failure])),
        }
    }
    let line = |((row, error), failures): &((String, &str), Vec<&Failure>)| {
        let rest = partial(failures).map_or(String::new(), |text| format!(" ({text})"));
        ("-".to_owned(), format!("{row}, {}: {error}{rest}", whereabouts(document, failures)))
    };
    let list: Vec<_> = seen.iter().map(line).collect();
    let title = || format!("Failed: {}", counted(document.failures.len() as u32, "sample"));
    (!list.is_empty()).then(|| Section { title: title(), parts: vec![SectionPart::List(list)] })
}

/// `after 0.42 s: 4,210 transactions; not used`, of the sample that came furthest.
fn partial(failures: &[&Failure]) -> Option<String> {
    let ends = failures.iter().filter_map(|failure| failure.partial.as_ref());
    let ends: Vec<&EndReport> = ends.flat_map(|partial| [&partial.initiator, &partial.responder]).flatten().collect();
    let furthest = ends.into_iter().max_by(|a, b| (a.transactions, a.bytes).cmp(&(b.transactions, b.bytes)))?;
    let EndReport { seconds, transactions, bytes, .. } = furthest;
    let what = match (transactions, bytes) {
        (0, bytes) => format!("{} bytes", grouped(*bytes)),
        (transactions, _) => format!("{} transactions", grouped(*transactions)),
    };
    let which = if failures.len() > 1 { "the one that came furthest " } else { "" };
    Some(format!("{which}after {seconds:.2} s: {what}; not used"))
}

/// `4 samples of TCP RR, UDP RR in rounds 5, 10`
fn whereabouts(document: &ResultDocument, failures: &[&Failure]) -> String {
    let cells: BTreeSet<usize> = failures.iter().map(|failure| failure.cell).collect();
    let rounds: BTreeSet<u32> = failures.iter().map(|failure| failure.round).collect();
    let mut tests: Vec<String> = Vec::new();
    for cell in cells.iter().filter_map(|index| document.cells.get(*index)).map(|record| &record.cell) {
        let test = labels::test(cell);
        if !tests.contains(&test) {
            tests.push(test);
        }
    }
    let rounds: Vec<String> = rounds.iter().map(u32::to_string).collect();
    let word = if rounds.len() == 1 { "round" } else { "rounds" };
    let samples = counted(failures.len() as u32, "sample");
    format!("{samples} of {} in {word} {}", tests.join(", "), rounds.join(", "))
}
