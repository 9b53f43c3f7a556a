//! Steady-state detection: online, to end a warm-up, and afterwards, for a report.
//!
//! A stream starts slowly, a path's caches fill, a governor raises the clock. [`Steady`] examines equal bins (e.g.
//! transactions or bytes of 10 ms) as they arrive, and finds the one from which the level is steady.
//!
//! The rule has two parts. The end of the start-up is determined by MSER (marginal standard error rule: White, "An
//! effective truncation heuristic for bias reduction in simulation output", Simulation 69(6), 1997): of all tails of
//! the series, the one whose mean has the smallest standard error, `s² / n`. A tail that extends into the ramp is
//! penalized by its variance, and an unnecessarily short one by its n. However, MSER always returns a tail, even of a
//! series that rises throughout. So the tail counts as steady only if a straight line through it is level: a
//! least-squares slope between -1.2 and +0.3 of its standard errors, as half of all level tails have, or one that
//! changes the level by no more than 2 %. The bounds are stricter for a rise, which is typical of a warm-up; a level
//! series that fails is tested again with the next bin.
//!
//! The detection limits depend on the noise of the bins (the tests have the figures). Level bins are accepted after 10
//! or 11 bins in the median, and after 16 in nine of ten cases, whatever their noise. A doubling start that ends in a
//! plateau is never accepted as steady below 95 % of it at a noise of up to 10 %, and in 6 % of draws at 20 % if it
//! doubles only every tenth bin; the plateau is accepted after ten bins in the median. Growth of 3 % per bin is never
//! accepted at a noise of up to 5 %, and within fifty bins in one of seven draws at 10 %; longer bins are then the
//! remedy.

/// Minimum number of bins of a steady tail.
const WINDOW: usize = 10;
/// Maximum number of bins considered.
const MEMORY: usize = 64;
/// Steepest rise that counts as level, in standard errors of the slope.
const RISE_T: f64 = 0.3;
/// Steepest fall that counts as level.
const FALL_T: f64 = 1.2;
/// Largest change over the tail that doesn't matter, as a share of its mean.
const LEVEL_CHANGE: f64 = 0.02;
/// Limit far above any bin, whose square is finite.
const LARGEST: f64 = 1e100;

/// Detector of the steady state of a series. It allocates no memory, and takes 64 additions per bin.
#[derive(Clone, Debug)]
pub struct Steady {
    /// Last bins, each at its number modulo the length.
    bins: [f64; MEMORY],
    seen: u64,
    since: Option<u64>,
}

/// State of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteadyState {
    /// Still changing, or too short to decide.
    Warming,
    /// Level; once reached, this state is permanent.
    Steady {
        /// First bin of the level, counted from 0. Earlier bins are start-up.
        since_bin: u64,
    },
}

impl Steady {
    /// Creates a detector without bins.
    pub fn new() -> Self {
        Self { bins: [0.0; MEMORY], seen: 0, since: None }
    }

    /// Adds the next bin: a count, which is finite and not negative. Any other value counts as 0.
    pub fn push(&mut self, bin: f64) -> SteadyState {
        if self.since.is_none() {
            self.bins[self.seen as usize % MEMORY] = if bin > 0.0 { bin.min(LARGEST) } else { 0.0 };
            self.seen += 1;
            self.since = self.level_since();
        }
        match self.since {
            Some(since_bin) => SteadyState::Steady { since_bin },
            None => SteadyState::Warming,
        }
    }

    fn level_since(&self) -> Option<u64> {
        let length = self.best_tail()?;
        Line::through(self.newest(length), length).is_level().then(|| self.seen - length as u64)
    }

