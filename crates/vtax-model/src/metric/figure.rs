//! The figures that every sample has, each with its name and how it is read from what was measured.

use strum::VariantArray;

use super::{FigureUnit, SamplePercentile, ns_per_kb};
use crate::{
    run::Figures,
    workload::{TestKind, WorkUnit},
};

/// Quantity computed from a single sample: a rate, a time or a CPU cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, VariantArray)]
pub enum SampleFigure {
    /// Transactions a second.
    Rate,
    /// I/Os of disks a second.
    Iops,
    /// The mean time of a transaction.
    Rtt,
    /// 10^6 bits per second at the end that counted.
    Goodput,
    /// 10^6 bytes per second, as disks are told.
    Throughput,
    /// The same as the time of 1,024 bytes.
    TimePerKb,
    /// CPU time of the measuring threads of both ends for one transaction: what the two ends execute themselves.
    ThreadsPerTransaction,
    /// The same for 1,024 bytes.
    ThreadsPerKb,
    /// CPU time of both ends' machines for one transaction.
    MachinesPerTransaction,
    /// The same for 1,024 bytes.
    MachinesPerKb,
    /// Elapsed time of a file.
    Real,
    /// Median time of a sample's transactions.
    P50,
    /// 99th percentile of the times of a sample's transactions.
    P99,
    /// 99.9th percentile of the times of a sample's transactions.
    P999,
    /// CPU time of the hosts for both ends and one transaction.
    HostPerTransaction,
    /// The same for 1,024 bytes.
    HostPerKb,
    /// CPU time of the measuring threads of both ends for a packet on the wire.
    ThreadsPerPacket,
    /// CPU time of the hosts for both ends and a packet on the wire.
    HostPerPacket,
    /// CPU cycles of the measuring threads of both ends for one transaction.
    CyclesPerTransaction,
    /// The same for 1,024 bytes.
    CyclesPerKb,
    /// The same for a packet on the wire.
    CyclesPerPacket,
}

/// CPU time that was observed beside that of the measuring threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservedCpu {
    /// The machines' own CPU time is known for all samples.
    pub machines: bool,
    /// The run has guests whose host was observed. Without guests the hosts' CPU time is that of the measuring threads.
    pub guests: bool,
}

/// Where a summary has the figure's estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// Under the figure's own name.
    Alone,
    /// With others of its kind: percentiles of round trips, CPU time of a file.
    AmongOthers,
}

/// Requirement of a figure in addition to the counts of the counting endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Counts,
    /// The same, of tests of networks only.
    Networks,
    /// Old runs and foreign ends may have told of no threads: then it is 0.
    Threads,
    /// Between slices, others were measured: then what the machines worked isn't known.
    Machines,
    /// Tests of disks only.
    Disks,
    /// Guests of which the host was observed.
    Guests,
    /// Tests of networks only, if the kernel tells the packets of a socket.
    Packets,
    /// The same, of guests of which the host was observed.
    GuestsPackets,
}

struct FigureEntry {
    figure: SampleFigure,
    /// In documents and tables for programs.
    name: &'static str,
    unit: FigureUnit,
    /// Work of the tests that have it; `None` stands for all work.
    per: Option<WorkUnit>,
    source: Source,
    told: Told,
    value: fn(&Figures) -> f64,
}

