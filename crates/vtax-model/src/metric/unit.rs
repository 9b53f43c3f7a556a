//! Units of figures. A figure carries its unit, so that no table can print it under another one.

use crate::{
    result::Estimate,
    workload::{TestKind, WorkUnit},
};

/// The unit of a figure of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureUnit {
    /// Transactions or I/Os.
    PerSecond,
    /// Time, or CPU time per transaction.
    Microseconds,
    /// 10^6 bits a second.
    MegabitsPerSecond,
    /// 10^6 bytes a second.
    MegabytesPerSecond,
    /// For 1,024 bytes.
    NanosecondsPerKb,
    /// For 1,024 bytes.
    MicrosecondsPerKb,
    /// Time of a file transfer.
    Seconds,
}

impl FigureUnit {
    /// As in the caption of a table.
    pub fn text(self) -> &'static str {
        match self {
            FigureUnit::PerSecond => "a second",
            FigureUnit::Microseconds => "µs",
            FigureUnit::MegabitsPerSecond => "Mb/s",
            FigureUnit::MegabytesPerSecond => "MB/s",
            FigureUnit::NanosecondsPerKb => "ns per KB",
            FigureUnit::MicrosecondsPerKb => "µs per KB",
            FigureUnit::Seconds => "s",
        }
    }

    /// Returns the unit of CPU time in µs: for a transaction, or for 1,024 bytes of payload.
    pub fn cpu_microseconds(test: TestKind) -> FigureUnit {
        match test.work_unit() {
            WorkUnit::Transaction => FigureUnit::Microseconds,
            WorkUnit::Kilobyte => FigureUnit::MicrosecondsPerKb,
        }
    }

    /// By what a value in this unit is multiplied in another one of the same quantity; none for another quantity.
    fn factor(self, to: FigureUnit) -> Option<f64> {
        match (self, to) {
            _ if self == to => Some(1.0),
            (FigureUnit::MicrosecondsPerKb, FigureUnit::NanosecondsPerKb) => Some(1e3),
            (FigureUnit::NanosecondsPerKb, FigureUnit::MicrosecondsPerKb) => Some(1e-3),
            _ => None,
        }
    }
}

/// An estimate, convertible only to other units of its quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UnitEstimate {
    estimate: Estimate,
    unit: FigureUnit,
}

impl UnitEstimate {
    /// Combines an estimate and its unit.
    pub fn new(estimate: Estimate, unit: FigureUnit) -> UnitEstimate {
        UnitEstimate { estimate, unit }
    }

    /// Converts it to another unit; none if that unit is of another quantity.
    pub fn converted_to(&self, unit: FigureUnit) -> Option<Estimate> {
        let Estimate { mean, median, low, high, n } = self.estimate;
        let factor = self.unit.factor(unit)?;
        let [low, high] = [low, high].map(|end| end.map(|end| end * factor));
        Some(Estimate { mean: mean * factor, median: median * factor, low, high, n })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_the_same_in_each_unit_of_its_quantity_and_none_in_others() {
        let estimate = Estimate { mean: 2.5, median: 2.0, low: Some(1.5), high: None, n: 4 };
        let cost = UnitEstimate::new(estimate, FigureUnit::MicrosecondsPerKb);
        let in_ns = Estimate { mean: 2500.0, median: 2000.0, low: Some(1500.0), high: None, n: 4 };
        assert_eq!(cost.converted_to(FigureUnit::NanosecondsPerKb), Some(in_ns));
        assert_eq!(cost.converted_to(FigureUnit::MicrosecondsPerKb), Some(estimate));
        assert_eq!(cost.converted_to(FigureUnit::Microseconds), None);
    }
}
