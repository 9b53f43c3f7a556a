//! Samples of different length of the same path.

use vtax_model::{
    options::{Idle, TestOptions},
    run::Figures,
    stats::median,
    units::Span,
};

use super::{
    Found, PLAIN,
    delays::{cpu_words, idle_words, p50},
    rr,
};
use crate::{
    calibrate::pairs::{dice, shuffled},
    rig::Rig,
};

const ROUNDS: usize = 7;
const SPANS: [Span; 2] = [Span::from_millis(150), Span::from_millis(3_000)];
const TOLERANCE: f64 = 0.03;

/// Idle states are held off: whether CPUs sleep is a state of the machine that comes and goes, and one sample meets
/// it where the next one doesn't.
pub(super) fn short_and_long(rig: &Rig) -> anyhow::Result<Found> {
    let options = TestOptions { idle: Idle::Poll, ..TestOptions::default() };
    let mut dice = dice();
    let pair = |_| shuffled(&mut dice, |which| rig.sample_on(&rr(options, SPANS[which]), PLAIN, rig.cpus_for_path()));
    let pairs = (0..ROUNDS).map(pair).collect::<anyhow::Result<Vec<[Figures; 2]>>>()?;
    let long: Vec<f64> = pairs.iter().map(|[_, long]| long.rtt_us()).collect();
    let factors: Vec<f64> = pairs.iter().map(|[short, long]| short.rtt_us() / long.rtt_us()).collect();
    let found = Found::in_proportion("µs", median(&long), TOLERANCE, &factors)?;
    let (idle, cpus) = (idle_words(pairs.iter().flatten()), cpu_words(rig));
    let (least, most) = extremes(&factors);
    let medians =
        pairs.iter().map(|[short, long]| Ok(p50(short)? / p50(long)?)).collect::<anyhow::Result<Vec<f64>>>()?;
    let detail = format!(
        "{ROUNDS} pairs in random order, {idle}, {cpus}; short over long was {least:.3} to {most:.3}, by p50 {:.3}",
        median(&medians)
    );
    Ok(Found { detail, ..found })
}

fn extremes(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| (least.min(*value), most.max(*value)))
}
