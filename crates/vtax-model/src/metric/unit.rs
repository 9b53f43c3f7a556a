//! Units of figures. A figure carries its unit, so that no table can print it with another one.

use crate::workload::{TestKind, WorkUnit};

/// Unit of a figure of a sample, or of a column in which samples appear by size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureUnit {
    /// Transactions or I/Os.
    PerSecond,
    /// 10^-9 s.
    Nanoseconds,
    /// Time, or CPU time per transaction.
    Microseconds,
    /// 10^-3 s.
    Milliseconds,
    /// Time of a file transfer.
    Seconds,
    /// 10^3 bits per second.
    KilobitsPerSecond,
    /// 10^6 bits per second.
    MegabitsPerSecond,
    /// 10^9 bits per second.
    GigabitsPerSecond,
    /// 10^3 bytes per second.
    KilobytesPerSecond,
    /// 10^6 bytes per second.
    MegabytesPerSecond,
    /// 10^9 bytes per second.
    GigabytesPerSecond,
    /// 10^6 bytes.
    Megabytes,
    /// 10^9 bytes.
    Gigabytes,
    /// Per 1,024 bytes.
    NanosecondsPerKb,
    /// Per 1,024 bytes.
    MicrosecondsPerKb,
    /// Per 1,024 bytes.
    MillisecondsPerKb,
    /// Per packet on the wire.
    NanosecondsPerPacket,
    /// Per packet on the wire.
    MicrosecondsPerPacket,
    /// Per transaction.
    Cycles,
    /// Per 1,024 bytes.
    CyclesPerKb,
    /// Per packet on the wire.
    CyclesPerPacket,
}

/// Units of one quantity with their powers of ten, smallest first.
type Ladder = &'static [(FigureUnit, i32)];

const COUNTS: Ladder = &[(FigureUnit::PerSecond, 0)];
const TIMES: Ladder = &[
    (FigureUnit::Nanoseconds, -9),
    (FigureUnit::Microseconds, -6),
    (FigureUnit::Milliseconds, -3),
    (FigureUnit::Seconds, 0),
];
const BITS: Ladder =
    &[(FigureUnit::KilobitsPerSecond, 3), (FigureUnit::MegabitsPerSecond, 6), (FigureUnit::GigabitsPerSecond, 9)];
const BYTES: Ladder =
    &[(FigureUnit::KilobytesPerSecond, 3), (FigureUnit::MegabytesPerSecond, 6), (FigureUnit::GigabytesPerSecond, 9)];
const SIZES: Ladder = &[(FigureUnit::Megabytes, 6), (FigureUnit::Gigabytes, 9)];
const TIMES_PER_KB: Ladder =
    &[(FigureUnit::NanosecondsPerKb, -9), (FigureUnit::MicrosecondsPerKb, -6), (FigureUnit::MillisecondsPerKb, -3)];
const TIMES_PER_PACKET: Ladder = &[(FigureUnit::NanosecondsPerPacket, -9), (FigureUnit::MicrosecondsPerPacket, -6)];
const CYCLES: Ladder = &[(FigureUnit::Cycles, 0)];
const CYCLES_PER_KB: Ladder = &[(FigureUnit::CyclesPerKb, 0)];
const CYCLES_PER_PACKET: Ladder = &[(FigureUnit::CyclesPerPacket, 0)];

impl FigureUnit {
    /// Returns the text in the caption of a table.
    pub fn text(self) -> &'static str {
        match self {
            FigureUnit::PerSecond => "a second",
            FigureUnit::Nanoseconds => "ns",
            FigureUnit::Microseconds => "µs",
            FigureUnit::Milliseconds => "ms",
            FigureUnit::Seconds => "s",
            FigureUnit::KilobitsPerSecond => "kb/s",
            FigureUnit::MegabitsPerSecond => "Mb/s",
            FigureUnit::GigabitsPerSecond => "Gb/s",
            FigureUnit::KilobytesPerSecond => "kB/s",
            FigureUnit::MegabytesPerSecond => "MB/s",
            FigureUnit::GigabytesPerSecond => "GB/s",
            FigureUnit::Megabytes => "MB",
            FigureUnit::Gigabytes => "GB",
            FigureUnit::NanosecondsPerKb => "ns per KB",
            FigureUnit::MicrosecondsPerKb => "µs per KB",
            FigureUnit::MillisecondsPerKb => "ms per KB",
            FigureUnit::NanosecondsPerPacket => "ns per packet",
            FigureUnit::MicrosecondsPerPacket => "µs per packet",
            FigureUnit::Cycles => "cycles",
            FigureUnit::CyclesPerKb => "cycles per KB",
            FigureUnit::CyclesPerPacket => "cycles per packet",
        }
    }

    /// Returns the unit of CPU time in µs: per transaction, or per 1,024 bytes of payload.
    pub fn cpu_microseconds(test: TestKind) -> FigureUnit {
        match test.work_unit() {
            WorkUnit::Transaction => FigureUnit::Microseconds,
            WorkUnit::Kilobyte => FigureUnit::MicrosecondsPerKb,
        }
    }

    /// Returns all units of the same quantity, smallest first.
    pub fn alternatives(self) -> impl DoubleEndedIterator<Item = FigureUnit> {
        self.ladder().iter().map(|(unit, _)| *unit)
    }

    /// Returns the factor that converts a value to another unit; none for a unit of another quantity.
    pub fn factor(self, to: FigureUnit) -> Option<f64> {
        let power = |wanted| self.ladder().iter().find(|(unit, _)| *unit == wanted).map(|(_, power)| *power);
        Some(10f64.powi(power(self)? - power(to)?))
    }

    fn ladder(self) -> Ladder {
        let all = [
            COUNTS,
            TIMES,
            BITS,
            BYTES,
            SIZES,
            TIMES_PER_KB,
            TIMES_PER_PACKET,
            CYCLES,
            CYCLES_PER_KB,
            CYCLES_PER_PACKET,
        ];
        all.into_iter().find(|ladder| ladder.iter().any(|(unit, _)| *unit == self)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_one_quantity_convert_and_others_do_not() {
        assert_eq!(FigureUnit::Microseconds.factor(FigureUnit::Seconds), Some(1e-6));
        assert_eq!(FigureUnit::MegabitsPerSecond.factor(FigureUnit::MegabytesPerSecond), None);
        assert_eq!(FigureUnit::PerSecond.factor(FigureUnit::PerSecond), Some(1.0));
    }
}
