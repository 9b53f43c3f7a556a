//! The noise floor: each test is compared with itself, so any difference is noise.

use rand::seq::SliceRandom;
use serde::Serialize;
use vtax_model::{
    metric::Metric,
    options::TestOptions,
    units::{ByteSize, Span},
    workload::{Direction, TestKind, TestSpec, Transport, Warmup, Workload},
};
use vtax_run::{Interrupt, rig::Rig};
use vtax_stats::{Confidence, NoiseFloor, Pair, Significance};

use super::{
    pairs::{dice, shuffled},
    truths::PLAIN,
};

/// The comparison of a test with itself.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SelfComparison {
    pub(crate) transport: Transport,
    pub(crate) test: TestKind,
    /// Rounds: pairs of samples.
    pub(crate) rounds: usize,
    /// The mean of all samples, µs or Mb/s.
    pub(crate) mean: f64,
    /// The ratio of the two samples of each pair, in random order.
    pub(crate) ratio: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// The largest relative difference inside that interval.
    pub(crate) floor: f64,
    /// The smallest relative difference detectable with 80 % power, per number of samples.
    pub(crate) smallest_shown: Vec<ShownBySamples>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct ShownBySamples {
    pub(crate) samples: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) difference: Option<f64>,
}

const SAMPLES: [usize; 4] = [5, 11, 18, 30];

const WARMUP: Span = Span::from_millis(50);

fn tests() -> [(Transport, Workload); 4] {
    let rr = Workload::Rr { request: ByteSize(1), response: ByteSize(1) };
    let stream = |message| Workload::Stream { message: ByteSize(message), direction: Direction::Forward };
    [(Transport::Tcp, rr), (Transport::Udp, rr), (Transport::Tcp, stream(1 << 20)), (Transport::Udp, stream(1472))]
}

/// Returns the noise floor of each test; empty for zero rounds.
pub(super) fn measure(
    rig: &Rig,
    rounds: u32,
    duration: Span,
    interrupt: &Interrupt,
) -> miette::Result<Vec<SelfComparison>> {
    if rounds == 0 {
        return Ok(Vec::new());
    }
    let mut pairs: Vec<Vec<Pair>> = vec![Vec::new(); tests().len()];
    let mut dice = dice();
    for round in 1..=rounds {
        if interrupt.asked() {
            break;
        }
        tell!("noise floor: round {round} of {rounds}");
        let mut order: Vec<usize> = (0..tests().len()).collect();
        order.shuffle(&mut dice);
        for test in order {
            let (transport, workload) = tests()[test];
            let [baseline, cell] = shuffled(&mut dice, |_| figure(rig, transport, workload, duration))?;
            pairs[test].push(Pair { baseline, cell });
        }
    }
    Ok(tests()
        .into_iter()
        .zip(&pairs)
        .filter_map(|((transport, workload), pairs)| record(transport, workload, pairs))
        .collect())
}

fn figure(rig: &Rig, transport: Transport, workload: Workload, duration: Span) -> miette::Result<f64> {
    let warmup = Warmup::For(WARMUP);
    let spec =
        TestSpec { transport, workload, streams: 1, warmup, duration, slices: None, options: TestOptions::default() };
    Ok(Metric::of(workload.kind()).value(workload.kind(), &rig.sample(&spec, PLAIN)?))
}

fn record(transport: Transport, workload: Workload, pairs: &[Pair]) -> Option<SelfComparison> {
    let NoiseFloor { tax, floor } = NoiseFloor::of(pairs, Confidence::P95).ok()?;
    let direction = Metric::of(workload.kind()).direction();
    let shown = |samples| {
        let least = tax.smallest_shown(samples, Significance::FIVE_PERCENT);
        ShownBySamples { samples, difference: least.map(|least| least.cost(direction)) }
    };
    let sum: f64 = pairs.iter().map(|pair| pair.baseline + pair.cell).sum();
    Some(SelfComparison {
        transport,
        test: workload.kind(),
        rounds: pairs.len(),
        mean: sum / (2 * pairs.len()) as f64,
        ratio: tax.ratio,
        low: tax.low,
        high: tax.high,
        floor: floor.cost(direction),
        smallest_shown: SAMPLES.map(shown).into(),
    })
}