/// One entry for each, in the order of the variants.
const FIGURES: [FigureEntry; SampleFigure::COUNT] = [
    FigureEntry {
        figure: SampleFigure::Rate,
        name: "transactions_per_s",
        unit: FigureUnit::PerSecond,
        per: Some(WorkUnit::Transaction),
        source: Source::Networks,
        told: Told::Alone,
        value: Figures::rate,
    },
    FigureEntry {
        figure: SampleFigure::Iops,
        name: "iops",
        unit: FigureUnit::PerSecond,
        per: Some(WorkUnit::Transaction),
        source: Source::Disks,
        told: Told::Alone,
        value: Figures::rate,
    },
    FigureEntry {
        figure: SampleFigure::Rtt,
        name: "rtt_us",
        unit: FigureUnit::Microseconds,
        per: Some(WorkUnit::Transaction),
        source: Source::Counts,
        told: Told::AmongOthers,
        value: Figures::rtt_us,
    },
    FigureEntry {
        figure: SampleFigure::Goodput,
        name: "goodput_mbps",
        unit: FigureUnit::MegabitsPerSecond,
        per: Some(WorkUnit::Kilobyte),
        source: Source::Networks,
        told: Told::Alone,
        value: Figures::goodput_mbps,
    },
    FigureEntry {
        figure: SampleFigure::Throughput,
        name: "throughput_mb_per_s",
        unit: FigureUnit::MegabytesPerSecond,
        per: Some(WorkUnit::Kilobyte),
        source: Source::Disks,
        told: Told::Alone,
        value: |figures| figures.goodput_mbps() / 8.0,
    },
    FigureEntry {
        figure: SampleFigure::TimePerKb,
        name: "ns_per_kb",
        unit: FigureUnit::NanosecondsPerKb,
        per: Some(WorkUnit::Kilobyte),
        source: Source::Counts,
        told: Told::Alone,
        value: |figures| ns_per_kb(figures.goodput_mbps()),
    },
    FigureEntry {
        figure: SampleFigure::ThreadsPerTransaction,
        name: "cpu_threads_us_per_transaction",
        unit: FigureUnit::Microseconds,
        per: Some(WorkUnit::Transaction),
        source: Source::Threads,
        told: Told::Alone,
        value: Figures::threads_us_per_transaction,
    },
    FigureEntry {
        figure: SampleFigure::ThreadsPerKb,
        name: "cpu_threads_ns_per_kb",
        unit: FigureUnit::NanosecondsPerKb,
        per: Some(WorkUnit::Kilobyte),
        source: Source::Threads,
        told: Told::Alone,
        value: |figures| figures.threads_us_per_kb() * 1e3,
    },
    FigureEntry {
        figure: SampleFigure::MachinesPerTransaction,
        name: "cpu_us_per_transaction",
        unit: FigureUnit::Microseconds,
        per: Some(WorkUnit::Transaction),
        source: Source::Machines,
        told: Told::Alone,
        value: Figures::cpu_us_per_transaction,
    },
    FigureEntry {
        figure: SampleFigure::MachinesPerKb,
        name: "cpu_us_per_kb",
        unit: FigureUnit::MicrosecondsPerKb,
        per: Some(WorkUnit::Kilobyte),
        source: Source::Machines,
        told: Told::Alone,
        value: Figures::cpu_us_per_kb,
    },
    FigureEntry {
        figure: SampleFigure::Real,
        name: "real_s",
        unit: FigureUnit::Seconds,
        per: Some(WorkUnit::Kilobyte),
        source: Source::Counts,
        told: Told::AmongOthers,
        value: |figures| figures.file.map_or(f64::NAN, |file| file.real),
    },
    FigureEntry {
        figure: SampleFigure::P50,
        name: "p50_us_of_samples",
        value: |figures| SamplePercentile::P50.of(figures.rtt_ns.as_ref()),
        ..PERCENTILE
    },
    PERCENTILE,
    FigureEntry {
        figure: SampleFigure::P999,
        name: "p999_us_of_samples",
        value: |figures| SamplePercentile::P999.of(figures.rtt_ns.as_ref()),
        ..PERCENTILE
    },
    FigureEntry {
        figure: SampleFigure::HostPerTransaction,
        name: "host_cpu_us_per_transaction",
        unit: FigureUnit::Microseconds,
        per: Some(WorkUnit::Transaction),
        source: Source::Guests,
        told: Told::Alone,
        value: Figures::host_us_per_transaction,
    },
    FigureEntry {
        figure: SampleFigure::HostPerKb,
        name: "host_cpu_ns_per_kb",
        unit: FigureUnit::NanosecondsPerKb,
        per: Some(WorkUnit::Kilobyte),
        source: Source::Guests,
        told: Told::Alone,
        value: |figures| figures.host_us_per_kb() * 1e3,
    },
    FigureEntry {
        figure: SampleFigure::ThreadsPerPacket,
        name: "cpu_threads_ns_per_packet",
        unit: FigureUnit::NanosecondsPerPacket,
        per: None,
        source: Source::Packets,
        told: Told::Alone,
        value: Figures::threads_ns_per_packet,
    },
    FigureEntry {
        figure: SampleFigure::HostPerPacket,
        name: "host_cpu_ns_per_packet",
        unit: FigureUnit::NanosecondsPerPacket,
        per: None,
        source: Source::GuestsPackets,
        told: Told::Alone,
        value: Figures::host_ns_per_packet,
    },
    FigureEntry {
        figure: SampleFigure::CyclesPerTransaction,
        name: "cycles_per_transaction",
        unit: FigureUnit::Cycles,
        per: Some(WorkUnit::Transaction),
        source: Source::Networks,
        told: Told::Alone,
        value: Figures::cycles_per_transaction,
    },
    FigureEntry {
        figure: SampleFigure::CyclesPerKb,
        name: "cycles_per_kb",
        unit: FigureUnit::CyclesPerKb,
        per: Some(WorkUnit::Kilobyte),
        source: Source::Networks,
        told: Told::Alone,
        value: Figures::cycles_per_kb,
    },
    FigureEntry {
        figure: SampleFigure::CyclesPerPacket,
        name: "cycles_per_packet",
        unit: FigureUnit::CyclesPerPacket,
        per: None,
        source: Source::Packets,
        told: Told::Alone,
        value: Figures::cycles_per_packet,
    },
];

