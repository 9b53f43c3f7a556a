//! Findings as sentences: the titles of charts. They agree with the verdicts, and claim no more.

pub(crate) mod percentiles;

use vtax_model::{
    cell::Medium,
    metric::{CostUnit, FigureUnit, Metric, MetricFamily, SampleFigure},
    result::{CellRecord, ResultDocument, TaxRecord},
    study::Row,
    workload::{TestKind, WorkUnit},
};
use vtax_stats::Verdict;

use super::{
    blocks::{distinct, rows_head},
    column_unit::sized,
    number::{counted, percent, three_digits},
    record::primary,
    words,
};

/// Cells and their costs by one metric, in one chart.
pub(crate) type ComparedCells<'a> = [(&'a CellRecord, &'a TaxRecord)];

/// Returns e.g. `vxlan adds 6.8 µs to a TCP round trip, the most of 5 methods`. `None` if nothing was compared.
pub(crate) fn title(document: &ResultDocument, compared: &ComparedCells<'_>) -> Option<String> {
    let (record, tax) = compared.first()?;
    let of_one = || distinct(compared.iter().map(|(record, _)| record.cell.kind())).len() == 1;
    let subject = if of_one() { format!(" in {}", subject(record, tax.of)) } else { String::new() };
    let baseline = reference(document, compared.iter().map(|(record, _)| *record));
    let title = match largest(compared) {
        Some((record, tax)) => {
            let noise = if tax.within_floor { ", within noise" } else { "" };
            format!("{} {}{}{noise}", record.cell.row, effect(record, tax), among(tax, compared))
        }
        None if compared.iter().all(|(_, tax)| tax.verdict == Verdict::TooNoisy) => {
            format!("Too noisy to tell a difference from {baseline}{subject}")
        }
        None if compared.iter().any(|(_, tax)| tax.verdict == Verdict::NotConfirmed) => {
            format!("No significant difference from {baseline}{subject}")
        }
        None => format!("No difference from {baseline} shown{subject}"),
    };
    Some(title)
}

/// Returns the name of the row that these are compared with.
pub(crate) fn reference<'a>(document: &ResultDocument, records: impl IntoIterator<Item = &'a CellRecord>) -> String {
    let own = |record: &CellRecord| record.cell.row.reference(document.baseline) == document.baseline;
    if records.into_iter().all(own) { document.baseline.to_string() } else { "the reference".to_owned() }
}

/// Returns the finding of a whole run, e.g. `vxlan costs most: it adds 6.8 µs to a TCP round trip`. The effect is the
/// first one of the row that costs most.
pub(crate) fn of_run(document: &ResultDocument, compared: &ComparedCells<'_>) -> String {
    let worst = largest(compared).filter(|(_, tax)| cost(tax) > 1.0 && rows(compared) > 1);
    let row = worst.map(|(record, _)| record.cell.row);
    let is_cost = |(record, tax): &&(&CellRecord, &TaxRecord)| {
        Some(record.cell.row) == row && tax.verdict.is_shown() && cost(tax) > 1.0
    };
    match compared.iter().find(is_cost) {
        Some((record, tax)) => format!("{} costs most: it {}", record.cell.row, effect(record, tax)),
        None => title(document, compared).unwrap_or_default(),
    }
}

/// Returns the levels of the baseline and of the row that costs most, e.g. `A TCP round trip takes 31.4 µs with native,
/// 65.1 µs with vxlan`. `None` without a baseline.
pub(crate) fn levels(document: &ResultDocument, records: &[&CellRecord], test: TestKind) -> Option<String> {
    let of = Metric::of(test);
    let (baseline, other) = ends(document, records, of)?;
    let level = |record: &CellRecord| {
        let level = sized(primary(record)?.mean, of.figure(test).unit());
        Some(format!("{level} with {}", record.cell.row))
    };
    let what = match is_time(of, test) {
        true => format!("{} takes", words::capital(&each(baseline, of))),
        false => format!("{} is", words::capital(&subject(baseline, of))),
    };
    let own = level(baseline)?;
    match other {
        Some(other) => Some(format!("{what} {own}, {}", level(other)?)),
        None => Some(format!("{what} {own}")),
    }
}

