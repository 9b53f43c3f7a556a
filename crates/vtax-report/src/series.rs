//! Time series of a cell: the intervals of all its samples, overlaid.

use vtax_model::{
    measurement::Interval,
    metric::FigureUnit,
    result::{CellRecord, ResultDocument},
    run::SampleReading,
    workload::TestKind,
};
use vtax_stats::median;

use super::{
    column_unit::ColumnUnit,
    labels,
    number::{counted, or_dash, percent},
    view::{Group, Section, SectionPart, Table, TableRow},
};

/// Maximum number of lines of a table: the first and the last intervals of a longer series.
const LINES_MOST: usize = 40;
const LAST_LINES: usize = 8;
/// Maximum number of characters of a sparkline.
const SPARKS_MOST: usize = 16;

/// One interval of one sample, both endpoints joined.
struct Joined {
    at: f64,
    /// Transactions per second, or 10^6 bits per second.
    rate: f64,
    /// p50, p99 and maximum, µs.
    rtt: Option<[f64; 3]>,
    lost: u64,
    retransmits: u64,
    cwnd: Option<f64>,
    /// Shares of a CPU that the measuring threads used: initiator, responder.
    cpu: [f64; 2],
}

/// Intervals of a sample, of both endpoints. Each endpoint's intervals begin with its own measured time.
fn joined(kind: TestKind, sample: &SampleReading) -> Vec<Joined> {
    let [initiator, responder] = [&sample.ends.initiator.series, &sample.ends.responder.series];
    let (counting, other) = kind.counting(initiator, responder);
    let both = kind.is_both_ways();
    let of = |(index, here): (usize, &Interval)| {
        let there = other.get(index).copied().unwrap_or_default();
        let bytes = here.bytes as f64 + if both { there.bytes as f64 } else { 0.0 };
        let cpu = |series: &[Interval]| series.get(index).map_or(0.0, |own| own.cpu / own.seconds);
        Joined {
            at: here.at,
            rate: if kind.is_transactions() { here.transactions as f64 } else { bytes * 8.0 / 1e6 } / here.seconds,
            rtt: here.rtt_ns.map(|rtt| [rtt.p50, rtt.p99, rtt.max].map(|ns| ns as f64 / 1e3)),
            lost: here.lost + if both { there.lost } else { 0 },
            retransmits: here.retransmits + there.retransmits,
            cwnd: [here.cwnd, there.cwnd].into_iter().flatten().reduce(f64::max),
            cpu: [cpu(initiator), cpu(responder)],
        }
    };
    let whole = |interval: &(usize, &Interval)| interval.1.seconds > 0.0;
    counting.iter().enumerate().filter(whole).map(of).collect()
}

/// Intervals of all samples by their number.
fn overlaid(record: &CellRecord) -> Vec<Vec<Joined>> {
    let kind = record.cell.kind();
    let mut intervals: Vec<Vec<Joined>> = Vec::new();
    for sample in &record.samples {
        for (index, interval) in joined(kind, sample).into_iter().enumerate() {
            if index == intervals.len() {
                intervals.push(Vec::new());
            }
            intervals[index].push(interval);
        }
    }
    intervals
}

/// The time of each interval, with the median, the lowest and the highest rate of the samples.
pub(crate) type RatesOverTime = Vec<(f64, [f64; 3])>;

/// Returns the rates of the samples over time.
pub(crate) fn moments(record: &CellRecord) -> RatesOverTime {
    let moment = |interval: &Vec<Joined>| {
        let rates = || interval.iter().map(|joined| joined.rate);
        let ends = [rates().reduce(f64::min)?, rates().reduce(f64::max)?];
        let middle = middle(interval, |joined| Some(joined.rate))?;
        Some((interval.first()?.at, [middle, ends[0], ends[1]]))
    };
    overlaid(record).iter().filter_map(moment).collect()
}

/// Rate over the measured time.
pub(crate) fn trace(record: &CellRecord) -> Option<Vec<f64>> {
    let intervals = overlaid(record);
    let rates: Vec<f64> =
        intervals.iter().filter_map(|interval| middle(interval, |joined| Some(joined.rate))).collect();
    let per_spark = rates.len().div_ceil(SPARKS_MOST).max(1);
    let means: Vec<f64> = rates.chunks(per_spark).map(|chunk| chunk.iter().sum::<f64>() / chunk.len() as f64).collect();
    (means.len() > 1 && means.iter().any(|mean| *mean > 0.0)).then_some(means)
}

/// Returns a table for each cell that has a time series.
pub(crate) fn section(document: &ResultDocument) -> Option<Section> {
    let parts: Vec<SectionPart> = document.cells.iter().flat_map(|record| table(document, record)).collect();
    let text = "Rate: median over the samples' intervals of the same number, with the lowest and the \
                highest. Lost and retransmits: all samples together. CPU: measuring threads only. The whole series \
                of each sample is in the JSON.";
    let parts: Vec<SectionPart> = std::iter::once(SectionPart::Paragraph(text.into())).chain(parts).collect();
    (parts.len() > 1).then(|| Section::of("Time series", parts))
}

