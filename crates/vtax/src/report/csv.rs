//! One line a cell (RFC 4180), for spreadsheets and data frames: one figure a column, in full
//! precision, an empty field where there is none.

use vtax_model::{
    published::PublishedFigure,
    result::{
        CellRecord, CellStatus, Estimate, FileSummary, Metric, ParallelSummary, Percentile, ResultDocument, RttSummary,
        SummaryRecord, TaxRecord,
    },
    units::Span,
    workload::Workload,
};

use super::{
    compare::{Compared, RunComparison},
    pairs::extremes,
    words,
};

/// Name, meaning and value of a column of cells.
type Column = (&'static str, &'static str, for<'a> fn(&Line<'a>) -> Option<String>);

/// A cell within its run.
struct Line<'a> {
    document: &'a ResultDocument,
    record: &'a CellRecord,
}

/// The columns, in order. "95 %" means the interval of the figure before it over the samples.
const COLUMNS: [Column; 110] = [
    ("study", "the study's name", |l| text(&l.document.study)),
    ("run", "the run's id", |l| text(&l.document.id)),
    ("method", "the row: an I/O method, method:kind, a queueing of guests, sender-to-receiver, or an engine", |l| {
        text(l.record.cell.row)
    }),
    ("transport", "tcp, udp, unix or vsock", |l| text(l.record.cell.transport.to_string().to_lowercase())),
    ("test", "rr, crr, cc, stream, maerts, bidirectional or file", |l| {
        text(l.record.cell.workload.kind().to_string().to_lowercase())
    }),
    ("mtu", "of the wire, bytes", |l| text(l.record.cell.mtu)),
    ("streams", "flows at the same time", |l| text(l.record.cell.streams)),
    ("request_bytes", "rr and crr", |l| sizes(l)[0].and_then(text)),
    ("response_bytes", "rr and crr", |l| sizes(l)[1].and_then(text)),
    ("message_bytes", "streams: handed over by one call", |l| sizes(l)[2].and_then(text)),
    ("file_bytes", "file", |l| sizes(l)[3].and_then(text)),
    ("status", "measured, unavailable, failed or missing", |l| text(status(l).0)),
    ("why", "unavailable or failed: the reason", |l| status(l).1.and_then(text)),
    ("remedy", "unavailable: what would mend it", |l| status(l).2.and_then(text)),
    ("samples", "that landed; the baseline has two a round", |l| text(l.record.samples.len())),
    ("transactions_per_s", "transactions, mean over samples", |l| rate(l).and_then(mean)),
    ("transactions_per_s_low", "95 %", |l| rate(l).and_then(low)),
    ("transactions_per_s_high", "95 %", |l| rate(l).and_then(high)),
    (
        "rtt_us",
        "transactions, µs: mean time of one, the inverse of the rate or from the histogram (rtt_mean_from)",
        |l| rtt(l).and_then(mean),
    ),
    ("rtt_us_low", "95 %", |l| rtt(l).and_then(low)),
    ("rtt_us_high", "95 %", |l| rtt(l).and_then(high)),
    ("rtt_p50_us", "transactions, µs: median transaction", |l| text(percentiles(l)?[0].value)),
    ("rtt_p50_us_low", "95 %", |l| percentiles(l)?[0].low.and_then(text)),
    ("rtt_p50_us_high", "95 %", |l| percentiles(l)?[0].high.and_then(text)),
    ("rtt_p99_us", "transactions, µs: 99 of 100 took at most this", |l| text(percentiles(l)?[1].value)),
    ("rtt_p99_us_low", "95 %", |l| percentiles(l)?[1].low.and_then(text)),
    ("rtt_p99_us_high", "95 %", |l| percentiles(l)?[1].high.and_then(text)),
    ("rtt_p999_us", "transactions, µs: 999 of 1,000", |l| text(percentiles(l)?[2].value)),
    ("rtt_p999_us_low", "95 %", |l| percentiles(l)?[2].low.and_then(text)),
    ("rtt_p999_us_high", "95 %", |l| percentiles(l)?[2].high.and_then(text)),
    ("rtt_max_us", "transactions, µs: the longest of all samples", |l| text(summary(l)?.rtt_us.as_ref()?.max)),
    ("goodput_mbps", "streams and file, 10^6 bit/s at the receiver", |l| goodput(l).and_then(mean)),
    ("goodput_mbps_low", "95 %", |l| goodput(l).and_then(low)),
    ("goodput_mbps_high", "95 %", |l| goodput(l).and_then(high)),
    ("cpu_us_per_transaction", "transactions, µs of CPU, both ends", |l| mean(summary(l)?.cpu_us_per_transaction?)),
    ("cpu_us_per_transaction_low", "95 %", |l| low(summary(l)?.cpu_us_per_transaction?)),
    ("cpu_us_per_transaction_high", "95 %", |l| high(summary(l)?.cpu_us_per_transaction?)),
    ("cpu_us_per_kb", "streams and file, µs of CPU per 1,024 bytes, both ends", |l| mean(summary(l)?.cpu_us_per_kb?)),
    ("cpu_us_per_kb_low", "95 %", |l| low(summary(l)?.cpu_us_per_kb?)),
    ("cpu_us_per_kb_high", "95 %", |l| high(summary(l)?.cpu_us_per_kb?)),
    ("real_s", "file, seconds elapsed", |l| mean(file(l)?.real)),
    ("user_s", "file, CPU seconds of the sender in user space", |l| mean(file(l)?.user)),
    ("sys_s", "file, CPU seconds of the sender in the kernel", |l| mean(file(l)?.sys)),
    ("lost", "UDP messages that never arrived, all samples", |l| text(summary(l)?.lost)),
    ("lost_share", "of the messages sent, 0 to 1", |l| text(summary(l)?.lost_share)),
    ("reordered", "UDP datagrams overtaken, all samples", |l| text(summary(l)?.reordered)),
    ("retransmits", "TCP segments sent again, all samples", |l| text(summary(l)?.retransmits)),
    ("tax_of", "what is compared: rtt, goodput or real", |l| text(format!("{:?}", tax(l)?.of).to_lowercase())),
    ("tax_ratio", "cell over baseline, paired by round; the tax is this minus one", |l| text(tax(l)?.ratio)),
    ("tax_low", "95 %", |l| text(tax(l)?.low)),
    ("tax_high", "95 %", |l| text(tax(l)?.high)),
    ("tax_p", "exact signed-rank p of this comparison alone", |l| text(tax(l)?.p)),
    ("tax_p_adjusted", "after Holm over the run's comparisons of speed by this instrument", |l| {
        text(tax(l)?.p_adjusted)
    }),
    ("tax_verdict", "slower, faster, not-confirmed, none-larger or too-noisy", |l| name(&tax(l)?.verdict)),
    ("tax_could_show", "nothing shown: the least relative difference that four of five such runs would show", |l| {
        text(tax(l)?.could_show?)
    }),
    ("tax_pairs", "rounds with both cells", |l| text(tax(l)?.pairs)),
    ("published", "the source's figure, if it has one alone: µs (rr) or Mb/s (stream)", |l| {
        l.record.published.and_then(text)
    }),
    ("variant", "which of the swept values of this kind of test, from 0", |l| text(l.record.cell.variant)),
    ("engine", "what waits for the sockets", |l| text(l.record.cell.options.engine)),
    ("burst", "rr: requests of each flow in flight", |l| text(l.record.cell.options.burst.get())),
    ("rate_per_s", "rr, open loop: requests due a second, over all flows", |l| {
        text(l.record.cell.options.arrivals?.per_second)
    }),
    ("gap_us", "rr: the flow idles so long before each request", |l| micros(l.record.cell.options.gap?)),
    ("bitrate_mbps", "streams: asked of each flow", |l| text(l.record.cell.options.bitrate?.bits() as f64 / 1e6)),
    ("options", "all that was chosen: name=value, separated by ;", |l| Some(words::key_values(&l.record.cell.options))),
    ("rtt_mean_from", "rate (its inverse) or histogram", |l| {
        text(if summary(l)?.rtt_us.as_ref()?.by_rate { "rate" } else { "histogram" })
    }),
    (
        "rtt_from_send_us",
        "open loop, µs: mean from the actual send, while the columns above are from the due time",
        |l| from_send(l).and_then(|rtt| mean(rtt.mean)),
    ),
    ("rtt_from_send_us_low", "95 %", |l| from_send(l).and_then(|rtt| low(rtt.mean))),
    ("rtt_from_send_us_high", "95 %", |l| from_send(l).and_then(|rtt| high(rtt.mean))),
    ("rtt_from_send_p50_us", "open loop, µs", |l| text(from_send(l)?.p50.value)),
    ("rtt_from_send_p99_us", "open loop, µs", |l| text(from_send(l)?.p99.value)),
    ("rtt_from_send_p999_us", "open loop, µs", |l| text(from_send(l)?.p999.value)),
    ("rtt_from_send_max_us", "open loop, µs", |l| text(from_send(l)?.max)),
    ("cpu_us_initiator", "µs of CPU per transaction or KB, ends on two machines only", |l| {
        mean(summary(l)?.cpu_us_at_ends?.initiator)
    }),
    ("cpu_us_responder", "the same of the other end", |l| mean(summary(l)?.cpu_us_at_ends?.responder)),
    ("socket_drops", "UDP datagrams that a socket had no room for, warm-up with them, all samples", |l| {
        text(summary(l)?.socket_drops)
    }),
    (
        "strangers",
        "crr and cc: connections without the test's token, which got nothing, warm-up with them, all samples",
        |l| text(summary(l)?.strangers),
    ),
    ("warmup_s", "what went before the measured time, mean over samples", |l| mean(summary(l)?.warmup?.seconds)),
    ("unsteady", "samples that were not steady when the longest warm-up was over", |l| {
        text(summary(l)?.warmup.filter(|warmup| warmup.watched > 0)?.unsteady)
    }),
    ("in_slow_start", "samples in which a flow still was when the measured time began", |l| {
        text(summary(l)?.warmup.filter(|warmup| warmup.slow_start_known > 0)?.in_slow_start)
    }),
    ("pairs", "that measured at the same time", |l| text(parallel(l)?.pairs.len())),
    ("start_skew_us", "pairs: from the first start to the last, median over samples", |l| text(parallel(l)?.skew_us)),
    ("start_skew_uncertainty_us", "pairs: how well that is known", |l| text(parallel(l)?.uncertainty_us)),
    ("start_skew_most_us", "pairs: the longest of all samples", |l| text(parallel(l)?.skew_us_most)),
    ("fastest_pair", "pairs: mean RTT in µs (rr) or Mb/s (stream) of the fastest", |l| {
        text(extremes(parallel(l)?)[0]?)
    }),
    ("slowest_pair", "pairs: the same of the slowest", |l| text(extremes(parallel(l)?)[1]?)),
    ("published_on", "the source's figures, if it has them of several machines: name=figure, separated by ;", |l| {
        let all: Vec<String> = l.record.published_on.iter().map(published).collect();
        (!all.is_empty()).then(|| all.join(";"))
    }),
    ("caveat", CAVEAT, |l| l.document.caveat.clone()),
    ("instrument", "path: the path's own cost, idle states held off; system: as the machine runs", |l| {
        text(l.record.cell.instrument)
    }),
    ("tax_at_most", "none-larger: by how much it is worse at most, relative", |l| text(tax(l)?.at_most?)),
    ("tax_delta", "what it takes more than the baseline, in tax_unit; below 0, less", |l| text(tax(l)?.delta?.delta)),
    ("tax_delta_low", "95 %", |l| text(tax(l)?.delta?.delta_low)),
    ("tax_delta_high", "95 %", |l| text(tax(l)?.delta?.delta_high)),
    ("tax_unit", "us (a transaction), ns-per-kb (1,024 bytes) or s (a file)", |l| name(&tax(l)?.delta?.unit)),
    ("tax_floor", "what the baseline may differ from itself by, relative", |l| text(tax(l)?.floor?)),
    ("tax_within_floor", "true: a difference is shown, and is not larger than tax_floor", |l| {
        text(tax(l)?.within_floor)
    }),
    ("ns_per_kb", "streams and file: time of 1,024 bytes, ns, mean over samples", |l| mean(summary(l)?.ns_per_kb?)),
    ("ns_per_kb_low", "95 %", |l| low(summary(l)?.ns_per_kb?)),
    ("ns_per_kb_high", "95 %", |l| high(summary(l)?.ns_per_kb?)),
    ("cpu_threads", "CPU of the measuring threads, both ends: µs per transaction or ns per 1,024 bytes", |l| {
        mean(threads(l)?)
    }),
    ("cpu_threads_low", "95 %", |l| low(threads(l)?)),
    ("cpu_threads_high", "95 %", |l| high(threads(l)?)),
    ("cpu_tax_ratio", "cpu_threads over the baseline's, paired by round", |l| text(cpu_tax(l)?.ratio)),
    ("cpu_tax_low", "95 %", |l| text(cpu_tax(l)?.low)),
    ("cpu_tax_high", "95 %", |l| text(cpu_tax(l)?.high)),
    ("cpu_tax_p", "exact signed-rank p of this comparison alone", |l| text(cpu_tax(l)?.p)),
    ("cpu_tax_p_adjusted", "after Holm over the run's comparisons of CPU time by this instrument", |l| {
        text(cpu_tax(l)?.p_adjusted)
    }),
    ("cpu_tax_verdict", "as tax_verdict", |l| name(&cpu_tax(l)?.verdict)),
    ("cpu_tax_delta", "what it takes more than the baseline, in the unit of cpu_threads", |l| {
        text(cpu_tax(l)?.delta?.delta)
    }),
    ("cpu_tax_delta_low", "95 %", |l| text(cpu_tax(l)?.delta?.delta_low)),
    ("cpu_tax_delta_high", "95 %", |l| text(cpu_tax(l)?.delta?.delta_high)),
];

