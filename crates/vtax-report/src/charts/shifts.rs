//! Differences of percentiles from the baseline's: whether a method moves all transactions or only the slow ones.

use vtax_model::{
    metric::{FigureUnit, Metric},
    result::{CellRecord, QuantileShift},
};
use vtax_plot::{ChartLine, ChartPoint, Heading, Measured, Quantity, Reach, Shifts};

use super::{DRAWN, Drawn, of_block};
use crate::{blocks::BlockCells, column_unit::ColumnUnit, finding, words};

impl Drawn<'_> {
    /// Differences of the percentiles at the first MTU. `None` if no difference of a percentile is shown: the chart
    /// would consist of noise.
    pub(super) fn shifts(&self, block: &BlockCells<'_>) -> Option<Shifts> {
        let column = *block.columns().first()?;
        let test = block.tests().into_iter().find(|test| test.is_round_trips())?;
        let mut records = of_block(block, test, column);
        records.retain(|record| !record.shifts.is_empty());
        let title = finding::percentiles::title(&records)?;
        let figures = || records.iter().flat_map(|record| &record.shifts).map(|shift| shift.delta.delta);
        let unit = ColumnUnit::of(FigureUnit::Microseconds, figures());
        let farthest = DRAWN * figures().map(f64::abs).fold(0.0, f64::max);
        let limit = Reach { low: -farthest, high: farthest };
        let point = |shift: &QuantileShift| {
            let delta = shift.delta;
            let measured = Measured::between(delta.delta, delta.delta_low, delta.delta_high).drawn_within(limit);
            ChartPoint { at: shift.percent, measured: measured.times(unit.value(1.0)) }
        };
        let line = |record: &&CellRecord| ChartLine {
            name: record.cell.row.to_string(),
            points: record.shifts.iter().map(point).collect(),
        };
        let noun = words::capital(Metric::of(test).noun());
        let baseline = finding::reference(self.document, records.iter().copied());
        Some(Shifts {
            heading: Heading::new(
                self.titled(&title, block, Some(column)),
                format!(
                    "{noun}s by percentile: difference from the same percentile of {baseline} in the same round, each with \
                     its own 95 % interval. A line that rises to the right: slow {}s cost more than fast ones. Percentiles \
                     for which samples are too short are omitted.",
                    Metric::of(test).noun()
                ),
            ),
            quantity: Quantity::new(format!("Difference from {baseline}"), unit.text()),
            lines: records.iter().map(line).collect(),
            slots: self.slots.clone(),
        })
    }
}
