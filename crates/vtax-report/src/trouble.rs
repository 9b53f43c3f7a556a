//! Problems that a result itself reveals.

use vtax_model::{
    analysis::noise::needless_retransmits,
    cell::{ColumnKey, Instrument},
    foreign::ForeignText,
    measurement::ThreadPriority,
    options::Idle,
    result::{CellRecord, FloorRecord, ResultDocument},
    run::SampleReading,
};

use super::{
    blocks::{Reported, distinct},
    detail::floor_name,
    labels,
    number::{change, grouped, interval, percent},
    words,
};

/// Returns the problems, a sentence each.
pub(crate) fn warnings(report: &Reported<'_>) -> Vec<String> {
    let document = report.document;
    [not_held(document), biased(report), retransmits(document), overloaded(document)].into_iter().flatten().collect()
}

/// Reason why CPU idle states were not disabled in a cell that requires it.
pub(crate) fn idle_not_held(record: &CellRecord) -> Option<&ForeignText> {
    let ends = record.samples.iter().flat_map(|sample| [&sample.ends.initiator, &sample.ends.responder]);
    { ends }.find_map(|end| end.idle_not_held.as_ref())
}

/// State of CPU idle states, if any of these cells requires them to be disabled.
pub(crate) fn idle_words<'a>(records: impl Iterator<Item = &'a CellRecord> + Clone) -> Option<&'static str> {
    let refused = records.clone().any(|record| idle_not_held(record).is_some());
    let held = { records }.any(|record| record.cell.options().idle == Idle::Poll);
    held.then_some(if refused { "CPU idle states on" } else { "CPU idle states off" })
}

/// Priority of the threads that measured the round trips of a mode: always under controlled conditions, else only if it is
/// unusual.
pub(crate) fn priority_words<'a>(records: impl Iterator<Item = &'a CellRecord>) -> Option<String> {
    let of_transactions = records.filter(|record| record.cell.kind().is_transactions());
    let priorities = of_transactions.filter_map(|record| {
        let priority = record.priority()?;
        let is_unusual = record.cell.instrument == Instrument::Path || priority == ThreadPriority::RealTime;
        is_unusual.then_some(priority)
    });
    priorities.min().map(|priority| format!("round trips at {priority}"))
}

/// Round trips then include the time to wake a CPU.
fn not_held(document: &ResultDocument) -> Option<String> {
    let why = document.cells.iter().find_map(idle_not_held)?;
    Some(format!(
        "IDLE STATES ON: CPUs entered idle states, and waking them adds to the round trips: {why}. Run vtax as \
         root to disable them."
    ))
}

/// Other families have their A/A differences in their own tables.
fn of_short_report(document: &ResultDocument) -> impl Iterator<Item = &FloorRecord> {
    document.noise_floor.iter().filter(|floor| !floor.of.family().is_told_apart())
}

/// The baseline differs from itself by more than chance.
fn biased(report: &Reported<'_>) -> Option<String> {
    let Reported { document, blocks } = report;
    let told = |floor: &FloorRecord| {
        let by = format!("{} {}", change(floor.ratio), interval(floor.low, floor.high));
        format!("{} {} ({by})", floor_name(blocks, floor), ColumnKey::among(&[floor.block.test.column()]))
    };
    let all = words::list(of_short_report(document).filter(|floor| floor.biased).map(told), "; ")?;
    Some(format!(
        "A/A DIFFERENCE: {} measured twice differs from itself by more than chance in {all}: something other than the method \
         makes a difference there.",
        document.baseline
    ))
}

/// A wire that loses nothing, and TCP retransmits over it.
fn retransmits(document: &ResultDocument) -> Option<String> {
    let found: Vec<_> =
        document.cells.iter().filter_map(|record| Some((record, needless_retransmits(record)?))).collect();
    let (worst, again) = found.iter().max_by(|(_, one), (_, other)| one.share.total_cmp(&other.share))?;
    let rows = distinct(found.iter().map(|(record, _)| record.cell.row.to_string()));
    Some(format!(
        "RETRANSMITS: TCP retransmitted over links that lose nothing ({}; most in {}: {} segments, {}). Segments were \
         reordered between CPUs, or a socket buffer was full, which may have reduced the bandwidth. \
         Try --congestion cubic.",
        rows.join(", "),
        labels::name(document, &worst.cell),
        grouped(again.segments),
        percent(again.share),
    ))
}

/// In the open loop, the offered rate exceeds the path's capacity: the times grow for as long as the sample lasts.
fn overloaded(document: &ResultDocument) -> Option<String> {
    let of_open_loop = document.cells.iter().filter(|record| record.cell.options().arrivals.is_some());
    let names = of_open_loop.filter(|record| is_overloaded(record)).map(|record| labels::name(document, &record.cell));
    Some(format!(
        "OVERLOAD: the offered rate exceeds the path's capacity in {}. Requests queue, so the times depend on the \
         length of the sample, not on the cost of a request. Use a lower --rate.",
        words::list(names, "; ")?
    ))
}

/// A steady wait doesn't depend on the sample's length. At a rate that is a tenth too high it is a twentieth of that.
fn is_overloaded(record: &CellRecord) -> bool {
    const SHARE: f64 = 0.05;
    let waited = |sample: &SampleReading| {
        let rtt = sample.rtt?;
        Some((rtt.mean - rtt.min as f64) / 1e9 / sample.seconds)
    };
    let shares: Vec<f64> = record.samples.iter().filter_map(waited).collect();
    !shares.is_empty() && shares.iter().sum::<f64>() / shares.len() as f64 > SHARE
}