    /// Returns the last `length` bins, newest first.
    fn newest(&self, length: usize) -> impl Iterator<Item = f64> + use<'_> {
        (1..=length as u64).map(|back| self.bins[(self.seen - back) as usize % MEMORY])
    }

    /// Returns the length of MSER's tail.
    fn best_tail(&self) -> Option<usize> {
        let most = MEMORY.min(self.seen as usize);
        let mut moments = Moments::default();
        let errors = self.newest(most).map(|bin| moments.with(bin)).enumerate().skip(WINDOW - 1);
        // Among tails with the same error, the longest is taken.
        errors
            .min_by(|(_, left), (_, right)| left.total_cmp(right).then(std::cmp::Ordering::Greater))
            .map(|(at, _)| at + 1)
    }
}

impl Default for Steady {
    fn default() -> Self {
        Self::new()
    }
}

/// Running mean and squares (Welford, "Note on a method for calculating corrected sums …", Technometrics 4(3), 1962).
#[derive(Default)]
struct Moments {
    n: f64,
    mean: f64,
    squares: f64,
}

impl Moments {
    /// Returns MSER's figure with one more value: the squared standard error of the mean.
    fn with(&mut self, value: f64) -> f64 {
        self.n += 1.0;
        let off = value - self.mean;
        self.mean += off / self.n;
        self.squares += off * (value - self.mean);
        self.squares / (self.n * self.n)
    }
}

/// Least-squares line through equally spaced values.
struct Line {
    n: f64,
    mean: f64,
    slope: f64,
    /// Standard error of the slope.
    error: f64,
}

impl Line {
    /// Fits `length` >= 3 values, the last of them first.
    fn through(values: impl Iterator<Item = f64>, length: usize) -> Self {
        let n = length as f64;
        let (mut moments, mut along) = (Moments::default(), 0.0);
        for (at, value) in values.enumerate() {
            moments.with(value);
            along += ((n - 1.0) / 2.0 - at as f64) * value;
        }
        let spread = n * (n * n - 1.0) / 12.0;
        let slope = along / spread;
        let residual = (moments.squares - slope * along).max(0.0) / (n - 2.0);
        Self { n, mean: moments.mean, slope, error: (residual / spread).sqrt() }
    }

