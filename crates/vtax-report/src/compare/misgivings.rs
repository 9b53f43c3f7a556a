//! Reasons against comparing two runs: one is incomplete, or they were made in different ways.

use vtax_model::{
    cell::Instrument,
    evidence::{StandingObjection, run_standing},
    result::ResultDocument,
    run::RunState,
};

use super::{counted, words::of_instrument};

/// Returns the reasons, a sentence each.
pub(crate) fn misgivings(a: &ResultDocument, b: &ResultDocument) -> Vec<String> {
    let of_one = [("first", a), ("second", b)].into_iter().flat_map(|(which, run)| weaknesses(which, run));
    of_one.chain(apart(a, b)).collect()
}

/// Warnings about a single run that also apply to its comparison.
fn weaknesses(which: &str, run: &ResultDocument) -> Vec<String> {
    let (done, id) = (run.plan.rounds, &run.id);
    let planned = run.plan.longest();
    let disturbance = &run.disturbance;
    let failures = u32::try_from(run.failures.len()).unwrap_or(u32::MAX);
    let texts = [
        (run.state != RunState::Complete).then(|| {
            let of = if run.plan.stopping.is_some() { String::new() } else { format!(" of {planned}") };
            let resume = format!(" Resume with: vtax run --resume {id}");
            let resume = if run.is_resumable() { resume } else { String::new() };
            format!("INCOMPLETE: the {which} run has {done}{of} rounds.{resume}")
        }),
        disturbance.is_much().then(|| {
            let shares = [disturbance.other_programs, disturbance.stolen];
            let [others, stolen] = shares.map(|share| whole_percent(share.unwrap_or(0.0)));
            format!("BUSY HOST: in the {which} run other programs took {others} of the CPU time, steal time {stolen}.")
        }),
        disturbance.crowded().map(|waited| {
            format!(
                "CPU CONTENTION: the guests of the {which} run waited for a CPU {} of the time.",
                whole_percent(waited)
            )
        }),
        (failures > 0).then(|| format!("FAILED: {} of the {which} run.", counted(failures, "sample"))),
    ];
    texts.into_iter().flatten().collect()
}

fn whole_percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Returns the properties in which the runs differ and which may explain a difference, those first for which no figure of
/// the first run stands for the second.
fn apart(a: &ResultDocument, b: &ResultDocument) -> Vec<String> {
    let imported = a.imported.is_some() || b.imported.is_some();
    let unlike = |what: &str, [first, second]: [String; 2]| {
        // Almost nothing is known about an imported run, and every figure has that caveat.
        let is_known = !imported || ![&first, &second].iter().any(|text| text.trim().is_empty());
        let [first, second] =
            [&first, &second].map(|text| if text.trim().is_empty() { "not reported" } else { text.trim() });
        let text = format!(
            "OTHER {}: {first} in the first run, {second} in the second. Unless that is the change under test, \
             it may explain the differences.",
            what.to_uppercase()
        );
        (first != second && is_known).then_some(text)
    };
    let standing = run_standing(a, b);
    let properties = standing.objections().iter().filter_map(StandingObjection::property);
    let of_standing = properties.map(|property| unlike(property.name, [property.measured, property.wanted]));
    let others = [
        unlike("vtax", [a, b].map(|run| run.environment.vtax.to_string())),
        unlike("plan", [a, b].map(sampling)).filter(|_| !imported),
        other_instruments(a, b),
    ];
    of_standing.chain(others).flatten().collect()
}

/// Returns how each sample was taken; the interval already reflects their number.
pub(crate) fn sampling(run: &ResultDocument) -> String {
    let of = |instrument: Instrument| {
        let plan = match instrument {
            Instrument::Path => run.plan.path?,
            Instrument::System => run.plan.sampling,
        };
        let measured =
            run.cells.iter().any(|record| record.cell.instrument == instrument && !record.samples.is_empty());
        let slices = plan.slices.map_or(String::new(), |slices| format!(" in {} slices", slices.passes));
        measured.then(|| format!("{}{slices} after {} of warm-up", plan.duration, plan.warmup))
    };
    Instrument::ALL.into_iter().filter_map(of).collect::<Vec<_>>().join(", then ")
}

fn other_instruments(a: &ResultDocument, b: &ResultDocument) -> Option<String> {
    let [first, second] = [a, b].map(|run| instruments(run).join(" and "));
    (first != second).then(|| {
        format!(
            "OTHER MEASUREMENT MODE: the first run used {first}, the second {second}. Only figures of the same \
             measurement mode are compared."
        )
    })
}

/// Returns the measurement modes that have figures.
pub(crate) fn instruments(run: &ResultDocument) -> Vec<&'static str> {
    let measured = |instrument: &Instrument| {
        run.cells.iter().any(|record| record.cell.instrument == *instrument && !record.samples.is_empty())
    };
    Instrument::ALL.into_iter().filter(measured).map(of_instrument).collect()
}
