//! Responders that wait for a known delay.

use std::time::Duration;

use miette::miette;
use vtax_model::{
    cell::{Block, BlockTest, Instrument, NetBlock, pass_orders},
    options::{Engine, Idle, Manners, TestOptions},
    run::Figures,
    units::{Mtu, Span},
    workload::{Sliced, TestSpec, Warmup},
};
use vtax_run::{rig::Rig, study::Gaps};
use vtax_stats::{Centre, Confidence};

use super::{Found, PLAIN, rr, rtt};
use crate::calibrate::pairs::{dice, shuffled};

/// The accepted deviation for a long delay, as a share of the delay.
const TOLERANCE: f64 = 0.02;
/// The accepted deviation for a short delay, in µs: a tenth of the shortest delay.
const TOLERANCE_US: f64 = 0.5;

fn waits(delay: Span) -> Manners {
    Manners { delay: Some(delay), ..Manners::default() }
}

/// Measures a long delay. Both endpoints poll. Without the delay, the initiator idles as long, so all paths are cold.
pub(super) fn polling(rig: &Rig, delay: Span) -> miette::Result<Found> {
    const ROUNDS: usize = 7;
    let without = TestOptions { gap: Some(delay), ..TestOptions::default() };
    let with = TestOptions { responder: waits(delay), ..TestOptions::default() };
    let sample = |options: TestOptions| -> miette::Result<f64> {
        let options = TestOptions { engine: Engine::BusyPoll, ..options };
        p50(&rig.sample(&rr(options, Span::from_millis(250)), PLAIN)?)
    };
    let mut dice = dice();
    let rise = |_| shuffled(&mut dice, |which| sample([without, with][which])).map(|[without, with]| with - without);
    let rises = (0..ROUNDS).map(rise).collect::<miette::Result<Vec<f64>>>()?;
    let expected = delay.0.as_secs_f64() * 1e6;
    let found = Found::in_pairs("µs", expected, TOLERANCE * expected, &rises)?;
    Ok(Found { detail: format!("rise of p50 in {ROUNDS} pairs of samples, both endpoints polling"), ..found })
}

/// Measures a delay as short as a virtual NIC's cost, in the same way as such a cost: in interleaved slices, by p50.
pub(super) fn in_turns(rig: &Rig, delay: Span) -> miette::Result<Found> {
    const ROUNDS: u32 = 25;
    const SLICES: Sliced = Sliced { passes: 8, span: Span::from_millis(0) };
    let spec = |responder: Manners| {
        let options = TestOptions { responder, idle: Idle::Poll, ..TestOptions::default() };
        let warmup = Warmup::For(Span::from_millis(10));
        TestSpec { warmup, slices: Some(SLICES), ..rr(options, Span::from_millis(5)) }
    };
    // Reading the clock takes a few hundredths of a µs, so the other responder reads it, too.
    let specs = [spec(waits(Span(Duration::ZERO))), spec(waits(delay))];
    let (transport, test) = (specs[0].transport, specs[0].workload.kind());
    let block = Block {
        test: BlockTest::Net(NetBlock { transport, test, streams: 1, mtu: Mtu::ETHERNET }),
        variant: 0,
        instrument: Instrument::Path,
    };
    let (seed, mut gaps) = (vtax_sys::clock::now_ns(), Gaps::default());
    let mut rounds = Vec::new();
    for round in 1..=ROUNDS {
        let orders = pass_orders(specs.len(), SLICES.passes, seed, round, block);
        rounds.push(rig.take_turns(&specs, PLAIN, &orders, &mut gaps)?);
    }
    let rises = rounds.iter().map(|figures| Ok(p50(&figures[1])? - p50(&figures[0])?));
    let rises = rises.collect::<miette::Result<Vec<f64>>>()?;
    let means: Vec<f64> = rounds.iter().map(|figures| figures[1].rtt_us() - figures[0].rtt_us()).collect();
    let waits = rounds.iter().map(|figures| Ok(waited(&figures[1])? - waited(&figures[0])?));
    let waits = Centre::of(&waits.collect::<miette::Result<Vec<f64>>>()?, Confidence::P95)?;
    let found = Found::in_pairs("µs", waits.value, TOLERANCE_US, &rises)?;
    let (idle, cpus) = (idle_words(rounds.iter().flatten()), cpu_words(rig));
    let mean = Centre::of(&means, Confidence::P95)?;
    let detail = format!(
        "rise of p50 in {ROUNDS} pairs of {} interleaved slices of 5 ms, {idle}, {cpus}; the mean rises by {:.2} \
         [{:.2}, {:.2}] µs",
        SLICES.passes, mean.value, mean.low, mean.high
    );
    Ok(Found { detail, ..found })
}

/// Returns the median of the responder's real delays in µs, by its own clock.
fn waited(figures: &Figures) -> miette::Result<f64> {
    let waits = figures.ends.responder.waits;
    let waits = waits.ok_or_else(|| miette!(code = "defect", "the responder did not report how long it waited"))?;
    Ok(waits.p50 as f64 / 1e3)
}

/// Returns the median round trip in µs.
pub(super) fn p50(figures: &Figures) -> miette::Result<f64> {
    Ok(rtt(figures)?.p50 as f64 / 1e3)
}

/// Describes the CPUs of the endpoints for tests of small differences.
pub(super) fn cpu_words(rig: &Rig) -> String {
    match rig.cpus_for_path() {
        Some([first, second]) if first == second => format!("both endpoints on CPU {first}"),
        Some([first, second]) => format!("endpoints on CPUs {first} and {second}"),
        None => "endpoints NOT PINNED".to_owned(),
    }
}

/// Describes the CPU idle states.
pub(super) fn idle_words<'a>(mut figures: impl Iterator<Item = &'a Figures>) -> String {
    let why = |figures: &Figures| {
        let ends = [&figures.ends.initiator, &figures.ends.responder];
        ends.into_iter().find_map(|end| end.idle_not_held.clone())
    };
    match figures.find_map(why) {
        None => "CPU idle states off".to_owned(),
        Some(why) => format!("CPU idle states on ({why})"),
    }
}
