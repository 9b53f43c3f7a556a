//! Charts of a run: cost of each row, figures next to published ones, distribution of round trips, bandwidth against
//! CPU time, rate over time, and host CPU time.

mod distribution;
mod rounds;
mod shifts;
mod threads;

use strum::IntoEnumIterator;
use vtax_model::{
    cell::{Cell, ColumnKey},
    metric::{FigureUnit, Metric},
    result::{CellRecord, Estimate, ResultDocument, TaxRecord},
    workload::TestKind,
};
use vtax_plot::{
    Bar, Bars, Chart, ChartLine, ChartPoint, Differences, Effect, Heading, Judgement, Measured, MethodSlots, Quantity,
    Reach, Scatter, ScatterPoint, TimeSeries,
};
use vtax_stats::Verdict;

use super::{
    answer::column_that_tells_all,
    blocks::{BlockCells, Reported, distinct},
    colours,
    column_unit::ColumnUnit,
    finding, host_cpu, labels,
    number::three_digits,
    record::{estimate, primary},
    series, tax,
    topic::{ChartGroup, ChartTopic},
    words,
};

/// Maximum number of charts of a kind, and of groups of bars, that a reader can take in. The tables have all figures.
const MOST: usize = 8;

/// An interval is drawn from this part of its figure up to this multiple of it: that of two rounds may extend a
/// thousand times further.
pub(crate) const DRAWN: f64 = 4.0;

/// Figures on one axis differ by no more than this factor: a bar of a twentieth can still be read.
const VISIBLE: f64 = 20.0;

/// Returns all charts of a run but the overview, without those that would only repeat its cells.
pub(crate) fn charts(report: &Reported<'_>, in_overview: &[Cell]) -> Vec<ChartGroup> {
    let mut charts = by_mode(report, |drawn| drawn.charts(in_overview));
    charts.extend(over_time(report.document).into_iter().map(|chart| (ChartTopic::OverTime, chart.into())));
    charts.extend(host_cpu::chart(report.document).map(|chart| (ChartTopic::CpuTime, chart.into())));
    let group = |topic: ChartTopic| {
        let charts = charts.iter().filter(|(of, _)| *of == topic).map(|(_, chart)| chart.clone()).collect();
        ChartGroup { title: topic.title(), charts }
    };
    ChartTopic::iter().map(group).filter(|group| !group.charts.is_empty()).collect()
}

/// Returns the cost of each row, also for pages that draw it over the number of threads.
pub(crate) fn differences(report: &Reported<'_>) -> Vec<Differences> {
    by_mode(report, |drawn| drawn.all_differences(|_, _, _| true)).into_iter().map(|(_, chart)| chart).collect()
}

fn by_mode<T>(report: &Reported<'_>, of: impl Fn(&Drawn<'_>) -> Vec<T>) -> Vec<T> {
    let modes = report.modes();
    let several = modes.len() > 1;
    let document = report.document;
    let slots = colours::slots(document.cells.iter().map(|record| record.cell.row), document.baseline);
    let drawn = modes.iter().flat_map(|(mode, blocks)| {
        let instrument = if several { words::of_instrument(*mode) } else { "" };
        of(&Drawn { document: report.document, blocks, instrument, slots: slots.clone() })
    });
    drawn.collect()
}

/// Cells of one measurement mode.
struct Drawn<'a> {
    document: &'a ResultDocument,
    blocks: &'a [&'a BlockCells<'a>],
    /// Name of the mode; empty if there is only one.
    instrument: &'static str,
    slots: MethodSlots,
}

