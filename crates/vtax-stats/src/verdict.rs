//! Verdicts from figures.
//!
//! * **Slower, faster**: a difference is shown if its p-value, adjusted for all comparisons of its family (Holm), is
//!   below 5 %. Interval and p come from the same test, so the interval then excludes equality.
//! * **Not confirmed** (shown as "not significant"): p is below 5 % for the comparison alone, but not after correction,
//!   as in one of twenty comparisons of equal arms.
//! * **None larger**: no difference is shown, and the interval limits the cost: "≤ 0.9 % worse". That is a statement of
//!   equivalence: the two one-sided tests of Schuirmann (1987), Journal of Pharmacokinetics and Biopharmaceutics 15(6),
//!   each at 2.5 %, reject any larger difference.
//! * **Too noisy to tell**: no difference is shown, and the interval allows a factor of two, so no figure is printed.
//!
//! The noise floor is a warning in addition to a verdict ([`Finding::within_floor`]), never a reason to deny one.

use serde::{Deserialize, Serialize};

use super::{NoiseFloor, PValue, PairedTax, Preference, Significance, holm};

/// Significance level of every verdict.
pub const SIGNIFICANCE: Significance = Significance::FIVE_PERCENT;

/// Tax of a cell, and the noise floor of its baseline if that was measured twice.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'a> {
    /// Cell over baseline.
    pub tax: &'a PairedTax,
    /// Noise floor of the same figure (round-trip time, goodput, …) and the same baseline.
    pub floor: Option<&'a NoiseFloor>,
}

/// Direction of a figure compared with its baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    /// The cell's figure is larger.
    Higher,
    /// The cell's figure is smaller.
    Lower,
    /// Significant alone, but not after correction for all comparisons.
    NotConfirmed,
    /// No difference is shown, and none is larger than the bounds of the interval.
    NoneLarger,
    /// The interval allows a factor of two.
    TooNoisy,
}

/// Verdict in results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The cell performs worse than its baseline.
    Slower,
    /// The cell performs better than its baseline.
    Faster,
    /// Significant alone, but not after correction for all comparisons.
    NotConfirmed,
    /// No difference is shown, and none is larger than the bounds of the interval.
    NoneLarger,
    /// The interval allows a factor of two.
    TooNoisy,
    /// No difference is shown: verdict of comparisons of two runs, and of documents written before vtax distinguished
    /// the three above.
    NoneShown,
}

impl Verdict {
    /// Returns `true` if a difference is shown.
    pub fn is_shown(self) -> bool {
        matches!(self, Verdict::Slower | Verdict::Faster)
    }
}

/// Comparison judged among all the others of its family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// p-value adjusted for all comparisons of the family.
    pub adjusted_p: PValue,
    /// Shown shift.
    pub shift: Shift,
    /// Set if a difference is shown, and the baseline differs from itself by as much.
    pub within_floor: bool,
}

