//! Pairs that measured at the same time, each by itself, and how well they started together.

use vtax_model::{
    result::{CellRecord, Estimate, PairSummary, ParallelSummary, ResultDocument},
    run::PairRecord,
    workload::Transport,
};

use super::{
    labels,
    layout::{Column, Figure, Figures, Group, Part, Row, Section, Table},
    number::{counted, estimate, lost, three_digits},
};

/// A table for each cell with several pairs.
pub(super) fn section(document: &ResultDocument) -> Option<Section> {
    let several = |record: &CellRecord| record.summary.as_ref()?.parallel.clone();
    let of = |record| several(record).map(|parallel| parts(document, record, &parallel));
    let parts: Vec<Part> = document.cells.iter().filter_map(of).flatten().collect();
    (!parts.is_empty()).then(|| Section { title: "Pairs at the same time".into(), parts })
}

fn parts(document: &ResultDocument, record: &CellRecord, parallel: &ParallelSummary) -> Vec<Part> {
    let transactions = record.cell.workload.kind().is_transactions();
    let udp = record.cell.transport == Transport::Udp;
    let rate = if transactions { "rate/s [95 %]" } else { "Mb/s [95 %]" };
    let heads = [Some(rate), transactions.then_some("p50 (µs)"), transactions.then_some("p99"), udp.then_some("lost")];
    let shown = heads.map(|head| head.is_some());
    let row = |label: String, texts: [String; 4]| {
        let figures = texts.into_iter().zip(shown).filter(|(_, shown)| *shown).map(|(text, _)| Figure::Text(text));
        Row { labels: vec![label], figures: Figures::Each(figures.collect()) }
    };
    let table = Table {
        caption: labels::name(document, &record.cell),
        labels: vec!["pair".into()],
        groups: vec![Group { title: String::new(), columns: heads.into_iter().flatten().map(Column::right).collect() }],
        rows: parallel.pairs.iter().enumerate().map(|(index, pair)| row(name(record, index), of_pair(pair))).collect(),
        foot: vec![row("all".into(), of_all(record))],
    };
    vec![Part::Table(table), Part::Paragraph(skew(parallel))]
}

/// `1: ssh:vm1 to ssh:vm2`
fn name(record: &CellRecord, index: usize) -> String {
    let ends = record.ends.as_ref().and_then(|ends| ends.pairs.get(index));
    let names = |pair: &PairRecord| format!(": {} to {}", pair.initiator.name, pair.responder.name);
    format!("{}{}", index + 1, ends.map(names).unwrap_or_default())
}

fn of_pair(pair: &PairSummary) -> [String; 4] {
    let us = |value: Option<f64>| value.map_or("—".into(), three_digits);
    let rate = pair.transactions_per_s.or(pair.goodput_mbps);
    [of_rate(rate), us(pair.p50_us), us(pair.p99_us), pair.lost.to_string()]
}

fn of_all(record: &CellRecord) -> [String; 4] {
    let Some(summary) = &record.summary else { return std::array::from_fn(|_| "—".into()) };
    let us = |value: Option<f64>| value.map_or("—".into(), three_digits);
    let rtt = summary.rtt_us.as_ref();
    let rate = summary.transactions_per_s.or(summary.goodput_mbps);
    [of_rate(rate), us(rtt.map(|rtt| rtt.p50.value)), us(rtt.map(|rtt| rtt.p99.value)), lost(summary)]
}

fn of_rate(rate: Option<Estimate>) -> String {
    rate.as_ref().map_or("—".into(), estimate)
}

fn skew(parallel: &ParallelSummary) -> String {
    let ParallelSummary { skew_us, skew_us_most, uncertainty_us, pairs } = parallel;
    let known = match *uncertainty_us {
        0.0 => "by one clock".to_owned(),
        uncertainty => format!("known to ± {} µs", three_digits(uncertainty)),
    };
    format!(
        "The last of {} started {} µs after the first (median of the samples; at most {} µs), {known}. A \
         pair's percentiles are the medians of its samples' own; those of all are of the merged histogram.",
        counted(pairs.len() as u32, "pair"),
        three_digits(*skew_us),
        three_digits(*skew_us_most),
    )
}