fn threads(line: &Line<'_>) -> Option<Estimate> {
    let summary = summary(line)?;
    summary.cpu_threads_us_per_transaction.or(summary.cpu_threads_ns_per_kb)
}

fn cpu_tax<'a>(line: &Line<'a>) -> Option<&'a TaxRecord> {
    line.record.tax_of(Metric::Cpu)
}

const CAVEAT: &str = "what is to be said with each figure: that it is of an emulated server; empty of a real machine";

fn published(figure: &PublishedFigure) -> String {
    format!("{}={}", figure.system.as_deref().unwrap_or_default(), figure.value)
}

/// The cells of a run.
pub(super) fn cells(document: &ResultDocument) -> String {
    let lines = document.cells.iter().map(|record| Line { document, record });
    let fields = |line: Line<'_>| COLUMNS.iter().map(|(.., value)| value(&line).unwrap_or_default()).collect();
    table(COLUMNS.map(|(name, ..)| name).to_vec(), lines.map(fields))
}

/// Name, meaning and value of a column of compared cells.
type ComparedColumn = (&'static str, &'static str, fn(&RunComparison, &Compared) -> Option<String>);

const COMPARISON: [ComparedColumn; 19] = [
    ("method", "the row", |_, c| text(c.cell.row)),
    ("transport", "tcp, udp, unix or vsock", |_, c| text(c.cell.transport.to_string().to_lowercase())),
    ("test", "rr, crr, cc, stream, maerts, bidirectional or file", |_, c| {
        text(c.cell.workload.kind().to_string().to_lowercase())
    }),
    ("mtu", "bytes", |_, c| text(c.cell.mtu)),
    ("streams", "flows at the same time", |_, c| text(c.cell.streams)),
    ("variant", "which of the swept values, in the first run", |_, c| text(c.cell.variant)),
    ("options", "all that was chosen: name=value, separated by ;", |_, c| Some(words::key_values(&c.cell.options))),
    ("of", "what is compared: rtt (µs), goodput (Mb/s) or real (s)", |_, c| name(&c.of)),
    ("a", "median over the first run's rounds", |_, c| text(c.a)),
    ("b", "median over the second run's rounds", |_, c| text(c.b)),
    ("a_rounds", "rounds of the first run", |_, c| text(c.a_rounds)),
    ("b_rounds", "rounds of the second run", |_, c| text(c.b_rounds)),
    ("ratio", "second over first", |_, c| text(c.ratio)),
    ("low", "of the ratio's 95 % interval", |_, c| c.low.and_then(text)),
    ("high", "of the ratio's 95 % interval", |_, c| c.high.and_then(text)),
    ("p", "exact Mann-Whitney p of this cell alone", |_, c| text(c.p)),
    ("p_adjusted", "after Holm over all cells", |_, c| text(c.p_adjusted)),
    ("verdict", "slower, faster or none-shown", |_, c| name(&c.verdict)),
    ("caveat", CAVEAT, |all, _| all.caveat.clone()),
];

