//! Units of figures in text, chosen by size: 4.50 s rather than 4500000 µs.
//!
//! The rule, for a column and for a figure within a sentence:
//! - The unit in which a figure is stored remains while the largest value is below [`LARGE`]: a round trip of 30 to 999 µs
//!   is in µs everywhere.
//! - Otherwise the column has the largest unit in which no value is below 1: 3.69 and 58.4 Gb/s, but 50 and 45,000 µs.
//! - If all values are below [`SMALL`], the column has the largest smaller unit in which one reaches 1.
//! - A value that the column's unit does not suit (at least [`CROWDED`], or below [`TINY`]) is written with a unit of
//!   its own.
//!
//! Head and values come from one [`ColumnUnit`], so that no table prints a value under another unit. CSV, JSON and all
//! other output for programs keep the stored units.

use vtax_model::{
    metric::{CostUnit, FigureUnit, Metric},
    result::{Estimate, Percentile},
    workload::TestKind,
};

use super::{
    number::{cost, three_digits, with_interval},
    view::Value,
};

/// From here on a largest value asks for a larger unit.
const LARGE: f64 = 1e4;
/// From here on any value has too many digits.
const CROWDED: f64 = 1e5;
/// Below it a largest value needs a smaller unit.
const SMALL: f64 = 0.1;
/// Below it any value has too many zeros.
const TINY: f64 = 1e-3;

/// The unit in which figures are stored, and the one in which they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ColumnUnit {
    stored: FigureUnit,
    shown: FigureUnit,
}

impl ColumnUnit {
    /// Chooses the unit of figures that are stored in this one.
    pub(crate) fn of(stored: FigureUnit, cells: impl IntoIterator<Item = f64>) -> ColumnUnit {
        let sizes = cells.into_iter().map(f64::abs).filter(|size| size.is_finite() && *size > 0.0);
        let (least, most) = sizes.fold((f64::INFINITY, 0.0), |(least, most), size| (size.min(least), size.max(most)));
        let larger = || stored.alternatives().rev().find(|unit| within(stored, *unit, least) >= 1.0);
        let smaller = || stored.alternatives().rev().find(|unit| within(stored, *unit, most) >= 1.0);
        let shown = match least <= most {
            true if most < SMALL => smaller().or_else(|| stored.alternatives().next()),
            true if most >= LARGE => larger().filter(|unit| within(*unit, stored, 1.0) > 1.0),
            _ => None,
        };
        ColumnUnit { stored, shown: shown.unwrap_or(stored) }
    }

    /// Unit of a metric's levels.
    pub(crate) fn of_metric(metric: Metric, test: TestKind, cells: impl IntoIterator<Item = f64>) -> ColumnUnit {
        ColumnUnit::of(metric.figure(test).unit(), cells)
    }

    /// Unit of a metric's costs.
    pub(crate) fn of_costs(metric: Metric, test: TestKind, cells: impl IntoIterator<Item = f64>) -> ColumnUnit {
        let stored = match metric.cost_unit(test) {
            CostUnit::Microseconds => FigureUnit::Microseconds,
            CostUnit::Milliseconds => FigureUnit::Milliseconds,
            CostUnit::NanosecondsPerKb => FigureUnit::NanosecondsPerKb,
            CostUnit::Seconds => FigureUnit::Seconds,
        };
        ColumnUnit::of(stored, cells)
    }

