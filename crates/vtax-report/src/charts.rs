//! Charts of a run: cost of each row, figures next to published ones, distribution of round trips, bandwidth against
//! CPU time, rate over time, and host CPU time.

mod threads;

use vtax_model::{
    cell::ColumnKey,
    metric::{FigureUnit, Metric},
    result::{CellRecord, Estimate, ResultDocument, TaxRecord},
    workload::TestKind,
};
use vtax_plot::{
    Bar, Bars, Chart, ChartLine, ChartPoint, Differences, Distribution, Effect, Heading, Judgement, Measured,
    Percentiles, Quantity, Reach, Scatter, ScatterPoint, TimeSeries,
};
use vtax_stats::Verdict;

use super::{
    answer::column_that_tells_all,
    blocks::{BlockCells, Reported, distinct},
    column_unit::ColumnUnit,
    host_cpu, labels,
    record::{estimate, primary},
    series, tax, words,
};

/// Maximum number of charts of a kind, and of groups of bars, that a reader can take in. The tables have all figures.
const MOST: usize = 8;

/// An interval is drawn from this part of its figure up to this multiple of it: that of two rounds may extend a
/// thousand times further.
pub(crate) const DRAWN: f64 = 4.0;

/// Returns all charts of a run, the answer's first.
pub(crate) fn charts(report: &Reported<'_>) -> Vec<Chart> {
    let mut charts = by_mode(report, |drawn| drawn.charts());
    charts.extend(over_time(report.document).map(Chart::from));
    charts.extend(host_cpu::chart(report.document).map(Chart::from));
    charts
}

/// Returns the cost of each row, also for pages that draw it over the number of threads.
pub(crate) fn differences(report: &Reported<'_>) -> Vec<Differences> {
    by_mode(report, |drawn| drawn.all_differences(|_, _| true))
}

fn by_mode<T>(report: &Reported<'_>, of: impl Fn(&Drawn<'_>) -> Vec<T>) -> Vec<T> {
    let modes = report.modes();
    let several = modes.len() > 1;
    let drawn = modes.iter().flat_map(|(mode, blocks)| {
        let instrument = if several { words::of_instrument(*mode) } else { "" };
        of(&Drawn { document: report.document, blocks, instrument })
    });
    drawn.collect()
}

/// Cells of one measurement mode.
struct Drawn<'a> {
    document: &'a ResultDocument,
    blocks: &'a [&'a BlockCells<'a>],
    /// Name of the mode; empty if there is only one.
    instrument: &'static str,
}

