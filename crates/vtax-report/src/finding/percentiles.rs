//! Findings on percentiles: whether a method moves all transactions or only the slow ones.

use vtax_model::{
    metric::Metric,
    result::{CellRecord, TaxRecord},
};
use vtax_stats::Verdict;

use super::{each, largest, sized, unit};
use crate::words;

/// Judged percentiles with their names. The last one is named only if no other is shown: few runs are long enough for
/// it.
const JUDGED: [(Metric, &str); 3] = [(Metric::P50, "the median"), (Metric::P99, "p99"), (Metric::P999, "p99.9")];

/// Returns the differences of the row that costs most, e.g. `vxlan adds 3.87 µs to a TCP round trip at the median and
/// 6.72 µs at p99`. `None` if no difference of a percentile is shown.
pub(crate) fn title(records: &[&CellRecord]) -> Option<String> {
    let record = JUDGED.into_iter().find_map(|(of, _)| largest_by(records, of))?;
    let judged = JUDGED.into_iter().filter_map(|(of, name)| Some((record.tax_of(of)?, name)));
    let judged: Vec<(&TaxRecord, &str)> = judged.collect();
    let (mut shown, others): (Vec<_>, Vec<_>) = judged.into_iter().partition(|(tax, _)| tax.verdict.is_shown());
    let is_first = |(tax, _): &(&TaxRecord, &str)| tax.of != Metric::P999;
    if shown.iter().any(is_first) {
        shown.retain(is_first);
    }
    let noise = if shown.iter().any(|(tax, _)| tax.within_floor) { ", within noise" } else { "" };
    let without = others.iter().filter(|other| is_first(other)).map(|(tax, name)| format!("{} at {name}", absent(tax)));
    let without = words::list(without, ", ").map_or(String::new(), |without| format!("; {without}"));
    Some(format!("{} {}{noise}{without}", record.cell.row, effects(record, &shown)))
}

fn largest_by<'a>(records: &[&'a CellRecord], of: Metric) -> Option<&'a CellRecord> {
    let compared = records.iter().filter_map(|record| Some((*record, record.tax_of(of)?)));
    largest(&compared.collect::<Vec<_>>()).map(|(record, _)| record)
}

/// Returns e.g. `adds 3.87 µs to a TCP round trip at the median and 6.72 µs at p99`.
fn effects(record: &CellRecord, shown: &[(&TaxRecord, &str)]) -> String {
    let what = each(record, Metric::of(record.cell.kind()));
    let mut before: Option<bool> = None;
    let effect = |(tax, name): &(&TaxRecord, &str)| {
        let delta = tax.delta?;
        let (size, more) = (sized(delta.delta.abs(), unit(delta.unit)), delta.delta > 0.0);
        let text = match (before.replace(more), more) {
            (None, true) => format!("adds {size} to {what} at {name}"),
            (None, false) => format!("takes {size} off {what} at {name}"),
            (Some(before), _) if before == more => format!("{size} at {name}"),
            (Some(_), true) => format!("adds {size} at {name}"),
            (Some(_), false) => format!("takes {size} off it at {name}"),
        };
        Some(text)
    };
    shown.iter().filter_map(effect).collect::<Vec<_>>().join(" and ")
}

fn absent(tax: &TaxRecord) -> &'static str {
    match tax.verdict {
        Verdict::TooNoisy => "too noisy to tell",
        Verdict::NotConfirmed => "no significant difference",
        _ => "no difference shown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vtax_model::{result::ResultDocument, workload::TestKind};
    use vtax_synthetic::{analyse, built_in, killed_after};

    fn told(document: &ResultDocument, change: impl Fn(&mut TaxRecord)) -> Option<String> {
        let mut document = document.clone();
        document.cells.iter_mut().flat_map(|record| &mut record.taxes).for_each(change);
        let first = document.cells.iter().find(|record| record.cell.kind() == TestKind::Rr)?.cell.block();
        title(&document.cells.iter().filter(|record| record.cell.block() == first).collect::<Vec<_>>())
    }

    fn judge(of: Metric, verdict: Verdict) -> impl Fn(&mut TaxRecord) {
        move |tax| {
            if tax.of == of {
                tax.verdict = verdict;
            }
        }
    }

    #[test]
    fn a_title_names_the_median_and_the_tail() {
        let document = analyse(&built_in("demo"));
        let texts = [
            told(&document, |_| ()),
            told(&document, judge(Metric::P99, Verdict::NotConfirmed)),
            told(&document, judge(Metric::P50, Verdict::NoneShown)),
            told(&document, |tax| {
                if let Some(delta) = tax.delta.as_mut().filter(|_| tax.of == Metric::P99) {
                    delta.delta = -delta.delta;
                }
            }),
        ];
        insta::assert_snapshot!(texts.map(|text| text.expect("a difference is shown")).join("\n"));
    }

    #[test]
    fn no_title_without_a_shown_difference() {
        assert_eq!(told(&analyse(&killed_after(built_in("demo"), 3)), |_| ()), None);
    }
}