    /// Name of the unit for the head.
    pub(crate) fn text(self) -> &'static str {
        self.shown.text()
    }

    /// Value of a stored figure in the shown unit.
    pub(crate) fn value(self, stored: f64) -> f64 {
        within(self.stored, self.shown, stored)
    }

    /// Estimate in the shown unit.
    pub(crate) fn converted(self, Estimate { mean, median, low, high, n }: Estimate) -> Estimate {
        let [low, high] = [low, high].map(|end| end.map(|end| self.value(end)));
        Estimate { mean: self.value(mean), median: self.value(median), low, high, n }
    }

    pub(crate) fn figure(self, stored: f64) -> Value {
        match self.apart(stored) {
            Some(_) => self.written(stored).into(),
            // As `time` writes them.
            None if (self.stored, self.shown) == (FigureUnit::Seconds, FigureUnit::Seconds) => Value::Seconds(stored),
            None => Value::Figure(self.value(stored)),
        }
    }

    pub(crate) fn optional(self, stored: Option<f64>) -> Value {
        stored.map_or(Value::Absent, |stored| self.figure(stored))
    }

    pub(crate) fn estimate(self, estimate: &Estimate) -> Value {
        self.between(estimate.mean, estimate.low.zip(estimate.high).map(<[f64; 2]>::from))
    }

    pub(crate) fn percentile(self, percentile: &Percentile) -> Value {
        self.between(percentile.value, percentile.low.zip(percentile.high).map(<[f64; 2]>::from))
    }

    fn between(self, mean: f64, ends: Option<[f64; 2]>) -> Value {
        let converted = |unit: ColumnUnit| {
            let ends = ends.map(|ends| ends.map(|end| unit.value(end)));
            (unit.value(mean), ends)
        };
        match self.apart(mean).map(|unit| (unit, converted(unit))) {
            Some((unit, (mean, ends))) => with_unit(mean, unit.text(), ends).into(),
            None => {
                let (mean, ends) = converted(self);
                Value::Estimate { mean, ends }
            }
        }
    }

    /// Figure of a source, with the digits that it has there, unless the unit differs.
    pub(crate) fn given(self, stored: f64) -> Value {
        if self.stored == self.shown { stored.to_string().into() } else { self.figure(stored) }
    }

    /// Stored figure to three digits, without the column's unit.
    pub(crate) fn written(self, stored: f64) -> String {
        match self.apart(stored) {
            Some(unit) => with_unit(unit.value(stored), unit.text(), None),
            None => three_digits(self.value(stored)),
        }
    }

    /// Stored cost with its interval, e.g. `+2.53 [2.41, 2.66]`.
    pub(crate) fn cost(self, [delta, low, high]: [f64; 3]) -> String {
        let unit = self.apart(delta.abs().max(low.abs()).max(high.abs()));
        let [value, low, high] = [delta, low, high].map(|stored| unit.unwrap_or(self).value(stored));
        let [value, interval] = cost(value, low, high);
        match unit {
            Some(unit) => format!("{value} {} {interval}", unit.text()),
            None => format!("{value} {interval}"),
        }
    }

    /// Cost and its interval in the shown unit, apart.
    pub(crate) fn split_cost(self, figures: [f64; 3]) -> [String; 2] {
        let [value, low, high] = figures.map(|stored| self.value(stored));
        cost(value, low, high)
    }

    /// The unit that a value has instead of the column's.
    fn apart(self, stored: f64) -> Option<ColumnUnit> {
        let size = self.value(stored).abs();
        let own = ColumnUnit::of(self.stored, [stored]);
        (own != self && size.is_finite() && (size >= CROWDED || size < TINY && size > 0.0)).then_some(own)
    }
}

/// Units of one column belong to one quantity.
fn within(stored: FigureUnit, shown: FigureUnit, value: f64) -> f64 {
    stored.factor(shown).map_or(f64::NAN, |factor| value * factor)
}

/// Writes a figure in the unit of its size, e.g. `4.50 s`.
pub(crate) fn sized(value: f64, stored: FigureUnit) -> String {
    sized_estimate(value, None, stored)
}

/// Writes a figure with its interval, e.g. `31.2 µs [30.1, 32.3]`.
pub(crate) fn sized_estimate(mean: f64, ends: Option<[f64; 2]>, stored: FigureUnit) -> String {
    let unit = ColumnUnit::of(stored, [mean]);
    with_unit(unit.value(mean), unit.text(), ends.map(|ends| ends.map(|end| unit.value(end))))
}

fn with_unit(mean: f64, unit: &str, ends: Option<[f64; 2]>) -> String {
    match ends {
        Some(_) => with_interval(mean, ends).replacen(" [", &format!(" {unit} ["), 1),
        None => format!("{} {unit}", three_digits(mean)),
    }
}

