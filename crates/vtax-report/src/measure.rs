//! Report of `vtax measure`, whose rows are engines or loads on one path: a line for each test and swept value, as netperf and
//! sockperf print them, and a comparison of the engines.

use vtax_model::{
    cell::{Arm, Cell},
    metric::{FigureUnit, Metric, SampleFigure},
    result::{
        CellRecord, CellStatus, CpuAtEnds, Estimate, FileSummary, ResultDocument, RttSummary, RttTimes, SummaryRecord,
        UnitEstimate,
    },
    run::{CpuReading, EndCpuReading},
    study::Row as CellRow,
    workload::TestFamily,
};
use vtax_stats::{Confidence, Pair, PairedTax};

use super::{
    Options, added_latency,
    column_unit::ColumnUnit,
    labels::Labels,
    notes::Notes,
    number::lost,
    record::busy,
    series, tax,
    view::{Column, Group, Section, SectionPart, Table, TableRow, Value},
};

/// Returns sections for transactions, streams and files, and a comparison of the rows.
pub(crate) fn sections(document: &ResultDocument, options: &Options, notes: &mut Notes) -> Vec<Section> {
    let of = |family: TestFamily| -> Vec<&CellRecord> {
        document.cells.iter().filter(|record| record.cell.kind().family() == family).collect()
    };
    let transactions = of(TestFamily::Transactions);
    let mut sections = Vec::new();
    if !transactions.is_empty() {
        let only_rr = transactions.iter().all(|record| record.cell.kind().is_round_trips());
        let title = if only_rr { "Round trips" } else { "Transactions" };
        sections.push(list(title, &transactions, &transaction_columns(&transactions), notes));
    }
    for (title, records) in [("Streams", of(TestFamily::Streams)), ("Files", of(TestFamily::Files))] {
        if !records.is_empty() {
            sections.push(list(title, &records, &stream_columns(&records), notes));
        }
    }
    match document.baseline {
        CellRow::Load(_) => sections.extend(added_latency::section(document, notes)),
        _ => sections.extend(engines(document, options, notes)),
    }
    sections
}

/// Value of a column on a line; `None` where there is nothing to report.
type ValueOf<'a> = Box<dyn Fn(&Line<'_>) -> Option<Value> + 'a>;

/// Column of a list and the title above it.
struct Listed<'a> {
    group: String,
    column: Column,
    value: ValueOf<'a>,
}

struct Line<'a> {
    record: &'a CellRecord,
    summary: &'a SummaryRecord,
    /// Open loop: set on the line of times from the actual send.
    from_send: bool,
}

impl Line<'_> {
    fn rtt(&self) -> Option<&RttSummary> {
        let SummaryRecord { rtt_us, rtt_from_send_us, .. } = self.summary;
        if self.from_send { rtt_from_send_us.as_ref() } else { rtt_us.as_ref() }
    }
}

impl<'a> Listed<'a> {
    fn right(group: &str, head: &str, value: impl Fn(&Line<'_>) -> Option<Value> + 'a) -> Listed<'a> {
        Listed { group: group.to_owned(), column: Column::right(head), value: Box::new(value) }
    }

    /// Column whose value the line of times from the actual send shares with the line above it.
    fn once(group: &str, head: &str, value: impl Fn(&Line<'_>) -> Option<Value> + 'a) -> Listed<'a> {
        Listed::right(group, head, move |line| if line.from_send { Some("".into()) } else { value(line) })
    }
}

