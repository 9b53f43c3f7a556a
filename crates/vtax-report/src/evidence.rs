//! Findings of the store as text, one line each.

use vtax_model::evidence::{EvidenceFinding, EvidenceTax};
use vtax_stats::Verdict;

use super::{
    column_unit::ColumnUnit,
    labels,
    number::{bound, brief_change, brief_interval, with_interval},
    words,
};

/// Finding in the words of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FindingWords {
    /// Test with its sizes, e.g. `TCP RR, 1 B, 4 streams`.
    pub test: String,
    /// Value with unit and interval, e.g. `27.5 µs [27.1, 28.0]`.
    pub value: String,
    /// Difference from the baseline with its interval; empty for the baseline itself.
    pub tax: String,
    /// Verdict with the baseline; empty for the baseline itself.
    pub verdict: String,
}

impl FindingWords {
    pub fn of(finding: &EvidenceFinding) -> FindingWords {
        FindingWords {
            test: test(finding),
            value: value(finding),
            tax: finding.tax.map_or_else(String::new, |tax| change(&tax)),
            verdict: finding.tax.map_or_else(String::new, |tax| verdict(&tax)),
        }
    }
}

fn test(finding: &EvidenceFinding) -> String {
    let cell = &finding.cell;
    let size = Some(labels::size(cell)).filter(|size| !size.is_empty());
    let parallel = (cell.parallel() != 1).then(|| cell.medium().counted(cell.parallel()));
    let together = (finding.setting.together != 1).then(|| format!("{} pairs", finding.setting.together));
    let mode = (cell.instrument != Default::default()).then(|| words::of_instrument(cell.instrument).to_owned());
    words::joined([Some(labels::test(cell)), size, parallel, together, mode].into_iter().flatten(), ", ")
}

fn value(finding: &EvidenceFinding) -> String {
    let ends = finding.low.zip(finding.high).map(<[f64; 2]>::from);
    let unit = ColumnUnit::of_metric(finding.metric, finding.cell.kind(), [finding.value]);
    let ends = ends.map(|ends| ends.map(|end| unit.value(end)));
    format!("{} {}", with_interval(unit.value(finding.value), ends), unit.text())
}

fn change(tax: &EvidenceTax) -> String {
    format!("{} {}", brief_change(tax.ratio), brief_interval(tax.low, tax.high))
}

fn verdict(tax: &EvidenceTax) -> String {
    let words = match tax.verdict {
        Verdict::Slower => format!("slower than {}", tax.baseline),
        Verdict::Faster => format!("faster than {}", tax.baseline),
        Verdict::NotConfirmed => "not significant".into(),
        Verdict::NoneLarger => tax.at_most.map_or("none larger".into(), |share| format!("≤ {} worse", bound(share))),
        Verdict::TooNoisy => "too noisy".into(),
        Verdict::NoneShown => "no difference shown".into(),
    };
    if tax.within_floor { format!("{words}, within noise") } else { words }
}
