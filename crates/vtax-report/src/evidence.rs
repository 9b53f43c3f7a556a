//! Findings of the store as text, one line each.

use vtax_model::evidence::{EvidenceFinding, EvidenceTax};

use super::{
    column_unit::sized_estimate,
    labels,
    number::{brief_change, brief_interval},
    tax::verdict_against,
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
    sized_estimate(finding.value, ends, finding.metric.figure(finding.cell.kind()).unit())
}

fn change(tax: &EvidenceTax) -> String {
    format!("{} {}", brief_change(tax.ratio), brief_interval(tax.low, tax.high))
}

fn verdict(tax: &EvidenceTax) -> String {
    let EvidenceTax { verdict, baseline, at_most, within_floor, .. } = *tax;
    verdict_against(verdict, Some(baseline), at_most.unwrap_or(f64::INFINITY), within_floor)
}

#[cfg(test)]
mod tests {
    use vtax_model::evidence::findings;

    use super::*;
    use vtax_synthetic::{analyse, built_in};

    #[test]
    fn a_finding_has_a_value_with_its_unit_and_a_verdict_with_its_baseline() {
        let line = |finding: &EvidenceFinding| {
            let FindingWords { test, value, tax, verdict } = FindingWords::of(finding);
            format!("{} | {test} | {} | {value} | {tax} | {verdict}", finding.cell.row, finding.metric.name())
        };
        let lines: Vec<String> = findings(&analyse(&built_in("demo"))).iter().take(12).map(line).collect();
        insta::assert_snapshot!(lines.join("\n"));
    }
}
