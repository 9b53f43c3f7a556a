//! What the short report leaves out: intervals, percentiles, losses, and the noise floor in full.

use vtax_model::{
    result::{CellRecord, FloorRecord, Percentile, ResultDocument, SummaryRecord},
    workload::{TestKind, Transport},
};

use super::{
    blocks::{Block, blocks, quantity, quantity_of, rows_head},
    layout::{Column, Figure, Figures, Group, Part, Row as Line, Section, Table},
    number::{change, estimate, interval, lost, percent, three_digits, with_interval},
};

/// The detail of one block; none if nothing was measured.
pub(super) fn section(block: &Block<'_>) -> Option<Section> {
    let tables = block.figured().into_iter().map(|test| table(block, test)).filter(|table| !table.rows.is_empty());
    let parts: Vec<Part> = tables.map(Part::Table).collect();
    (!parts.is_empty()).then(|| Section { title: format!("{} in detail", block.title()), parts })
}

fn table(block: &Block<'_>, test: TestKind) -> Table {
    let (rows, mtus) = (block.rows(), block.mtus());
    let columns = heads(test, block.transport).into_iter().map(Column::right).collect();
    let keys = rows.iter().flat_map(|row| mtus.iter().map(move |mtu| (*row, *mtu)));
    let lines = keys.filter_map(|(row, mtu)| line(block.cell(row, mtu, test)?));
    Table {
        caption: quantity(test).into(),
        labels: vec![rows_head(&rows).into(), "MTU".into()],
        groups: vec![Group { title: String::new(), columns }],
        rows: lines.collect(),
        foot: Vec::new(),
    }
}

fn heads(test: TestKind, transport: Transport) -> Vec<&'static str> {
    let mut heads = match test.is_transactions() {
        true => vec!["mean [95 %]", "p50", "p99 [95 %]", "p99.9", "max"],
        false => vec!["mean [95 %]", "median"],
    };
    heads.extend(match (test.is_transactions(), transport) {
        (true, Transport::Udp) => vec!["lost"],
        (false, Transport::Udp) => vec!["lost", "overtaken"],
        (false, Transport::Tcp) => vec!["retransmits"],
        _ => vec![],
    });
    heads.push("n");
    heads
}

fn line(record: &CellRecord) -> Option<Line> {
    let summary = record.summary.as_ref()?;
    let texts = match record.cell.workload.kind().is_transactions() {
        true => round_trips(summary, record.cell.transport)?,
        false => stream(summary, record.cell.transport)?,
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
        Transport::Unix | Transport::Vsock => {}
    }
    texts.push(goodput.n.to_string());
    Some(texts)
}

/// A' against A for each block of the matrix.
pub(super) fn noise_floor(document: &ResultDocument) -> Option<Section> {
    let heads = ["A' against A", "noise floor", "could show ≥", "rounds"];
    let table = Table {
        labels: vec!["test".into(), "MTU".into()],
        groups: vec![Group { title: String::new(), columns: heads.map(Column::right).into() }],
        rows: document.noise_floor.iter().map(|floor| floor_line(document, floor)).collect(),
        ..Table::default()
    };
    let text = format!(
        "{} was measured twice in each round (A and A'): what the two differ by is noise. What lies within the noise \
         floor is called no difference; \"could show\" is for a single comparison.",
        document.baseline
    );
    let biased = document.noise_floor.iter().filter(|floor| is_biased(floor));
    let biased: Vec<String> =
        biased.map(|floor| format!("{} at MTU {}", block_name(document, floor), floor.mtu)).collect();
    let warning = format!(
        "A' and A differ by more than chance in {}: something other than the method makes a difference there.",
        biased.join("; ")
    );
    let mut parts = vec![Part::Paragraph(text), Part::Table(table)];
    parts.extend((!biased.is_empty()).then_some(Part::Paragraph(warning)));
    (!document.noise_floor.is_empty()).then(|| Section { title: "Noise floor".into(), parts })
}

fn floor_line(document: &ResultDocument, floor: &FloorRecord) -> Line {
    let difference = format!("{} {}", change(floor.ratio), interval(floor.low, floor.high));
    let least = floor.smallest_shown.map_or("—".into(), percent);
    let texts = [difference, percent(floor.floor), least, floor.pairs.to_string()];
    Line {
        labels: vec![block_name(document, floor), floor.mtu.to_string()],
        figures: Figures::Each(texts.map(Figure::Text).into()),
    }
}

fn is_biased(floor: &FloorRecord) -> bool {
    floor.low > 1.0 || floor.high < 1.0
}

/// `TCP RTT, 4 streams`, with the swept value if there are several.
fn block_name(document: &ResultDocument, floor: &FloorRecord) -> String {
    let of_floor = |block: &&Block<'_>| {
        (block.transport, block.streams, block.variant) == (floor.transport, floor.streams, floor.variant)
    };
    let blocks = blocks(document);
    let rest = blocks.iter().find(of_floor).filter(|block| block.is_swept()).map(Block::title);
    let streams = if floor.streams == 1 { String::new() } else { format!(", {} streams", floor.streams) };
    match rest.as_ref().and_then(|title| title.strip_prefix(&floor.transport.to_string())) {
        Some(rest) => format!("{} {}{rest}", floor.transport, quantity_of(floor.test)),
        None => format!("{} {}{streams}", floor.transport, quantity_of(floor.test)),
    }
}
