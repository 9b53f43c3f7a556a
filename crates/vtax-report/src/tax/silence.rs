//! Blocks that show nothing: no difference is shown, and the host's own noise would hide one of some size. They are one
//! line of the report, and a table only in detail.

use vtax_model::{
    analysis::noise,
    metric::Metric,
    result::{CellRecord, FloorRecord, ResultDocument, TaxRecord},
    workload::TestKind,
};

use super::{Costs, Spot, floor, is_wide, of_spot};
use crate::{blocks::grouped, number::bound, words};

/// Noise floor from which a block without a shown difference shows nothing: a fifth more time, or less bandwidth.
const HIDING: f64 = 0.2;

impl Costs<'_> {
    /// Returns `true` if a block at an MTU shows nothing about a test.
    pub(super) fn is_silent(&self, spot: &Spot<'_>, test: TestKind, of: Metric) -> bool {
        let whole = self.options.detail || self.published;
        let taxes: Vec<&TaxRecord> = of_spot(spot, test).into_iter().filter_map(|record| record.tax_of(of)).collect();
        let quiet = !taxes.is_empty() && taxes.iter().all(|tax| !tax.verdict.is_shown());
        !whole && quiet && hiding(self.document, spot, test, of).is_some()
    }

    /// Returns e.g. `RTT (TCP, MTU 1500): no difference shown; native differs from itself by up to 73 % [2] (table:
    /// --detail)`. `None` without blocks.
    pub(super) fn of_silent(&mut self, spots: &[Spot<'_>], test: TestKind, of: Metric) -> Option<String> {
        let floors = spots.iter().filter_map(|spot| hiding(self.document, spot, test, of));
        let widest = floors.max_by(|one, other| one.floor.total_cmp(&other.floor))?;
        let noise = match is_wide(widest) {
            true => "a factor of two or more".to_owned(),
            false => format!("up to {}", bound(widest.floor)),
        };
        let records: Vec<&CellRecord> = spots.iter().flat_map(|spot| of_spot(spot, test)).collect();
        let places = spots.iter().map(|(block, column)| words::joined([block.title(), column.label()], ", "));
        let mark = self.cause(&records).map_or_else(String::new, |cause| format!(" {}", self.notes.mark(cause)));
        let line = format!(
            "{} ({}): no difference shown; {} differs from itself by {noise}{mark} (table: --detail)",
            of.name_of(test),
            words::joined(places, "; "),
            self.document.baseline,
        );
        Some(words::joined([line, self.unavailable_rows(&records)], "; "))
    }

    /// Causes of the noise that these cells show, one for each remedy.
    fn cause(&self, records: &[&CellRecord]) -> Option<String> {
        let causes = records.iter().flat_map(|record| noise::causes(self.document, record));
        let by_remedy = grouped(causes.map(|cause| (cause.remedy(), cause.why())));
        let told = by_remedy.into_iter().map(|(remedy, why)| format!("{} ({remedy})", why[0]));
        words::list(told, "; ").map(|causes| format!("noise: {causes}"))
    }

    /// Returns unavailable rows that no note mentions yet, e.g. `ipvlan not available [1]`.
    fn unavailable_rows(&mut self, records: &[&CellRecord]) -> String {
        let mut told = Vec::new();
        for record in records.iter().filter(|record| record.is_unavailable()) {
            let before = self.notes.count();
            let mark = self.notes.of_record(record);
            if self.notes.count() > before {
                told.push(format!("{} not available {mark}", record.cell.row));
                self.told.push(record.cell.row);
            }
        }
        told.join(", ")
    }
}

/// Noise floor of a block if it hides differences of some size.
fn hiding<'a>(
    document: &'a ResultDocument,
    (block, column): &Spot<'_>,
    test: TestKind,
    of: Metric,
) -> Option<&'a FloorRecord> {
    let baseline = block.cell(document.baseline, *column, test)?;
    floor(document, &baseline.cell.block(), of).filter(|floor| is_wide(floor) || floor.floor >= HIDING)
}
