//! What the short report leaves out: intervals, percentiles, losses, and the noise floor in full.

use vtax_model::{
    result::{CellRecord, FloorRecord, Percentile, ResultDocument, SummaryRecord},
    workload::{TestKind, Transport},
};

use super::{
    blocks::{Block, quantity_of, rows_head},
    layout::{Column, Figure, Figures, Group, Part, Row as Line, Section, Table},
    number::{change, estimate, interval, percent, three_digits, with_interval},
};

/// The detail of one block; none if nothing was measured.
pub(super) fn section(block: &Block<'_>) -> Option<Section> {
    let tests = block.tests([TestKind::Rr, TestKind::Stream]);
    let tables = tests.into_iter().map(|test| table(block, test)).filter(|table| !table.rows.is_empty());
    let parts: Vec<Part> = tables.map(Part::Table).collect();
    (!parts.is_empty()).then(|| Section { title: format!("{} in detail", block.title()), parts })
}

fn table(block: &Block<'_>, test: TestKind) -> Table {
    let (rows, mtus) = (block.rows(), block.mtus());
    let (caption, heads): (&str, &[&str]) = match (test, block.transport) {
        (TestKind::Rr, Transport::Udp) => {
            ("RTT (µs)", &["mean [95 %]", "p50", "p99 [95 %]", "p99.9", "max", "lost", "n"])
        }
        (TestKind::Rr, Transport::Tcp) => ("RTT (µs)", &["mean [95 %]", "p50", "p99 [95 %]", "p99.9", "max", "n"]),
        (_, Transport::Udp) => ("Bandwidth (Mb/s)", &["mean [95 %]", "median", "lost", "overtaken", "n"]),
        (_, Transport::Tcp) => ("Bandwidth (Mb/s)", &["mean [95 %]", "median", "retransmits", "n"]),
    };
    let columns = heads.iter().map(|head| Column::right(*head)).collect();
    let keys = rows.iter().flat_map(|row| mtus.iter().map(move |mtu| (*row, *mtu)));
    let lines = keys.filter_map(|(row, mtu)| line(block.cell(row, mtu, test)?));
    Table {
        caption: caption.into(),
        labels: vec![rows_head(&rows).into(), "MTU".into()],
        groups: vec![Group { title: String::new(), columns }],
        rows: lines.collect(),
        foot: Vec::new(),
    }
}

fn line(record: &CellRecord) -> Option<Line> {
    let summary = record.summary.as_ref()?;
    let texts = match record.cell.workload.kind() {
        TestKind::Rr => round_trips(summary, record.cell.transport)?,
        TestKind::Stream | TestKind::File => stream(summary, record.cell.transport)?,
    };
    let labels = vec![record.cell.row.to_string(), record.cell.mtu.to_string()];
    Some(Line { labels, figures: Figures::Each(texts.into_iter().map(Figure::Text).collect()) })
}

fn round_trips(summary: &SummaryRecord, transport: Transport) -> Option<Vec<String>> {
    let rtt = summary.rtt_us.as_ref()?;
    let full = |p: &Percentile| with_interval(p.value, p.low, p.high);
    let mut texts = vec![
        estimate(&rtt.mean),
        three_digits(rtt.p50.value),
        full(&rtt.p99),
        three_digits(rtt.p999.value),
        three_digits(rtt.max),
    ];
    texts.extend((transport == Transport::Udp).then(|| lost(summary)));
    texts.push(rtt.mean.n.to_string());
    Some(texts)
}

fn stream(summary: &SummaryRecord, transport: Transport) -> Option<Vec<String>> {
    let goodput = summary.goodput_mbps.as_ref()?;
    let mut texts = vec![estimate(goodput), three_digits(goodput.median)];
    match transport {
        Transport::Udp => texts.extend([lost(summary), summary.reordered.to_string()]),
        Transport::Tcp => texts.push(summary.retransmits.to_string()),
    }
    texts.push(goodput.n.to_string());
    Some(texts)
}

fn lost(summary: &SummaryRecord) -> String {
    match summary.lost {
        0 => "0".into(),
        lost => format!("{lost} ({})", percent(summary.lost_share)),
    }
}

/// A' against A for each block of the matrix.
pub(super) fn noise_floor(document: &ResultDocument) -> Option<Section> {
    let heads = ["A' against A", "noise floor", "could show ≥", "rounds"];
    let table = Table {
        labels: vec!["test".into(), "MTU".into()],
        groups: vec![Group { title: String::new(), columns: heads.map(Column::right).into() }],
        rows: document.noise_floor.iter().map(floor_line).collect(),
        ..Table::default()
    };
    let text = format!(
        "{} was measured twice in each round (A and A'): what the two differ by is noise. What lies within the noise \
         floor is called no difference; \"could show\" is for a single comparison.",
        document.baseline
    );
    let biased: Vec<String> = document.noise_floor.iter().filter(|floor| is_biased(floor)).map(name).collect();
    let warning = format!(
        "A' and A differ by more than chance in {}: something other than the method makes a difference there.",
        biased.join("; ")
    );
    let mut parts = vec![Part::Paragraph(text), Part::Table(table)];
    parts.extend((!biased.is_empty()).then_some(Part::Paragraph(warning)));
    (!document.noise_floor.is_empty()).then(|| Section { title: "Noise floor".into(), parts })
}

fn floor_line(floor: &FloorRecord) -> Line {
    let difference = format!("{} {}", change(floor.ratio), interval(floor.low, floor.high));
    let least = floor.smallest_shown.map_or("—".into(), percent);
    let texts = [difference, percent(floor.floor), least, floor.pairs.to_string()];
    Line {
        labels: vec![block_name(floor), floor.mtu.to_string()],
        figures: Figures::Each(texts.map(Figure::Text).into()),
    }
}

fn is_biased(floor: &FloorRecord) -> bool {
    floor.low > 1.0 || floor.high < 1.0
}

fn name(floor: &FloorRecord) -> String {
    format!("{} at MTU {}", block_name(floor), floor.mtu)
}

fn block_name(floor: &FloorRecord) -> String {
    let streams = if floor.streams == 1 { String::new() } else { format!(", {} streams", floor.streams) };
    format!("{} {}{streams}", floor.transport, quantity_of(floor.of))
}
