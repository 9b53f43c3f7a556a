//! Identity of a network path, and existing endpoints. A different link makes a different path.

use std::collections::BTreeMap;

use vtax_model::{
    foreign::ForeignText,
    metric::FigureUnit,
    nic::{Channels, Coalescing, IrqFacts, Rings},
    result::ResultDocument,
    run::{Hop, PairRecord, PathRecord, RowEnds},
};

use super::{
    blocks::distinct,
    column_unit::exact,
    heading,
    view::{Column, DrawnPath, Group, PathLink, PathStation, Section, SectionPart, Table, TableRow},
    words,
};

/// Maximum number of offloads listed for one path; the rest is in the JSON.
const OFFLOADS_MOST: usize = 6;

/// Returns every link of every row's path.
pub(crate) fn section(document: &ResultDocument) -> Option<Section> {
    let paths = distinct(document.cells.iter().filter_map(|record| record.path.as_ref()));
    let alike = paths.chunk_by(|one, next| differ_in_mtu_alone(one, next));
    Section::new("Network path", alike.map(drawn).map(SectionPart::Path).collect())
}

/// Returns `true` if each link of a row has the MTU of the wire, at one MTU and at the next, and is otherwise the same.
fn differ_in_mtu_alone(one: &PathRecord, next: &PathRecord) -> bool {
    let without_mtu = |path: &PathRecord| {
        let hops = path.hops.iter().map(|hop| Hop { mtu: 0, ..hop.clone() });
        (path.method, path.backend, hops.collect::<Vec<_>>())
    };
    let all_have_it = |path: &PathRecord| path.hops.iter().all(|hop| hop.mtu == path.mtu.get());
    [one, next].into_iter().all(all_have_it) && without_mtu(one) == without_mtu(next)
}

/// Path of a row at MTUs that change nothing else.
fn drawn(alike: &[&PathRecord]) -> DrawnPath {
    let path = alike[0];
    let mtus: Vec<String> = alike.iter().map(|path| path.mtu.to_string()).collect();
    let station = |hops: &[Hop]| PathStation {
        domain: hops[0].domain.to_string(),
        links: hops.iter().map(|hop| link(hop, &mtus)).collect(),
    };
    DrawnPath {
        title: format!("{}, MTU {}, from the initiator to the responder", path.method, mtus.join(" or ")),
        stations: path.hops.chunk_by(|one, next| one.domain == next.domain).map(station).collect(),
        remarks: offloads(path),
    }
}

/// Describes a link, e.g. `w0`: veth, MTU 1500, qdisc noqueue, 1 rx and 1 tx queue.
fn link(hop: &Hop, mtus: &[String]) -> PathLink {
    let nic = &hop.nic;
    let driver = |driver: &ForeignText| {
        words::joined([format!("driver {driver}"), nic.driver_version.clone().unwrap_or_default().to_string()], " ")
    };
    let mtu = if mtus.len() > 1 { mtus.join(" or ") } else { hop.mtu.to_string() };
    let mut facts = Vec::new();
    facts.extend((!hop.kind.is_empty()).then(|| hop.kind.to_string()));
    facts.extend(nic.driver.as_ref().map(driver));
    facts.extend(nic.firmware.as_ref().map(|firmware| format!("firmware {firmware}")));
    facts.extend(nic.bus.as_ref().map(|bus| format!("at {bus}")));
    facts.extend(nic.speed_mbps.map(|speed| exact(speed.into(), FigureUnit::MegabitsPerSecond)));
    facts.push(format!("MTU {mtu}"));
    facts.extend((!hop.qdisc.is_empty()).then(|| format!("qdisc {}", hop.qdisc)));
    facts.push(queues(hop, nic.channels.as_ref()));
    facts.extend(nic.rings.as_ref().map(ring_sizes));
    facts.extend(nic.coalescing.as_ref().map(held_back));
    facts.extend(nic.numa_node.map(|node| format!("NUMA node {node}")));
    facts.extend((!nic.irqs.is_empty()).then(|| interrupts(&nic.irqs)));
    PathLink { name: hop.link.to_string(), facts }
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

/// Coalesced interrupts add to every round trip.
fn held_back(coalescing: &Coalescing) -> String {
    let Coalescing { rx_us, rx_frames, tx_us, tx_frames, adaptive_rx, adaptive_tx } = *coalescing;
    let time = |us: u32| exact(us.into(), FigureUnit::Microseconds);
    let side = |us, frames, adaptive| match (adaptive, frames) {
        (true, _) => "adaptive".to_owned(),
        (false, 0) => time(us),
        (false, frames) => format!("{} or {frames} frames", time(us)),
    };
    format!(
        "interrupt coalescing: rx {}, tx {}",
        side(rx_us, rx_frames, adaptive_rx),
        side(tx_us, tx_frames, adaptive_tx)
    )
}

/// Returns e.g. `IRQ 45 on CPU 2, IRQ 46 on CPU 3`; many queues are summarized.
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

/// Offloads that differ between hops, then those that are off wherever they are available.
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
    [("Offloads that differ between hops", differing), ("Offloads disabled", off)]
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

/// Endpoints of each row, if the user named them or requests `all`; `None` if the heading names a shared pair.
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
    Some(Section::of("Endpoints", vec![SectionPart::Table(table)]))
}
