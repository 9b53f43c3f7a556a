//! Meaning of the costs of the row that costs most: time added to each transaction, and cores at a round rate.

use vtax_model::{
    metric::{CostUnit, Metric},
    result::{CellRecord, Delta, ResultDocument, TaxRecord},
    workload::TestFamily,
};

use super::{column_unit::ColumnUnit, finding, number::three_digits, record::primary, words};

/// Transactions per second for which cores are stated.
const TRANSACTIONS: f64 = 10_000.0;

/// Returns e.g. `vxlan adds 3.95 µs [3.92, 3.98] to a TCP round trip. At 10 Gb/s over TCP, the endpoints' threads take
/// 0.0512 cores [0.0451, 0.0572] more with vxlan than with native.` `cells` are those of one row. Those of a test that
/// the row has with several options are omitted, because the sentence doesn't name these. `None` if no cost is shown.
pub(crate) fn of_row(document: &ResultDocument, cells: &[&CellRecord]) -> Option<String> {
    let row = cells.first()?.cell.row;
    let test = |record: &CellRecord| (record.cell.kind(), record.cell.medium());
    let is_only = |record: &&&CellRecord| cells.iter().filter(|other| test(other) == test(record)).count() == 1;
    let cells: Vec<&CellRecord> = cells.iter().filter(is_only).copied().collect();
    let times = words::list(cells.iter().filter_map(|record| added_time(record)), " and ");
    let times = times.map(|times| format!("{row} adds {times}."));
    let cores = cells.iter().find_map(|record| cores(document, record));
    words::list(times.into_iter().chain(cores), " ")
}

/// Returns e.g. `3.95 µs [3.92, 3.98] to a TCP round trip`.
fn added_time(record: &CellRecord) -> Option<String> {
    let tax = shown(record, Metric::of(record.cell.kind()))?;
    let delta = tax.delta.filter(|delta| delta.delta > 0.0 && delta.unit == CostUnit::Microseconds)?;
    let figures = [delta.delta, delta.delta_low, delta.delta_high];
    let unit = ColumnUnit::of_costs(tax.of, record.cell.kind(), figures);
    let [value, low, high] = figures.map(|figure| three_digits(unit.value(figure)));
    Some(format!("{value} {} [{low}, {high}] to {}", unit.text(), finding::each(record, tax.of)))
}

/// Returns e.g. `At 10 Gb/s over TCP, the endpoints' threads take 0.0512 cores [0.0451, 0.0572] more with vxlan than with
/// native.` Where the hosts were observed, their time includes that of guests and of processes on the way.
fn cores(document: &ResultDocument, record: &CellRecord) -> Option<String> {
    let shown = |of: Metric, whose: &'static str| Some((shown(record, of)?.delta?, whose));
    let (delta, whose) =
        shown(Metric::HostCpu, "the hosts").or_else(|| shown(Metric::Cpu, "the endpoints' threads"))?;
    let (load, units) = load(record)?;
    let Delta { delta, delta_low, delta_high, .. } = delta;
    let (size, other) = if delta < 0.0 { (-1.0, "less") } else { (1.0, "more") };
    let [one, value, another] = [delta_low, delta, delta_high].map(|cost| three_digits(cost * size * units));
    let [low, high] = if delta < 0.0 { [another, one] } else { [one, another] };
    let (row, baseline) = (record.cell.row, document.baseline);
    Some(format!("At {load}, {whose} take {value} cores [{low}, {high}] {other} with {row} than with {baseline}."))
}

/// Round load of about the size that was measured, with the factor from a cost per unit of work to cores.
fn load(record: &CellRecord) -> Option<(String, f64)> {
    let test = record.cell.kind();
    match test.family() {
        TestFamily::Transactions => {
            let what = finding::subject(record, Metric::of(test));
            Some((format!("10,000 {what} per second"), TRANSACTIONS * 1e-6))
        }
        TestFamily::Streams if !test.is_of_disk() => {
            let bits = 10_f64.powf((primary(record)?.mean * 1e6).log10().floor());
            let (size, unit) = if bits < 1e9 { (bits / 1e6, "Mb/s") } else { (bits / 1e9, "Gb/s") };
            Some((format!("{size} {unit} over {}", finding::medium(record).trim_end()), bits / 8.0 / 1024.0 * 1e-9))
        }
        TestFamily::Streams | TestFamily::Files | TestFamily::Migrations => None,
    }
}

fn shown(record: &CellRecord, of: Metric) -> Option<&TaxRecord> {
    record.tax_of(of).filter(|tax| tax.verdict.is_shown())
}

#[cfg(test)]
mod tests {
    use super::*;
    use vtax_model::workload::TestKind;
    use vtax_synthetic::{analyse, built_in, killed_after};

    fn told(rounds: Option<u32>, wanted: fn(TestKind) -> bool) -> Option<String> {
        let run = built_in("demo");
        let document = analyse(&rounds.map_or(run.clone(), |rounds| killed_after(run, rounds)));
        let last = document.cells.iter().rfind(|record| record.tax.is_some())?.cell;
        let of_last = |record: &&CellRecord| {
            let cell = record.cell;
            (cell.row, cell.column(), cell.instrument) == (last.row, last.column(), last.instrument)
                && wanted(cell.kind())
        };
        of_row(&document, &document.cells.iter().filter(of_last).collect::<Vec<_>>())
    }

    #[test]
    fn a_cost_is_reported_as_a_time_and_as_cores() {
        insta::assert_snapshot!(told(None, |_| true).expect("differences are shown"));
        insta::assert_snapshot!(told(None, TestKind::is_transactions).expect("differences are shown"));
    }

    #[test]
    fn an_unproved_difference_has_no_meaning() {
        assert_eq!(told(Some(3), |_| true), None);
    }
}
