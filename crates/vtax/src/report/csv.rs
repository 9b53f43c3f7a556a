//! One line a cell (RFC 4180), for spreadsheets and data frames: one figure a column, in full
//! precision, an empty field where there is none.

use vtax_model::{
    result::{CellRecord, CellStatus, Estimate, FileSummary, Percentile, ResultDocument, SummaryRecord, TaxRecord},
    workload::Workload,
};

use super::compare::{Compared, Comparison};

/// Name, meaning and value of a column of cells.
type Column = (&'static str, &'static str, for<'a> fn(&Line<'a>) -> Option<String>);

/// A cell within its run.
struct Line<'a> {
    document: &'a ResultDocument,
    record: &'a CellRecord,
}

/// The columns, in order. "95 %" means the interval of the figure before it over the samples.
const COLUMNS: [Column; 57] = [
    ("study", "the study's name", |l| text(&l.document.study)),
    ("run", "the run's id", |l| text(&l.document.id)),
    ("method", "the row: an I/O method, or sender-to-receiver", |l| text(l.record.cell.row)),
    ("transport", "tcp or udp", |l| text(l.record.cell.transport.to_string().to_lowercase())),
    ("test", "rr, stream or file", |l| text(l.record.cell.workload.kind().to_string().to_lowercase())),
    ("mtu", "of the wire, bytes", |l| text(l.record.cell.mtu)),
    ("streams", "flows at the same time", |l| text(l.record.cell.streams)),
    ("request_bytes", "RR", |l| sizes(l)[0].and_then(text)),
    ("response_bytes", "RR", |l| sizes(l)[1].and_then(text)),
    ("message_bytes", "stream: handed over by one call", |l| sizes(l)[2].and_then(text)),
    ("file_bytes", "file", |l| sizes(l)[3].and_then(text)),
    ("status", "measured, unavailable, failed or missing", |l| text(status(l).0)),
    ("why", "unavailable or failed: the reason", |l| status(l).1.and_then(text)),
    ("remedy", "unavailable: what would mend it", |l| status(l).2.and_then(text)),
    ("samples", "that landed; the baseline has two a round", |l| text(l.record.samples.len())),
    ("transactions_per_s", "RR, mean over samples", |l| rate(l).and_then(mean)),
    ("transactions_per_s_low", "95 %", |l| rate(l).and_then(low)),
    ("transactions_per_s_high", "95 %", |l| rate(l).and_then(high)),
    ("rtt_us", "RR, µs: mean round trip, the inverse of the rate", |l| rtt(l).and_then(mean)),
    ("rtt_us_low", "95 %", |l| rtt(l).and_then(low)),
    ("rtt_us_high", "95 %", |l| rtt(l).and_then(high)),
    ("rtt_p50_us", "RR, µs: median transaction", |l| text(percentiles(l)?[0].value)),
    ("rtt_p50_us_low", "95 %", |l| percentiles(l)?[0].low.and_then(text)),
    ("rtt_p50_us_high", "95 %", |l| percentiles(l)?[0].high.and_then(text)),
    ("rtt_p99_us", "RR, µs: 99 of 100 took at most this", |l| text(percentiles(l)?[1].value)),
    ("rtt_p99_us_low", "95 %", |l| percentiles(l)?[1].low.and_then(text)),
    ("rtt_p99_us_high", "95 %", |l| percentiles(l)?[1].high.and_then(text)),
    ("rtt_p999_us", "RR, µs: 999 of 1,000", |l| text(percentiles(l)?[2].value)),
    ("rtt_p999_us_low", "95 %", |l| percentiles(l)?[2].low.and_then(text)),
    ("rtt_p999_us_high", "95 %", |l| percentiles(l)?[2].high.and_then(text)),
    ("rtt_max_us", "RR, µs: the longest of all samples", |l| text(summary(l)?.rtt_us.as_ref()?.max)),
    ("goodput_mbps", "stream and file, 10^6 bit/s at the receiver", |l| goodput(l).and_then(mean)),
    ("goodput_mbps_low", "95 %", |l| goodput(l).and_then(low)),
    ("goodput_mbps_high", "95 %", |l| goodput(l).and_then(high)),
    ("cpu_us_per_transaction", "RR, µs of CPU, both ends", |l| mean(summary(l)?.cpu_us_per_transaction?)),
    ("cpu_us_per_transaction_low", "95 %", |l| low(summary(l)?.cpu_us_per_transaction?)),
    ("cpu_us_per_transaction_high", "95 %", |l| high(summary(l)?.cpu_us_per_transaction?)),
    ("cpu_us_per_kb", "stream and file, µs of CPU per 1,024 bytes, both ends", |l| mean(summary(l)?.cpu_us_per_kb?)),
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
    ("tax_p", "exact sign-flip p of this comparison alone", |l| text(tax(l)?.p)),
    ("tax_p_adjusted", "after Holm over the run's comparisons", |l| text(tax(l)?.p_adjusted)),
    ("tax_verdict", "slower, faster or none-shown", |l| name(&tax(l)?.verdict)),
    ("tax_could_show", "none-shown: the least relative difference that would have been", |l| text(tax(l)?.could_show?)),
    ("tax_pairs", "rounds with both cells", |l| text(tax(l)?.pairs)),
    ("published", "the source's figure: µs (RR) or Mb/s (stream)", |l| l.record.published.and_then(text)),
];

/// The cells of a run.
pub(super) fn cells(document: &ResultDocument) -> String {
    let lines = document.cells.iter().map(|record| Line { document, record });
    let fields = |line: Line<'_>| COLUMNS.iter().map(|(.., value)| value(&line).unwrap_or_default()).collect();
    table(COLUMNS.map(|(name, ..)| name).to_vec(), lines.map(fields))
}

/// Name, meaning and value of a column of compared cells.
type ComparedColumn = (&'static str, &'static str, fn(&Compared) -> Option<String>);

const COMPARISON: [ComparedColumn; 16] = [
    ("method", "the row", |c| text(c.cell.row)),
    ("transport", "tcp or udp", |c| text(c.cell.transport.to_string().to_lowercase())),
    ("test", "rr, stream or file", |c| text(c.cell.workload.kind().to_string().to_lowercase())),
    ("mtu", "bytes", |c| text(c.cell.mtu)),
    ("streams", "flows at the same time", |c| text(c.cell.streams)),
    ("of", "what is compared: rtt (µs), goodput (Mb/s) or real (s)", |c| name(&c.of)),
    ("a", "median over the first run's rounds", |c| text(c.a)),
    ("b", "median over the second run's rounds", |c| text(c.b)),
    ("a_rounds", "rounds of the first run", |c| text(c.a_rounds)),
    ("b_rounds", "rounds of the second run", |c| text(c.b_rounds)),
    ("ratio", "second over first", |c| text(c.ratio)),
    ("low", "of the ratio's 95 % interval", |c| c.low.and_then(text)),
    ("high", "of the ratio's 95 % interval", |c| c.high.and_then(text)),
    ("p", "exact Mann-Whitney p of this cell alone", |c| text(c.p)),
    ("p_adjusted", "after Holm over all cells", |c| text(c.p_adjusted)),
    ("verdict", "slower, faster or none-shown", |c| name(&c.verdict)),
];

/// The cells that two runs share.
pub(super) fn comparison(comparison: &Comparison) -> String {
    let fields = |cell: &Compared| COMPARISON.iter().map(|(.., value)| value(cell).unwrap_or_default()).collect();
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
        Workload::Rr { request, response } => [Some(request.0), Some(response.0), None, None],
        Workload::Stream { message } => [None, None, Some(message.0), None],
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
