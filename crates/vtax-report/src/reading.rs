//! How to read the tables of a report: what was sent, and what each figure is.

use vtax_model::{
    cell::Medium,
    published::Published,
    result::{CellRecord, ResultDocument, RttSummary},
    workload::TestKind,
};

use super::{
    Options, bars,
    blocks::{blocks, distinct},
    labels,
    record::{compares_engines, is_of_disks, primary},
    series,
    view::{Section, SectionPart},
    words,
};

/// With `--explain` everything, else only what a figure must not be read without.
pub(crate) fn section(document: &ResultDocument, published: Option<&Published>, options: &Options) -> Option<Section> {
    let cited = bars::cites(document);
    let published = published.or(cited.as_ref());
    let mut lines = if options.explain { explained(document) } else { Vec::new() };
    lines.extend(of_few_rounds(document));
    if let Some(published) = published {
        let note = published.note.as_ref().filter(|_| options.explain);
        let note = note.map(|note| format!(" {note}")).unwrap_or_default();
        lines.push(format!("Published: {} ({}).{note}", published.title, published.testbed));
    }
    match options.explain {
        true => Section::bullets("How to read this", lines).map(Section::folded),
        false => Section::new("", lines.into_iter().map(SectionPart::Paragraph).collect()),
    }
}

fn explained(document: &ResultDocument) -> Vec<String> {
    let baseline = document.baseline;
    let sent = Some(sent(document)).filter(|text| !text.is_empty());
    let what = if is_of_disks(document) { "What was done" } else { "What was sent" };
    let mut lines: Vec<String> = sent.map(|text| format!("{what}. {text}")).into_iter().collect();
    lines.extend(if is_of_disks(document) { of_disks(document) } else { of_transactions(document) });
    lines.extend(of_lists(document));
    if document.cells.iter().any(|record| record.tax.is_some()) {
        lines.push(format!(
            "Tax: how much more a row takes than {baseline}, or how much less bandwidth it has, with its 95 % interval. \
             The two are paired round by round."
        ));
        lines.push(
            "Slower, faster: the signed-rank test shows it at 5 % after Holm's correction for all comparisons of this \
             part. Those of CPU time are corrected by themselves."
                .into(),
        );
        lines.push(
            "Not confirmed: the test would show it if it were the only comparison. Among twenty equal rows, one looks \
             like that."
                .into(),
        );
        lines.push("At most x %: no difference is shown, and the costly end of the interval is x.".into());
        lines.push("Too noisy to tell: a difference by a factor of two would not have been noticed.".into());
        lines.push(format!(
            "Noise ± x %: {baseline} is measured twice in each round, and the two differ by up to x. A difference that \
             is shown and is no larger has the words \"within noise\"."
        ));
    }
    if published_columns(document) {
        lines.push("\"Its tax\": the tax that is in the published figures.".into());
    }
    lines.extend(bars::reading(document));
    lines
}

fn published_columns(document: &ResultDocument) -> bool {
    document.cells.iter().any(|record| record.published.is_some())
}

/// Each text once: what is swept besides sizes doesn't change what is sent.
fn sent(document: &ResultDocument) -> String {
    let sizes = blocks(document).into_iter().map(|block| {
        let parallel =
            if block.parallel == 1 { String::new() } else { format!(", {}", block.medium.counted(block.parallel)) };
        (block.medium, parallel, block.sizes())
    });
    let told = sizes.filter(|(.., sizes)| !sizes.is_empty()).map(|(medium, parallel, sizes)| match medium {
        Medium::Disk => format!("{}{parallel}.", words::capital(&sizes)),
        Medium::Net(_) => format!("{medium}{parallel}: {sizes}."),
    });
    distinct(told).join(" ")
}

