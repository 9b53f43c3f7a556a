//! From figures to a sentence: slower, faster, or no difference shown.
//!
//! A difference is shown only if all three hold: its p-value, adjusted for all cells of the table
//! (Holm), is below 5 %; its interval excludes "the same"; its estimate is outside the noise floor.
//! The test alone would call a tiny but steady difference, one that moving the cell to another
//! place in the round also makes. "None shown" is not "none": it comes with the smallest difference
//! that would have been shown.

use serde::{Deserialize, Serialize};

use super::{NoiseFloor, PValue, PairedTax, RelativeDifference, Significance, holm};

const SIGNIFICANCE: Significance = Significance::FIVE_PERCENT;

/// A cell's tax and the noise floor of the baseline that it was measured beside.
#[derive(Clone, Copy, Debug)]
pub struct Comparison<'a> {
    /// Cell over baseline.
    pub tax: &'a PairedTax,
    /// Of the same figure (round-trip time, goodput, …) and the same baseline.
    pub floor: &'a NoiseFloor,
}

/// Which way a figure moved against its baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shift {
    /// The cell's figure is larger.
    Higher,
    /// The cell's figure is smaller.
    Lower,
    /// No difference is shown.
    NoneShown {
        /// The smallest difference that would have been shown in at least four of five studies like
        /// this one; None if there were too few rounds to show any.
        could_show: Option<RelativeDifference>,
    },
}

/// What is good in a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Round-trip time, CPU per transaction, losses.
    LowerIsBetter,
    /// Transactions or bytes per second.
    HigherIsBetter,
}

/// The word in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The cell does worse than its baseline.
    Slower,
    /// The cell does better than its baseline.
    Faster,
    /// No difference is shown, which doesn't mean that there is none.
    NoneShown,
}

/// A comparison judged among all the others of its table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// Adjusted for all comparisons of the family.
    pub adjusted_p: PValue,
    /// What is shown.
    pub shift: Shift,
}

/// Judges all comparisons of one table together, in their order.
pub fn judge_family(comparisons: &[Comparison<'_>]) -> Vec<Finding> {
    let p_values: Vec<PValue> = comparisons.iter().map(|comparison| comparison.tax.p).collect();
    let judged = |(comparison, adjusted_p): (&Comparison<'_>, PValue)| Finding {
        adjusted_p,
        shift: judge(*comparison, adjusted_p, comparisons.len()),
    };
    comparisons.iter().zip(holm(&p_values)).map(judged).collect()
}

/// Judges one comparison, whose p-value was adjusted among `family` of them.
pub fn judge(comparison: Comparison<'_>, adjusted_p: PValue, family: usize) -> Shift {
    let Comparison { tax, floor } = comparison;
    let shown = adjusted_p.get() < SIGNIFICANCE.get()
        && tax.excludes_equality()
        && RelativeDifference::of_ratio(tax.ratio) > floor.floor;
    match shown {
        true if tax.ratio > 1.0 => Shift::Higher,
        true => Shift::Lower,
        false => Shift::NoneShown { could_show: could_show(comparison, family) },
    }
}

/// At the level that Holm asks of the smallest p-value: rather too large than too small.
fn could_show(comparison: Comparison<'_>, family: usize) -> Option<RelativeDifference> {
    let Comparison { tax, floor } = comparison;
    floor.smallest_shown_of(tax.log_sd, tax.pairs, SIGNIFICANCE.shared_by(family))
}

impl Shift {
    /// The word for it, given what is good.
    pub fn verdict(self, direction: Direction) -> Verdict {
        match (self, direction) {
            (Self::NoneShown { .. }, _) => Verdict::NoneShown,
            (Self::Higher, Direction::LowerIsBetter) | (Self::Lower, Direction::HigherIsBetter) => Verdict::Slower,
            (Self::Lower, Direction::LowerIsBetter) | (Self::Higher, Direction::HigherIsBetter) => Verdict::Faster,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::synthetic::Study;
    use crate::stats::{Confidence, Pair};

    fn figures(study: &Study) -> (PairedTax, NoiseFloor) {
        let tax = PairedTax::of(&study.cell, Confidence::P95).unwrap();
        (tax, NoiseFloor::of(&study.repeat, Confidence::P95).unwrap())
    }

    fn shift_of(study: &Study) -> Shift {
        let (tax, floor) = figures(study);
        judge_family(&[Comparison { tax: &tax, floor: &floor }])[0].shift
    }

    fn steady(ratio: f64) -> Vec<Pair> {
        (0..11).map(|i| Pair { baseline: 1.0, cell: ratio * (1.0 + 1e-4 * f64::from(i - 5)) }).collect()
    }

    #[test]
    fn a_steady_difference_inside_the_floor_is_not_shown() {
        let repeat: Vec<Pair> = steady(1.0)
            .into_iter()
            .enumerate()
            .map(|(i, pair)| Pair { cell: pair.cell * if i % 2 == 0 { 1.04 } else { 0.96 }, ..pair })
            .collect();
        let study = Study { cell: steady(1.01), repeat };
        let (tax, floor) = figures(&study);
        assert!(tax.p.get() < 0.05 && tax.excludes_equality());
        let Shift::NoneShown { could_show } = shift_of(&study) else { panic!("shown") };
        assert!(could_show.unwrap() > floor.floor);
        assert_eq!(shift_of(&Study { cell: steady(1.2), repeat: study.repeat.clone() }), Shift::Higher);
        assert_eq!(shift_of(&Study { cell: steady(0.8), repeat: study.repeat }), Shift::Lower);
    }

    #[test]
    fn a_difference_that_does_not_survive_its_family_is_not_shown() {
        let study = Study { cell: steady(1.1), repeat: steady(1.0) };
        let (tax, floor) = figures(&study);
        let comparison = Comparison { tax: &tax, floor: &floor };
        assert_eq!(judge(comparison, tax.p, 1), Shift::Higher);
        let high = PValue::new(0.05).unwrap();
        assert!(matches!(judge(comparison, high, 60), Shift::NoneShown { could_show: None }));
        // 2/2048 · 60 = 0.0586.
        let family = judge_family(&[comparison; 60]);
        assert!(family.iter().all(|finding| finding.shift == Shift::NoneShown { could_show: None }));
        assert_eq!(family[0].adjusted_p.get(), 60.0 * 2.0 / 2048.0);
    }

    #[test]
    fn words_depend_on_what_is_good() {
        let none = Shift::NoneShown { could_show: None };
        for (shift, lower, higher) in [
            (Shift::Higher, Verdict::Slower, Verdict::Faster),
            (Shift::Lower, Verdict::Faster, Verdict::Slower),
            (none, Verdict::NoneShown, Verdict::NoneShown),
        ] {
            assert_eq!(shift.verdict(Direction::LowerIsBetter), lower);
            assert_eq!(shift.verdict(Direction::HigherIsBetter), higher);
        }
        let words = [Verdict::Slower, Verdict::Faster, Verdict::NoneShown];
        assert_eq!(serde_json::to_string(&words).unwrap(), r#"["slower","faster","none-shown"]"#);
    }
}
