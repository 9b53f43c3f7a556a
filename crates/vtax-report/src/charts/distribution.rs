//! Distribution of the times of transactions, from the whole histogram.

use vtax_model::{
    metric::{FigureUnit, Metric},
    result::{CellRecord, DistributionPoint},
};
use vtax_plot::{Distribution, Heading, PercentilePoint, Percentiles, Quantity};

use super::{Drawn, of_block};
use crate::{blocks::BlockCells, column_unit::ColumnUnit, finding, words};

impl Drawn<'_> {
    /// Percentiles of the times at the first MTU. Each line ends where fewer than ten transactions are left. If another
    /// chart states the differences, the title is about the times.
    pub(super) fn distribution(&self, block: &BlockCells<'_>, differs_elsewhere: bool) -> Option<Distribution> {
        let column = *block.columns().first()?;
        let test = block.tests().into_iter().find(|test| test.is_round_trips())?;
        let records = of_block(block, test, column);
        let lines: Vec<(&CellRecord, &[DistributionPoint])> = records
            .into_iter()
            .map(|record| (record, points(record)))
            .filter(|(_, points)| !points.is_empty())
            .collect();
        let unit =
            ColumnUnit::of(FigureUnit::Microseconds, lines.iter().flat_map(|(_, points)| *points).map(|it| it.us));
        let point =
            |of: &DistributionPoint| PercentilePoint { percent: of.percent, value: unit.value(of.us), above: of.above };
        let line = |(record, points): &(&CellRecord, &[DistributionPoint])| Percentiles {
            name: record.cell.row.to_string(),
            points: points.iter().map(point).collect(),
        };
        let measured: Vec<&CellRecord> = lines.iter().map(|(record, _)| *record).collect();
        let difference = if differs_elsewhere { None } else { self.finding(&measured, Metric::P99) };
        let title = difference.or_else(|| finding::slowest(&measured));
        let noun = words::capital(Metric::of(test).noun());
        (!lines.is_empty()).then(|| Distribution {
            heading: Heading::new(
                self.titled(&title.unwrap_or_default(), block, Some(column)),
                format!(
                    "{noun}s by percentile, of all samples together: half of all values are at or below the 50th \
                     percentile, 999 of 1,000 at or below the 99.9th. A line ends where fewer than 10 values are above."
                ),
            ),
            quantity: Quantity::new(noun, unit.text()),
            lines: lines.iter().map(line).collect(),
            slots: self.slots.clone(),
        })
    }
}

/// The percentiles of a cell from 50 % on: below, the lines of different methods are as parallel as there.
fn points(record: &CellRecord) -> &[DistributionPoint] {
    let times = record.summary.as_ref().and_then(|summary| summary.time_us());
    let all = times.map_or(&[][..], |times| &times.distribution);
    &all[all.partition_point(|point| point.percent < 50.0)..]
}