fn of_disks(document: &ResultDocument) -> Vec<String> {
    let has = |is: fn(TestKind) -> bool| document.cells.iter().any(|record| is(record.cell.kind()));
    let texts = [
        has(TestKind::is_transactions).then_some(
            "I/Os/s are all reads and writes that ended in a second, of all threads together. Response is their mean time, \
             from when a thread of fio made an I/O to when it knew of its end.",
        ),
        has(TestKind::is_stream).then_some("MB/s are 10^6 bytes read and written in a second, of all threads together."),
        Some("CPU is the time of fio's own threads, in the program and in the kernel; what serves a guest's disk isn't in it."),
    ];
    texts.into_iter().flatten().map(str::to_owned).collect()
}

fn of_transactions(document: &ResultDocument) -> Vec<String> {
    let has = |is: fn(TestKind) -> bool| document.cells.iter().any(|record| is(record.cell.kind()));
    let (rr, connections) = (has(TestKind::is_round_trips), has(TestKind::connects));
    let texts = [
        rr.then(|| format!("RTT is the mean round trip, there and back, never halved: {}.", origin(document))),
        connections.then(|| {
            "CRR is the mean time of connecting, a request, its response and closing; CC of connecting and closing."
                .to_owned()
        }),
        has(TestKind::is_stream).then(|| "Bandwidth is payload at the receiver.".to_owned()),
        document.cells.iter().any(|record| from_send(record).is_some()).then(|| {
            "In the open loop a request is due at a moment of its own, whether or not the responses came. \"due\" \
             times it from then; \"sent\" from the actual send, which is what a closed loop tells: the wait of a \
             request that could not be sent in time is missing there."
                .to_owned()
        }),
    ];
    texts.into_iter().flatten().collect()
}

/// Where the mean comes from. In an old run the rates of its cells are not known as inverses.
fn origin(document: &ResultDocument) -> String {
    let times = |record: &CellRecord| record.summary.as_ref().and_then(|summary| summary.rtt_us.clone());
    let of_histogram = |record: &&CellRecord| times(record).is_some_and(|rtt: RttSummary| !rtt.by_rate);
    let others: Vec<&CellRecord> = document.cells.iter().filter(of_histogram).collect();
    let all = document.cells.iter().filter(|record| times(record).is_some()).count();
    let overlap = |record: &&&CellRecord| !record.cell.options().rate_is_inverse(record.cell.kind());
    let names = distinct(others.iter().filter(overlap).map(|record| labels::name(document, &record.cell)));
    match (others.len(), names.len()) {
        (0, _) => "the inverse of the transaction rate".into(),
        (_, 0) => "from the histogram".into(),
        (some, _) => format!(
            "{}from the histogram, for with several requests in flight, or pauses between them, the inverse of the \
             rate says how many there were and not how long each took",
            if some < all {
                format!("the inverse of the transaction rate, but in {} ", names.join("; "))
            } else {
                String::new()
            }
        ),
    }
}

fn from_send(record: &CellRecord) -> Option<&RttSummary> {
    record.summary.as_ref()?.rtt_from_send_us.as_ref()
}

/// What only the lists of one path have.
fn of_lists(document: &ResultDocument) -> Vec<String> {
    if !compares_engines(document) {
        return Vec::new();
    }
    let any = |is: &dyn Fn(&CellRecord) -> bool| document.cells.iter().any(is);
    let texts = [
        any(&|record| record.summary.is_some())
            .then_some("CPU is all that the machines of the two ends worked, whatever it was spent on."),
        any(&|record| series::trace(record).is_some())
            .then_some("Over time: the rate, from zero to its highest; the median of the samples."),
        any(&|record| record.cell.options().gap.is_some())
            .then_some("Times no gap: the ratio of the histograms' means [95 % interval], paired round by round."),
    ];
    texts.into_iter().flatten().map(str::to_owned).collect()
}

fn of_few_rounds(document: &ResultDocument) -> Option<String> {
    let baseline = document.baseline;
    let several = document.cells.iter().any(|record| record.cell.row != baseline);
    // Where there is something to compare, the baseline has two samples a round.
    let few = document.cells.iter().filter_map(primary).any(|estimate| estimate.n < if several { 3 } else { 2 });
    let compared = if several {
        format!("; what has fewer than two rounds beside {baseline} is not compared")
    } else {
        String::new()
    };
    few.then(|| format!("A cell with one sample has no interval{compared}."))
}
