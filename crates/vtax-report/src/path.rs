//! A path's identity, and the ends that were there already. Another link makes another path.

use std::collections::BTreeMap;

use vtax_model::{
    foreign::ForeignText,
    nic::{Channels, Coalescing, IrqFacts, Rings},
    result::ResultDocument,
    run::{Hop, PairRecord, PathRecord, RowEnds},
};

use super::{
    blocks::distinct,
    heading,
    view::{Column, Group, Section, SectionPart, Table, TableRow},
    words,
};

/// Offloads that are told of one path; the rest is in the JSON.
const OFFLOADS_MOST: usize = 6;

/// Every link of every row's path.
pub(crate) fn section(document: &ResultDocument) -> Option<Section> {
    let paths = distinct(document.cells.iter().filter_map(|record| record.path.as_ref()));
    let parts: Vec<SectionPart> = paths.into_iter().flat_map(parts).collect();
    Section::new("What the packets went through", parts)
}

fn parts(path: &PathRecord) -> Vec<SectionPart> {
    let title = format!("{}, MTU {}, from the initiator to the responder:", path.method, path.mtu);
    let lines = path.hops.iter().map(link).chain(offloads(path));
    vec![SectionPart::Paragraph(title), SectionPart::bullets(lines)]
}

/// `w0 in sut: veth, MTU 1500, qdisc noqueue, 1 rx and 1 tx queue`
fn link(hop: &Hop) -> String {
    let nic = &hop.nic;
    let driver = |driver: &ForeignText| {
        words::joined([format!("driver {driver}"), nic.driver_version.clone().unwrap_or_default().to_string()], " ")
    };
    let mut texts = Vec::new();
    texts.extend((!hop.kind.is_empty()).then(|| hop.kind.to_string()));
    texts.extend(nic.driver.as_ref().map(driver));
    texts.extend(nic.firmware.as_ref().map(|firmware| format!("firmware {firmware}")));
    texts.extend(nic.bus.as_ref().map(|bus| format!("at {bus}")));
    texts.extend(nic.speed_mbps.map(|speed| format!("{speed} Mb/s")));
    texts.push(format!("MTU {}", hop.mtu));
    texts.extend((!hop.qdisc.is_empty()).then(|| format!("qdisc {}", hop.qdisc)));
    texts.push(queues(hop, nic.channels.as_ref()));
    texts.extend(nic.rings.as_ref().map(ring_sizes));
    texts.extend(nic.coalescing.as_ref().map(held_back));
    texts.extend(nic.numa_node.map(|node| format!("NUMA node {node}")));
    texts.extend((!nic.irqs.is_empty()).then(|| interrupts(&nic.irqs)));
    format!("{} in {}: {}", hop.link, hop.domain, texts.join(", "))
}

fn queues(hop: &Hop, channels: Option<&Channels>) -> String {
    let counts = match channels {
        Some(Channels { rx, tx, combined, .. }) => [(*combined, "combined"), (*rx, "rx"), (*tx, "tx")],
        None => [(0, "combined"), (hop.rx_queues, "rx"), (hop.tx_queues, "tx")],
    };
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let texts: Vec<String> = counts.map(|(count, what)| format!("{count} {what}")).collect();
    format!("queues: {}", texts.join(" and "))
}

fn ring_sizes(rings: &Rings) -> String {
    format!("ring of {} rx (most {}) and {} tx (most {})", rings.rx, rings.rx_most, rings.tx, rings.tx_most)
}

/// Interrupts that are held back are in every round trip.
fn held_back(coalescing: &Coalescing) -> String {
    let Coalescing { rx_us, rx_frames, tx_us, tx_frames, adaptive_rx, adaptive_tx } = *coalescing;
    let side = |us, frames, adaptive| match (adaptive, frames) {
        (true, _) => "adaptive".to_owned(),
        (false, 0) => format!("{us} µs"),
        (false, frames) => format!("{us} µs or {frames} frames"),
    };
    format!(
        "interrupts held back: rx {}, tx {}",
        side(rx_us, rx_frames, adaptive_rx),
        side(tx_us, tx_frames, adaptive_tx)
    )
}

/// `IRQ 45 on CPU 2, IRQ 46 on CPU 3`; those of many queues as one.
fn interrupts(irqs: &[IrqFacts]) -> String {
    let cpus = |irq: &IrqFacts| irq.effective.clone().unwrap_or_else(|| irq.affinity.clone());
    match irqs {
        few if few.len() <= 4 => {
            let texts: Vec<String> = few.iter().map(|irq| format!("IRQ {} on CPU {}", irq.number, cpus(irq))).collect();
            texts.join(", ")
        }
        many => format!(
            "{} IRQs on CPUs {}",
            many.len(),
            words::list(distinct(many.iter().map(cpus)).iter().map(ToString::to_string), ", ").unwrap_or_default()
        ),
    }
}

/// Those that differ from hop to hop, then those that are off wherever they could be had.
fn offloads(path: &PathRecord) -> Vec<String> {
    let mut states: BTreeMap<&ForeignText, Vec<(&ForeignText, bool)>> = BTreeMap::new();
    for hop in &path.hops {
        for (offload, on) in &hop.nic.offloads {
            states.entry(offload).or_default().push((&hop.link, *on));
        }
    }
    let (mut differing, mut off) = (Vec::new(), Vec::new());
    for (offload, links) in &states {
        let off_at: Vec<String> = links.iter().filter(|(_, on)| !on).map(|(link, _)| link.to_string()).collect();
        match off_at.len() {
            0 => {}
            count if count == links.len() => off.push(offload.to_string()),
            _ => differing.push(format!("{offload} (off at {})", off_at.join(", "))),
        }
    }
    [("Offloads that differ on the way", differing), ("Offloads that are off", off)]
        .into_iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(title, list)| format!("{title}: {}.", shortened(list)))
        .collect()
}

fn shortened(mut list: Vec<String>) -> String {
    let more = list.len().saturating_sub(OFFLOADS_MOST);
    list.truncate(OFFLOADS_MOST);
    let more = if more > 0 { format!(", and {more} more in the JSON") } else { String::new() };
    list.join(", ") + &more
}

/// The ends of each row, if the user named them or wants `all`; none if the heading names a shared pair.
pub(crate) fn ends(document: &ResultDocument, all: bool) -> Option<Section> {
    let ends: Vec<&RowEnds> = distinct(document.cells.iter().filter_map(|record| record.ends.as_ref()));
    if ends.is_empty()
        || heading::shared_pairs(document).is_some_and(|pairs| pairs.len() == 1)
        || !(all || heading::are_named(document))
    {
        return None;
    }
    let by_mtu = ends.iter().any(|ends| ends.mtu.is_some());
    let row = |(ends, pair): (&RowEnds, &PairRecord)| {
        let mtu = by_mtu.then(|| ends.mtu.map_or("any".into(), |mtu| mtu.to_string()));
        let labels = std::iter::once(ends.method.to_string()).chain(mtu).collect();
        TableRow::new(labels, [&pair.initiator, &pair.responder].map(heading::end))
    };
    let pairs = ends.iter().flat_map(|ends| ends.pairs.iter().map(|pair| (*ends, pair)));
    let table = Table {
        labels: std::iter::once("row".into()).chain(by_mtu.then(|| "MTU".into())).collect(),
        groups: vec![Group::untitled(["initiator", "responder"].map(Column::left))],
        rows: pairs.map(row).collect(),
        ..Table::default()
    };
    Some(Section::of("Ends", vec![SectionPart::Table(table)]))
}