impl Drawn<'_> {
    fn charts(&self, in_overview: &[Cell]) -> Vec<(ChartTopic, Chart)> {
        let tests = self.tests();
        let several = |block: &BlockCells<'_>, test: TestKind| tax::threads::has_several(block, test);
        let keys = tests.iter().flat_map(|test| self.blocks.iter().map(move |block| (*block, *test)));
        let by_threads = keys.filter(|(block, test)| several(block, *test)).flat_map(|(block, test)| {
            self.by_threads(block, test).into_iter().map(move |chart| (ChartTopic::of(test), chart.into()))
        });
        let differences = self.all_differences(|block, test, column| {
            let is_new = |record: &&CellRecord| !in_overview.contains(&record.cell);
            !several(block, test) && of_block(block, test, column).iter().filter(is_compared).any(is_new)
        });
        let differences = differences.into_iter().map(|(test, chart)| (ChartTopic::of(test), chart.into()));
        let bars = tests
            .iter()
            .flat_map(|test| self.bars(*test).into_iter().map(|chart| (ChartTopic::of(*test), chart.into())));
        let few = MOST / 2;
        let distributions = self.blocks.iter().filter_map(|block| {
            let shifts = self.shifts(block);
            let distribution = self.distribution(block, shifts.is_some())?;
            Some([Some(Chart::from(distribution)), shifts.map(Chart::from)])
        });
        let distributions = distributions.take(few).flatten().flatten().map(|chart| (ChartTopic::Distribution, chart));
        let against_cpu = self.blocks.iter().filter_map(|block| self.against_cpu(block)).take(few);
        let against_cpu = against_cpu.map(|chart| (ChartTopic::CpuTime, chart.into()));
        let rounds = self.rounds().map(|chart| (ChartTopic::OverTime, chart.into()));
        by_threads
            .take(MOST)
            .chain(differences)
            .chain(bars)
            .chain(distributions)
            .chain(against_cpu)
            .chain(rounds)
            .collect()
    }

    fn tests(&self) -> Vec<TestKind> {
        distinct(self.blocks.iter().flat_map(|block| block.tests()))
    }

    fn all_differences(
        &self,
        wanted: impl Fn(&BlockCells<'_>, TestKind, ColumnKey) -> bool,
    ) -> Vec<(TestKind, Differences)> {
        let only = column_that_tells_all(self.document, self.blocks);
        let mut differences = Vec::new();
        for test in self.tests() {
            for block in self.blocks.iter().filter(|block| block.tests().contains(&test)) {
                let columns = block.columns().into_iter().filter(|column| only.is_none_or(|only| only == *column));
                let columns = columns.filter(|column| wanted(block, test, *column));
                differences.extend(columns.map(|column| (*block, test, column)));
            }
        }
        let drawn = differences
            .into_iter()
            .filter_map(|(block, test, column)| Some((test, self.differences(block, test, column)?)));
        drawn.take(MOST).collect()
    }

    /// Returns the title with the conditions that distinguish its chart from others, e.g. `… (MTU 1500, host settings)`.
    fn titled(&self, title: &str, block: &BlockCells<'_>, column: Option<ColumnKey>) -> String {
        let columns = distinct(self.blocks.iter().flat_map(|block| block.columns())).len();
        let at = column.filter(|_| columns > 1).map(|column| column.label());
        let of_block = block.rest_of_title().trim_start_matches(", ").to_owned();
        let parts = [of_block, at.unwrap_or_default(), self.instrument.to_owned()];
        match words::joined(parts, ", ") {
            place if place.is_empty() => title.to_owned(),
            place => format!("{title} ({place})"),
        }
    }

    /// Finding of these cells by a metric; `None` if nothing was compared.
    fn finding(&self, records: &[&CellRecord], of: Metric) -> Option<String> {
        let compared: Vec<(&CellRecord, &TaxRecord)> =
            records.iter().filter_map(|record| Some((*record, record.tax_of(of)?))).collect();
        finding::title(self.document, &compared)
    }

    /// Returns `None` if nothing was compared.
    fn differences(&self, block: &BlockCells<'_>, test: TestKind, column: ColumnKey) -> Option<Differences> {
        let of = Metric::of(test);
        let records: Vec<&CellRecord> = of_block(block, test, column);
        let rows: Vec<Effect> = records.iter().filter_map(|record| effect(record, record.tax_of(of)?)).collect();
        let floor = tax::floor(self.document, &records.first()?.cell.block(), of);
        let baseline = self.document.baseline;
        let title = self.titled(&self.finding(&records, of)?, block, Some(column));
        let summary = format!(
            "{}: cost of each row compared with {baseline}, with its 95 % interval; the band is the noise floor.",
            words::joined([test.quantity().full.to_owned(), block.title(), column.label()], ", ")
        );
        (!rows.is_empty()).then(|| Differences {
            heading: Heading::new(title, summary),
            quantity: Quantity::new(format!("{} compared with {baseline}", test.quantity().short), "%"),
            rows,
            noise: floor.map(|floor| Reach { low: -floor.floor * 100.0, high: floor.floor * 100.0 }),
        })
    }

    /// Returns the figures next to the published ones, in several charts if they are so far apart that some would not be
    /// visible. If the two machines are far apart, each figure is drawn as a multiple of the baseline on its own machine.
    fn bars(&self, test: TestKind) -> Vec<Bars> {
        let relative = self.is_far_from_published(test);
        let groups = self.groups(test, relative);
        if groups.len() > MOST {
            return Vec::new();
        }
        let largest = |group: &BarGroup<'_>| group.bars.iter().map(|bar| bar.measured.value).fold(0.0, f64::max);
        let charts = alike(groups, largest)
            .into_iter()
            .filter(|groups| distinct(groups.iter().flat_map(|group| &group.bars).map(|bar| &bar.series)).len() > 1);
        charts.map(|groups| self.bars_of(test, relative, groups)).collect()
    }

    /// Bars of each block in each column.
    fn groups(&self, test: TestKind, relative: bool) -> Vec<BarGroup<'_>> {
        let columns = distinct(self.blocks.iter().flat_map(|block| block.columns())).len();
        let mut groups = Vec::new();
        for block in self.blocks.iter().filter(|block| !tax::threads::has_several(block, test)) {
            for column in block.columns() {
                let name = if columns > 1 { format!("{}, {}", block.title(), column.label()) } else { block.title() };
                let records = of_block(block, test, column);
                let baseline = records.iter().copied().find(|record| record.cell.row == self.document.baseline);
                let bar = |record: &&CellRecord| {
                    let (measured, published) = match relative {
                        true => against(record, baseline?, test)?,
                        false => (measured(&primary(record)?), record.published),
                    };
                    Some(Bar { published, ..Bar::new(name.clone(), record.cell.row.to_string(), measured) })
                };
                let bars: Vec<Bar> = records.iter().filter_map(bar).collect();
                groups.push(BarGroup { bars, records });
            }
        }
        groups.retain(|group| !group.bars.is_empty());
        groups
    }

    fn bars_of(&self, test: TestKind, relative: bool, groups: Vec<BarGroup<'_>>) -> Bars {
        let title = groups.iter().find_map(|group| finding::levels(self.document, &group.records, test));
        let records = groups.iter().flat_map(|group| &group.records);
        let figures =
            records.flat_map(|record| primary(record).map(|own| own.mean).into_iter().chain(record.published));
        let unit = ColumnUnit::of_metric(Metric::of(test), test, figures);
        let in_unit = |bar: Bar| match relative {
            true => bar,
            false => Bar {
                measured: bar.measured.times(unit.value(1.0)),
                published: bar.published.map(|published| unit.value(published)),
                ..bar
            },
        };
        let bars: Vec<Bar> = groups.into_iter().flat_map(|group| group.bars).map(in_unit).collect();
        let baseline = self.document.baseline;
        let has_published = bars.iter().any(|bar| bar.published.is_some());
        Bars {
            heading: self.heading_of_bars(test, title, relative, has_published),
            quantity: match relative {
                true => Quantity::new(format!("{} as a multiple of {baseline}", test.quantity().full), ""),
                false => Quantity::new(test.quantity().full, unit.text()),
            },
            groups: "Test".into(),
            bars,
            slots: self.slots.clone(),
            noise: None,
        }
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

    fn heading_of_bars(&self, test: TestKind, title: Option<String>, relative: bool, has_published: bool) -> Heading {
        let name = test.quantity().full;
        let baseline = self.document.baseline;
        let beside = if has_published { " next to the published figure" } else { "" };
        let mode = if self.instrument.is_empty() { String::new() } else { format!(" ({})", self.instrument) };
        let title = title.unwrap_or_else(|| name.to_owned()) + &mode;
        let summary = match relative {
            false => format!("{name}: mean of each row with its 95 % interval{beside}."),
            true => format!(
                "{name}: each row as a multiple of {baseline} on the same machine, with its 95 % interval{beside}. The \
                 two machines are far apart, so their absolute figures are in the tables only."
            ),
        };
        Heading::new(title, summary)
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
        let title = self.finding(&records, Metric::Cpu).unwrap_or_else(|| "Bandwidth against CPU time".to_owned());
        let whose = if test.is_of_disk() { "fio's" } else { "both endpoints'" };
        (points.len() > 1).then(|| Scatter {
            heading: Heading::new(
                self.titled(&title, block, Some(column)),
                format!(
                    "Bandwidth against CPU time. Further right: more bandwidth. Further down: less CPU time of {whose} \
                     threads per KB."
                ),
            ),
            x: Quantity::new("Bandwidth", units[0].text()),
            y: Quantity::new("CPU", units[1].text()),
            points,
            slots: self.slots.clone(),
        })
    }
}

