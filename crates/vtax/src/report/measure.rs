//! The report of `vtax measure`, whose rows are engines on one path: a line for each test and
//! swept value, as netperf and sockperf print one, and how the engines compare.

use vtax_model::{
    cell::{Arm, Cell},
    result::{CellRecord, CellStatus, Metric, ResultDocument, RttSummary, SummaryRecord},
    run::{CpuFigures, EndCpu},
    stats::{Confidence, Pair, PairedTax},
    study::Row as CellRow,
    workload::{TestKind, Transport},
};

use super::{
    Options,
    labels::Labels,
    layout::{Column, Figure, Group, RowValues, Section, SectionPart, Table, TableRow},
    notes::Notes,
    number::{estimate, lost, percent, seconds, three_digits, with_interval},
    series, tax,
};

/// A section for transactions, one for streams, one for files, and the engines against each other.
pub(super) fn sections(document: &ResultDocument, options: &Options, notes: &mut Notes) -> Vec<Section> {
    let of = |is: fn(TestKind) -> bool| -> Vec<&CellRecord> {
        document.cells.iter().filter(|record| is(record.cell.workload.kind())).collect()
    };
    let transactions = of(TestKind::is_transactions);
    let mut sections = Vec::new();
    if !transactions.is_empty() {
        let only_rr = transactions.iter().all(|record| record.cell.workload.kind() == TestKind::Rr);
        let title = if only_rr { "Round trips" } else { "Transactions" };
        sections.push(List::of(&transactions, transaction_columns(&transactions)).section(title, notes));
    }
    for (title, records) in [("Streams", of(TestKind::is_stream)), ("Files", of(|kind| kind == TestKind::File))] {
        if !records.is_empty() {
            sections.push(List::of(&records, stream_columns(&records)).section(title, notes));
        }
    }
    sections.extend(engines(document, options, notes));
    sections
}

/// What a column has on a line; none where there is nothing to tell.
type FigureOf<'a> = Box<dyn Fn(&Line<'_>) -> Option<Figure> + 'a>;

/// A column of a list and the title above it.
struct Listed<'a> {
    group: &'static str,
    column: Column,
    figure: FigureOf<'a>,
}

/// A line of a list.
struct Line<'a> {
    record: &'a CellRecord,
    summary: &'a SummaryRecord,
    /// Open loop: whether this is the line of times from the actual send.
    from_send: bool,
}

impl Line<'_> {
    fn rtt(&self) -> Option<&RttSummary> {
        let SummaryRecord { rtt_us, rtt_from_send_us, .. } = self.summary;
        if self.from_send { rtt_from_send_us.as_ref() } else { rtt_us.as_ref() }
    }
}

impl<'a> Listed<'a> {
    fn right(group: &'static str, head: &'static str, figure: impl Fn(&Line<'_>) -> Option<String> + 'a) -> Listed<'a> {
        let figure = Box::new(move |line: &Line<'_>| figure(line).map(Figure::Text));
        Listed { group, column: Column::right(head), figure }
    }

    /// Of what the line of times from the actual send shares with the one above it.
    fn once(group: &'static str, head: &'static str, figure: impl Fn(&Line<'_>) -> Option<String> + 'a) -> Listed<'a> {
        Listed::right(group, head, move |line| if line.from_send { Some(String::new()) } else { figure(line) })
    }
}

fn transaction_columns<'a>(records: &[&'a CellRecord]) -> Vec<Listed<'a>> {
    let only_rr = records.iter().all(|record| record.cell.workload.kind() == TestKind::Rr);
    let group = if only_rr { "round trip (µs)" } else { "time of each (µs)" };
    let rtt = |head, value: fn(&RttSummary) -> String| Listed::right(group, head, move |l| l.rtt().map(value));
    let rate = |l: &Line<'_>| l.summary.transactions_per_s.map(|rate| three_digits(rate.mean));
    let mut columns = vec![
        Listed::once("", "rate/s", rate),
        rtt("mean [95 %]", |rtt| estimate(&rtt.mean)),
        rtt("p50", |rtt| three_digits(rtt.p50.value)),
        rtt("p99", |rtt| three_digits(rtt.p99.value)),
        rtt("p99.9", |rtt| three_digits(rtt.p999.value)),
        rtt("max", |rtt| three_digits(rtt.max)),
    ];
    columns.extend(processor_columns(records, "CPU (µs)"));
    columns.extend(datagram_columns(records));
    columns.extend(series_column(records));
    columns.extend(hot_column(records));
    columns
}

