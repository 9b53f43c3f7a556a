//! Legend of a report: what was sent, and the definition of each figure.

use vtax_model::{
    cell::Medium,
    published::Published,
    result::{CellRecord, ResultDocument, RttSummary},
    workload::TestKind,
};

use super::{
    Options, bars,
    blocks::{BlockCells, Reported, distinct},
    labels,
    record::{is_of_disks, is_of_migrations, is_of_one_path, primary},
    series,
    view::{Section, SectionPart},
    words,
};

/// Returns the full legend with `--explain`, otherwise only what is needed to interpret the figures correctly.
pub(crate) fn section(report: &Reported<'_>, published: Option<&Published>, options: &Options) -> Option<Section> {
    let document = report.document;
    let cited = bars::cites(document);
    let published = published.or(cited.as_ref());
    let mut lines = if options.explain { explained(report) } else { Vec::new() };
    lines.extend(of_few_rounds(document));
    if let Some(published) = published {
        let note = published.note.as_ref().filter(|_| options.explain);
        let note = note.map(|note| format!(" {note}")).unwrap_or_default();
        lines.push(format!("Published: {} ({}).{note}", published.title, published.testbed));
    }
    match options.explain {
        true => Section::bullets("Legend", lines).map(Section::folded),
        false => Section::new("", lines.into_iter().map(SectionPart::Paragraph).collect()),
    }
}

fn explained(report: &Reported<'_>) -> Vec<String> {
    let document = report.document;
    let baseline = document.baseline;
    let sent = Some(sent(&report.blocks)).filter(|text| !text.is_empty());
    let (disks, migrations) = (is_of_disks(document), is_of_migrations(document));
    let what = match (disks, migrations) {
        (true, _) => "Operations",
        (_, true) => "Guests",
        _ => "Traffic",
    };
    let mut lines: Vec<String> = sent.map(|text| format!("{what}: {text}")).into_iter().collect();
    lines.extend(match (disks, migrations) {
        (true, _) => of_disks(document),
        (_, true) => of_migrations(document),
        _ => of_transactions(document),
    });
    lines.extend(of_lists(document));
    if document.cells.iter().any(|record| record.tax.is_some()) {
        lines.push(format!(
            "Tax: relative cost of a row compared with {baseline} (more time, or less bandwidth), with its 95 % \
             interval. Rows and baseline are paired round by round."
        ));
        lines.push(
            "Slower, faster: significant at 5 % in the signed-rank test after Holm's correction for all comparisons of \
             this part. Comparisons of CPU time are corrected separately."
                .into(),
        );
        lines.push(
            "Not significant: p < 5 % for this comparison alone, but not after Holm's correction. Of twenty equal \
             rows, one is expected to look like that."
                .into(),
        );
        lines.push("≤ x % worse: no difference shown; x is the cost bound of the interval.".into());
        lines.push("Too noisy to tell: even a difference by a factor of two would have gone unnoticed.".into());
        lines.push(format!(
            "Noise ± x %: the noise floor. {baseline} is measured twice in each round, and the two differ by up to x. \
             A shown difference that is no larger is marked \"within noise\"."
        ));
    }
    if published_columns(document) {
        lines.push("Published tax: the tax computed from the published figures.".into());
    }
    lines.extend(bars::reading(document));
    lines
}

fn published_columns(document: &ResultDocument) -> bool {
    document.cells.iter().any(|record| record.published.is_some())
}