/// The cells that two runs share.
pub(super) fn comparison(comparison: &RunComparison) -> String {
    let fields =
        |cell: &Compared| COMPARISON.iter().map(|(.., value)| value(comparison, cell).unwrap_or_default()).collect();
    table(COMPARISON.map(|(name, ..)| name).to_vec(), comparison.cells.iter().map(fields))
}

/// The page that documents the columns, `docs/csv.md`; a test holds it against this.
#[cfg(test)]
pub(super) fn page() -> String {
    let mut page = "# `vtax results export --csv`\n\nOne line for each cell of the run, also for those that could not \
                    run; RFC 4180, UTF-8, full precision, an empty field where there is no figure. \"95 %\" means the \
                    end of the 95 % interval of the figure before it, over the samples.\n\n"
        .to_owned();
    page += "| column | meaning |\n| :-- | :-- |\n";
    COLUMNS.iter().for_each(|(name, meaning, _)| page += &format!("| `{name}` | {meaning} |\n"));
    page += "\n# `vtax results compare --csv`\n\nOne line for each cell that both runs have figures of.\n\n";
    page += "| column | meaning |\n| :-- | :-- |\n";
    COMPARISON.iter().for_each(|(name, meaning, _)| page += &format!("| `{name}` | {meaning} |\n"));
    page
}

