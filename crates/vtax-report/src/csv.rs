//! CSV export (RFC 4180) for spreadsheets and data frames: one line per cell, one figure per column in full precision,
//! an empty field where there is none.

mod disks;
mod migrations;

use vtax_model::{
    metric::{Metric, ObservedCpu, SampleFigure},
    published::PublishedFigure,
    result::{
        CellRecord, CellStatus, Delta, Estimate, ParallelSummary, Percentile, ResultDocument, RttSummary, RttTimes,
        SummaryRecord, TaxRecord,
    },
    units::Span,
    workload::TestKind,
};

use super::{
    compare::{Compared, RunComparison},
    pairs::extremes,
    record, words,
};
use Value::{Cost, Estimated, Interval, Level, One, Tax};

/// Name and value of a column; `docs/csv.md` documents the meaning of each.
type Column = (&'static str, Value);

type TaxField = fn(&TaxRecord) -> Option<String>;

#[derive(Clone, Copy)]
enum Value {
    One(for<'a> fn(&Line<'a>) -> Option<String>),
    /// Three columns: a figure, and the lower and upper bound of its 95 % interval.
    Interval(for<'a> fn(&Line<'a>) -> Option<[Option<f64>; 3]>),
    /// Three columns for the level of a metric.
    Level(Metric),
    /// Three columns for a figure of the samples.
    Estimated(SampleFigure),
    /// Cost of a cell by a metric.
    Tax(Metric, TaxField),
    /// Three columns: the cost as a time.
    Cost(Metric),
}

/// Cell within its run.
struct Line<'a> {
    document: &'a ResultDocument,
    record: &'a CellRecord,
    summary: Option<&'a SummaryRecord>,
    tax: Option<&'a TaxRecord>,
}

impl<'a> Line<'a> {
    fn new(document: &'a ResultDocument, record: &'a CellRecord) -> Line<'a> {
        Line { document, record, summary: record.summary.as_ref(), tax: record.tax.as_ref() }
    }

    fn rtt(&self) -> Option<&RttSummary> {
        self.summary?.time_us()
    }

    fn times(&self) -> Option<&RttTimes> {
        self.rtt()?.times.as_ref()
    }

    fn sent_rtt(&self) -> Option<&RttSummary> {
        self.summary?.rtt_from_send_us.as_ref()
    }

    fn sent_times(&self) -> Option<&RttTimes> {
        self.sent_rtt()?.times.as_ref()
    }

    fn parallel(&self) -> Option<&ParallelSummary> {
        self.summary?.parallel.as_ref()
    }
}

/// Columns of any run.
const RUN: [Column; 3] = [
    ("study", One(|l| text(&l.document.study))),
    ("run", One(|l| text(&l.document.id))),
    ("method", One(|l| text(l.record.cell.row))),
];

const STATUS: [Column; 4] = [
    ("status", One(|l| text(status(l).0))),
    ("why", One(|l| status(l).1.and_then(text))),
    ("remedy", One(|l| status(l).2.and_then(text))),
    ("samples", One(|l| text(l.record.samples.len()))),
];

/// Cost by the primary metric.
const TAX: [Column; 9] = [
    ("tax_of", One(|l| text(l.tax?.of.name()))),
    ("tax_ratio", One(|l| text(l.tax?.ratio))),
    ("tax_low", One(|l| text(l.tax?.low))),
    ("tax_high", One(|l| text(l.tax?.high))),
    ("tax_p", One(|l| text(l.tax?.p))),
    ("tax_p_adjusted", One(|l| text(l.tax?.p_adjusted))),
    ("tax_verdict", One(|l| name(&l.tax?.verdict))),
    ("tax_could_show", One(|l| text(l.tax?.could_show?))),
    ("tax_pairs", One(|l| text(l.tax?.pairs))),
];

/// Details of the cost, in later columns.
const TAX_DETAIL: [Column; 5] = [
    ("tax_at_most", One(|l| text(l.tax?.at_most?))),
    ("tax_delta", Interval(|l| delta(l.tax?.delta?))),
    ("tax_unit", One(|l| name(&l.tax?.delta?.unit))),
    ("tax_floor", One(|l| text(l.tax?.floor?))),
    ("tax_within_floor", One(|l| text(l.tax?.within_floor))),
];

