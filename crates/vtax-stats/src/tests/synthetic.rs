//! Studies with known true values, for tests of the statistics.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::Pair;

/// Positions in a round: the baseline twice, the cell, and three other cells.
const PLACES: usize = 6;

/// Seeded random numbers.
pub(crate) struct Draws(Xoshiro256PlusPlus);

/// Study of one cell and a baseline that is measured twice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    pub(crate) rounds: usize,
    /// Standard deviation of a sample's logarithm.
    pub(crate) noise: f64,
    /// Drift of the machine within a round: standard deviation of its logarithm's step.
    pub(crate) drift: f64,
    /// True value: cell over baseline.
    pub(crate) ratio: f64,
}

/// Change of the machine from round to round, the same for all arms of a round. Each has the standard deviation of its
/// logarithm.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Drift {
    None,
    /// Every round varies independently around the same level.
    Around(f64),
    /// Every round is close to the previous one.
    Walk(f64),
}

/// Distribution of a sample's noise, around no particular centre.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum NoiseShape {
    Normal,
    /// Student's t with 3 degrees of freedom.
    HeavyTails,
    /// Lognormal, σ = 1: never much better than usual, and occasionally much worse.
    Skew,
    /// Normal, with one of ten samples disturbed by ten times as much, always for the worse.
    Mixed,
}

impl NoiseShape {
    pub(crate) const ALL: [Self; 4] = [Self::Normal, Self::HeavyTails, Self::Skew, Self::Mixed];
}

/// Measurements of such a study.
#[derive(Clone)]
pub(crate) struct SyntheticStudy {
    pub(crate) cell: Vec<Pair>,
    pub(crate) repeat: Vec<Pair>,
}

impl Draws {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Returns samples made from standard normal numbers.
    pub(crate) fn samples(&mut self, n: usize, make: impl Fn(f64) -> f64) -> Vec<f64> {
        (0..n).map(|_| make(self.normal())).collect()
    }

    pub(crate) fn shaped(&mut self, shape: NoiseShape) -> f64 {
        let z = self.normal();
        match shape {
            NoiseShape::Normal => z,
            NoiseShape::HeavyTails => {
                let chi_squared: f64 = (0..3).map(|_| self.normal().powi(2)).sum();
                z / (chi_squared / 3.0).sqrt()
            }
            NoiseShape::Skew => z.exp(),
            NoiseShape::Mixed => {
                if self.uniform() < 0.1 {
                    10.0 * z.abs()
                } else {
                    z
                }
            }
        }
    }

    /// Returns the log ratios of `arms` arms to one baseline, round by round. All arms are equal except for noise of
    /// 2 %.
    pub(crate) fn log_ratios(&mut self, rounds: usize, arms: usize, shape: NoiseShape) -> Vec<Vec<f64>> {
        let mut of_arms = vec![Vec::with_capacity(rounds); arms];
        for _ in 0..rounds {
            let baseline = self.shaped(shape);
            of_arms.iter_mut().for_each(|arm| arm.push(0.02 * (self.shaped(shape) - baseline)));
        }
        of_arms
    }

    /// Returns the logarithm of the machine's level in each round.
    pub(crate) fn machine(&mut self, rounds: usize, drift: Drift) -> Vec<f64> {
        let mut level = 0.0;
        let round = |_| match drift {
            Drift::None => 0.0,
            Drift::Around(sd) => sd * self.normal(),
            Drift::Walk(sd) => {
                level += sd * self.normal();
                level
            }
        };
        (0..rounds).map(round).collect()
    }

    pub(crate) fn resampled_mean(&mut self, samples: &[f64]) -> f64 {
        let draw = |_| samples[self.below(samples.len())];
        (0..samples.len()).map(draw).sum::<f64>() / samples.len() as f64
    }

    /// Draws a study. The machine's speed is a random walk from position to position, through rounds and within them;
    /// the arms' positions are random.
    pub(crate) fn study(&mut self, plan: Rounds) -> SyntheticStudy {
        let mut study = SyntheticStudy { cell: Vec::new(), repeat: Vec::new() };
        let mut machine = 0.0;
        let step = plan.drift / (PLACES as f64).sqrt();
        for _ in 0..plan.rounds {
            let places: [f64; PLACES] = std::array::from_fn(|_| {
                machine += step * self.normal();
                (machine + plan.noise * self.normal()).exp()
            });
            let [a, again, cell] = self.three_places().map(|place| places[place]);
            study.cell.push(Pair { baseline: a, cell: cell * plan.ratio });
            study.repeat.push(Pair { baseline: a, cell: again });
        }
        study
    }

    fn three_places(&mut self) -> [usize; 3] {
        let mut order: [usize; PLACES] = std::array::from_fn(|place| place);
        for from in (1..PLACES).rev() {
            order.swap(from, self.below(from + 1));
        }
        [order[0], order[1], order[2]]
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.uniform() * bound as f64) as usize
    }

    fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a standard normal number: Box & Muller (1958).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

/// Counts of an outcome.
#[derive(Debug)]
pub(crate) struct OutcomeCounts {
    hits: u32,
    of: u32,
}

impl OutcomeCounts {
    pub(crate) fn of(trials: u32, mut trial: impl FnMut() -> bool) -> Self {
        Self { hits: (0..trials).map(|_| u32::from(trial())).sum(), of: trials }
    }

    pub(crate) fn rate(&self) -> f64 {
        f64::from(self.hits) / f64::from(self.of)
    }

    /// Returns `true` if within three standard errors of the rate. That is wrong by chance for 0.3 % of seeds, but the
    /// seeds are fixed.
    pub(crate) fn is_near(&self, rate: f64) -> bool {
        (self.rate() - rate).abs() <= self.slack(rate)
    }

    /// Returns `true` if not above the rate by more than three standard errors (1.5 points for 5 % of 2,000).
    pub(crate) fn is_at_most(&self, rate: f64) -> bool {
        self.rate() <= rate + self.slack(rate)
    }

    fn slack(&self, rate: f64) -> f64 {
        3.0 * (rate * (1.0 - rate) / f64::from(self.of)).sqrt()
    }
}
