//! Differences between percentiles of a cell's transactions and its baseline's, paired round by round.

use std::collections::BTreeMap;

use super::{RunByCell, taxes};
use crate::{
    cell::Arm,
    metric::{CostUnit, least_transactions},
    result::QuantileShift,
    run::Sample,
};
use vtax_stats::{Pair, histogram::SparseHistogram};

/// Compared percentiles.
const PERCENTS: [f64; 10] = [1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9];

/// Percentiles of the samples of a cell, by round.
#[derive(Default)]
pub(super) struct SampleQuantiles(BTreeMap<u32, [Option<f64>; PERCENTS.len()]>);

impl SampleQuantiles {
    /// Adds a sample. The baseline's second arm is not compared with other cells.
    pub(super) fn take(&mut self, sample: &Sample) {
        if let (Arm::A, Some(rtt)) = (sample.arm, &sample.figures.rtt_ns) {
            self.0.insert(sample.round, quantiles(&rtt.hdr));
        }
    }
}

/// Returns the percentiles in µs; `None` where the sample has too few transactions.
fn quantiles(times: &SparseHistogram) -> [Option<f64>; PERCENTS.len()] {
    let (count, values) = (times.count(), times.percentiles(PERCENTS));
    std::array::from_fn(|index| {
        (count >= least_transactions(PERCENTS[index] / 100.0)).then_some(values[index] as f64 / 1e3)
    })
}

/// Returns the differences of each cell from the cell that it is compared with.
pub(super) fn shifts(run: &RunByCell, cells: &[&SampleQuantiles]) -> Vec<Vec<QuantileShift>> {
    let of_cell = |(index, cell): (usize, &&SampleQuantiles)| match taxes::reference(run, index) {
        Some(reference) => (0..PERCENTS.len()).filter_map(|which| shift(which, cells[reference], cell)).collect(),
        None => Vec::new(),
    };
    cells.iter().enumerate().map(of_cell).collect()
}

fn shift(which: usize, baseline: &SampleQuantiles, cell: &SampleQuantiles) -> Option<QuantileShift> {
    let pair = |(round, values): (&u32, &[Option<f64>; PERCENTS.len()])| {
        Some(Pair { baseline: values[which]?, cell: cell.0.get(round)?[which]? })
    };
    let pairs: Vec<Pair> = baseline.0.iter().filter_map(pair).collect();
    let delta = taxes::delta_of(&pairs, CostUnit::Microseconds)?;
    Some(QuantileShift { percent: PERCENTS[which], delta, pairs: pairs.len() })
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::{
        Xoshiro256PlusPlus,
        rand_core::{Rng, SeedableRng},
    };
    use vtax_stats::histogram::IntervalHistogram;

    use super::*;

    /// Rounds of a machine that drifts. Four in a hundred transactions are slow.
    struct Drift(Xoshiro256PlusPlus);

    impl Drift {
        fn uniform(&mut self) -> f64 {
            (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
        }

        fn samples(&mut self, rounds: u32, transactions: u32, tail: f64) -> [SampleQuantiles; 2] {
            let mut both = [SampleQuantiles::default(), SampleQuantiles::default()];
            for round in 1..=rounds {
                let level = 50e3 * (0.9 + 0.2 * self.uniform());
                for (quantiles, tail) in both.iter_mut().zip([0.0, tail]) {
                    let times = self.sample(transactions, level, tail);
                    quantiles.0.insert(round, super::quantiles(&times));
                }
            }
            both
        }

        fn sample(&mut self, transactions: u32, level: f64, tail: f64) -> SparseHistogram {
            let mut times = IntervalHistogram::new();
            for _ in 0..transactions {
                let usual = level * (1.0 - 0.1 * self.uniform().max(1e-9).ln());
                let slow = if self.uniform() < 0.04 { 400e3 + 1e3 * tail } else { 0.0 };
                times.record((usual + slow) as u64);
            }
            times.take()
        }
    }

    fn shift_at(percent: f64, [baseline, cell]: &[SampleQuantiles; 2]) -> Option<QuantileShift> {
        shift(PERCENTS.iter().position(|own| *own == percent)?, baseline, cell)
    }

    #[test]
    fn the_interval_of_a_shift_covers_a_planted_tail() {
        let mut drift = Drift(Xoshiro256PlusPlus::seed_from_u64(3));
        for rounds in [8, 20] {
            let mut covered = [(10.0, 0.0, 0), (50.0, 0.0, 0), (99.0, 30.0, 0)];
            for _ in 0..400 {
                let both = drift.samples(rounds, 400, 30.0);
                for (percent, planted, covered) in &mut covered {
                    let delta = shift_at(*percent, &both).expect("enough transactions").delta;
                    *covered += u32::from((delta.delta_low..=delta.delta_high).contains(planted));
                }
            }
            for (percent, _, covered) in covered {
                let share = f64::from(covered) / 400.0;
                // The bounds are three standard errors of 400 trials around 0.95 and above.
                assert!((0.917..=1.0).contains(&share), "{rounds} rounds, p{percent}: {share}");
            }
        }
    }

    #[test]
    fn percentiles_of_too_few_transactions_are_withheld() {
        let mut drift = Drift(Xoshiro256PlusPlus::seed_from_u64(3));
        let mut known = |transactions| {
            let both = drift.samples(2, transactions, 0.0);
            PERCENTS.into_iter().filter(|percent| shift_at(*percent, &both).is_some()).collect::<Vec<_>>()
        };
        assert_eq!(known(5), [] as [f64; 0]);
        assert_eq!(known(100), [5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0]);
        assert_eq!(known(3_687), PERCENTS[..9]);
        assert_eq!(known(3_688), PERCENTS);
        let [baseline, cell] = drift.samples(1, 100, 0.0);
        assert_eq!(shift_at(50.0, &[baseline, cell]), None, "one round has no interval");
    }
}
