//! Outliers among many units, with a limit on false alarms.
//!
//! Centre and scale are the median and the median absolute deviation (MAD), which a minority of outliers can't move:
//! Iglewicz & Hoaglin, "How to Detect and Handle Outliers" (ASQC, 1993). By Bonferroni's inequality, each of m scores
//! may exceed its threshold by chance with probability α/m. The scale of few units is itself uncertain: the MAD has
//! 37 % of the efficiency of the standard deviation (Rousseeuw & Croux, "Alternatives to the Median Absolute
//! Deviation", Journal of the American Statistical Association 88, 1993), so the quantile is that of Student's t with
//! 0.37 (n - 1) degrees of freedom.

use statrs::distribution::{ChiSquared, ContinuousCDF, Normal};

use super::{median, student};

/// Factor from the MAD to the standard deviation of normal figures.
const NORMAL: f64 = 1.4826;
/// Efficiency of the MAD.
const EFFICIENCY: f64 = 0.37;
/// Standard error of the median of normal figures, as a multiple of that of the mean: √(π/2).
const MEDIAN_ERROR: f64 = 1.253_314;
/// Number of quantiles of the scale over which the power is averaged.
const STEPS: u32 = 200;

/// Location and scale of figures, a minority of which may be arbitrary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RobustScale {
    /// Median.
    pub centre: f64,
    /// Scaled MAD: the standard deviation if the figures are normal.
    pub scale: f64,
}

impl RobustScale {
    /// Estimates location and scale; `None` without figures.
    pub fn of(figures: &[f64]) -> Option<Self> {
        if figures.is_empty() {
            return None;
        }
        let centre = median(figures);
        let deviations: Vec<f64> = figures.iter().map(|figure| (figure - centre).abs()).collect();
        Some(Self { centre, scale: NORMAL * median(&deviations) })
    }

    /// Returns the same with a scale of at least `least`.
    #[must_use]
    pub fn at_least(self, least: f64) -> Self {
        Self { scale: self.scale.max(least), ..self }
    }

    /// Returns the distance of a figure from the centre, in units of the scale.
    pub fn score(self, figure: f64) -> f64 {
        match figure - self.centre {
            0.0 => 0.0,
            distance if self.scale > 0.0 => distance / self.scale,
            distance => f64::INFINITY.copysign(distance),
        }
    }
}

/// Returns the standard error of the median of `figures` normal figures.
pub fn error_of_median(deviation: f64, figures: u32) -> f64 {
    MEDIAN_ERROR * deviation / f64::from(figures.max(1)).sqrt()
}

/// Test of the most extreme of several scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OutlierTest {
    threshold: f64,
    /// Degrees of freedom of the scale.
    freedom: usize,
}

impl OutlierTest {
    /// Creates a test in which any of `comparisons` scores exceeds the threshold on one side with probability `level`,
    /// if the scale is estimated from `units` units and all units are alike.
    pub fn new(units: usize, comparisons: usize, level: f64) -> OutlierTest {
        let freedom = (EFFICIENCY * units.saturating_sub(1) as f64).round().max(1.0) as usize;
        OutlierTest { threshold: student::quantile(1.0 - level / comparisons.max(1) as f64, freedom), freedom }
    }

    /// Returns the threshold of a score.
    pub fn threshold(self) -> f64 {
        self.threshold
    }

    /// Returns the probability that a score exceeds the threshold, if its distance from the centre is `expected` times
    /// the true scale. The scale is estimated: its square is distributed as chi-squared over its degrees of freedom.
    pub fn power(self, expected: f64) -> f64 {
        let squares = ChiSquared::new(self.freedom as f64).expect("at least one degree of freedom");
        let scale =
            |nth: u32| (squares.inverse_cdf((f64::from(nth) + 0.5) / f64::from(STEPS)) / self.freedom as f64).sqrt();
        let exceeds = |nth: u32| Normal::standard().cdf(expected - self.threshold * scale(nth));
        (0..STEPS).map(exceeds).sum::<f64>() / f64::from(STEPS)
    }