/// Returns another figure of the same cells, e.g. `native-disk reaches 150000 I/Os/s, ide 44300`.
pub(crate) fn reached(
    document: &ResultDocument,
    records: &[&CellRecord],
    test: TestKind,
    (figure, head): (SampleFigure, &str),
) -> Option<String> {
    let (baseline, other) = ends(document, records, Metric::of(test))?;
    let level = |record: &CellRecord| Some(three_digits(record.summary.as_ref()?.estimate(figure)?.mean));
    let own = format!("{} reaches {} {head}", baseline.cell.row, level(baseline)?);
    match other {
        Some(other) => Some(format!("{own}, {} {}", other.cell.row, level(other)?)),
        None => Some(own),
    }
}

/// The baseline, and the row with the largest shown cost.
fn ends<'a>(
    document: &ResultDocument,
    records: &[&'a CellRecord],
    of: Metric,
) -> Option<(&'a CellRecord, Option<&'a CellRecord>)> {
    let baseline = records.iter().copied().find(|record| record.cell.row == document.baseline)?;
    let compared: Vec<(&CellRecord, &TaxRecord)> =
        records.iter().filter_map(|record| Some((*record, record.tax_of(of)?))).collect();
    Some((baseline, largest(&compared).map(|(record, _)| record)))
}

/// Returns the highest 99th percentile in words where nothing is compared, e.g. `99 % of TCP round trips take at most
/// 44.6 µs`.
pub(crate) fn slowest(records: &[&CellRecord]) -> Option<String> {
    let p99 = |record: &CellRecord| Some(record.summary.as_ref()?.times()?.p99.value);
    let slowest = records.iter().filter_map(|record| p99(record)).fold(0.0, f64::max);
    let record = records.first()?;
    let what = subject(record, Metric::of(record.cell.kind()));
    Some(format!("99 % of {what} take at most {}", sized(slowest, FigureUnit::Microseconds)))
}

/// The largest shown cost, or the largest gain if no cost is shown.
fn largest<'a>(compared: &ComparedCells<'a>) -> Option<(&'a CellRecord, &'a TaxRecord)> {
    let shown = || compared.iter().filter(|(_, tax)| tax.verdict.is_shown());
    let worst = shown().max_by(|(_, one), (_, other)| cost(one).total_cmp(&cost(other)));
    let best = || shown().min_by(|(_, one), (_, other)| cost(one).total_cmp(&cost(other)));
    worst.filter(|(_, tax)| cost(tax) > 1.0).or_else(best).copied()
}

fn cost(tax: &TaxRecord) -> f64 {
    tax.of.cost_ratio(tax.ratio)
}

fn rows(compared: &ComparedCells<'_>) -> usize {
    distinct(compared.iter().map(|(record, _)| record.cell.row)).len()
}

/// Returns e.g. `, the most of 5 methods` if others were compared too.
fn among(tax: &TaxRecord, compared: &ComparedCells<'_>) -> String {
    let all: Vec<Row> = distinct(compared.iter().map(|(record, _)| record.cell.row));
    match all.len() > 1 && cost(tax) > 1.0 {
        true => format!(", the most of {}", rows_counted(&all)),
        false => String::new(),
    }
}

/// Returns e.g. `5 methods` or `1 disk`.
pub(crate) fn rows_counted(rows: &[Row]) -> String {
    counted(rows.len() as u32, rows_head(rows).trim_end_matches('s'))
}

/// Returns e.g. `adds 6.8 µs to a TCP round trip` or `costs 52 % of TCP bandwidth`.
fn effect(record: &CellRecord, tax: &TaxRecord) -> String {
    let change = percent((tax.ratio - 1.0).abs());
    let more = tax.ratio > 1.0;
    match (tax.of.family(), is_time(tax.of, record.cell.kind())) {
        (MetricFamily::Cpu | MetricFamily::HostCpu | MetricFamily::HostCpuParts, _) => {
            format!("takes {change} {} {}", if more { "more" } else { "less" }, subject(record, tax.of))
        }
        (_, true) => {
            let size = tax.delta.map_or(change, |delta| sized(delta.delta.abs(), unit(delta.unit)));
            let each = each(record, tax.of);
            if more { format!("adds {size} to {each}") } else { format!("takes {size} off {each}") }
        }
        (_, false) if more => format!("adds {change} to {}", subject(record, tax.of)),
        (_, false) => format!("costs {change} of {}", subject(record, tax.of)),
    }
}