/// Columns of a run of networks, in the order of their appearance: new ones are appended.
const NETWORK: [&[Column]; 8] = [
    &RUN,
    &[
        ("transport", One(|l| text(l.record.cell.medium().to_string().to_lowercase()))),
        ("test", One(|l| name(&l.record.cell.kind()))),
        ("mtu", One(|l| l.record.cell.mtu().and_then(text))),
        ("streams", One(|l| text(l.record.cell.parallel()))),
        ("request_bytes", One(|l| size(l, "request"))),
        ("response_bytes", One(|l| size(l, "response"))),
        ("message_bytes", One(|l| size(l, "message"))),
        ("file_bytes", One(|l| size(l, "file"))),
    ],
    &STATUS,
    &[
        ("transactions_per_s", Estimated(SampleFigure::Rate)),
        ("rtt_us", Estimated(SampleFigure::Rtt)),
        ("rtt_p50_us", Interval(|l| percentile(l.times()?.p50))),
        ("rtt_p99_us", Interval(|l| percentile(l.times()?.p99))),
        ("rtt_p999_us", Interval(|l| percentile(l.times()?.p999))),
        ("rtt_max_us", One(|l| text(l.times()?.max))),
        ("goodput_mbps", Estimated(SampleFigure::Goodput)),
        ("cpu_us_per_transaction", Estimated(SampleFigure::MachinesPerTransaction)),
        ("cpu_us_per_kb", Estimated(SampleFigure::MachinesPerKb)),
        ("real_s", One(|l| text(l.summary?.file.as_ref()?.real.mean))),
        ("user_s", One(|l| text(l.summary?.file.as_ref()?.user.mean))),
        ("sys_s", One(|l| text(l.summary?.file.as_ref()?.sys.mean))),
        ("lost", One(|l| text(l.summary?.lost?))),
        ("lost_share", One(|l| text(l.summary?.lost_share?))),
        ("reordered", One(|l| text(l.summary?.reordered?))),
        ("retransmits", One(|l| text(l.summary?.retransmits?))),
    ],
    &TAX,
    &[
        ("published", One(|l| l.record.published.and_then(text))),
        ("variant", One(|l| text(l.record.cell.variant))),
        ("engine", One(|l| l.record.cell.net().and_then(|net| text(net.options.engine)))),
        ("burst", One(|l| l.record.cell.net().and_then(|net| text(net.options.burst.get())))),
        ("rate_per_s", One(|l| text(l.record.cell.options().arrivals?.per_second))),
        ("gap_us", One(|l| micros(l.record.cell.options().gap?))),
        ("bitrate_mbps", One(|l| text(l.record.cell.options().bitrate?.bits() as f64 / 1e6))),
        ("options", One(|l| Some(words::key_values(&l.record.cell.options())))),
        ("rtt_mean_from", One(|l| text(if l.rtt()?.by_rate { "rate" } else { "histogram" }))),
        ("rtt_from_send_us", Interval(|l| estimate(l.sent_rtt()?.mean))),
        ("rtt_from_send_p50_us", One(|l| text(l.sent_times()?.p50.value))),
        ("rtt_from_send_p99_us", One(|l| text(l.sent_times()?.p99.value))),
        ("rtt_from_send_p999_us", One(|l| text(l.sent_times()?.p999.value))),
        ("rtt_from_send_max_us", One(|l| text(l.sent_times()?.max))),
        ("cpu_us_initiator", One(|l| text(l.summary?.cpu_us_at_ends?.initiator.mean))),
        ("cpu_us_responder", One(|l| text(l.summary?.cpu_us_at_ends?.responder.mean))),
        ("socket_drops", One(|l| text(l.summary?.socket_drops?))),
        ("strangers", One(|l| text(l.summary?.strangers))),
        ("warmup_s", One(|l| text(l.summary?.warmup?.seconds.mean))),
        ("unsteady", One(|l| text(l.summary?.warmup.filter(|warmup| warmup.watched > 0)?.unsteady))),
        ("in_slow_start", One(|l| text(l.summary?.warmup.filter(|warmup| warmup.slow_start_known > 0)?.in_slow_start))),
        ("pairs", One(|l| text(l.parallel()?.pairs.len()))),
        ("start_skew_us", One(|l| text(l.parallel()?.skew_us))),
        ("start_skew_uncertainty_us", One(|l| text(l.parallel()?.uncertainty_us))),
        ("start_skew_most_us", One(|l| text(l.parallel()?.skew_us_most))),
        ("fastest_pair", One(|l| text(extremes(l.parallel()?)[0]?))),
        ("slowest_pair", One(|l| text(extremes(l.parallel()?)[1]?))),
        ("published_on", One(|l| words::list(l.record.published_on.iter().map(published), ";"))),
        ("caveat", One(|l| text(l.document.caveat.as_ref()?))),
        ("instrument", One(|l| text(l.record.cell.instrument))),
    ],
    &TAX_DETAIL,
    &[("ns_per_kb", Estimated(SampleFigure::TimePerKb))],
];

/// The last columns of networks.
const PACKETS: [(&str, Value); 2] =
    [("packets", One(|l| text(l.summary?.packets?))), ("wire_bytes", One(|l| text(l.summary?.wire_bytes?)))];

fn published(figure: &PublishedFigure) -> String {
    format!("{}={}", figure.system.clone().unwrap_or_default(), figure.value)
}