/// Judges all comparisons of one family together, in their order. `looks` is the maximum number of times that the
/// figures are judged: a run that may end at the first of several planned looks is corrected for all of them.
pub fn judge_family(comparisons: &[Comparison<'_>], looks: usize) -> Vec<Finding> {
    let p_values: Vec<PValue> = comparisons.iter().map(|comparison| comparison.tax.p.times(looks)).collect();
    let judged = |(comparison, adjusted_p): (&Comparison<'_>, PValue)| {
        let shift = judge(comparison.tax, adjusted_p);
        let covered = comparison.floor.is_some_and(|floor| floor.covers(comparison.tax.ratio));
        Finding { adjusted_p, shift, within_floor: covered && shift.is_shown() }
    };
    comparisons.iter().zip(holm(&p_values)).map(judged).collect()
}

/// Judges one comparison, whose p-value was adjusted for its family.
pub fn judge(tax: &PairedTax, adjusted_p: PValue) -> Shift {
    // With ties p may be below 5 % while a bound of the interval is 1.
    let apart = tax.excludes_equality();
    match (apart && adjusted_p.get() < SIGNIFICANCE.get(), tax.ratio > 1.0) {
        (true, true) => Shift::Higher,
        (true, false) => Shift::Lower,
        (false, _) if tax.is_too_wide() => Shift::TooNoisy,
        (false, _) if apart || tax.p.get() < SIGNIFICANCE.get() => Shift::NotConfirmed,
        (false, _) => Shift::NoneLarger,
    }
}

impl Shift {
    /// Returns `true` if a difference is shown.
    pub fn is_shown(self) -> bool {
        matches!(self, Shift::Higher | Shift::Lower)
    }

    /// Returns the verdict, given the preferred direction.
    pub fn verdict(self, direction: Preference) -> Verdict {
        match (self, direction) {
            (Self::NotConfirmed, _) => Verdict::NotConfirmed,
            (Self::NoneLarger, _) => Verdict::NoneLarger,
            (Self::TooNoisy, _) => Verdict::TooNoisy,
            (Self::Higher, Preference::LowerIsBetter) | (Self::Lower, Preference::HigherIsBetter) => Verdict::Slower,
            (Self::Lower, Preference::LowerIsBetter) | (Self::Higher, Preference::HigherIsBetter) => Verdict::Faster,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Confidence, Pair};

    fn tax_of(ratios: &[f64]) -> PairedTax {
        let pairs: Vec<Pair> = ratios.iter().map(|ratio| Pair { baseline: 1.0, cell: *ratio }).collect();
        PairedTax::of(&pairs, Confidence::P95).unwrap()
    }

    fn floor_of(ratios: &[f64]) -> NoiseFloor {
        let pairs: Vec<Pair> = ratios.iter().map(|ratio| Pair { baseline: 1.0, cell: *ratio }).collect();
        NoiseFloor::of(&pairs, Confidence::P95).unwrap()
    }

    /// Returns one ratio for eleven rounds, with a jitter of `by`.
    fn steady(ratio: f64, by: f64) -> Vec<f64> {
        (0..11).map(|i| ratio * (1.0 + by * f64::from(i - 5) / 5.0)).collect()
    }

    fn alone(tax: &PairedTax, floor: Option<&NoiseFloor>) -> Finding {
        judge_family(&[Comparison { tax, floor }], 1)[0]
    }

    /// B1 of the review: a cell of -99.9 % with p = 0.00098 was "no difference shown", because the noise floor was
    /// 110 % and no loss is larger than 100 %.
    #[test]
    fn a_loss_of_99_9_percent_next_to_a_floor_of_110_percent_is_shown() {
        let floor = floor_of(&[0.3, 2.5, 0.4, 2.6, 0.5, 3.0, 0.4, 2.7, 1.0, 0.5, 2.6]);
        assert!(floor.floor.gain() > 1.0, "{floor:?}");
        let tax = tax_of(&steady(0.001, 0.1));
        assert!((tax.p.get() - 2.0 / 2048.0).abs() < 1e-12);
        let finding = alone(&tax, Some(&floor));
        assert_eq!((finding.shift, finding.within_floor), (Shift::Lower, false));
    }

    /// B4 of the review: the estimate and its interval were based on ranks and p on the sum, so that one bad round of
    /// 55 denied +6.9 %.
    #[test]
    fn one_outlier_in_55_rounds_does_not_deny_seven_percent() {
        let mut ratios: Vec<f64> = (0..55).map(|i| 1.069 * (1.0 + 0.04 * f64::from(i % 11 - 5) / 5.0)).collect();
        ratios[17] = 0.02;
        let tax = tax_of(&ratios);
        assert!((tax.ratio - 1.069).abs() < 0.005, "{tax:?}");
        let family = vec![Comparison { tax: &tax, floor: None }; 40];
        assert!(judge_family(&family, 1).iter().all(|finding| finding.shift == Shift::Higher));
    }

    #[test]
    fn a_shown_difference_inside_the_floor_is_shown_with_a_warning() {
        let floor = floor_of(&[1.04, 0.96, 1.04, 0.96, 1.04, 0.96, 1.04, 0.96, 1.04, 0.96, 1.04]);
        for (ratio, within_floor) in [(1.01, true), (0.99, true), (1.2, false), (0.8, false)] {
            let finding = alone(&tax_of(&steady(ratio, 1e-3)), Some(&floor));
            assert!(finding.shift.is_shown() && finding.within_floor == within_floor, "{ratio}: {finding:?}");
        }
        let none = alone(&tax_of(&steady(1.0, 1e-3)), Some(&floor));
        assert_eq!((none.shift, none.within_floor), (Shift::NoneLarger, false), "there is nothing to warn of");
    }

    #[test]
    fn a_difference_that_does_not_survive_its_family_is_not_confirmed() {
        let tax = tax_of(&steady(1.1, 1e-3));
        // 2/2048 · 60 = 0.0586.
        let family = judge_family(&[Comparison { tax: &tax, floor: None }; 60], 1);
        assert!(family.iter().all(|finding| finding.shift == Shift::NotConfirmed));
        assert_eq!(family[0].adjusted_p.get(), 60.0 * 2.0 / 2048.0);
        assert_eq!(judge(&tax, tax.p), Shift::Higher);
        // Three looks at twenty comparisons are sixty tests.
        let looked = judge_family(&[Comparison { tax: &tax, floor: None }; 20], 3);
        assert_eq!(looked[0], family[0]);
    }

    /// 233 [-160, 625] was once printed.
    #[test]
    fn an_interval_that_leaves_a_factor_of_two_open_is_too_noisy() {
        let wide = tax_of(&[0.3, 3.0, 0.4, 2.9, 0.2, 3.1, 0.5, 2.0, 0.45, 1.0, 1.1]);
        assert_eq!(judge(&wide, wide.p), Shift::TooNoisy);
        let high_and_narrow = tax_of(&steady(2.4, 1e-3));
        assert_eq!(judge(&high_and_narrow, PValue::ONE), Shift::NotConfirmed, "few rounds aren't noise");
        let high_and_wide = tax_of(&[1.2, 9.0, 3.0, 5.5, 1.1, 8.0, 7.0]);
        assert_eq!(judge(&high_and_wide, PValue::ONE), Shift::TooNoisy);
        let two_rounds = tax_of(&[0.9, 1.1]);
        assert_eq!(judge(&two_rounds, two_rounds.p), Shift::TooNoisy, "{two_rounds:?}");
    }

    #[test]
    fn the_maximum_cost_is_the_costly_bound() {
        let tax = tax_of(&steady(1.0, 0.02));
        assert_eq!(tax.costs_at_most(Preference::LowerIsBetter), tax.high - 1.0);
        assert_eq!(tax.costs_at_most(Preference::HigherIsBetter), 1.0 - tax.low);
        assert_eq!(tax_of(&steady(0.5, 1e-3)).costs_at_most(Preference::LowerIsBetter), 0.0);
    }

    #[test]
    fn words_depend_on_what_is_good() {
        for (shift, lower, higher) in [
            (Shift::Higher, Verdict::Slower, Verdict::Faster),
            (Shift::Lower, Verdict::Faster, Verdict::Slower),
            (Shift::NotConfirmed, Verdict::NotConfirmed, Verdict::NotConfirmed),
            (Shift::NoneLarger, Verdict::NoneLarger, Verdict::NoneLarger),
            (Shift::TooNoisy, Verdict::TooNoisy, Verdict::TooNoisy),
        ] {
            assert_eq!(shift.verdict(Preference::LowerIsBetter), lower);
            assert_eq!(shift.verdict(Preference::HigherIsBetter), higher);
        }
        let words = [Verdict::Slower, Verdict::NotConfirmed, Verdict::NoneLarger, Verdict::TooNoisy];
        let json = serde_json::to_string(&words).unwrap();
        assert_eq!(json, r#"["slower","not-confirmed","none-larger","too-noisy"]"#);
        assert_eq!(serde_json::from_str::<Verdict>(r#""none-shown""#).unwrap(), Verdict::NoneShown, "an old result");
    }
}