fn transaction_columns<'a>(records: &[&'a CellRecord]) -> Vec<Listed<'a>> {
    let unit = unit_of_times(records.iter().filter_map(|record| record.summary.as_ref()));
    let group = &title_of_times(records, unit);
    let of_times = |head, value: fn(&RttTimes) -> f64| {
        let value = move |l: &Line<'_>| Some(unit.optional(l.rtt()?.times.as_ref().map(value)));
        Listed::right(group, head, value)
    };
    let rate = |l: &Line<'_>| l.summary.estimate(SampleFigure::Rate).map(|rate| Value::Figure(rate.mean));
    let mut columns = vec![
        Listed::once("", "rate/s", rate),
        Listed::right(group, "mean [95 %]", move |l| Some(unit.estimate(&l.rtt()?.mean))),
        of_times("p50", |times| times.p50.value),
        of_times("p99", |times| times.p99.value),
        of_times("p99.9", |times| times.p999.value),
        of_times("max", |times| times.max),
    ];
    columns.extend(processor_columns(records));
    columns.extend(datagram_columns(records));
    columns.extend(series_column(records));
    columns.extend(hot_column(records));
    columns
}

fn title_of_times(records: &[&CellRecord], unit: ColumnUnit) -> String {
    let only_rr = records.iter().all(|record| record.cell.kind().is_round_trips());
    format!("{} ({})", if only_rr { "round trip" } else { "time per transaction" }, unit.text())
}

/// Unit of times per transaction, including those from the actual send.
fn unit_of_times<'a>(summaries: impl Iterator<Item = &'a SummaryRecord>) -> ColumnUnit {
    let all = summaries.flat_map(|summary| [&summary.rtt_us, &summary.rtt_from_send_us]).flatten();
    let times = all.flat_map(|rtt| {
        let times = rtt.times.as_ref().map(|times| [times.p50.value, times.p99.value, times.p999.value, times.max]);
        times.into_iter().flatten().chain([rtt.mean.mean])
    });
    ColumnUnit::of(FigureUnit::Microseconds, times)
}

fn stream_columns<'a>(records: &[&'a CellRecord]) -> Vec<Listed<'a>> {
    let goodput = |record: &CellRecord| record.summary.as_ref()?.estimate(SampleFigure::Goodput);
    let rates = records.iter().filter_map(|record| Some(goodput(record)?.mean));
    let unit = ColumnUnit::of(SampleFigure::Goodput.unit(), rates);
    let head = format!("{} [95 %]", unit.text());
    let mut columns = vec![Listed::once("", &head, move |l| goodput(l.record).map(|rate| unit.estimate(&rate)))];
    if records.iter().any(|record| record.cell.kind().is_file()) {
        let time = |head, value: fn(&FileSummary) -> Estimate| {
            Listed::once("time (s)", head, move |l| {
                l.summary.file.as_ref().map(|file| Value::Seconds(value(file).mean))
            })
        };
        columns.extend([time("real", |f| f.real), time("user", |f| f.user), time("sys", |f| f.sys)]);
    }
    columns.extend(processor_columns(records));
    if records.iter().any(|record| record.cell.medium().is_tcp()) {
        let is_tcp = |l: &Line<'_>| l.record.cell.medium().is_tcp();
        columns.push(Listed::once("", "retransmits", move |l| {
            is_tcp(l).then(|| l.summary.retransmits.map_or(Value::Absent, Value::count))
        }));
    }
    columns.extend(datagram_columns(records));
    if records.iter().filter_map(|record| record.summary.as_ref()).any(|summary| summary.reordered > Some(0)) {
        columns.push(Listed::once("", "reordered", |l| l.summary.reordered.map(Value::count)));
    }
    columns.extend(series_column(records));
    columns
}