    /// Returns `true` if the line is level. A series of zeros is not, because nothing flows yet.
    fn is_level(&self) -> bool {
        let change = self.slope.abs() * (self.n - 1.0);
        let explained = if self.slope > 0.0 { RISE_T } else { FALL_T } * self.error;
        self.mean > 0.0 && (self.slope.abs() <= explained || change <= LEVEL_CHANGE * self.mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::synthetic::{Draws, OutcomeCounts};
    use proptest::prelude::*;

    fn accepted(series: impl IntoIterator<Item = f64>) -> Option<(usize, u64)> {
        let mut steady = Steady::new();
        series.into_iter().enumerate().find_map(|(bin, value)| match steady.push(value) {
            SteadyState::Steady { since_bin } => Some((bin, since_bin)),
            SteadyState::Warming => None,
        })
    }

    /// Returns bins around a level that may change with their number.
    fn bins(draws: &mut Draws, n: usize, noise: f64, level: impl Fn(f64) -> f64) -> Vec<f64> {
        let noise = draws.samples(n, |z| 1.0 + noise * z);
        noise.iter().enumerate().map(|(bin, noise)| (1e4 * level(bin as f64) * noise).max(0.0)).collect()
    }

    fn quantile(mut values: Vec<usize>, share: f64) -> usize {
        values.sort_unstable();
        values[(values.len() as f64 * share) as usize]
    }

    #[test]
    fn level_bins_are_accepted_soon_whatever_their_noise() {
        let mut draws = Draws::seeded(21);
        for noise in [0.0, 0.01, 0.1, 0.3] {
            let taken = |_| accepted(bins(&mut draws, 300, noise, |_| 1.0)).expect("within 300 bins").0 + 1;
            let taken: Vec<usize> = (0..2_000).map(taken).collect();
            let [middle, most] = [0.5, 0.9].map(|share| quantile(taken.clone(), share));
            assert!(middle <= 12 && most <= 20, "noise {noise}: {middle} bins, {most} in nine of ten");
        }
    }

    #[test]
    fn a_slow_start_is_not_taken_for_steady_and_its_plateau_is() {
        let mut draws = Draws::seeded(22);
        for (noise, bins_to_double) in
            [0.02, 0.05, 0.1].into_iter().flat_map(|noise| [1.0, 2.0, 5.0, 10.0].map(|bins| (noise, bins)))
        {
            let plateau = 6.0 * bins_to_double;
            let level = |bin: f64| 2f64.powf((bin - plateau) / bins_to_double).min(1.0);
            let mut after = Vec::new();
            let early = OutcomeCounts::of(1_000, || {
                let (at, since) = accepted(bins(&mut draws, 300, noise, level)).expect("within 300 bins");
                after.push((at + 1).saturating_sub(plateau as usize));
                level(at as f64) < 0.95 || level(since as f64) < 0.7
            });
            let middle = quantile(after, 0.5);
            assert!(early.rate() <= 0.05, "noise {noise}, doubling in {bins_to_double}: {early:?}");
            assert!(middle <= 15, "noise {noise}, doubling in {bins_to_double}: {middle} bins of the plateau");
        }
    }

    #[test]
    fn growth_is_not_taken_for_steady() {
        let mut draws = Draws::seeded(23);
        for noise in [0.0, 0.02, 0.05] {
            let of_the_level = |bin: f64| 1.03f64.powf(bin);
            let taken = OutcomeCounts::of(1_000, || accepted(bins(&mut draws, 100, noise, of_the_level)).is_some());
            assert!(taken.rate() <= 0.01, "3 % of the level, noise {noise}: {taken:?}");
        }
        for noise in [0.0, 0.02] {
            let of_the_first = |bin: f64| 1.0 + 0.03 * bin;
            let taken = OutcomeCounts::of(1_000, || accepted(bins(&mut draws, 50, noise, of_the_first)).is_some());
            assert!(taken.rate() <= 0.01, "3 % of the first bin, noise {noise}: {taken:?}");
        }
    }

    #[test]
    fn nothing_is_not_a_level() {
        assert_eq!(accepted([0.0; 200]), None);
        let begins_late = [0.0; 40].into_iter().chain([500.0; 20]);
        assert_eq!(accepted(begins_late), Some((49, 40)));
    }

    #[test]
    fn one_stall_costs_no_more_than_the_window() {
        for stall in 0..20 {
            let series = (0..60).map(|bin| if bin == stall { 0.0 } else { 500.0 + f64::from(bin % 3) });
            let (at, _) = accepted(series).expect("level but for one bin");
            assert!(at <= stall as usize + WINDOW, "stall in bin {stall}, accepted in bin {at}");
        }
    }

    #[test]
    fn steady_once_is_steady_from_then_on() {
        let mut steady = Steady::new();
        let states: Vec<SteadyState> = (0..12).map(|_| steady.push(7.0)).collect();
        assert_eq!(states[8], SteadyState::Warming);
        assert_eq!(states[9], SteadyState::Steady { since_bin: 0 });
        assert_eq!(steady.push(7e6), SteadyState::Steady { since_bin: 0 });
    }

    fn any_float() -> impl Strategy<Value = f64> {
        prop_oneof![any::<f64>(), Just(0.0), Just(f64::NAN), Just(f64::INFINITY), Just(f64::MAX), 0.0..1e6]
    }

    proptest! {
        #[test]
        fn no_series_makes_it_panic(series in prop::collection::vec(any_float(), 0..200)) {
            let mut steady = Steady::new();
            for (bin, value) in series.iter().enumerate() {
                if let SteadyState::Steady { since_bin } = steady.push(*value) {
                    prop_assert!(since_bin <= bin as u64);
                }
            }
        }

        #[test]
        fn the_unit_does_not_matter(series in prop::collection::vec(0.0..1e6, 10..100), power in -20i32..60) {
            let unit = 2f64.powi(power);
            let other = series.iter().map(|value| value * unit);
            prop_assert_eq!(accepted(series.iter().copied()), accepted(other));
        }
    }
}
