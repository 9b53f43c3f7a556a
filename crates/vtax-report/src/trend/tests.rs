//! Trends of synthetic results.

use vtax_model::{
    cell::Arm,
    run::{RttFigures, Run, RunState},
};
use vtax_stats::histogram::{Histogram, SparseHistogram};

use super::*;
use crate::Options;
use vtax_synthetic::{analyse, header, sample};

/// A result of the first cells of the demo, one per day. `ns` holds the time of the cell of each index.
fn result(number: usize, kernel: &str, ns: [f64; 2]) -> ResultDocument {
    let month = 1 + number / 28;
    let started = format!("2026-{month:02}-{:02}T00:00:00Z", 1 + number % 28);
    let mut run = Run {
        header: header(&format!("demo-{number}"), &started),
        state: RunState::Complete,
        wall_seconds: 1.0,
        samples: Vec::new(),
        failures: Vec::new(),
    };
    run.header.environment.kernel = kernel.into();
    for (cell, mean) in ns.into_iter().enumerate() {
        let mut times = Histogram::new();
        times.record(mean as u64);
        let mut taken = sample(cell, Arm::A, 1);
        let hdr = SparseHistogram::of(&times);
        let p50 = mean as u64;
        taken.figures.rtt_ns = Some(RttFigures { mean, by_rate: None, p50, p99: p50, p999: p50, max: p50, hdr });
        run.samples.push(taken);
    }
    analyse(&run)
}

/// Noise around a level, without two equal neighbours.
fn noise(number: usize, salt: usize) -> f64 {
    ((number * 7 + salt) * 37 % 101) as f64 / 101.0 * 0.02
}

/// 30 results; from the 16th, the kernel is another one, and the first cell takes an eighth longer.
fn changed() -> Vec<ResultDocument> {
    let one = |number: usize| {
        let (kernel, factor) = if number < 15 { ("6.1.0", 1.0) } else { ("6.8.0", 1.125) };
        result(number, kernel, [50_000.0 * factor * (1.0 + noise(number, 0)), 60_000.0 * (1.0 + noise(number, 5))])
    };
    (0..30).map(one).collect()
}

fn follow_all(documents: &[ResultDocument], options: &TrendOptions) -> Result<RunTrend, NoTrend> {
    let runs: Vec<TrendInput> = documents.iter().map(|run| TrendInput::of(run.clone(), options.metric)).collect();
    trend(&runs, options)
}

fn of(documents: &[ResultDocument]) -> RunTrend {
    follow_all(documents, &TrendOptions::default()).expect("enough results")
}

fn shown(trend: &RunTrend, width: usize) -> String {
    trend.render(&Options { width, ..Options::default() }).plain()
}

#[test]
fn a_change_is_reported_with_its_time_its_size_and_what_changed_with_it() {
    insta::assert_snapshot!("changed_80", shown(&of(&changed()), 80));
    insta::assert_snapshot!("changed_120", shown(&of(&changed()), 120));
}

#[test]
fn the_figures_of_a_change_are_those_that_were_made() {
    let found = of(&changed());
    let [step] = found.cells[0].changes[..] else { panic!("{:?}", found.cells[0].changes) };
    assert_eq!((step.last_before, step.first_after, step.verdict), (14, 15, Verdict::Slower));
    assert!((step.ratio - 1.125).abs() < 0.005, "{step:?}");
    assert!(step.low.expect("an interval") < 1.125 && step.high.expect("an interval") > 1.125, "{step:?}");
    assert_eq!(found.cells[1].changes, []);
}

/// The kernel changed two results after the level did, so it is not a cause.
#[test]
fn a_change_at_another_time_is_not_reported_as_a_cause() {
    let mut documents = changed();
    (15..18).for_each(|number| documents[number].environment.kernel = "6.1.0".into());
    let text = shown(&of(&documents), 999);
    assert!(text.contains("Between results 15 and 16, no known property of the machine changed."), "{text}");
    (16..18).for_each(|number| documents[number].environment.kernel = "6.8.0".into());
    let text = shown(&of(&documents), 999);
    let next = "of the machine changed, but between results 16 and 17 one did: kernel from 6.1.0 to 6.8.0.";
    assert!(text.contains(next), "{text}");
}

#[test]
fn results_without_a_shift_are_reported_as_such() {
    let level: Vec<_> = (0..30).map(|number| result(number, "6.1.0", [5e4 * (1.0 + noise(number, 0)), 6e4])).collect();
    insta::assert_snapshot!("level", shown(&of(&level), 80));
}

#[test]
fn too_few_results_are_refused_with_how_many_it_takes() {
    let few = &changed()[..6];
    assert_eq!(follow_all(few, &TrendOptions::default()), Err(NoTrend::TooFew { given: 6, needed: 12 }));
}

#[test]
fn a_cell_is_found_by_its_words_in_any_case() {
    let documents = changed();
    let wanted =
        |cell: &str| follow_all(&documents, &TrendOptions { cell: Some(cell.into()), ..TrendOptions::default() });
    let name = of(&documents).cells[1].name.clone();
    assert_eq!(wanted(&name.to_uppercase()).expect("found").cells.len(), 1, "{name}");
    assert!(matches!(wanted("brigde"), Err(NoTrend::NoCell(names)) if names.contains(&name)));
}

#[test]
fn results_that_wander_are_warned_of() {
    let wander = |number: usize| 1.0 + 0.02 * (number as f64 / 4.0).sin();
    let documents: Vec<_> = (0..40).map(|number| result(number, "6.1", [5e4 * wander(number), 6e4])).collect();
    let text = shown(&of(&documents), 999);
    assert!(text.contains("AUTOCORRELATED: in 1 of 2 cells"), "{text}");
}

#[test]
fn csv_json_and_the_charts_have_the_change() {
    let found = of(&changed());
    let csv = found.render(&Options { format: crate::Format::Csv, ..Options::default() }).plain();
    assert_eq!(csv.lines().count(), 61);
    assert_eq!(csv.lines().filter(|line| line.contains(",true,")).count(), 1, "{csv}");
    let json = found.render(&Options { format: crate::Format::Json, ..Options::default() }).plain();
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["cells"][0]["changes"][0]["first_after"], 15);
    assert!(!found.charts().is_empty());
}