/// CPU time of each endpoint's threads. Other programs report only how busy their machines were.
fn processor_columns<'a>(records: &[&'a CellRecord]) -> Vec<Listed<'a>> {
    let told = |record: &&CellRecord| record.summary.as_ref().is_some_and(|s| s.cpu_us_at_ends.is_some());
    if !records.iter().any(told) && records.iter().any(|record| busy(record).is_some()) {
        let unit = unit_of_busy(records);
        let busy = move |l: &Line<'_>| busy(l.record).map(|busy| unit.figure(busy));
        return vec![Listed::once(&format!("machines busy ({})", unit.text()), "both endpoints", busy)];
    }
    let ends: [fn(&CpuAtEnds) -> Estimate; 2] = [|ends| ends.initiator, |ends| ends.responder];
    let all = records.iter().flat_map(|record| ends.map(|end| threads_of(record, end))).flatten();
    let unit = ColumnUnit::of(unit_of_cpu(records), all);
    let group = format!("CPU ({})", unit.text());
    let of = |end| move |l: &Line<'_>| threads_of(l.record, end).map(|cost| unit.figure(cost));
    ["init.", "resp."].into_iter().zip(ends).map(|(head, end)| Listed::once(&group, head, of(end))).collect()
}

/// CPU time of an endpoint's threads in the unit of CPU time of its test.
fn threads_of(record: &CellRecord, end: fn(&CpuAtEnds) -> Estimate) -> Option<f64> {
    let kind = record.cell.kind();
    let cost = end(record.summary.as_ref()?.cpu_us_at_ends.as_ref()?);
    let cost = UnitEstimate::new(cost, FigureUnit::cpu_microseconds(kind));
    Some(cost.converted_to(Metric::unit_of_cpu(kind))?.mean)
}

/// Stored unit of CPU time of tests of one family.
fn unit_of_cpu(records: &[&CellRecord]) -> FigureUnit {
    records.first().map_or(FigureUnit::Microseconds, |record| Metric::unit_of_cpu(record.cell.kind()))
}

fn unit_of_busy(records: &[&CellRecord]) -> ColumnUnit {
    ColumnUnit::of(unit_of_cpu(records), records.iter().filter_map(|record| busy(record)))
}

fn datagram_columns<'a>(records: &[&'a CellRecord]) -> Vec<Listed<'a>> {
    let counts = |record: &CellRecord| record.cell.medium().is_datagram();
    if !records.iter().any(|record| counts(record)) {
        return Vec::new();
    }
    let mut columns = vec![Listed::once("", "lost", move |l| counts(l.record).then(|| lost(l.summary)))];
    if records.iter().filter_map(|record| record.summary.as_ref()).any(|summary| summary.socket_drops > Some(0)) {
        let drops = move |l: &Line<'_>| counts(l.record).then_some(l.summary.socket_drops).flatten().map(Value::count);
        columns.push(Listed::once("", "socket drops, incl. warm-up", drops));
    }
    columns
}

fn series_column<'a>(records: &[&'a CellRecord]) -> Option<Listed<'a>> {
    let any = records.iter().any(|record| series::trace(record).is_some());
    let value = |line: &Line<'_>| if line.from_send { None } else { series::trace(line.record).map(Value::Trace) };
    any.then(|| Listed { group: String::new(), column: Column::left("rate over time"), value: Box::new(value) })
}

/// Cold against hot: a round trip after a gap compared with one without.
fn hot_column<'a>(records: &[&'a CellRecord]) -> Option<Listed<'a>> {
    let all = records.to_vec();
    let hot_of = move |cold: &CellRecord| all.iter().find(|hot| is_hot_of(&hot.cell, &cold.cell)).copied();
    let any = records.iter().any(|record| hot_of(record).is_some());
    let value = move |line: &Line<'_>| against_hot(line.record, hot_of(line.record)?);
    any.then(|| Listed { group: String::new(), column: Column::right("ratio to no gap"), value: Box::new(value) })
}

fn is_hot_of(hot: &Cell, cold: &Cell) -> bool {
    let idles = |cell: &Cell| cell.options().gap.is_some_and(|gap| !gap.0.is_zero());
    let mut same = *cold;
    if let Some(net) = same.net_mut() {
        net.options.gap = hot.options().gap;
    }
    same.variant = hot.variant;
    idles(cold) && !idles(hot) && same == *hot
}

