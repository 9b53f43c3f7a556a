//! The figures of samples, each with its name and how it is computed from the measurement.

mod table;

use strum::VariantArray;

use super::FigureUnit;
use crate::{run::Figures, workload::TestKind};
use table::{FIGURES, FigureEntry, FigureOrigin, Told};

/// Quantity computed from a single sample: a rate, a time or a CPU cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, VariantArray)]
pub enum SampleFigure {
    /// Transactions per second.
    Rate,
    /// I/Os of disks per second.
    Iops,
    /// The mean time of a transaction.
    Rtt,
    /// 10^6 bits per second at the counting endpoint.
    Goodput,
    /// 10^6 bytes per second, as is usual for disks.
    Throughput,
    /// The same as the time of 1,024 bytes.
    TimePerKb,
    /// CPU time of both endpoints' measuring threads per transaction.
    ThreadsPerTransaction,
    /// The same per 1,024 bytes.
    ThreadsPerKb,
    /// CPU time of both endpoints' machines per transaction.
    MachinesPerTransaction,
    /// The same per 1,024 bytes.
    MachinesPerKb,
    /// Elapsed time of a file.
    Real,
    /// Median time of a sample's transactions.
    P50,
    /// 99th percentile of the times of a sample's transactions.
    P99,
    /// 99.9th percentile of the times of a sample's transactions.
    P999,
    /// CPU time of the hosts for both endpoints, per transaction.
    HostPerTransaction,
    /// The same per 1,024 bytes.
    HostPerKb,
    /// CPU time of both endpoints' measuring threads per packet on the wire.
    ThreadsPerPacket,
    /// CPU time of the hosts for both endpoints, per packet on the wire.
    HostPerPacket,
    /// CPU cycles of both endpoints' measuring threads per transaction.
    CyclesPerTransaction,
    /// The same per 1,024 bytes.
    CyclesPerKb,
    /// The same per packet on the wire.
    CyclesPerPacket,
    /// CPU time of the instructions of guests with endpoints, per transaction.
    GuestPerTransaction,
    /// The same per 1,024 bytes.
    GuestPerKb,
    /// CPU time of vhost workers, per transaction.
    VhostPerTransaction,
    /// The same per 1,024 bytes.
    VhostPerKb,
    /// CPU time of QEMU threads that serve only disks, per transaction.
    IothreadPerTransaction,
    /// The same per 1,024 bytes.
    IothreadPerKb,
    /// CPU time of the storage daemons, per transaction.
    DaemonPerTransaction,
    /// The same per 1,024 bytes.
    DaemonPerKb,
    /// CPU time of the rest of QEMU, per transaction.
    QemuPerTransaction,
    /// The same per 1,024 bytes.
    QemuPerKb,
    /// CPU time of the host's kernel, as part of everything but the guests' own, per transaction.
    KernelPerTransaction,
    /// The same per 1,024 bytes.
    KernelPerKb,
    /// CPU time of interrupts, of the whole machine, per transaction.
    InterruptsPerTransaction,
    /// The same per 1,024 bytes.
    InterruptsPerKb,
    /// CPU time of the instructions of guests that serve switches, per transaction.
    ServicePerTransaction,
    /// The same per 1,024 bytes.
    ServicePerKb,
    /// CPU time of programs that carry the traffic of zones, per transaction.
    RelayPerTransaction,
    /// The same per 1,024 bytes.
    RelayPerKb,
    /// Goodput of the load from the initiators.
    LoadForward,
    /// Goodput of the load from the responders.
    LoadReverse,
    /// Time for which a guest was suspended by its migration.
    Suspend,
    /// Time of a whole migration.
    Migrate,
    /// 10^6 bytes that a migration sent.
    Sent,
    /// 10^6 bytes of its memory that the guest changed per second, as QEMU measured it.
    DirtyRate,
    /// Suspend time according to the source's QEMU.
    SuspendByQemu,
    /// Suspend time by the guest's clock.
    SuspendByGuestClock,
    /// Time without an answer of a guest that was watched during its migration.
    Silence,
}

/// CPU time that was observed in addition to that of the measuring threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservedCpu {
    /// True if the machines' own CPU time is known for all samples.
    pub machines: bool,
    /// True if the run has guests whose host was observed. Without guests the hosts' CPU time is that of the measuring
    /// threads.
    pub guests: bool,
}

impl SampleFigure {
    const COUNT: usize = SampleFigure::VARIANTS.len();

    /// All of them.
    pub const ALL: [SampleFigure; SampleFigure::COUNT] = *SampleFigure::VARIANTS.as_array().expect("as many");

