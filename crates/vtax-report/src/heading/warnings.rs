//! Warnings above a result: reasons to doubt its figures.

use vtax_model::{
    endpoint::Ends,
    measurement::QuotaStops,
    metric::SampleFigure,
    result::{CellRecord, ResultDocument},
    run::{EndRecord, Placement, RunState},
};

use super::{load, percent};
use crate::{
    blocks::{Reported, distinct},
    disks, labels,
    number::{counted, three_digits},
    record::is_of_network,
    steady, trouble, words,
};

pub(crate) fn warnings(report: &Reported<'_>) -> Vec<String> {
    let document = report.document;
    let texts = [
        document.environment.server.as_ref().map(|_| {
            "EMULATED SERVER: shows function, not speed. QEMU emulates its NICs, disks, buses and cables, so no \
             figure below reflects the speed of real hardware, and no tax predicts that of a real machine."
                .to_owned()
        }),
        (document.state != RunState::Complete).then(|| {
            let (done, planned) = (document.plan.rounds, counted(document.plan.longest(), "round"));
            let resume = format!(" Resume with: vtax run --resume {}", document.id);
            let resume = if document.is_resumable() { resume } else { String::new() };
            format!("Incomplete: {done} of {planned} are complete.{resume}")
        }),
        unpinned(document).filter(|_| document.imported.is_none() && is_of_network(document)),
        disks::warning(document),
        planted(document),
        not_reached(document),
        throttled(document),
        strangers(document),
        processor_time(document),
        document.disturbance.is_much().then(|| {
            format!(
                "BUSY HOST: {}. The figures are noisy, and the CPU figures include other programs' work.",
                load(&document.disturbance)
            )
        }),
        document.disturbance.crowded().map(|share| {
            format!(
                "CPU CONTENTION: guests waited {} of the time for a CPU that others used, possibly other guests, so \
                 their figures include scheduling delays of the host. Use fewer guests or more CPUs.",
                percent(share)
            )
        }),
        document.plan.quick.then(|| "Quick plan: short samples and few rounds, hence wide intervals.".into()),
    ];
    let wrong = document.placement.notes.iter().filter(|note| note.is_wrong_label()).map(ToString::to_string);
    texts
        .into_iter()
        .flatten()
        .chain(wrong)
        .chain(steady::warnings(document))
        .chain(trouble::warnings(report))
        .collect()
}

/// The offered load was lower than requested, so the latencies are those of another load.
fn not_reached(document: &ResultDocument) -> Option<String> {
    const ALMOST: f64 = 0.98;
    let behind = |record: &CellRecord| {
        let due = f64::from(record.cell.options().arrivals?.per_second.get());
        let rate = record.summary.as_ref()?.estimate(SampleFigure::Rate)?.mean;
        (rate < due * ALMOST).then(|| format!("{}/s", three_digits(rate)))
    };
    let cells = labels::told(document, behind)?;
    Some(format!("RATE NOT REACHED: fewer requests were answered than offered in {cells}."))
}

/// An injected delay is not a cost of a method.
fn planted(document: &ResultDocument) -> Option<String> {
    let of = |record: &CellRecord| {
        let delay = record.cell.options().responder.delay?;
        Some(format!("{} ({delay})", record.cell.row))
    };
    let rows = words::list(distinct(document.cells.iter().filter_map(of)).into_iter(), ", ")?;
    Some(format!(
        "INJECTED DELAY: the responder waited before each response in {rows}, as a known cost to be detected."
    ))
}

/// A quota stops all threads of an endpoint for the rest of its period, i.e. for tens of milliseconds.
fn throttled(document: &ResultDocument) -> Option<String> {
    let of = |end: fn(Ends<Option<QuotaStops>>) -> Option<QuotaStops>, role: &str| {
        let counts = document.cells.iter().filter_map(|record| end(record.throttling())).reduce(QuotaStops::plus)?;
        (counts.throttled > 0).then(|| format!("at the {role} in {} of {} periods", counts.throttled, counts.periods))
    };
    let ends = [of(|ends| ends.initiator, "initiator"), of(|ends| ends.responder, "responder")];
    let ends = words::list(ends.into_iter().flatten(), ", ")?;
    Some(format!(
        "THROTTLED: the CPU quota of its container stopped vtax's agent {ends}. The figures show this quota rather than \
         the path. Raise or remove the CPU limit, and measure again."
    ))
}

/// Unauthenticated peers connected to a port of the test: no harm to the figures, but worth knowing.
fn strangers(document: &ResultDocument) -> Option<String> {
    let came = |record: &CellRecord| {
        let count = record.summary.as_ref()?.strangers;
        (count > 0).then(|| count.to_string())
    };
    let cells = labels::told(document, came)?;
    Some(format!(
        "UNAUTHENTICATED PEERS: connections without the test's token reached its port in {cells}. They were sent \
         nothing and are not in the figures; check whether this network is being scanned."
    ))
}

/// Warns where the CPU figures are lower than the time used.
fn processor_time(document: &ResultDocument) -> Option<String> {
    let by_ticks = |record: &CellRecord| record.samples.iter().any(|sample| sample.cpu.by_ticks);
    // Documents of that version don't record it themselves.
    match (document.cpu_by_ticks || document.cells.iter().any(by_ticks), document.cpu_raised) {
        (true, _) => Some(
            "CPU BY TICKS: an older vtax computed the CPU figures of this result from the kernel's timer ticks. They \
             are 8 to 41 % too low; don't compare them with those of newer results."
                .to_owned(),
        ),
        (false, 0) => None,
        (false, samples) => Some(format!(
            "CPU LOWER BOUND: in {} the machine's accounting showed less CPU time than the measuring threads used. The \
             threads' time is used instead, so the CPU figures of these are lower bounds.",
            counted(u32::try_from(samples).unwrap_or(u32::MAX), "sample")
        )),
    }
}

fn unpinned(document: &ResultDocument) -> Option<String> {
    let ends = document.cells.iter().filter_map(|record| record.ends.as_ref()).flat_map(|ends| &ends.pairs);
    let ends: Vec<&EndRecord> = ends.flat_map(|pair| [&pair.initiator, &pair.responder]).collect();
    let loose = distinct(ends.iter().filter(|end| end.cpus.is_empty()).map(|end| &end.name));
    let Placement { initiator, responder, .. } = &document.placement;
    let who = match (ends.is_empty(), loose.len()) {
        (true, _) if initiator.is_empty() || responder.is_empty() => "the endpoints".to_owned(),
        (true, _) | (false, 0) => return None,
        (false, 1..=3) => words::list(loose.iter().map(ToString::to_string), ", ").unwrap_or_default(),
        (false, _) => format!("{} of the endpoints", loose.len()),
    };
    Some(format!("NOT PINNED: {who} moved between CPUs, which alone can change round-trip times fourfold."))
}
