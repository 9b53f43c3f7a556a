//! Rounds over the time of a run: whether one part of it differs from the others, as when another program was busy.

use vtax_model::{metric::Metric, result::CellRecord, run::SampleReading, workload::TestKind};
use vtax_plot::{ChartLine, ChartPoint, Heading, Measured, Quantity, TimeSeries};
use vtax_stats::median;

use super::{Drawn, MOST, of_block};
use crate::{blocks::BlockCells, finding, number::three_digits};

/// Minimum number of rounds: of fewer, none can be distinguished from the others.
const FEWEST: u32 = 4;
/// Rounds that differ by less, in percent, are alike.
const ALIKE: f64 = 2.0;

/// A round of a test, over all rows.
struct RoundCost {
    round: u32,
    /// Minutes since the run's first sample.
    minute: f64,
    /// Percent that the rows cost more than in their own median round: lower quartile, median, upper quartile.
    percent: [f64; 3],
}

/// The rounds of a test.
struct TestRounds {
    name: String,
    rounds: Vec<RoundCost>,
}

impl Drawn<'_> {
    /// Cost of each round compared with the median round, for each test at the first MTU.
    pub(super) fn rounds(&self) -> Option<TimeSeries> {
        let all = self.document.cells.iter().flat_map(|record| &record.samples);
        let start = all.filter_map(began).fold(f64::INFINITY, f64::min);
        let keys = self.blocks.iter().flat_map(|block| block.tests().into_iter().map(move |test| (*block, test)));
        let tests: Vec<TestRounds> = keys.filter_map(|(block, test)| of_test(block, test, start)).take(MOST).collect();
        let line =
            |test: &TestRounds| ChartLine { name: test.name.clone(), points: test.rounds.iter().map(point).collect() };
        let mode = if self.instrument.is_empty() { String::new() } else { format!(" ({})", self.instrument) };
        (!tests.is_empty()).then(|| TimeSeries {
            heading: Heading::new(
                title(&tests) + &mode,
                "Cost of each round compared with the same row's median round, median of all rows. A disturbance of the \
                 whole machine shows in all lines at the same time.",
            ),
            time: Quantity::new("Time since the start", "min"),
            quantity: Quantity::new("Cost compared with the median round", "%"),
            lines: tests.iter().map(line).collect(),
            band: "the middle half of the rows",
        })
    }
}

/// Returns e.g. `Round 12 is 23.0 % slower than the median round in TCP round trips`.
fn title(tests: &[TestRounds]) -> String {
    let all = tests.iter().flat_map(|test| test.rounds.iter().map(move |round| (test, round)));
    let largest = all.max_by(|(_, one), (_, other)| one.percent[1].abs().total_cmp(&other.percent[1].abs()));
    match largest {
        Some((test, RoundCost { round, percent: [_, cost, _], .. })) if cost.abs() >= ALIKE => {
            let (size, other) = (three_digits(cost.abs()), if *cost > 0.0 { "slower" } else { "faster" });
            format!("Round {round} is {size} % {other} than the median round in {}", test.name)
        }
        Some((_, round)) => {
            format!("No round differs from the median round by more than {} %", three_digits(round.percent[1].abs()))
        }
        None => String::new(),
    }
}

fn of_test(block: &BlockCells<'_>, test: TestKind, start: f64) -> Option<TestRounds> {
    let column = *block.columns().first()?;
    let records = of_block(block, test, column);
    let costs: Vec<(&SampleReading, f64)> = records.iter().flat_map(|record| costs(record, test)).collect();
    let last = costs.iter().map(|(sample, _)| sample.round).max().filter(|last| *last >= FEWEST)?;
    let rounds = (1..=last).filter_map(|round| {
        let of_round = || costs.iter().filter(|(sample, _)| sample.round == round);
        let minute = of_round().filter_map(|(sample, _)| began(sample)).fold(f64::INFINITY, f64::min) - start;
        let percent = quartiles(of_round().map(|(_, cost)| (cost - 1.0) * 100.0).collect())?;
        minute.is_finite().then_some(RoundCost { round, minute: minute / 60.0, percent })
    });
    let name = finding::subject(records.first()?, Metric::of(test)) + &block.rest_of_title();
    Some(TestRounds { name, rounds: rounds.collect() })
}

/// Each sample of a cell with its cost as a multiple of the cell's median.
fn costs(record: &CellRecord, test: TestKind) -> Vec<(&SampleReading, f64)> {
    let of = Metric::of(test);
    let value = |sample: &SampleReading| sample.values.get(of.figure(test));
    let values: Vec<f64> = record.samples.iter().map(value).filter(|value| value.is_finite()).collect();
    let middle = if values.is_empty() { 0.0 } else { median(&values) };
    if middle <= 0.0 {
        return Vec::new();
    }
    let cost = |sample| Some((sample, of.cost_ratio(value(sample) / middle))).filter(|(_, cost)| cost.is_finite());
    record.samples.iter().filter_map(cost).collect()
}

fn quartiles(mut values: Vec<f64>) -> Option<[f64; 3]> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1)?;
    Some([0.25, 0.5, 0.75].map(|share| values[(last as f64 * share).round() as usize]))
}

/// Seconds since the epoch.
fn began(sample: &SampleReading) -> Option<f64> {
    sample.at.parse::<jiff::Timestamp>().ok().map(|at| at.as_duration().as_secs_f64())
}

fn point(round: &RoundCost) -> ChartPoint {
    let [low, middle, high] = round.percent;
    ChartPoint { at: round.minute, measured: Measured::between(middle, low, high) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(costs: &[f64]) -> TestRounds {
        let round = |(index, cost): (usize, &f64)| RoundCost {
            round: index as u32 + 1,
            minute: index as f64,
            percent: [cost - 1.0, *cost, cost + 1.0],
        };
        TestRounds { name: "TCP round trips".into(), rounds: costs.iter().enumerate().map(round).collect() }
    }

    #[test]
    fn the_title_names_the_round_that_differs_most() {
        assert_eq!(title(&[rounds(&[0.1, -0.4])]), "No round differs from the median round by more than 0.400 %");
        assert_eq!(
            title(&[rounds(&[0.1, -0.4]), rounds(&[0.0, 23.04, -1.0])]),
            "Round 2 is 23.0 % slower than the median round in TCP round trips"
        );
        assert_eq!(title(&[rounds(&[-5.0])]), "Round 1 is 5.00 % faster than the median round in TCP round trips");
    }

    #[test]
    fn quartiles_are_values_that_occurred() {
        assert_eq!(quartiles(vec![5.0, 1.0, 4.0, 2.0, 3.0]), Some([2.0, 3.0, 4.0]));
        assert_eq!(quartiles(vec![7.0]), Some([7.0; 3]));
        assert_eq!(quartiles(Vec::new()), None);
    }
}