impl Drawn<'_> {
    fn charts(&self) -> Vec<Chart> {
        let tests = self.tests();
        let several = |block: &BlockCells<'_>, test: TestKind| tax::threads::has_several(block, test);
        let keys = tests.iter().flat_map(|test| self.blocks.iter().map(move |block| (*block, *test)));
        let by_threads = keys.filter(|(block, test)| several(block, *test));
        let by_threads = by_threads.flat_map(|(block, test)| self.by_threads(block, test)).take(MOST);
        let differences = self.all_differences(|block, test| !several(block, test)).into_iter();
        let bars = tests.iter().filter_map(|test| self.bars(*test));
        let distributions = self.blocks.iter().filter_map(|block| self.distribution(block));
        let against_cpu = self.blocks.iter().filter_map(|block| self.against_cpu(block));
        let charts = by_threads.map(Chart::from).chain(differences.map(Chart::from)).chain(bars.map(Chart::from));
        let charts = charts.chain(distributions.take(MOST / 2).map(Chart::from));
        charts.chain(against_cpu.take(MOST / 2).map(Chart::from)).collect()
    }

    fn tests(&self) -> Vec<TestKind> {
        distinct(self.blocks.iter().flat_map(|block| block.tests()))
    }

    fn all_differences(&self, wanted: impl Fn(&BlockCells<'_>, TestKind) -> bool) -> Vec<Differences> {
        let only = column_that_tells_all(self.document, self.blocks);
        let mut differences = Vec::new();
        for test in self.tests() {
            for block in self.blocks.iter().filter(|block| block.tests().contains(&test) && wanted(block, test)) {
                let columns = block.columns().into_iter().filter(|column| only.is_none_or(|only| only == *column));
                differences.extend(columns.map(|column| (*block, test, column)));
            }
        }
        let drawn = differences.into_iter().filter_map(|(block, test, column)| self.differences(block, test, column));
        drawn.take(MOST).collect()
    }

    /// Returns e.g. `RTT, TCP, MTU 1500 (host settings)`.
    fn title(&self, parts: &[&str]) -> String {
        let title = words::joined(parts.iter().map(|part| (*part).to_owned()), ", ");
        if self.instrument.is_empty() { title } else { format!("{title} ({})", self.instrument) }
    }

    /// Returns `None` if nothing was compared.
    fn differences(&self, block: &BlockCells<'_>, test: TestKind, column: ColumnKey) -> Option<Differences> {
        let of = Metric::of(test);
        let records: Vec<&CellRecord> = of_block(block, test, column);
        let rows: Vec<Effect> = records.iter().filter_map(|record| effect(record, record.tax_of(of)?)).collect();
        let floor = tax::floor(self.document, &records.first()?.cell.block(), of);
        let baseline = self.document.baseline;
        let at = column.label();
        let title = self.title(&[test.quantity().full, &block.title(), &at]);
        let summary =
            format!("Cost of each row compared with {baseline}, with its 95 % interval; the band is the noise floor.");
        (!rows.is_empty()).then(|| Differences {
            heading: Heading::new(format!("{title}: tax"), summary),
            quantity: Quantity::new(format!("{} compared with {baseline}", test.quantity().short), "%"),
            rows,
            noise: floor.map(|floor| Reach { low: -floor.floor * 100.0, high: floor.floor * 100.0 }),
        })
    }

    /// Returns the figures next to the published ones. If the two machines are far apart, each figure is drawn as a
    /// multiple of the baseline on its own machine: side by side, one of the two would not be visible.
    fn bars(&self, test: TestKind) -> Option<Bars> {
        let relative = self.is_far_from_published(test);
        let unit = self.unit(test);
        let mut bars = Vec::new();
        let columns = distinct(self.blocks.iter().flat_map(|block| block.columns())).len();
        for block in self.blocks.iter().filter(|block| !tax::threads::has_several(block, test)) {
            for column in block.columns() {
                let group = if columns > 1 { format!("{}, {}", block.title(), column.label()) } else { block.title() };
                let records = of_block(block, test, column);
                let baseline = records.iter().copied().find(|record| record.cell.row == self.document.baseline);
                let bar = |record: &CellRecord| {
                    let (measured, published) = match relative {
                        true => against(record, baseline?, test)?,
                        false => {
                            let published = record.published.map(|published| unit.value(published));
                            (measured(&unit.converted(primary(record)?)), published)
                        }
                    };
                    Some(Bar { published, ..Bar::new(group.clone(), record.cell.row.to_string(), measured) })
                };
                bars.extend(records.into_iter().filter_map(bar));
            }
        }
        let rows = distinct(bars.iter().map(|bar| &bar.series)).len();
        let groups = distinct(bars.iter().map(|bar| &bar.group)).len();
        let has_published = bars.iter().any(|bar| bar.published.is_some());
        (rows > 1 && groups <= MOST).then(|| Bars {
            heading: self.heading_of_bars(test, relative, has_published),
            quantity: match relative {
                true => {
                    Quantity::new(format!("{} as a multiple of {}", test.quantity().full, self.document.baseline), "")
                }
                false => Quantity::new(test.quantity().full, unit.text()),
            },
            groups: "Test".into(),
            bars,
            noise: None,
        })
    }

    /// Unit of our figures of a test and the published ones.
    fn unit(&self, test: TestKind) -> ColumnUnit {
        let records = || {
            let all = self.blocks.iter().flat_map(|block| block.records());
            all.filter(|record| record.cell.kind() == test)
        };
        let ours = records().filter_map(|record| Some(primary(record)?.mean));
        ColumnUnit::of_metric(Metric::of(test), test, ours.chain(records().filter_map(|record| record.published)))
    }

    fn heading_of_bars(&self, test: TestKind, relative: bool, has_published: bool) -> Heading {
        let name = test.quantity().full;
        let baseline = self.document.baseline;
        let beside = if has_published { " next to the published figure" } else { "" };
        match relative {
            false => Heading::new(self.title(&[name]), format!("Mean of each row with its 95 % interval{beside}.")),
            true => Heading::new(
                self.title(&[&format!("{name} against {baseline}")]),
                format!(
                    "Each row as a multiple of {baseline} on the same machine, with its 95 % interval{beside}. The two \
                     machines are far apart, so their absolute figures are in the tables only."
                ),
            ),
        }
    }

    /// Returns `true` if a figure is more than ten times the published one, or less than a tenth of it.
    fn is_far_from_published(&self, test: TestKind) -> bool {
        const FAR: f64 = 10.0;
        let records = self.blocks.iter().flat_map(|block| {
            block.columns().into_iter().flat_map(|column| of_block(block, test, column)).collect::<Vec<_>>()
        });
        let mut ratios = records.filter_map(|record| Some(primary(record)?.mean / record.published?));
        ratios.any(|ratio| !(1.0 / FAR..=FAR).contains(&ratio))
    }

    /// Percentiles of the round trips at the first MTU.
    fn distribution(&self, block: &BlockCells<'_>) -> Option<Distribution> {
        let column = *block.columns().first()?;
        let points = |record: &CellRecord| {
            let times = record.summary.as_ref()?.times()?;
            let points = [(50.0, times.p50), (99.0, times.p99), (99.9, times.p999)];
            Some(points.map(|(percent, figure)| (percent, figure.value)))
        };
        let test = block.tests().into_iter().find(|test| test.is_round_trips())?;
        let records = of_block(block, test, column);
        let lines: Vec<(&CellRecord, [(f64, f64); 3])> =
            records.into_iter().filter_map(|record| Some((record, points(record)?))).collect();
        let times = lines.iter().flat_map(|(_, points)| points.map(|(_, time)| time));
        let unit = ColumnUnit::of(FigureUnit::Microseconds, times);
        let line = |(record, points): &(&CellRecord, [(f64, f64); 3])| {
            let points = points.map(|(percent, time)| (percent, unit.value(time))).to_vec();
            Percentiles { name: record.cell.row.to_string(), points }
        };
        let at = column.label();
        let times = format!("{}s", words::capital(Metric::of(test).noun()));
        (!lines.is_empty()).then(|| Distribution {
            heading: Heading::new(
                self.title(&[&format!("{times} by percentile"), &block.title(), &at]),
                "Half of all values are at or below the 50th percentile, 999 of 1,000 at or below the 99.9th.",
            ),
            quantity: Quantity::new(words::capital(Metric::of(test).noun()), unit.text()),
            lines: lines.iter().map(line).collect(),
        })
    }

    /// Bandwidth of each row against the CPU time that it takes.
    fn against_cpu(&self, block: &BlockCells<'_>) -> Option<Scatter> {
        let column = *block.columns().first()?;
        let test = block.tests().into_iter().find(|test| test.is_stream() && test.is_plain())?;
        let both = |record: &&CellRecord| Some([primary(record)?, estimate(record, Metric::Cpu)?]);
        let records = of_block(block, test, column);
        let unit = |of: Metric, axis: usize| {
            ColumnUnit::of_metric(of, test, records.iter().filter_map(both).map(|figures| figures[axis].mean))
        };
        let units = [unit(Metric::of(test), 0), unit(Metric::Cpu, 1)];
        let point = |record: &&CellRecord| {
            let [x, y] = both(record)?;
            let [x, y] = [(x, units[0]), (y, units[1])].map(|(figure, unit)| measured(&unit.converted(figure)));
            Some(ScatterPoint { name: record.cell.row.to_string(), x, y })
        };
        let points: Vec<ScatterPoint> = records.iter().filter_map(point).collect();
        let at = column.label();
        let whose = if test.is_of_disk() { "fio's" } else { "both endpoints'" };
        (points.len() > 1).then(|| Scatter {
            heading: Heading::new(
                self.title(&["Bandwidth against CPU time", &block.title(), &at]),
                format!("Further right: more bandwidth. Further down: less CPU time of {whose} threads per KB."),
            ),
            x: Quantity::new("Bandwidth", units[0].text()),
            y: Quantity::new("CPU", units[1].text()),
            points,
        })
    }
}