fn table(head: Vec<&str>, lines: impl Iterator<Item = Vec<String>>) -> String {
    let mut writer = ::csv::WriterBuilder::new().terminator(::csv::Terminator::CRLF).from_writer(Vec::new());
    writer.write_record(head).expect("memory takes all that is written");
    for line in lines {
        writer.write_record(line).expect("memory takes all, and every line has a field for each column");
    }
    let bytes = writer.into_inner().expect("memory takes all that is written");
    String::from_utf8(bytes).expect("made of strings")
}

fn text(value: impl ToString) -> Option<String> {
    Some(value.to_string())
}

/// The name of a variant, as in JSON.
fn name(variant: &impl serde::Serialize) -> Option<String> {
    serde_json::to_value(variant).ok()?.as_str().map(str::to_owned)
}

fn sizes(line: &Line<'_>) -> [Option<u64>; 4] {
    match line.record.cell.workload {
        Workload::Rr { request, response } | Workload::Crr { request, response } => {
            [Some(request.0), Some(response.0), None, None]
        }
        Workload::Cc => [None; 4],
        Workload::Stream { message, .. } => [None, None, Some(message.0), None],
        Workload::File { size } => [None, None, None, Some(size.0)],
    }
}

fn status<'a>(line: &'a Line<'_>) -> (&'static str, Option<&'a str>, Option<&'a str>) {
    match &line.record.status {
        CellStatus::Measured => ("measured", None, None),
        CellStatus::Unavailable { why, remedy } => ("unavailable", Some(why), Some(remedy)),
        CellStatus::Failed { why } => ("failed", Some(why), None),
        CellStatus::Missing => ("missing", None, None),
    }
}

