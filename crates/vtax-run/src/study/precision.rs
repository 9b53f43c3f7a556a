//! Reports that a run ended before its means were as precise as `--confidence` and `--width`
//! request.

use vtax_model::run::{RunReadings, RunState, stopping_outcome};
use vtax_stats::Decision;

use super::runner::label;

/// Maximum number of cells named. The others are only counted.
const NAMED: usize = 4;

/// Returns the warning that `--confidence` and `--width` were not reached, and where. None for a run that can be
/// resumed.
pub(crate) fn imprecise(run: &RunReadings) -> Option<String> {
    let rule = run.header.stopping.as_ref().filter(|_| run.state == RunState::Complete)?;
    let outcome = stopping_outcome(run);
    let missed: Vec<&(usize, Decision)> =
        outcome.iter().filter(|(_, decision)| !matches!(decision, Decision::Reached { .. })).collect();
    let told = |(cell, decision): &&(usize, Decision)| {
        format!("{}: {}", label(&run.header.study.cells[*cell]), reached(*decision))
    };
    let named: Vec<String> = missed.iter().take(NAMED).map(told).collect();
    let more = missed.len().saturating_sub(NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let remedy = match run.header.study.pods() {
        // A run cannot be resumed without its pods.
        Some(_) => "start a new run with a larger --max".to_owned(),
        None => {
            let samples = rule.max().saturating_mul(2);
            format!("take more rounds with: vtax run --resume {} --samples {samples}", run.header.id)
        }
    };
    (!missed.is_empty()).then(|| {
        format!(
            "NOT PRECISE ENOUGH: after {} rounds the {} % interval is wider than {} in {} of {} cells: {}{more}; {remedy}",
            rule.max(),
            rule.confidence().percent(),
            rule.width(),
            missed.len(),
            outcome.len(),
            named.join("; "),
        )
    })
}

fn reached(decision: Decision) -> String {
    match decision {
        Decision::Reached { achieved } | Decision::Exhausted { achieved: Some(achieved) } => {
            format!("{achieved:.1} % wide")
        }
        Decision::Exhausted { achieved: None } => "no figure".to_owned(),
        Decision::Continue => "samples failed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use vtax_model::{
        cell::Arm,
        run::{Run, SampleReading},
    };
    use vtax_stats::{Confidence, StoppingRule, Width};

    use super::*;
    use vtax_synthetic::{header, sample};

    fn ruled(rounds: u32) -> RunReadings {
        let width = Width::try_from(10.0).expect("a width");
        let rule = StoppingRule::new(Confidence::P95, width, 2, rounds as usize).expect("a rule");
        let mut header = header("demo-1", "2026-01-01T00:00:00Z");
        header.study.cells.truncate(1);
        header.stopping = Some(rule);
        let without_transactions = |round| {
            let mut sample = sample(0, Arm::A, round);
            sample.figures.transactions = 0;
            SampleReading::of(&sample)
        };
        let samples = (1..=rounds).map(without_transactions).collect();
        Run { header, state: RunState::Complete, wall_seconds: 1.0, samples, failures: Vec::new() }
    }

    /// It once ended at --max without a message, with exit status 0.
    #[test]
    fn a_precision_that_was_not_reached_is_reported_with_what_was() {
        let told = imprecise(&ruled(30)).expect("it was not reached");
        insta::assert_snapshot!(told, @"NOT PRECISE ENOUGH: after 30 rounds the 95 % interval is wider than 10 % in 1 of 1 cells: native TCP RR 1 B MTU 1500: no figure; take more rounds with: vtax run --resume demo-1 --samples 60");
        let stopped = Run { state: RunState::Stopped, ..ruled(30) };
        assert_eq!(imprecise(&stopped), None, "it goes on");
        let mut free = ruled(30);
        free.header.stopping = None;
        assert_eq!(imprecise(&free), None);
    }
}