fn of_block<'a>(block: &BlockCells<'a>, test: TestKind, column: ColumnKey) -> Vec<&'a CellRecord> {
    block.rows().into_iter().filter_map(|row| block.cell(row, column, test)).collect()
}

/// Effect in percent of the baseline.
fn effect(record: &CellRecord, tax: &TaxRecord) -> Option<Effect> {
    Some(Effect { name: record.cell.row.to_string(), measured: percent(tax), judgement: judgement(tax.verdict) })
}

pub(crate) fn judgement(verdict: Verdict) -> Judgement {
    match verdict {
        Verdict::Slower => Judgement::Worse,
        Verdict::Faster => Judgement::Better,
        Verdict::NotConfirmed => Judgement::NotConfirmed,
        Verdict::NoneShown | Verdict::NoneLarger => Judgement::AtMost,
        Verdict::TooNoisy => Judgement::TooNoisy,
    }
}

fn percent(tax: &TaxRecord) -> Measured {
    let percent = |ratio: f64| (ratio - 1.0) * 100.0;
    let limit = Reach { low: percent(tax.ratio / DRAWN), high: percent(tax.ratio * DRAWN) };
    Measured::between(percent(tax.ratio), percent(tax.low), percent(tax.high)).drawn_within(limit)
}

fn positive(value: f64, low: f64, high: f64) -> Measured {
    Measured::between(value, low, high).drawn_within(Reach { low: value / DRAWN, high: value * DRAWN })
}