    /// Figures of the machines' CPU time, of which a test has one.
    pub const MACHINES: [SampleFigure; 2] = [SampleFigure::MachinesPerTransaction, SampleFigure::MachinesPerKb];

    /// Figures of the load under which samples were taken, by direction.
    pub const LOADS: [SampleFigure; 2] = [SampleFigure::LoadForward, SampleFigure::LoadReverse];

    fn entry(self) -> &'static FigureEntry {
        &FIGURES[self as usize]
    }

    /// Returns its name in documents and in tables for programs.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// Returns the unit of its values.
    pub fn unit(self) -> FigureUnit {
        self.entry().unit
    }

    /// Returns its value in one sample; NaN if the sample has none.
    pub fn of(self, figures: &Figures) -> f64 {
        (self.entry().value)(figures)
    }

    /// Returns true if a summary has it under its own name, rather than with others of its kind.
    pub fn is_told_alone(self) -> bool {
        self.entry().told == Told::Alone
    }

    /// Returns true if the samples of this test have it.
    pub fn is_known(self, test: TestKind, observed: ObservedCpu) -> bool {
        let is_migration = test == TestKind::Migration;
        let of_source = match self.entry().origin {
            FigureOrigin::Migrations => is_migration,
            _ if is_migration => false,
            FigureOrigin::Counts | FigureOrigin::Threads => true,
            FigureOrigin::Machines => observed.machines,
            FigureOrigin::Guests | FigureOrigin::Parts => observed.guests,
            FigureOrigin::Disks => test.is_of_disk(),
            FigureOrigin::Networks | FigureOrigin::Packets => !test.is_of_disk(),
            FigureOrigin::GuestsPackets => observed.guests && !test.is_of_disk(),
        };
        self.entry().per.is_none_or(|per| per == test.work_unit()) && of_source
    }

    /// Returns true if it is a part of the hosts' CPU time, e.g. that of vhost.
    pub fn is_part(self) -> bool {
        self.entry().origin == FigureOrigin::Parts
    }

    /// Returns true if a figure with this mean was reported.
    pub(crate) fn is_told(self, mean: f64) -> bool {
        !matches!(self.entry().origin, FigureOrigin::Threads | FigureOrigin::Parts) || mean > 0.0
    }

    /// The figure of this name.
    pub(crate) fn named(name: &str) -> Option<SampleFigure> {
        SampleFigure::ALL.into_iter().find(|figure| figure.name() == name)
    }
}

/// All figures of one sample. Most samples have a third of them, and a run may have 100,000 samples.
#[derive(Debug, Clone, PartialEq)]
pub struct FigureValues {
    /// A bit for each figure that the sample has, in the order of [`SampleFigure::ALL`].
    present: u64,
    values: Box<[f64]>,
}

const _: () = assert!(SampleFigure::COUNT <= u64::BITS as usize, "a bit for each figure");

impl FigureValues {
    pub(crate) fn of(figures: &Figures) -> FigureValues {
        FigureValues::compact(SampleFigure::ALL.map(|figure| figure.of(figures)))
    }

    fn compact(all: [f64; SampleFigure::COUNT]) -> FigureValues {
        let bits = all.iter().enumerate().filter(|(_, value)| !value.is_nan()).map(|(nth, _)| 1_u64 << nth);
        FigureValues { present: bits.sum(), values: all.into_iter().filter(|value| !value.is_nan()).collect() }
    }

    /// Returns one of them; NaN if the sample has none.
    pub fn get(&self, figure: SampleFigure) -> f64 {
        let bit = 1_u64 << figure as u32;
        match self.present & bit {
            0 => f64::NAN,
            _ => self.values[(self.present & (bit - 1)).count_ones() as usize],
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{array::uniform, prelude::*};

    use super::*;

    #[test]
    fn a_figure_is_known_by_its_name() {
        for figure in SampleFigure::ALL {
            assert_eq!(SampleFigure::named(figure.name()), Some(figure));
        }
    }

    fn value() -> impl Strategy<Value = f64> {
        prop_oneof![Just(f64::NAN), -9.0..9.0]
    }

    proptest! {
        #[test]
        fn each_figure_is_kept_and_no_other(all in uniform::<_, { SampleFigure::COUNT }>(value())) {
            let kept = FigureValues::compact(all);
            prop_assert_eq!(kept.values.len(), all.iter().filter(|value| !value.is_nan()).count());
            for (figure, value) in SampleFigure::ALL.into_iter().zip(all) {
                prop_assert_eq!(kept.get(figure).to_bits(), value.to_bits());
            }
        }
    }
}