const PERCENTILE: FigureEntry = FigureEntry {
    figure: SampleFigure::P99,
    name: "p99_us_of_samples",
    unit: FigureUnit::Microseconds,
    per: Some(WorkUnit::Transaction),
    source: Source::Counts,
    told: Told::Alone,
    value: |figures| SamplePercentile::P99.of(figures.rtt_ns.as_ref()),
};

const _: () = {
    let mut index = 0;
    while index < SampleFigure::COUNT {
        assert!(FIGURES[index].figure as usize == index, "each entry stands at its variant");
        index += 1;
    }
};

impl SampleFigure {
    const COUNT: usize = SampleFigure::VARIANTS.len();

    /// All of them.
    pub const ALL: [SampleFigure; SampleFigure::COUNT] = *SampleFigure::VARIANTS.as_array().expect("as many");

    /// Figures of the machines' CPU time: a test has one of these.
    pub const MACHINES: [SampleFigure; 2] = [SampleFigure::MachinesPerTransaction, SampleFigure::MachinesPerKb];

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

    /// Its value in one sample; not a number where a sample has none.
    pub fn of(self, figures: &Figures) -> f64 {
        (self.entry().value)(figures)
    }

    /// Returns true if a summary has it under its own name, and not with others of its kind.
    pub fn is_told_alone(self) -> bool {
        self.entry().told == Told::Alone
    }

    /// Returns true if the samples of this test have it.
    pub fn is_known(self, test: TestKind, observed: ObservedCpu) -> bool {
        let of_source = match self.entry().source {
            Source::Counts | Source::Threads => true,
            Source::Machines => observed.machines,
            Source::Guests => observed.guests,
            Source::Disks => test.is_of_disk(),
            Source::Networks | Source::Packets => !test.is_of_disk(),
            Source::GuestsPackets => observed.guests && !test.is_of_disk(),
        };
        self.entry().per.is_none_or(|per| per == test.work_unit()) && of_source
    }

    /// Returns true if a figure with this mean was reported.
    pub(crate) fn is_told(self, mean: f64) -> bool {
        self.entry().source != Source::Threads || mean > 0.0
    }

    /// The figure of this name.
    pub(crate) fn named(name: &str) -> Option<SampleFigure> {
        SampleFigure::ALL.into_iter().find(|figure| figure.name() == name)
    }
}

/// All figures of one sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FigureValues([f64; SampleFigure::COUNT]);

impl FigureValues {
    pub(crate) fn of(figures: &Figures) -> FigureValues {
        FigureValues(SampleFigure::ALL.map(|figure| figure.of(figures)))
    }

    /// One of them; not a number where the sample has none.
    pub fn get(&self, figure: SampleFigure) -> f64 {
        self.0[figure as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_known_by_its_name() {
        for figure in SampleFigure::ALL {
            assert_eq!(SampleFigure::named(figure.name()), Some(figure));
        }
    }
}