/// Returns true if the cell is compared by the metric that its test is judged by.
fn is_compared(record: &&&CellRecord) -> bool {
    record.tax_of(Metric::of(record.cell.kind())).is_some()
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

/// Rates over time, in several charts if they are far apart. Cells with another unit than the first one have none.
fn over_time(document: &ResultDocument) -> Vec<TimeSeries> {
    let all = document.cells.iter().map(|record| (record, series::moments(record)));
    let mut lines: Vec<(&CellRecord, series::RatesOverTime)> = all.filter(|(_, moments)| !moments.is_empty()).collect();
    let transactions = lines.first().is_some_and(|(record, _)| record.cell.kind().is_transactions());
    lines.retain(|(record, _)| record.cell.kind().is_transactions() == transactions);
    let largest = |line: &(&CellRecord, series::RatesOverTime)| {
        line.1.iter().map(|(_, [middle, ..])| *middle).fold(0.0, f64::max)
    };
    alike(lines, largest).iter().map(|lines| time_series(document, lines, transactions)).collect()
}

fn time_series(
    document: &ResultDocument,
    lines: &[(&CellRecord, series::RatesOverTime)],
    transactions: bool,
) -> TimeSeries {
    let stored = if transactions { FigureUnit::PerSecond } else { FigureUnit::MegabitsPerSecond };
    let rates = || lines.iter().flat_map(|(_, moments)| moments.iter().map(|(_, [middle, ..])| *middle));
    let unit = ColumnUnit::of(stored, rates());
    let (name, text) = if transactions { ("Rate", "transactions per second") } else { ("Bandwidth", unit.text()) };
    let line = |(record, moments): &(&CellRecord, series::RatesOverTime)| {
        let moment = |(at, rates): &(f64, [f64; 3])| {
            let [middle, low, high] = rates.map(|rate| unit.value(rate));
            ChartPoint { at: *at, measured: Measured::between(middle, low, high) }
        };
        ChartLine { name: labels::name(document, &record.cell), points: moments.iter().map(moment).collect() }
    };
    let [least, most] = [rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max)];
    let [least, most] = [least, most].map(|rate| three_digits(unit.value(rate)));
    TimeSeries {
        heading: Heading::new(
            format!("{name} is between {least} and {most} {text}"),
            "Median of the samples in each interval.",
        ),
        time: Quantity::new("Time", "s"),
        quantity: Quantity::new(name, text),
        lines: lines.iter().map(line).collect(),
        band: "from the lowest to the highest sample",
    }
}

/// Bars of a block in a column, and the cells that they are of.
struct BarGroup<'a> {
    bars: Vec<Bar>,
    records: Vec<&'a CellRecord>,
}

/// Sorts items into charts whose largest figures are no more than a factor of [`VISIBLE`] apart, in their order.
fn alike<T>(items: Vec<T>, largest: impl Fn(&T) -> f64) -> Vec<Vec<T>> {
    let mut charts: Vec<(f64, f64, Vec<T>)> = Vec::new();
    for item in items {
        let size = largest(&item);
        let fits = |(low, high, _): &&mut (f64, f64, Vec<T>)| size.max(*high) <= VISIBLE * size.min(*low);
        match charts.iter_mut().find(fits) {
            Some((low, high, items)) => {
                (*low, *high) = (low.min(size), high.max(size));
                items.push(item);
            }
            None => charts.push((size, size, vec![item])),
        }
    }
    charts.into_iter().map(|(.., items)| items).collect()
}
