//! Tax of a cell over its baseline, by each of its metrics, and the baseline's difference from itself.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{
    cell::{Block, Instrument},
    metric::{CostUnit, Metric},
    run::Difference,
};
use vtax_stats::{Preference, Verdict};

/// Cost of a cell above its baseline: the baseline's typical level times (ratio - 1), so that the two always agree. A
/// cost in µs is valid whatever else is in the baseline's time, unlike a percentage: a zone on a veth pair costs 2.5 to
/// 2.9 µs of a round trip whether CPUs sleep or not, which is +4 or +21 %.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Delta {
    /// The baseline's typical level: the median over rounds.
    pub baseline: f64,
    /// Positive for more than the baseline: the Hodges-Lehmann estimate of the rounds' differences.
    pub delta: f64,
    /// Lower end of its 95 % interval, by the signed-rank test of these differences.
    pub delta_low: f64,
    /// Upper end of its 95 % interval.
    pub delta_high: f64,
    /// The unit of these figures.
    pub unit: CostUnit,
}

/// A cell compared with its baseline cell by one metric, paired round by round.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaxRecord {
    /// The comparison.
    pub of: Metric,
    /// Measurement mode.
    #[serde(default)]
    pub instrument: Instrument,
    /// Cell over baseline; the tax is this minus one.
    pub ratio: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
    /// The ratio as a time; absent in documents of older versions.
    #[serde(flatten)]
    pub delta: Option<Delta>,
    /// Difference of the mean round trips in µs that is due to delays of the responders, by their own clocks: a known cost
    /// to be detected. Absent unless both wait.
    pub planted: Option<f64>,
    /// Exact signed-rank p of this comparison alone.
    pub p: f64,
    /// After Holm over the comparisons of the run in the same measurement mode and family of metrics.
    pub p_adjusted: f64,
    /// Result of the test after Holm's correction.
    pub verdict: Verdict,
    /// If no difference is shown: the upper limit of how much worse the cell is, as a share of the
    /// baseline's figure.
    pub at_most: Option<f64>,
    /// If nothing is shown: the smallest difference, as a share of the baseline's figure by which the cell is worse,
    /// that four of five equally noisy studies would show; absent if there are too few rounds to show any.
    pub could_show: Option<f64>,
    /// Number of rounds with both cells.
    pub pairs: usize,
    /// Noise floor of the baseline; absent if it was not measured twice.
    pub floor: Option<f64>,
    /// A warning: a difference is shown, but the baseline may differ from itself by as much.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub within_floor: bool,
}

impl TaxRecord {
    /// Returns the bounds of the gain of the cell over its baseline, as logarithms; negative if it
    /// is worse.
    pub(crate) fn gain(&self) -> (f64, f64) {
        let (low, high) = (self.low.ln(), self.high.ln());
        match self.of.direction() {
            Preference::LowerIsBetter => (-high, -low),
            Preference::HigherIsBetter => (low, high),
        }
    }

    /// Returns true if the gain may be either more or less than the margin.
    pub(crate) fn straddles(&self, margin: Difference) -> bool {
        let (least, most) = self.gain();
        least <= margin.log() && margin.log() <= most
    }
}

/// The baseline's second arm (A') compared with its first (A) in one block: the effect of the machine's noise alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FloorRecord {
    /// The cells that it is about.
    #[serde(flatten)]
    pub block: Block,
    /// The comparison.
    pub of: Metric,
    /// Second arm over the first (A'/A); 1 means that they do not differ.
    pub ratio: f64,
    /// Lower end of the 95 % interval of the ratio.
    pub low: f64,
    /// Upper end of the 95 % interval of the ratio.
    pub high: f64,
    /// The ratio as a time; absent in documents of older versions.
    #[serde(flatten)]
    pub delta: Option<Delta>,
    /// The far bound of that interval, as a share. A smaller shown difference is reported with a warning.
    pub floor: f64,
    /// The smallest difference that this many rounds show in four of five studies; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smallest_shown: Option<f64>,
    /// Number of rounds with both arms.
    pub pairs: usize,
    /// True if A' and A differ by more than chance (at 5 %, after Holm): the method is not the only cause of
    /// differences there.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub biased: bool,
}