fn is_time(of: Metric, test: TestKind) -> bool {
    of.cost_ratio(2.0) > 1.0 && of.cost_unit(test) != CostUnit::NanosecondsPerKb
}

fn unit(unit: CostUnit) -> FigureUnit {
    match unit {
        CostUnit::Microseconds => FigureUnit::Microseconds,
        CostUnit::Milliseconds => FigureUnit::Milliseconds,
        CostUnit::NanosecondsPerKb => FigureUnit::NanosecondsPerKb,
        CostUnit::Seconds => FigureUnit::Seconds,
    }
}

/// Returns the singular of what a test measures, e.g. `a TCP round trip` or `the p99 of a TCP round trip`.
pub(crate) fn each(record: &CellRecord, of: Metric) -> String {
    let medium = medium(record);
    let one = match record.cell.kind() {
        TestKind::Rr => format!("a {medium}round trip"),
        TestKind::Crr => format!("a {medium}connection with a request"),
        TestKind::Cc => format!("a {medium}connection"),
        TestKind::Random => "a random I/O".to_owned(),
        TestKind::File => "a file transfer".to_owned(),
        TestKind::Migration if of == Metric::Migrate => "a migration".to_owned(),
        TestKind::Migration => "the suspension of a guest".to_owned(),
        other => format!("a {medium}{other}"),
    };
    if of.percentile().is_some() { format!("the {} of {one}", of.noun()) } else { one }
}

/// Returns the plural of what a test measures, e.g. `TCP round trips` or `TCP bandwidth`.
pub(crate) fn subject(record: &CellRecord, of: Metric) -> String {
    let test = record.cell.kind();
    let medium = medium(record);
    let all = match test {
        TestKind::Rr => format!("{medium}round trips"),
        TestKind::Crr => format!("{medium}connections with a request"),
        TestKind::Cc => format!("{medium}connections"),
        TestKind::Random => "random I/Os".to_owned(),
        TestKind::File => "file transfers".to_owned(),
        TestKind::Sequential => "disk bandwidth".to_owned(),
        TestKind::Migration if of == Metric::Migrate => "migrations".to_owned(),
        TestKind::Migration => "suspend times".to_owned(),
        _ => format!("{medium}{}", test.quantity().full.to_lowercase()),
    };
    match of.family() {
        MetricFamily::Cpu | MetricFamily::HostCpu | MetricFamily::HostCpuParts => {
            let per = match test.work_unit() {
                WorkUnit::Transaction => "transaction",
                WorkUnit::Kilobyte => "KB",
            };
            let over = if medium.is_empty() { String::new() } else { format!(" over {}", medium.trim_end()) };
            format!("{} time per {per}{over}", of.noun())
        }
        _ if of.percentile().is_some() => format!("the {} of {all}", of.noun()),
        _ => all,
    }
}

/// Returns the transport with a trailing space; disks have none.
pub(crate) fn medium(record: &CellRecord) -> String {
    match record.cell.medium() {
        Medium::Net(transport) => format!("{transport} "),
        Medium::Disk | Medium::Memory => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charts;
    use vtax_synthetic::{analyse, built_in, killed_after};

    fn titles(document: &ResultDocument) -> Vec<String> {
        charts(document).iter().map(|chart| chart.heading().title.clone()).collect()
    }

    #[test]
    fn a_title_states_the_finding() {
        insta::assert_snapshot!(titles(&analyse(&built_in("demo"))).join("\n"));
    }

    /// Three rounds are too few for a significant difference, whatever the figures are.
    #[test]
    fn a_title_claims_no_more_than_the_verdicts() {
        let quiet = titles(&analyse(&killed_after(built_in("demo"), 3)));
        let none = quiet.iter().filter(|title| title.starts_with("No significant difference from native"));
        assert!(none.count() > 4, "{quiet:?}");
        let claims = [" adds ", " costs ", " more ", "with vxlan"];
        assert!(!quiet.iter().any(|title| claims.iter().any(|claim| title.contains(claim))), "{quiet:?}");
    }

    #[test]
    fn no_title_is_of_two_charts_of_a_run() {
        for id in ["demo", "sparc-t7-1"] {
            let mut all = titles(&analyse(&built_in(id)));
            all.sort();
            assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "{all:?}");
        }
    }
}