fn stream_columns<'a>(records: &[&'a CellRecord]) -> Vec<Listed<'a>> {
    let mut columns = vec![Listed::once("", "Mb/s [95 %]", |l| l.summary.goodput_mbps.as_ref().map(estimate))];
    if records.iter().any(|record| record.cell.workload.kind() == TestKind::File) {
        let time = |head, value: fn(&SummaryRecord) -> Option<f64>| {
            Listed::once("time (s)", head, move |l| value(l.summary).map(seconds))
        };
        columns.push(time("real", |summary| Some(summary.file.as_ref()?.real.mean)));
        columns.push(time("user", |summary| Some(summary.file.as_ref()?.user.mean)));
        columns.push(time("sys", |summary| Some(summary.file.as_ref()?.sys.mean)));
    }
    columns.extend(processor_columns(records, "CPU (µs per KB)"));
    if records.iter().any(|record| record.cell.transport == Transport::Tcp) {
        let is_tcp = |l: &Line<'_>| l.record.cell.transport == Transport::Tcp;
        columns.push(Listed::once("", "retransmits", move |l| is_tcp(l).then(|| l.summary.retransmits.to_string())));
    }
    columns.extend(datagram_columns(records));
    if records.iter().filter_map(|record| record.summary.as_ref()).any(|summary| summary.reordered > 0) {
        columns.push(Listed::once("", "overtaken", |l| Some(l.summary.reordered.to_string())));
    }
    columns.extend(series_column(records));
    columns
}

/// One column for both ends if they share a machine, whose work can't be told apart.
fn processor_columns<'a>(records: &[&'a CellRecord], group: &'static str) -> Vec<Listed<'a>> {
    let apart = records.iter().filter_map(|record| record.summary.as_ref()).any(|s| s.cpu_us_at_ends.is_some());
    if !apart {
        let both = |l: &Line<'_>| l.summary.cpu_us_per_transaction.or(l.summary.cpu_us_per_kb);
        return vec![Listed::once(group, "both ends", move |l| both(l).map(|cost| three_digits(cost.mean)))];
    }
    let ends = |l: &Line<'_>| l.summary.cpu_us_at_ends;
    vec![
        Listed::once(group, "init.", move |l| ends(l).map(|cpu| three_digits(cpu.initiator.mean))),
        Listed::once(group, "resp.", move |l| ends(l).map(|cpu| three_digits(cpu.responder.mean))),
    ]
}

fn datagram_columns<'a>(records: &[&'a CellRecord]) -> Vec<Listed<'a>> {
    let counts = |record: &CellRecord| record.cell.transport.is_datagram();
    if !records.iter().any(|record| counts(record)) {
        return Vec::new();
    }
    let mut columns = vec![Listed::once("", "lost", move |l| counts(l.record).then(|| lost(l.summary)))];
    if records.iter().filter_map(|record| record.summary.as_ref()).any(|summary| summary.socket_drops > 0) {
        let drops = move |l: &Line<'_>| counts(l.record).then(|| l.summary.socket_drops.to_string());
        columns.push(Listed::once("", "socket full, with warm-up", drops));
    }
    columns
}

fn series_column<'a>(records: &[&'a CellRecord]) -> Option<Listed<'a>> {
    let any = records.iter().any(|record| series::sparkline(record).is_some());
    let figure = |line: &Line<'_>| match line.from_send {
        true => None,
        false => series::sparkline(line.record).map(Figure::Text),
    };
    any.then(|| Listed { group: "", column: Column::left("over time"), figure: Box::new(figure) })
}

/// Cold against hot: a round trip after a gap against one without.
fn hot_column<'a>(records: &[&'a CellRecord]) -> Option<Listed<'a>> {
    let all = records.to_vec();
    let hot_of = move |cold: &CellRecord| all.iter().find(|hot| is_hot_of(&hot.cell, &cold.cell)).copied();
    let any = records.iter().any(|record| hot_of(record).is_some());
    let figure = move |line: &Line<'_>| against_hot(line.record, hot_of(line.record)?);
    any.then(|| Listed { group: "", column: Column::right("times no gap"), figure: Box::new(figure) })
}

