//! Warnings above a result: reasons to doubt its figures.

use vtax_model::{
    metric::SampleFigure,
    result::{CellRecord, ResultDocument},
    run::{EndRecord, Placement, RunState},
};

use super::{load, percent};
use crate::{
    blocks::distinct,
    disks, labels,
    number::{counted, three_digits},
    record::is_of_disks,
    steady, trouble, words,
};

pub(crate) fn warnings(document: &ResultDocument) -> Vec<String> {
    let texts = [
        document.environment.server.as_ref().map(|_| {
            "EMULATED SERVER: shows function, not speed. QEMU plays its NICs, its disks, its buses and its cables, \
             so no figure below says how fast any of it is, and no tax what it would be on a real machine."
                .to_owned()
        }),
        (document.state != RunState::Complete).then(|| {
            let done = document.plan.rounds;
            format!(
                "Incomplete: {done} of {} are complete. Go on with: vtax run --resume {}",
                counted(document.plan.longest(), "round"),
                document.id
            )
        }),
        unpinned(document).filter(|_| document.imported.is_none() && !is_of_disks(document)),
        disks::warning(document),
        planted(document),
        not_reached(document),
        strangers(document),
        processor_time(document),
        document.disturbance.is_much().then(|| {
            format!(
                "DISTURBED: {}. Such a machine is noisy, and the CPU figures contain others' work.",
                load(&document.disturbance)
            )
        }),
        document.disturbance.crowded().map(|share| {
            format!(
                "CROWDED: the guests waited {} of the time for a CPU that others had, maybe each other, so their figures have turns \
                 of the host's scheduler in them. Fewer guests or more CPUs would mend it.",
                percent(share)
            )
        }),
        document.plan.quick.then(|| "Quick plan: short samples and few rounds, so wide intervals.".into()),
    ];
    let wrong = document.placement.notes.iter().filter(|note| note.is_wrong_label()).map(ToString::to_string);
    texts
        .into_iter()
        .flatten()
        .chain(wrong)
        .chain(steady::warnings(document))
        .chain(trouble::warnings(document))
        .collect()
}

/// The open loop's load was less than was asked for, so its latencies are those of another load.
fn not_reached(document: &ResultDocument) -> Option<String> {
    const ALMOST: f64 = 0.98;
    let behind = |record: &CellRecord| {
        let due = f64::from(record.cell.options().arrivals?.per_second.get());
        let rate = record.summary.as_ref()?.estimate(SampleFigure::Rate)?.mean;
        (rate < due * ALMOST)
            .then(|| format!("{} ({} a second)", labels::name(document, &record.cell), three_digits(rate)))
    };
    let cells = words::list(document.cells.iter().filter_map(behind), "; ")?;
    Some(format!("RATE NOT REACHED: fewer requests were answered than were due, in {cells}."))
}

/// What was made up is no cost of a method.
fn planted(document: &ResultDocument) -> Option<String> {
    let of = |record: &CellRecord| {
        let delay = record.cell.options().responder.delay?;
        Some(format!("{} ({delay})", record.cell.row))
    };
    let rows = words::list(distinct(document.cells.iter().filter_map(of)).into_iter(), ", ")?;
    Some(format!(
        "PLANTED: the responder waited before each answer in {rows}. That is a known cost, to see whether it is found."
    ))
}

/// Whoever else connected to a port of the test: no harm to the figures, but somebody did.
fn strangers(document: &ResultDocument) -> Option<String> {
    let came = |record: &CellRecord| {
        let count = record.summary.as_ref()?.strangers;
        (count > 0).then(|| format!("{} ({count})", labels::name(document, &record.cell)))
    };
    let cells = words::list(document.cells.iter().filter_map(came), "; ")?;
    Some(format!(
        "STRANGERS: connections that didn't show the test's token came to its port in {cells}. They were sent nothing \
         and none of them is in the figures; see who scans this network."
    ))
}

/// Where the CPU figures are less than what was used.
fn processor_time(document: &ResultDocument) -> Option<String> {
    let by_ticks = |record: &CellRecord| record.samples.iter().any(|sample| sample.cpu.by_ticks);
    // A document of that time doesn't say so itself.
    match (document.cpu_by_ticks || document.cells.iter().any(by_ticks), document.cpu_raised) {
        (true, _) => Some(
            "CPU BY TICKS: an older vtax computed the CPU figures of this result from the kernel's timer ticks. They are 8 to \
             41 % too low; don't hold them against those of newer results."
                .to_owned(),
        ),
        (false, 0) => None,
        (false, samples) => Some(format!(
            "CPU AT LEAST: in {} the machine's own account showed less CPU time than the measuring threads had. The \
             threads' time is taken instead, so the CPU figures of these are lower bounds.",
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
        (true, _) if initiator.is_empty() || responder.is_empty() => "the ends".to_owned(),
        (true, _) | (false, 0) => return None,
        (false, 1..=3) => words::list(loose.iter().map(ToString::to_string), ", ").unwrap_or_default(),
        (false, _) => format!("{} of the ends", loose.len()),
    };
    Some(format!("NOT PINNED: {who} moved between CPUs, which alone can change a round-trip time fourfold."))
}