/// Returns a row as a multiple of the baseline: measured and published.
fn against(record: &CellRecord, baseline: &CellRecord, test: TestKind) -> Option<(Measured, Option<f64>)> {
    let published = record.published.zip(baseline.published).map(|(row, baseline)| row / baseline);
    let measured = match record.tax_of(Metric::of(test)) {
        Some(tax) => positive(tax.ratio, tax.low, tax.high),
        None => (record.cell.row == baseline.cell.row).then(|| Measured::plain(1.0))?,
    };
    Some((measured, published))
}

fn measured(estimate: &Estimate) -> Measured {
    match (estimate.low, estimate.high) {
        (Some(low), Some(high)) => positive(estimate.mean, low, high),
        _ => Measured::plain(estimate.mean),
    }
}

/// Returns `None` if no cell has a time series.
fn over_time(document: &ResultDocument) -> Option<TimeSeries> {
    let with_series: Vec<&CellRecord> =
        document.cells.iter().filter(|record| !series::moments(record).is_empty()).collect();
    let transactions = with_series.first()?.cell.kind().is_transactions();
    let alike = with_series.into_iter().filter(|record| record.cell.kind().is_transactions() == transactions);
    let alike: Vec<(&CellRecord, series::RatesOverTime)> =
        alike.map(|record| (record, series::moments(record))).collect();
    let stored = if transactions { FigureUnit::PerSecond } else { FigureUnit::MegabitsPerSecond };
    let rates = alike.iter().flat_map(|(_, moments)| moments.iter().map(|(_, [middle, ..])| *middle));
    let unit = ColumnUnit::of(stored, rates);
    let (name, text) = if transactions { ("Rate", "transactions per second") } else { ("Bandwidth", unit.text()) };
    let line = |(record, moments): &(&CellRecord, series::RatesOverTime)| {
        let moment = |(at, rates): &(f64, [f64; 3])| {
            let [middle, low, high] = rates.map(|rate| unit.value(rate));
            ChartPoint { at: *at, measured: Measured::between(middle, low, high) }
        };
        ChartLine { name: labels::name(document, &record.cell), points: moments.iter().map(moment).collect() }
    };
    Some(TimeSeries {
        heading: Heading::new(
            format!("{name} over time"),
            "Median of the samples in each interval, with the lowest and the highest as a band.",
        ),
        time: Quantity::new("Time", "s"),
        quantity: Quantity::new(name, text),
        lines: alike.iter().map(line).collect(),
    })
}