fn is_hot_of(hot: &Cell, cold: &Cell) -> bool {
    let idles = |cell: &Cell| cell.options.gap.is_some_and(|gap| !gap.0.is_zero());
    let mut same = *cold;
    same.options.gap = hot.options.gap;
    same.variant = hot.variant;
    idles(cold) && !idles(hot) && same == *hot
}

/// Both from the histograms: the inverse of a rate with gaps in it is no time.
fn against_hot(cold: &CellRecord, hot: &CellRecord) -> Option<Figure> {
    let mean = |record: &CellRecord, round: u32| {
        let of_round = record.samples.iter().find(|sample| sample.round == round && sample.arm == Arm::A);
        of_round.and_then(|sample| Some(sample.figures.rtt_ns.as_ref()?.mean))
    };
    let rounds = hot.samples.iter().filter(|sample| sample.arm == Arm::A).map(|sample| sample.round);
    let pairs: Vec<Pair> =
        rounds.filter_map(|round| Some(Pair { baseline: mean(hot, round)?, cell: mean(cold, round)? })).collect();
    match PairedTax::of(&pairs, Confidence::P95) {
        Ok(found) => Some(Figure::text(with_interval(found.ratio, Some(found.low), Some(found.high)))),
        Err(_) => pairs.first().map(|pair| Figure::text(three_digits(pair.cell / pair.baseline))),
    }
}

/// A table with a line for each cell.
struct List<'a> {
    labels: Labels,
    records: Vec<&'a CellRecord>,
    columns: Vec<Listed<'a>>,
}

impl<'a> List<'a> {
    fn of(records: &[&'a CellRecord], columns: Vec<Listed<'a>>) -> List<'a> {
        List { labels: Labels::of_records(records), records: records.to_vec(), columns }
    }

    fn section(&self, title: &str, notes: &mut Notes) -> Section {
        let open = self.records.iter().any(|record| is_open(record));
        let mut labels = self.labels.heads();
        labels.extend(open.then(|| "timed from".to_owned()));
        let rows = self.records.iter().flat_map(|record| self.rows(record, open, notes)).collect();
        let table = Table { labels, groups: self.groups(), rows, ..Table::default() };
        Section { title: title.into(), parts: vec![SectionPart::Table(table)] }
    }

    fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for Listed { group, column, .. } in &self.columns {
            match groups.last_mut() {
                Some(last) if last.title == *group => last.columns.push(column.clone()),
                _ => groups.push(Group { title: (*group).into(), columns: vec![column.clone()] }),
            }
        }
        groups
    }

    /// One, or two in the open loop.
    fn rows(&self, record: &CellRecord, open: bool, notes: &mut Notes) -> Vec<TableRow> {
        let labels = |timed: &str, again: bool| {
            let mut labels = self.labels.line(&record.cell);
            labels.iter_mut().skip(1).filter(|_| again).for_each(String::clear);
            labels.extend(open.then(|| timed.to_owned()));
            labels
        };
        let Some(summary) = &record.summary else {
            return vec![TableRow {
                labels: labels("", false),
                figures: RowValues::None(without_figures(record, notes)),
            }];
        };
        let row = |timed: &str, from_send: bool| {
            let line = Line { record, summary, from_send };
            let figures = self.columns.iter().map(|listed| (listed.figure)(&line).unwrap_or(Figure::absent()));
            TableRow { labels: labels(timed, from_send), figures: RowValues::Each(figures.collect()) }
        };
        match is_open(record) {
            true => vec![row("due", false), row("sent", true)],
            false => vec![row("sent", false)],
        }
    }
}

fn is_open(record: &CellRecord) -> bool {
    record.summary.as_ref().is_some_and(|summary| summary.rtt_from_send_us.is_some())
}

fn without_figures(record: &CellRecord, notes: &mut Notes) -> String {
    match &record.status {
        CellStatus::Unavailable { .. } => format!("not available here {}", notes.of_record(record)),
        CellStatus::Failed { .. } => format!("failed {}", notes.of_record(record)),
        CellStatus::Measured | CellStatus::Missing => "not run".into(),
    }
}