/// Figures whose only columns are those of their metric.
const OF_METRIC_ONLY: [SampleFigure; 4] = [
    SampleFigure::ServicePerTransaction,
    SampleFigure::ServicePerKb,
    SampleFigure::RelayPerTransaction,
    SampleFigure::RelayPerKb,
];

/// Columns for each metric by which tests are compared in addition to the primary one.
const TAXES: [(&str, TaxField); 6] = [
    ("ratio", |tax| text(tax.ratio)),
    ("low", |tax| text(tax.low)),
    ("high", |tax| text(tax.high)),
    ("p", |tax| text(tax.p)),
    ("p_adjusted", |tax| text(tax.p_adjusted)),
    ("verdict", |tax| name(&tax.verdict)),
];

/// Subject of a run, which determines the columns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CsvSubject {
    Network,
    Disks,
    Migrations,
}

impl CsvSubject {
    fn of(document: &ResultDocument) -> CsvSubject {
        match (record::is_of_disks(document), record::is_of_migrations(document)) {
            (true, _) => CsvSubject::Disks,
            (_, true) => CsvSubject::Migrations,
            _ => CsvSubject::Network,
        }
    }

    fn has(self, test: TestKind) -> bool {
        match self {
            CsvSubject::Network => test.is_of_network(),
            CsvSubject::Disks => test.is_of_disk(),
            CsvSubject::Migrations => test == TestKind::Migration,
        }
    }

    fn columns(self) -> &'static [&'static [Column]] {
        match self {
            CsvSubject::Network => &NETWORK,
            CsvSubject::Disks => &disks::COLUMNS,
            CsvSubject::Migrations => &migrations::COLUMNS,
        }
    }
}

/// Returns all columns. New columns are appended, for programs that address columns by position.
fn columns(subject: CsvSubject) -> Vec<(String, Value)> {
    let own = subject.columns().iter().copied().flatten();
    let of_disks = subject == CsvSubject::Disks;
    let tests: Vec<TestKind> = TestKind::ALL.into_iter().filter(|test| subject.has(*test)).collect();
    let is_mine = |metric: &Metric| tests.iter().any(|test| test.metrics().contains(metric));
    let mut columns: Vec<(String, Value)> = own.map(|(name, value)| ((*name).to_owned(), *value)).collect();
    columns.extend([Metric::Cpu].into_iter().filter(is_mine).flat_map(of_metric));
    let is_of_metric = |figure: SampleFigure| {
        let figures = |metric: Metric| TestKind::ALL.map(|test| metric.figure(test));
        let levels = Metric::secondary().filter(|metric| metric.role().is_none());
        { levels }.any(|metric| figures(metric).contains(&figure))
    };
    let observed = ObservedCpu { machines: !of_disks, guests: true };
    let mine = |figure: &SampleFigure| {
        // Those of disks have separate columns.
        let is_elsewhere = is_of_metric(*figure)
            || (of_disks && figure.is_part())
            // Columns that were added later.
            || SampleFigure::LOADS.contains(figure)
            || OF_METRIC_ONLY.contains(figure);
        figure.is_told_alone() && !is_elsewhere && tests.iter().any(|test| figure.is_known(*test, observed))
    };
    for figure in SampleFigure::ALL.into_iter().filter(mine) {
        if !columns.iter().any(|(name, _)| name == figure.name()) {
            columns.push((figure.name().to_owned(), Estimated(figure)));
        }
    }
    // Metrics that were added later.
    let later = || Metric::secondary().filter(|metric| *metric != Metric::Cpu && is_mine(metric));
    columns.extend(later().filter(|metric| metric.role().is_none()).flat_map(of_metric));
    if subject == CsvSubject::Network {
        columns.extend(PACKETS.map(|(name, value)| (name.to_owned(), value)));
        columns.extend(SampleFigure::LOADS.map(|figure| (figure.name().to_owned(), Estimated(figure))));
    }
    columns.extend(later().filter(|metric| metric.role().is_some()).flat_map(of_metric));
    columns
}

fn of_metric(metric: Metric) -> Vec<(String, Value)> {
    let name = metric.name();
    let taxes = TAXES.map(|(of, value)| (format!("{name}_tax_{of}"), Tax(metric, value)));
    let level = (metric.column().to_owned(), Level(metric));
    std::iter::once(level).chain(taxes).chain([(format!("{name}_tax_delta"), Cost(metric))]).collect()
}

fn heads(columns: &[(String, Value)]) -> Vec<String> {
    let names = columns.iter().flat_map(|(name, value)| match value {
        One(_) | Tax(..) => vec![name.clone()],
        Interval(_) | Level(_) | Estimated(_) | Cost(_) => {
            ["", "_low", "_high"].map(|end| format!("{name}{end}")).into()
        }
    });
    names.collect()
}

