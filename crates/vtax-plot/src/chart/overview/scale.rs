//! Logarithmic scale of costs that all strips of an overview share.

use crate::measured::Measured;

/// Maximum ratio between the ends of the scale; beyond it, small differences would be invisible.
const WIDEST: f64 = 100.0;
/// Minimum extent of the scale: it reaches at least from 1/1.05 to 1.05 times the baseline's cost.
const LEAST: f64 = 1.05;
/// Ratios at which the scale may have a line, in order of preference.
const TICKS: [f64; 25] = [
    1.0, 2.0, 0.5, 10.0, 0.1, 100.0, 5.0, 0.2, 50.0, 20.0, 1.5, 3.0, 0.7, 0.05, 0.02, 0.01, 1.2, 0.8, 1.1, 0.9, 1.05,
    0.95, 1.02, 0.98, 7.0,
];

/// Logarithms of the ends.
pub(super) struct CostScale {
    low: f64,
    high: f64,
    cut: bool,
}

impl CostScale {
    /// Returns the scale of these costs and noise floors, around the cost of the baseline.
    pub(super) fn of<'a>(costs: impl Iterator<Item = &'a Measured>, noise: impl Iterator<Item = f64>) -> CostScale {
        let floors = noise.filter(|noise| noise.is_finite()).flat_map(|noise| [1.0 / (1.0 + noise), 1.0 + noise]);
        let ends = costs.flat_map(|cost| cost.ends().collect::<Vec<_>>()).chain(floors.map(|end| end.min(WIDEST)));
        let positive = ends.filter(|end| *end > 0.0);
        let spread = |(low, high): (f64, f64), end: f64| (low.min(end), high.max(end));
        let (low, high) = positive.fold((1.0 / LEAST, LEAST), spread);
        let whole = (low.ln(), high.ln());
        // Half of the widest scale on each side, plus the part that the other side doesn't use.
        let most = WIDEST.ln();
        let low = whole.0.max(-(most - whole.1.min(most / 2.0)));
        let high = whole.1.min(most + low);
        let room = 0.04 * (high - low);
        CostScale { low: low - room, high: high + room, cut: (low, high) != whole }
    }

    /// Returns the position of a cost, from 0 to 1.
    pub(super) fn share(&self, cost: f64) -> f64 {
        let log = cost.max(f64::MIN_POSITIVE).ln();
        ((log - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// Returns the positions of both ends of a noise floor.
    pub(super) fn band(&self, noise: f64) -> Option<[f64; 2]> {
        (noise > 0.0).then(|| [1.0 / (1.0 + noise), 1.0 + noise].map(|end| self.share(end)))
    }

    /// Returns `true` if some costs are beyond the ends.
    pub(super) fn is_cut(&self) -> bool {
        self.cut
    }

    /// Returns the positions and ratios of the lines of a strip of this width, at least this many pixels apart.
    pub(super) fn ticks(&self, width: f64, apart: f64) -> Vec<(f64, f64)> {
        let mut ticks: Vec<(f64, f64)> = Vec::new();
        for tick in TICKS.into_iter().filter(|tick| (self.low..=self.high).contains(&tick.ln())) {
            let share = self.share(tick);
            if ticks.iter().all(|(other, _)| (other - share).abs() * width >= apart) {
                ticks.push((share, tick));
            }
        }
        ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(costs: &[f64]) -> CostScale {
        let costs: Vec<Measured> = costs.iter().map(|cost| Measured::plain(*cost)).collect();
        CostScale::of(costs.iter(), std::iter::once(0.02))
    }

    #[test]
    fn the_baseline_is_on_every_scale() {
        for costs in [&[][..], &[1.01], &[2.1, 1.3], &[0.4], &[900.0, 1.0], &[1e-6, 1e6], &[f64::NAN]] {
            let scale = scale(costs);
            assert!((0.01..0.99).contains(&scale.share(1.0)), "{costs:?}: {}", scale.share(1.0));
            assert!((scale.high - scale.low).exp() < 1.1 * 1.5 * WIDEST, "{costs:?}");
        }
    }

    #[test]
    fn a_scale_is_cut_beyond_a_hundredfold() {
        assert!(!scale(&[0.5, 40.0]).is_cut());
        assert!(scale(&[1.0, 250.0]).is_cut() && scale(&[0.02, 50.0]).is_cut());
        assert_eq!(scale(&[1e-6, 1e6]).share(1e6), 1.0);
    }

    #[test]
    fn lines_are_apart() {
        let ticks = |costs: &[f64]| -> Vec<f64> {
            let mut ticks: Vec<f64> = scale(costs).ticks(150.0, 34.0).into_iter().map(|(_, tick)| tick).collect();
            ticks.sort_by(f64::total_cmp);
            ticks
        };
        assert_eq!(ticks(&[2.1]), [1.0, 1.5, 2.0]);
        assert_eq!(ticks(&[1.02]), [0.95, 1.0, 1.05]);
        assert_eq!(ticks(&[30.0]), [1.0, 3.0, 10.0]);
    }
}