/// Each text once: sweeping anything other than sizes doesn't change what is sent.
fn sent(blocks: &[BlockCells<'_>]) -> String {
    let sizes = blocks.iter().map(|block| {
        let parallel =
            if block.parallel == 1 { String::new() } else { format!(", {}", block.medium.counted(block.parallel)) };
        (block.medium, parallel, block.sizes())
    });
    let told = sizes.filter(|(.., sizes)| !sizes.is_empty()).map(|(medium, parallel, sizes)| match medium {
        Medium::Disk | Medium::Memory => format!("{}{parallel}.", words::capital(&sizes)),
        Medium::Net(_) => format!("{medium}{parallel}: {sizes}."),
    });
    distinct(told).join(" ")
}

fn of_migrations(document: &ResultDocument) -> Vec<String> {
    let is_of_domain = document.cells.iter().any(|record| record.ends.is_some());
    let texts = if is_of_domain { OF_DOMAIN } else { OF_GUESTS };
    texts.map(str::to_owned).to_vec()
}

const OF_DOMAIN: [&str; 2] = [
    "Suspend time: from the stop of the virtual CPUs at the source to their start at the target, by the events of both QEMUs, \
     or by the domain's clock if the hosts are two machines. Measured dirty rate: 10^6 bytes of its memory that the domain \
     changed per second in the last pass.",
    "Total time: from the order to migrate until the source has nothing left to send, without copied disks and the hand-over.",
];

const OF_GUESTS: [&str; 2] = [
    "Suspend time: from the stop of the virtual CPUs at the source to their start at the target, by the events of both \
         QEMUs. Dirty rate: 10^6 bytes of its memory that the guest changes per second; a page that changes several times \
         counts once in the measured rate.",
    "Total time: from the order to migrate until the source has nothing left to send, without the start of QEMU at the \
         target. The guest uses half of its memory, and has no NIC and no disk.",
];

fn of_disks(document: &ResultDocument) -> Vec<String> {
    let has = |is: fn(TestKind) -> bool| document.cells.iter().any(|record| is(record.cell.kind()));
    let texts = [
        has(TestKind::is_transactions).then_some(
            "IOPS: reads and writes completed per second by all threads together. Response: their mean time, from when \
             a thread of fio issued an I/O to when it saw its completion.",
        ),
        has(TestKind::is_stream).then_some("MB/s: 10^6 bytes read and written per second by all threads together."),
        Some("CPU: time of fio's threads, user and kernel; the threads that serve a guest's disk are not included."),
    ];
    texts.into_iter().flatten().map(str::to_owned).collect()
}

fn of_transactions(document: &ResultDocument) -> Vec<String> {
    let has = |is: fn(TestKind) -> bool| document.cells.iter().any(|record| is(record.cell.kind()));
    let (rr, connections) = (has(TestKind::is_round_trips), has(TestKind::connects));
    let texts = [
        rr.then(|| format!("RTT: mean round-trip time, never halved: {}.", origin(document))),
        connections.then(|| {
            "CRR: mean time to connect, send a request, get its response and close. CC: mean time to connect and close."
                .to_owned()
        }),
        has(TestKind::is_stream).then(|| "Bandwidth: payload received (goodput).".to_owned()),
        document.cells.iter().any(|record| from_send(record).is_some()).then(|| {
            "Open loop: each request is due at a scheduled time, whether or not earlier responses have arrived. \
             \"due\" counts from that time; \"sent\" from the actual send, as a closed loop does, which hides the wait \
             of a request that could not be sent in time."
                .to_owned()
        }),
    ];
    texts.into_iter().flatten().collect()
}

/// Origin of the mean. In an old run the rates of its cells are not known to be inverses.
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
            "{}from the histogram, because with several requests in flight, or pauses between them, the inverse of the \
             rate doesn't give the time of each",
            if some < all {
                format!("the inverse of the transaction rate, except in {} ", names.join("; "))
            } else {
                String::new()
            }
        ),
    }
}

fn from_send(record: &CellRecord) -> Option<&RttSummary> {
    record.summary.as_ref()?.rtt_from_send_us.as_ref()
}

/// Lines that apply only to the lists of one path.
fn of_lists(document: &ResultDocument) -> Vec<String> {
    if !is_of_one_path(document) {
        return Vec::new();
    }
    let any = |is: &dyn Fn(&CellRecord) -> bool| document.cells.iter().any(is);
    let texts = [
        any(&|record| record.summary.is_some())
            .then_some("CPU: total busy time of the two endpoints' machines, whatever caused it."),
        any(&|record| series::trace(record).is_some())
            .then_some("Rate over time: from zero to the maximum, median of the samples."),
        any(&|record| record.cell.options().gap.is_some())
            .then_some("Ratio to no gap: ratio of the histograms' means [95 % interval], paired round by round."),
    ];
    texts.into_iter().flatten().map(str::to_owned).collect()
}

fn of_few_rounds(document: &ResultDocument) -> Option<String> {
    let baseline = document.baseline;
    let several = document.cells.iter().any(|record| record.cell.row != baseline);
    // Where there is something to compare, the baseline has two samples per round.
    let few = document.cells.iter().filter_map(primary).any(|estimate| estimate.n < if several { 3 } else { 2 });
    let compared = if several {
        format!("; cells with fewer than two rounds in common with {baseline} are not compared")
    } else {
        String::new()
    };
    few.then(|| format!("A cell with one sample has no interval{compared}."))
}