fn summary<'a>(line: &'a Line<'_>) -> Option<&'a SummaryRecord> {
    line.record.summary.as_ref()
}

fn rate(line: &Line<'_>) -> Option<Estimate> {
    summary(line)?.transactions_per_s
}

fn rtt(line: &Line<'_>) -> Option<Estimate> {
    summary(line)?.rtt_us.as_ref().map(|rtt| rtt.mean)
}

fn percentiles(line: &Line<'_>) -> Option<[Percentile; 3]> {
    summary(line)?.rtt_us.as_ref().map(|rtt| [rtt.p50, rtt.p99, rtt.p999])
}

fn from_send<'a>(line: &'a Line<'_>) -> Option<&'a RttSummary> {
    summary(line)?.rtt_from_send_us.as_ref()
}

fn parallel<'a>(line: &'a Line<'_>) -> Option<&'a ParallelSummary> {
    summary(line)?.parallel.as_ref()
}

fn micros(span: Span) -> Option<String> {
    text(span.0.as_nanos() as f64 / 1e3)
}

fn goodput(line: &Line<'_>) -> Option<Estimate> {
    summary(line)?.goodput_mbps
}

fn file<'a>(line: &'a Line<'_>) -> Option<&'a FileSummary> {
    summary(line)?.file.as_ref()
}

fn tax<'a>(line: &'a Line<'_>) -> Option<&'a TaxRecord> {
    line.record.tax.as_ref()
}

fn mean(estimate: Estimate) -> Option<String> {
    text(estimate.mean)
}

fn low(estimate: Estimate) -> Option<String> {
    estimate.low.and_then(text)
}

fn high(estimate: Estimate) -> Option<String> {
    estimate.high.and_then(text)
}