/// Writes a setting with all of its digits in the unit of its size, e.g. `4.5 s`, `133 µs` or `25 Gb/s`.
pub(crate) fn exact(value: u64, stored: FigureUnit) -> String {
    let unit = ColumnUnit::of(stored, [value as f64]);
    // A quotient of integers is rounded once, so it has the digits of the setting.
    let value = value as f64 / within(unit.shown, unit.stored, 1.0);
    format!("{value} {}", unit.text())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::written::parts;

    const STORED: [FigureUnit; 6] = [
        FigureUnit::Microseconds,
        FigureUnit::MegabitsPerSecond,
        FigureUnit::MegabytesPerSecond,
        FigureUnit::NanosecondsPerKb,
        FigureUnit::MicrosecondsPerKb,
        FigureUnit::Nanoseconds,
    ];

    #[test]
    fn a_figure_has_the_unit_of_its_size() {
        let times = [0.0, 0.02, 0.5, 31.24, 999.6, 9_990.0, 12_345.0, 4_500_000.0, 10_200_000.0];
        let expected = ["0 µs", "20.0 ns", "0.500 µs", "31.2 µs", "1000 µs", "9990 µs", "12.3 ms", "4.50 s", "10.2 s"];
        assert_eq!(times.map(|us| sized(us, FigureUnit::Microseconds)), expected);
        let rates = [0.05, 940.0, 9_410.0, 24_137.0].map(|rate| sized(rate, FigureUnit::MegabitsPerSecond));
        assert_eq!(rates, ["50.0 kb/s", "940 Mb/s", "9410 Mb/s", "24.1 Gb/s"]);
        let estimate = sized_estimate(4.5e6, Some([4.4e6, 4.6e6]), FigureUnit::Microseconds);
        assert_eq!(estimate, "4.50 s [4.40, 4.60]");
        assert_eq!(sized(24_100.0, FigureUnit::PerSecond), "24100 a second");
    }

    #[test]
    fn a_setting_keeps_its_digits() {
        assert_eq!(
            [133, 1_034, 4_500_000].map(|us| exact(us, FigureUnit::Microseconds)),
            ["133 µs", "1034 µs", "4.5 s"]
        );
        let speeds = [1_000, 2_500, 25_000].map(|speed| exact(speed, FigureUnit::MegabitsPerSecond));
        assert_eq!(speeds, ["1000 Mb/s", "2500 Mb/s", "25 Gb/s"]);
    }

    #[test]
    fn a_column_has_the_unit_that_suits_its_smallest_cell() {
        let unit = |cells: &[f64]| ColumnUnit::of(FigureUnit::Microseconds, cells.iter().copied()).text();
        assert_eq!(unit(&[]), "µs");
        assert_eq!(unit(&[30.0, 999.0]), "µs");
        assert_eq!(unit(&[50.0, 45_000.0]), "µs");
        assert_eq!(unit(&[1_200.0, 9_999.0]), "µs");
        assert_eq!(unit(&[1_200.0, 30_000.0]), "ms");
        assert_eq!(unit(&[12_000.0, 14_000.0, f64::NAN]), "ms");
        assert_eq!(unit(&[2e6, 3e6]), "s");
        assert_eq!(unit(&[0.0, 0.02]), "ns");
    }

    #[test]
    fn a_cell_far_from_the_others_names_its_own_unit() {
        let unit = ColumnUnit::of(FigureUnit::Microseconds, [50.0, 4.5e6]);
        assert_eq!((unit.text(), unit.written(50.0), unit.written(4.5e6)), ("µs", "50.0".into(), "4.50 s".into()));
        assert_eq!(unit.cost([4.5e6, 4.4e6, 4.6e6]), "+4.5 s [4.4, 4.6]");
        assert_eq!(unit.cost([2.53, 2.41, 2.66]), "+2.5 [2.4, 2.7]");
    }

    /// Reads a cell back as a stored figure: its own unit, or the head's.
    fn read(cell: &str, unit: ColumnUnit) -> f64 {
        let (number, own) = cell.split_once(' ').unwrap_or((cell, unit.text()));
        let shown = unit.stored.alternatives().find(|unit| unit.text() == own).expect("a unit of the quantity");
        within(shown, unit.stored, number.parse().expect("a number"))
    }

    proptest! {
        #[test]
        fn a_value_in_its_unit_reads_back(
            cells in prop::collection::vec(-2.0..9.0f64, 1..6),
            stored in prop::sample::select(&STORED[..]),
        ) {
            let cells: Vec<f64> = cells.into_iter().map(|power| 10f64.powf(power)).collect();
            let unit = ColumnUnit::of(stored, cells.iter().copied());
            for cell in cells {
                let [text, ..] = parts(&unit.figure(cell));
                prop_assert!((read(&text, unit) / cell - 1.0).abs() < 0.005_001, "{cell} is written {text} {}", unit.text());
                prop_assert!((read(&sized(cell, stored), unit) / cell - 1.0).abs() < 0.005_001);
            }
        }
    }
}