impl Value {
    fn fields(self, line: &Line<'_>) -> Vec<Option<String>> {
        let three = |values: Option<[Option<f64>; 3]>| values.unwrap_or_default().map(|value| value.and_then(text));
        match self {
            One(value) => vec![value(line)],
            Interval(value) => three(value(line)).into(),
            Level(metric) => three(record::estimate(line.record, metric).and_then(estimate)).into(),
            Estimated(figure) => {
                three(line.summary.and_then(|summary| summary.estimate(figure)).and_then(estimate)).into()
            }
            Tax(metric, value) => vec![line.record.tax_of(metric).and_then(value)],
            Cost(metric) => three(line.record.tax_of(metric).and_then(|tax| delta(tax.delta?))).into(),
        }
    }
}

/// Returns the cells of a run.
pub(crate) fn cells(document: &ResultDocument) -> String {
    let columns = columns(CsvSubject::of(document));
    let fields = |line: &Line<'_>| {
        let fields = columns.iter().flat_map(|(_, value)| value.fields(line));
        fields.map(Option::unwrap_or_default).collect()
    };
    let lines = document.cells.iter().map(|record| fields(&Line::new(document, record)));
    table(heads(&columns), lines)
}

type ComparedColumn = (&'static str, fn(&RunComparison, &Compared) -> Option<String>);

const COMPARISON: [ComparedColumn; 20] = [
    ("method", |_, c| text(c.cell.row)),
    ("transport", |_, c| text(c.cell.medium().to_string().to_lowercase())),
    ("test", |_, c| name(&c.cell.kind())),
    ("mtu", |_, c| c.cell.mtu().and_then(text)),
    ("streams", |_, c| text(c.cell.parallel())),
    ("variant", |_, c| text(c.cell.variant)),
    ("options", |_, c| Some(words::key_values(&c.cell.options()))),
    ("of", |_, c| name(&c.of)),
    ("a", |_, c| text(c.a)),
    ("b", |_, c| text(c.b)),
    ("a_rounds", |_, c| text(c.a_rounds)),
    ("b_rounds", |_, c| text(c.b_rounds)),
    ("ratio", |_, c| text(c.ratio)),
    ("low", |_, c| c.low.and_then(text)),
    ("high", |_, c| c.high.and_then(text)),
    ("p", |_, c| text(c.p)),
    ("p_adjusted", |_, c| text(c.p_adjusted)),
    ("verdict", |_, c| name(&c.verdict)),
    ("caveat", |all, _| all.caveat.clone()),
    ("disk", |_, c| c.cell.disk().and_then(text)),
];

pub(crate) fn comparison(comparison: &RunComparison) -> String {
    let fields =
        |cell: &Compared| COMPARISON.iter().map(|(_, value)| value(comparison, cell).unwrap_or_default()).collect();
    table(COMPARISON.map(|(name, _)| name.to_owned()).to_vec(), comparison.cells.iter().map(fields))
}

pub(crate) fn table(head: Vec<String>, lines: impl Iterator<Item = Vec<String>>) -> String {
    // Not CRLF: the printer shows a carriage return as text because it could hide the line before it.
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    writer.write_record(head).expect("memory takes all that is written");
    for line in lines {
        writer.write_record(line).expect("memory takes all, and every line has a field for each column");
    }
    let bytes = writer.into_inner().expect("memory takes all that is written");
    String::from_utf8(bytes).expect("made of strings")
}

pub(crate) fn text(value: impl ToString) -> Option<String> {
    Some(value.to_string())
}

/// Returns the name of an enum variant as in JSON.
pub(crate) fn name(variant: &impl serde::Serialize) -> Option<String> {
    serde_json::to_value(variant).ok()?.as_str().map(str::to_owned)
}

fn size(line: &Line<'_>, name: &str) -> Option<String> {
    text(line.record.cell.net()?.workload.sizes().get(name)?.0)
}

fn status(line: &Line<'_>) -> (&'static str, Option<String>, Option<String>) {
    match &line.record.status {
        CellStatus::Measured => ("measured", None, None),
        CellStatus::Unavailable { why, remedy } => ("unavailable", Some(why.clone()), Some(remedy.clone())),
        CellStatus::Failed { why } => ("failed", Some(why.to_string()), None),
        CellStatus::Missing => ("missing", None, None),
    }
}

fn micros(span: Span) -> Option<String> {
    text(span.0.as_nanos() as f64 / 1e3)
}

fn estimate(of: Estimate) -> Option<[Option<f64>; 3]> {
    Some([Some(of.mean), of.low, of.high])
}

fn percentile(of: Percentile) -> Option<[Option<f64>; 3]> {
    Some([Some(of.value), of.low, of.high])
}

fn delta(of: Delta) -> Option<[Option<f64>; 3]> {
    Some([of.delta, of.delta_low, of.delta_high].map(Some))
}