    /// Returns the distance, in units of the true scale, that exceeds the threshold with this probability.
    pub fn detectable(self, probability: f64) -> f64 {
        let (mut low, mut high) = (0.0, self.threshold * 20.0 + 20.0);
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            match self.power(middle) < probability {
                true => low = middle,
                false => high = middle,
            }
        }
        high
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::synthetic::Draws;

    #[test]
    fn a_minority_moves_neither_centre_nor_scale() {
        let found = RobustScale::of(&[1.0, 2.0, 3.0, 4.0, 1e9]).expect("figures");
        assert_eq!((found.centre, found.scale), (3.0, NORMAL));
        assert_eq!(found.score(3.0 - 2.0 * NORMAL), -2.0);
        assert_eq!(found.at_least(10.0).scale, 10.0);
        assert_eq!(RobustScale::of(&[]), None);
    }

    #[test]
    fn equal_figures_have_no_scale_and_any_other_is_infinitely_far() {
        let equal = RobustScale::of(&[2.0; 5]).expect("figures");
        assert_eq!(equal.score(1.9), f64::NEG_INFINITY);
        assert_eq!(equal.score(2.0), 0.0);
    }

    #[test]
    fn thresholds_are_the_quantiles_of_the_tables() {
        // Normal for many units: 2.326 at 99 %.
        assert!((OutlierTest::new(100_000, 1, 0.01).threshold() - 2.326).abs() < 0.001);
        // Student's t(9) at 99.5 %: 3.250.
        assert!((OutlierTest::new(25, 10, 0.05).threshold() - 3.250).abs() < 0.001);
    }

    #[test]
    fn detectable_differences_are_detected_as_often_as_promised() {
        for units in [6, 24, 1000] {
            let test = OutlierTest::new(units, units, 0.05);
            assert!((test.power(test.detectable(0.99)) - 0.99).abs() < 1e-4, "{units}");
        }
        // With a known scale: the threshold and another 2.326.
        let many = OutlierTest::new(1_000_000, 1, 0.01);
        assert!((many.detectable(0.99) - 2.0 * 2.326).abs() < 0.01, "{}", many.detectable(0.99));
    }

    /// An outlier is found as often as the power predicts.
    #[test]
    fn the_power_is_that_of_draws() {
        const FAMILIES: u32 = 1_500;
        let mut draws = Draws::seeded(13);
        for (units, expected) in [(12, 10.0), (24, 6.0), (100, 4.5)] {
            let test = OutlierTest::new(units, units, 0.05);
            let found = (0..FAMILIES).filter(|_| {
                let mut figures = draws.samples(units, |z| z);
                figures[0] -= expected;
                RobustScale::of(&figures).expect("figures").score(figures[0]) < -test.threshold()
            });
            let (found, promised) = (found.count() as f64 / f64::from(FAMILIES), test.power(expected));
            assert!((found - promised).abs() < 0.08, "{units} units: {found}, not {promised}");
        }
    }

    /// Families in which all units are alike raise an alarm in at most the promised share of cases.
    #[test]
    fn false_alarms_are_as_promised() {
        const FAMILIES: u32 = 2_000;
        const LEVEL: f64 = 0.05;
        let mut draws = Draws::seeded(11);
        for units in [6, 12, 24, 100] {
            let threshold = OutlierTest::new(units, units, LEVEL).threshold();
            let alarms = (0..FAMILIES).filter(|_| {
                let figures = draws.samples(units, |z| z);
                let scale = RobustScale::of(&figures).expect("figures");
                figures.iter().any(|figure| scale.score(*figure) < -threshold)
            });
            // Three standard errors above the promised share.
            let most = f64::from(FAMILIES) * LEVEL + 3.0 * (f64::from(FAMILIES) * LEVEL * (1.0 - LEVEL)).sqrt();
            let alarms = alarms.count();
            assert!((alarms as f64) < most, "{units} units: {alarms} of {FAMILIES}");
        }
    }

    #[test]
    fn the_error_of_a_median_is_that_of_draws() {
        let mut draws = Draws::seeded(12);
        let medians: Vec<f64> = (0..4_000).map(|_| median(&draws.samples(25, |z| z))).collect();
        let found = student::standard_deviation(&medians) / error_of_median(1.0, 25);
        assert!((0.95..1.05).contains(&found), "{found}");
    }
}