/// Both from the histograms: the inverse of a rate with gaps is not a time.
fn against_hot(cold: &CellRecord, hot: &CellRecord) -> Option<Value> {
    let mean = |record: &CellRecord, round: u32| {
        let of_round = record.samples.iter().find(|sample| sample.round == round && sample.arm == Arm::A);
        of_round.and_then(|sample| Some(sample.rtt?.mean))
    };
    let rounds = hot.samples.iter().filter(|sample| sample.arm == Arm::A).map(|sample| sample.round);
    let pairs: Vec<Pair> =
        rounds.filter_map(|round| Some(Pair { baseline: mean(hot, round)?, cell: mean(cold, round)? })).collect();
    match PairedTax::of(&pairs, Confidence::P95) {
        Ok(found) => Some(Value::Estimate { mean: found.ratio, ends: Some([found.low, found.high]) }),
        Err(_) => pairs.first().map(|pair| Value::Figure(pair.cell / pair.baseline)),
    }
}

fn list(title: &str, records: &[&CellRecord], columns: &[Listed<'_>], notes: &mut Notes) -> Section {
    let labels = Labels::of_records(records);
    let timed = records.iter().any(|record| is_open(record)).then(|| "timed from".to_owned());
    let rows = records.iter().flat_map(|record| lines(record, &labels, timed.is_some(), columns, notes)).collect();
    let groups = columns.chunk_by(|one, next| one.group == next.group).map(|columns| Group {
        title: columns[0].group.clone(),
        columns: columns.iter().map(|listed| listed.column.clone()).collect(),
    });
    let labels = labels.heads().into_iter().chain(timed).collect();
    let table = Table { labels, groups: groups.collect(), rows, ..Table::default() };
    Section::of(title, vec![SectionPart::Table(table)])
}

/// One line, or two in the open loop.
fn lines(
    record: &CellRecord,
    labels: &Labels,
    timed: bool,
    columns: &[Listed<'_>],
    notes: &mut Notes,
) -> Vec<TableRow> {
    let mut labels = labels.line(&record.cell);
    let Some(summary) = &record.summary else {
        labels.extend(timed.then(String::new));
        return vec![TableRow::without_values(labels, without_values(record, notes))];
    };
    let row = |labels: &[String], from: &str, from_send: bool| {
        let line = Line { record, summary, from_send };
        let values = columns.iter().map(|listed| (listed.value)(&line).unwrap_or(Value::Absent));
        TableRow::new(labels.iter().cloned().chain(timed.then(|| from.to_owned())).collect(), values)
    };
    if !is_open(record) {
        return vec![row(&labels, "sent", false)];
    }
    let due = row(&labels, "due", false);
    labels.iter_mut().skip(1).for_each(String::clear);
    vec![due, row(&labels, "sent", true)]
}

fn is_open(record: &CellRecord) -> bool {
    record.summary.as_ref().is_some_and(|summary| summary.rtt_from_send_us.is_some())
}

fn without_values(record: &CellRecord, notes: &mut Notes) -> String {
    match &record.status {
        CellStatus::Unavailable { .. } => format!("not available {}", notes.of_record(record)),
        CellStatus::Failed { .. } => format!("failed {}", notes.of_record(record)),
        CellStatus::Measured | CellStatus::Missing => "not run".into(),
    }
}

/// Compares every engine with the first, and that one with itself for the noise.
fn engines(document: &ResultDocument, options: &Options, notes: &mut Notes) -> Option<Section> {
    let mut costs = tax::Costs::new(document, options, notes);
    let baseline = document.baseline;
    let other = |record: &&CellRecord| record.cell.row != baseline && record.summary.is_some();
    let compared: Vec<&CellRecord> = document.cells.iter().filter(other).collect();
    let all: Vec<&CellRecord> = document.cells.iter().collect();
    let labels = Labels::of_records(&all);
    let mut rows = Vec::new();
    for (index, record) in compared.iter().enumerate() {
        let tax = costs.tax(record, Metric::of(record.cell.kind()));
        rows.push(TableRow::new(labels.line(&record.cell), [tax]));
        let block = record.cell.block();
        if compared.get(index + 1).is_none_or(|next| next.cell.block() != block) {
            rows.extend(again(document, record, &labels));
        }
    }
    let groups = vec![Group::untitled([Column::left("change [95 %]")])];
    Section::of_table(
        format!("Engines compared with {baseline}"),
        Table { labels: labels.heads(), groups, rows, ..Table::default() },
    )
}

fn again(document: &ResultDocument, record: &CellRecord, labels: &Labels) -> Option<TableRow> {
    let floor = tax::floor(document, &record.cell.block(), Metric::of(record.cell.kind()))?;
    let mut cell = record.cell;
    cell.row = document.baseline;
    if let (CellRow::Engine(engine), Some(net)) = (document.baseline, cell.net_mut()) {
        net.options.engine = engine;
    }
    let mut labels = labels.line(&cell);
    if let Some(engine) = labels.iter_mut().find(|label| **label == document.baseline.to_string()) {
        *engine = format!("{} (repeated)", document.baseline);
    }
    Some(TableRow::new(labels, [tax::again(floor)]))
}

/// Intervals of the percentiles, and the CPU time of each endpoint.
pub(crate) fn detail(document: &ResultDocument) -> Option<Section> {
    let measured: Vec<&CellRecord> = document.cells.iter().filter(|record| rtt_of(record).is_some()).collect();
    let labels = Labels::of_records(&measured);
    let unit = unit_of_times(measured.iter().filter_map(|record| record.summary.as_ref()));
    let busy_unit = unit_of_busy(&measured);
    let row = |record: &&CellRecord| {
        let rtt = rtt_of(record)?;
        let percentiles = match &rtt.times {
            Some(times) => [&times.p50, &times.p99, &times.p999].map(|percentile| unit.percentile(percentile)),
            None => [Value::Absent, Value::Absent, Value::Absent],
        };
        let used = threads(record).into_iter().chain([busy_unit.optional(busy(record))]);
        let values = percentiles.into_iter().chain(used).chain([rtt.mean.n.to_string().into()]);
        Some(TableRow::new(labels.line(&record.cell), values))
    };
    let table = Table {
        labels: labels.heads(),
        groups: vec![
            Group::right(title_of_times(&measured, unit), ["p50 [95 %]", "p99 [95 %]", "p99.9 [95 %]"]),
            Group::right("CPU of threads", ["init.", "resp.", "waiting"]),
            Group::right(format!("machines ({})", busy_unit.text()), ["busy"]),
            Group::right("", ["n"]),
        ],
        rows: measured.iter().filter_map(row).collect(),
        ..Table::default()
    };
    Section::of_table("Details", table)
}

fn rtt_of(record: &CellRecord) -> Option<&RttSummary> {
    record.summary.as_ref()?.rtt_us.as_ref()
}

/// Shares of a CPU used by the measuring threads of each endpoint, and by both for busy-waiting for exact moments.
fn threads(record: &CellRecord) -> [Value; 3] {
    let share = |end: fn(&CpuReading) -> &EndCpuReading, of: fn(&EndCpuReading) -> f64| {
        let ends = || record.samples.iter().map(|sample| end(&sample.cpu));
        ends().map(of).sum::<f64>() / ends().map(|end| end.seconds).sum::<f64>()
    };
    let [initiator, responder]: [fn(&CpuReading) -> &EndCpuReading; 2] = [|cpu| &cpu.initiator, |cpu| &cpu.responder];
    let used = |end: &EndCpuReading| end.user + end.system;
    let waiting = share(initiator, |end| end.waiting) + share(responder, |end| end.waiting);
    [Value::Share(share(initiator, used)), Value::Share(share(responder, used)), Value::Share(waiting)]
}