fn table(document: &ResultDocument, record: &CellRecord) -> Vec<SectionPart> {
    let intervals = overlaid(record);
    if intervals.is_empty() {
        return Vec::new();
    }
    let columns = columns(record, &intervals);
    let shown = |index: &usize| {
        intervals.len() <= LINES_MOST || *index < LINES_MOST - LAST_LINES || *index >= intervals.len() - LAST_LINES
    };
    let line = |index: usize| {
        let texts = columns.iter().map(|(_, text)| text(&intervals[index]));
        let at = intervals[index].first().map_or(0.0, |joined| joined.at);
        TableRow::new(vec![format!("{at:.2}")], texts)
    };
    let table = Table {
        caption: labels::name(document, &record.cell),
        labels: vec!["from (s)".into()],
        groups: vec![Group::right("", columns.iter().map(|(head, _)| head))],
        rows: (0..intervals.len()).filter(shown).map(line).collect(),
        ..Table::default()
    };
    let left_out = intervals.len().saturating_sub(LINES_MOST) as u32;
    let note = || format!("{} in the middle omitted.", counted(left_out, "interval"));
    let note = (left_out > 0).then(|| SectionPart::Paragraph(note()));
    std::iter::once(SectionPart::Table(table)).chain(note).collect()
}

/// Heading, and the text of one interval.
type Text = (String, Box<dyn Fn(&[Joined]) -> String>);

/// Columns that contain a figure.
fn columns(record: &CellRecord, intervals: &[Vec<Joined>]) -> Vec<Text> {
    let has = |is: fn(&Joined) -> bool| intervals.iter().flatten().any(is);
    let datagrams = record.cell.medium().is_datagram();
    let is_cwnd_shown = !record.cell.kind().is_transactions() && has(|joined| joined.cwnd.is_some());
    let share =
        |end: usize| move |all: &[Joined]| percent(middle(all, |joined| Some(joined.cpu[end])).unwrap_or(f64::NAN));
    let mut columns = vec![rate_column(record, intervals)];
    columns.extend(time_columns(intervals));
    let others = [
        shown("lost", datagrams, |all| all.iter().map(|joined| joined.lost).sum::<u64>().to_string()),
        shown("retransmits", has(|joined| joined.retransmits > 0), |all| {
            all.iter().map(|joined| joined.retransmits).sum::<u64>().to_string()
        }),
        shown("cwnd", is_cwnd_shown, |all| or_dash(middle(all, |joined| joined.cwnd))),
        shown("CPU initiator", true, share(0)),
        shown("responder", true, share(1)),
    ];
    columns.extend(others.into_iter().flatten());
    columns
}

fn shown(head: &str, is: bool, text: impl Fn(&[Joined]) -> String + 'static) -> Option<Text> {
    is.then(|| (head.to_owned(), Box::new(text) as _))
}

fn rate_column(record: &CellRecord, intervals: &[Vec<Joined>]) -> Text {
    let (name, stored) = match record.cell.kind().is_transactions() {
        true => (Some("rate/s"), FigureUnit::PerSecond),
        false => (None, FigureUnit::MegabitsPerSecond),
    };
    let unit = ColumnUnit::of(stored, intervals.iter().filter_map(|all| middle(all, |joined| Some(joined.rate))));
    let head = format!("{} [lowest, highest]", name.unwrap_or(unit.text()));
    (head, Box::new(move |all| rates(all, unit)))
}

fn time_columns(intervals: &[Vec<Joined>]) -> Vec<Text> {
    let times: Vec<[f64; 3]> = intervals.iter().flatten().filter_map(|joined| joined.rtt).collect();
    let unit = ColumnUnit::of(FigureUnit::Microseconds, times.iter().flatten().copied());
    let written = move |time: Option<f64>| time.map_or("—".into(), |time| unit.written(time));
    let columns = [
        shown(&format!("p50 ({})", unit.text()), true, move |all| written(middle(all, |joined| Some(joined.rtt?[0])))),
        shown("p99", true, move |all| written(middle(all, |joined| Some(joined.rtt?[1])))),
        shown("max", true, move |all| written(all.iter().filter_map(|joined| Some(joined.rtt?[2])).reduce(f64::max))),
    ];
    columns.into_iter().flatten().filter(|_| !times.is_empty()).collect()
}

fn rates(all: &[Joined], unit: ColumnUnit) -> String {
    let text = middle(all, |joined| Some(joined.rate)).map_or("—".into(), |rate| unit.written(rate));
    let (low, high) = all
        .iter()
        .map(|joined| joined.rate)
        .fold((f64::INFINITY, 0.0), |(low, high), rate| (f64::min(low, rate), f64::max(high, rate)));
    if all.len() < 2 { text } else { format!("{text} [{}, {}]", unit.written(low), unit.written(high)) }
}

fn middle(all: &[Joined], value: impl Fn(&Joined) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = all.iter().filter_map(value).collect();
    (!values.is_empty()).then(|| median(&values))
}
