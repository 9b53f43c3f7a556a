//! What speaks against holding two runs against each other: one is not whole, or they were made in different ways.

use vtax_model::{cell::Instrument, result::ResultDocument, run::RunState};

use super::{counted, words::of_instrument};

/// A sentence each.
pub(crate) fn misgivings(a: &ResultDocument, b: &ResultDocument) -> Vec<String> {
    let of_one = [("first", a), ("second", b)].into_iter().flat_map(|(which, run)| weaknesses(which, run));
    of_one.chain(apart(a, b)).collect()
}

/// What a reader of one run is warned of, a reader of two is warned of as well.
fn weaknesses(which: &str, run: &ResultDocument) -> Vec<String> {
    let (done, id) = (run.plan.rounds, &run.id);
    let planned = run.plan.longest();
    let disturbance = &run.disturbance;
    let failures = u32::try_from(run.failures.len()).unwrap_or(u32::MAX);
    let texts = [
        (run.state != RunState::Complete).then(|| {
            let of = if run.plan.stopping.is_some() { String::new() } else { format!(" of {planned}") };
            format!("INCOMPLETE: the {which} run has {done}{of} rounds. Go on with: vtax run --resume {id}")
        }),
        disturbance.is_much().then(|| {
            let shares = [disturbance.other_programs, disturbance.stolen];
            let [others, stolen] = shares.map(|share| whole_percent(share.unwrap_or(0.0)));
            format!(
                "DISTURBED: during the {which} run other programs took {others} of the CPUs, the hypervisor {stolen}."
            )
        }),
        disturbance.crowded().map(|waited| {
            format!("CROWDED: the guests of the {which} run waited {} of the time for a CPU.", whole_percent(waited))
        }),
        (failures > 0).then(|| format!("FAILED: {} of the {which} run.", counted(failures, "sample"))),
    ];
    texts.into_iter().flatten().collect()
}

fn whole_percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// What the runs don't have in common, and what a difference may then come from.
fn apart(a: &ResultDocument, b: &ResultDocument) -> Vec<String> {
    let kernel = |run: &ResultDocument| format!("{} {}", run.environment.kernel, run.environment.kernel_build);
    let imported = a.imported.is_some() || b.imported.is_some();
    let unlike = |what: &str, [first, second]: [String; 2]| {
        // Next to nothing is known of an imported run, and that is said of each figure.
        let is_known = !imported || ![&first, &second].iter().any(|text| text.trim().is_empty());
        let [first, second] =
            [&first, &second].map(|text| if text.trim().is_empty() { "not told" } else { text.trim() });
        let text = format!(
            "OTHER {}: {first} in the first run, {second} in the second. Unless that is the change that you ask about, \
             the differences may come from it.",
            what.to_uppercase()
        );
        (first != second && is_known).then_some(text)
    };
    let texts = [
        unlike("machine", [a, b].map(|run| run.environment.hostname.to_string())),
        unlike("kernel", [a, b].map(kernel)),
        unlike("vtax", [a, b].map(|run| run.environment.vtax.to_string())),
        unlike("plan", [a, b].map(sampling)).filter(|_| !imported),
        other_instruments(a, b),
    ];
    texts.into_iter().flatten().collect()
}

/// How each sample was taken; how many there are tells the interval.
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
            "OTHER INSTRUMENT: the first run measured {first}, the second {second}. Only what both measured by the same \
             instrument is compared."
        )
    })
}

/// Those that measured something.
pub(crate) fn instruments(run: &ResultDocument) -> Vec<&'static str> {
    let measured = |instrument: &Instrument| {
        run.cells.iter().any(|record| record.cell.instrument == *instrument && !record.samples.is_empty())
    };
    Instrument::ALL.into_iter().filter(measured).map(of_instrument).collect()
}