/// Every engine against the first, with that one against itself for the noise.
fn engines(document: &ResultDocument, options: &Options, notes: &mut Notes) -> Option<Section> {
    let mut costs = tax::Costs::new(document, options, notes);
    let baseline = document.baseline;
    let other = |record: &&CellRecord| record.cell.row != baseline && record.summary.is_some();
    let compared: Vec<&CellRecord> = document.cells.iter().filter(other).collect();
    let all: Vec<&CellRecord> = document.cells.iter().collect();
    let labels = Labels::of_records(&all);
    let mut rows = Vec::new();
    for (index, record) in compared.iter().enumerate() {
        let figures = vec![costs.figure(record, Metric::of(record.cell.workload.kind()))];
        rows.push(TableRow { labels: labels.line(&record.cell), figures: RowValues::Each(figures) });
        let block = record.cell.block();
        if compared.get(index + 1).is_none_or(|next| next.cell.block() != block) {
            rows.extend(again(document, record, &labels));
        }
    }
    let columns = vec![Column::left("µs, or ns per KB [95 %]")];
    let groups = vec![Group { title: String::new(), columns }];
    let table = Table { labels: labels.heads(), groups, rows, ..Table::default() };
    let title = format!("Engines against {baseline}");
    (!compared.is_empty()).then(|| Section { title, parts: vec![SectionPart::Table(table)] })
}

fn again(document: &ResultDocument, record: &CellRecord, labels: &Labels) -> Option<TableRow> {
    let floor = tax::floor(document, &record.cell.block(), Metric::of(record.cell.workload.kind()))?;
    let mut cell = record.cell;
    cell.row = document.baseline;
    if let CellRow::Engine(engine) = document.baseline {
        cell.options.engine = engine;
    }
    let mut labels = labels.line(&cell);
    if let Some(engine) = labels.iter_mut().find(|label| **label == document.baseline.to_string()) {
        *engine = format!("{} again", document.baseline);
    }
    Some(TableRow { labels, figures: RowValues::Each(vec![tax::again(floor)]) })
}

/// Intervals of the percentiles, and whose CPU it was.
pub(super) fn detail(document: &ResultDocument) -> Option<Section> {
    let measured: Vec<&CellRecord> = document.cells.iter().filter(|record| rtt_of(record).is_some()).collect();
    let labels = Labels::of_records(&measured);
    let row = |record: &&CellRecord| {
        let rtt = rtt_of(record)?;
        let percentiles = [&rtt.p50, &rtt.p99, &rtt.p999].map(|p| with_interval(p.value, p.low, p.high));
        let texts = percentiles.into_iter().chain(threads(record)).chain([rtt.mean.n.to_string()]);
        Some(TableRow {
            labels: labels.line(&record.cell),
            figures: RowValues::Each(texts.map(Figure::Text).collect()),
        })
    };
    let group = |title: &str, heads: &[&str]| Group {
        title: title.into(),
        columns: heads.iter().copied().map(Column::right).collect(),
    };
    let times = ["p50 [95 %]", "p99 [95 %]", "p99.9 [95 %]"];
    let table = Table {
        labels: labels.heads(),
        groups: vec![
            group("time of each (µs)", &times),
            group("CPU of threads", &["init.", "resp."]),
            group("", &["n"]),
        ],
        rows: measured.iter().filter_map(row).collect(),
        ..Table::default()
    };
    (!measured.is_empty()).then(|| Section { title: "In detail".into(), parts: vec![SectionPart::Table(table)] })
}

fn rtt_of(record: &CellRecord) -> Option<&RttSummary> {
    record.summary.as_ref()?.rtt_us.as_ref()
}

/// Shares of a CPU that the measuring threads of each end took.
fn threads(record: &CellRecord) -> [String; 2] {
    let share = |end: fn(&CpuFigures) -> &EndCpu| {
        let ends = record.samples.iter().map(|sample| end(&sample.figures.cpu));
        let (mut busy, mut seconds) = (0.0, 0.0);
        for end in ends {
            busy += end.threads.iter().map(|thread| thread.user + thread.system).sum::<f64>();
            seconds += end.seconds;
        }
        percent(busy / seconds)
    };
    [share(|cpu| &cpu.initiator), share(|cpu| &cpu.responder)]
}
