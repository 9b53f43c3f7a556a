//! Samples of different lengths on the same path.

use vtax_model::{
    options::{Idle, TestOptions},
    run::Figures,
    units::Span,
};
use vtax_run::rig::Rig;
use vtax_stats::{Centre, Confidence, median};

use super::{
    Found, PLAIN,
    delays::{cpu_words, idle_words, p50},
    rr,
};
use crate::calibrate::pairs::{dice, shuffled};

/// More pairs narrow the interval more than longer samples do.
const ROUNDS: usize = 15;
const SPANS: [Span; 2] = [Span::from_millis(150), Span::from_millis(1_500)];
const TOLERANCE: f64 = 0.03;

/// Compares p50 with idle states disabled: rare events affect the mean of long samples only.
pub(super) fn short_and_long(rig: &Rig) -> miette::Result<Found> {
    let options = TestOptions { idle: Idle::Poll, ..TestOptions::default() };
    let mut dice = dice();
    let pair = |_| shuffled(&mut dice, |which| rig.sample_on(&rr(options, SPANS[which]), PLAIN, rig.cpus_for_path()));
    let pairs = (0..ROUNDS).map(pair).collect::<miette::Result<Vec<[Figures; 2]>>>()?;
    let figures = |of: fn(&Figures) -> miette::Result<f64>| -> miette::Result<(f64, Vec<f64>)> {
        let both = pairs.iter().map(|[short, long]| Ok((of(short)?, of(long)?))).collect::<miette::Result<Vec<_>>>()?;
        let long: Vec<f64> = both.iter().map(|(_, long)| *long).collect();
        Ok((median(&long), both.iter().map(|(short, long)| short / long).collect()))
    };
    let (long, factors) = figures(p50)?;
    let means = Centre::of(&figures(|figures| Ok(figures.rtt_us()))?.1, Confidence::P95)?;
    let found = Found::in_proportion("µs", long, TOLERANCE, &factors)?;
    let (idle, cpus) = (idle_words(pairs.iter().flatten()), cpu_words(rig));
    let detail = format!(
        "p50 in {ROUNDS} pairs in random order, {idle}, {cpus}; the mean of the short ones is {:.3} [{:.3}, {:.3}] of \
         the long ones'",
        means.value, means.low, means.high
    );
    Ok(Found { detail, ..found })
}
