//! The verdict on a reference case, if the samples permit one.

use serde::Serialize;
use vtax_model::result::Disturbance;

use super::{Found, TruthRecord};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TruthVerdict {
    /// The figure is within the accepted range, and precise enough.
    Holds,
    /// The figure is outside the accepted range, and precise enough.
    DoesNotHold,
    /// The figure is imprecise or wrong, and the load by others may be the cause.
    TooBusy,
    /// The figure is imprecise: the samples differ too much from each other.
    TooNoisy,
}

impl TruthVerdict {
    pub(super) fn of(found: &Found, load: &Disturbance) -> TruthVerdict {
        let Found { measured, interval, accepted: [least, most], .. } = *found;
        let is_within = (least..=most).contains(&measured);
        // An exact count is right or wrong, regardless of the load.
        let is_exact = least == most;
        let is_known = interval.is_none_or(|[low, high]| match is_within {
            // If the interval is wider than the accepted range, the figure is within it only by chance.
            true => high - low <= most - least,
            false => high < least || low > most,
        });
        match (is_within, is_known) {
            (true, true) => TruthVerdict::Holds,
            (false, _) if is_exact => TruthVerdict::DoesNotHold,
            _ if load.is_much() => TruthVerdict::TooBusy,
            (_, false) => TruthVerdict::TooNoisy,
            (false, true) => TruthVerdict::DoesNotHold,
        }
    }

    /// Returns the verdict in words: in capitals unless the case passed.
    pub(crate) fn words(self) -> &'static str {
        match self {
            TruthVerdict::Holds => "passed",
            TruthVerdict::DoesNotHold => "FAILED",
            TruthVerdict::TooBusy | TruthVerdict::TooNoisy => "UNDETERMINED",
        }
    }
}

impl TruthRecord {
    pub(crate) fn holds(&self) -> bool {
        self.verdict == TruthVerdict::Holds
    }

    /// Returns the reason why there is no verdict, and what to do.
    pub(crate) fn why_not_judged(&self) -> Option<String> {
        match self.verdict {
            TruthVerdict::Holds | TruthVerdict::DoesNotHold => None,
            TruthVerdict::TooBusy => {
                let load = vtax_report::load(&self.load);
                Some(format!("the machine was too busy: {load}; calibrate again when it is idle"))
            }
            TruthVerdict::TooNoisy => {
                let what = "the samples differ too much from each other";
                Some(format!("{what}; calibrate again when the machine is less busy"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(measured: f64, interval: Option<[f64; 2]>, accepted: [f64; 2], others: f64) -> TruthVerdict {
        let found =
            Found { unit: "µs", expected: 5.0, measured, interval, accepted, others: None, detail: String::new() };
        TruthVerdict::of(&found, &Disturbance { other_programs: Some(others), ..Disturbance::default() })
    }

    #[test]
    fn a_busy_machine_is_not_a_failure_of_the_tool() {
        let near = [4.5, 5.5];
        assert_eq!(verdict(5.4, Some([5.1, 5.9]), near, 0.5), TruthVerdict::Holds);
        assert_eq!(verdict(5.7, Some([5.6, 5.9]), near, 0.01), TruthVerdict::DoesNotHold);
        assert_eq!(verdict(5.7, Some([5.6, 5.9]), near, 0.06), TruthVerdict::TooBusy);
        assert_eq!(verdict(5.7, Some([5.4, 6.9]), near, 0.01), TruthVerdict::TooNoisy);
        assert_eq!(verdict(5.7, None, near, 0.01), TruthVerdict::DoesNotHold);
    }

    #[test]
    fn no_truth_holds_by_luck() {
        let near = [4.5, 5.5];
        assert_eq!(verdict(5.0, Some([3.0, 7.0]), near, 0.01), TruthVerdict::TooNoisy);
        assert_eq!(verdict(5.0, Some([3.0, 7.0]), near, 0.06), TruthVerdict::TooBusy);
    }

    #[test]
    fn a_count_is_wrong_on_a_busy_machine_too() {
        assert_eq!(verdict(4111.0, None, [4112.0, 4112.0], 0.9), TruthVerdict::DoesNotHold);
    }
}
