//! The table of metrics.

use super::{CostUnit, CpuRole, Metric, MetricFamily, SampleFigure, ns_per_kb};
use vtax_stats::Preference;

/// A metric as it is measured in tests of one kind of work.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    /// Figure of a sample with its value.
    pub(super) figure: SampleFigure,
    /// Unit of its costs.
    pub(super) cost: CostUnit,
    /// Title without a test and a unit: `CPU time`. None if each test has its own words.
    pub(super) alone: Option<&'static str>,
}

pub(super) struct MetricEntry {
    pub(super) metric: Metric,
    /// In documents and as the column heading for programs.
    pub(super) name: &'static str,
    /// Column of its values in tables for programs, if no test is judged by it.
    pub(super) column: &'static str,
    pub(super) direction: Preference,
    pub(super) family: MetricFamily,
    /// Its value in the unit of its costs.
    pub(super) in_unit: fn(f64) -> f64,
    /// For transactions, and for bytes.
    pub(super) scales: [Scale; 2],
    pub(super) words: MetricWords,
}

pub(super) struct MetricWords {
    /// Noun of the comparison, e.g. `round trip`.
    pub(super) noun: &'static str,
    /// Exact definition of the measured quantity.
    pub(super) described: &'static str,
    /// Beginning of a table's title, if it isn't the test's own quantity.
    pub(super) title: Option<Title>,
    /// Another figure of the same samples that tables show next to it, and its column heading.
    pub(super) beside: Option<(SampleFigure, &'static str)>,
    /// Heading of a column of its values.
    pub(super) head: ColumnHead,
    /// Words around the size of a rise, e.g. `takes … longer`.
    pub(super) more: [&'static str; 2],
    /// Words around the size of a fall.
    pub(super) less: [&'static str; 2],
}

/// Owner of the CPU time.
pub(super) struct Title {
    pub(super) network: &'static str,
    pub(super) disk: &'static str,
}

pub(super) enum ColumnHead {
    /// The test's own quantity: `RTT`.
    Test,
    /// The unit, which is sufficient.
    Unit,
    Word(&'static str),
}

/// One entry for each, in the order of the variants.
pub(super) const METRICS: [MetricEntry; Metric::COUNT] = [
    MetricEntry {
        metric: Metric::Rtt,
        name: "rtt",
        column: "rtt",
        direction: Preference::LowerIsBetter,
        family: MetricFamily::Speed,
        in_unit: std::convert::identity,
        scales: [Scale::judged(SampleFigure::Rtt, CostUnit::Microseconds); 2],
        words: MetricWords {
            noun: "round trip",
            described: "mean round trip",
            title: None,
            beside: None,
            head: ColumnHead::Test,
            more: ["takes", "longer"],
            less: ["takes", "less time"],
        },
    },
    MetricEntry {
        metric: Metric::Response,
        name: "response",
        column: "response",
        direction: Preference::LowerIsBetter,
        family: MetricFamily::Speed,
        in_unit: std::convert::identity,
        scales: [Scale::judged(SampleFigure::Rtt, CostUnit::Microseconds); 2],
        words: MetricWords {
            noun: "response time",
            described: "mean response time of an I/O",
            title: None,
            beside: Some((SampleFigure::Iops, "I/Os/s")),
            head: ColumnHead::Test,
            more: ["takes", "longer"],
            less: ["takes", "less time"],
        },
    },
    MetricEntry {
        metric: Metric::Goodput,
        name: "goodput",
        column: "goodput",
        direction: Preference::HigherIsBetter,
        family: MetricFamily::Speed,
        in_unit: ns_per_kb,
        scales: [Scale::judged(SampleFigure::Goodput, CostUnit::NanosecondsPerKb); 2],
        words: MetricWords {
            noun: "goodput",
            described: "goodput at the receiver",
            title: None,
            beside: None,
            head: ColumnHead::Unit,
            more: ["has", "more bandwidth"],
            less: ["has", "less bandwidth"],
        },
    },
    MetricEntry {
        metric: Metric::Throughput,
        name: "throughput",
        column: "throughput",
        direction: Preference::HigherIsBetter,
        family: MetricFamily::Speed,
        in_unit: |megabytes_per_s| ns_per_kb(megabytes_per_s * 8.0),
        scales: [Scale::judged(SampleFigure::Throughput, CostUnit::NanosecondsPerKb); 2],
        words: MetricWords {
            noun: "bandwidth of the disk",
            described: "bytes read and written per second",
            title: None,
            beside: None,
            head: ColumnHead::Unit,
            more: ["has", "more bandwidth"],
            less: ["has", "less bandwidth"],
        },
    },
    MetricEntry {
        metric: Metric::Real,
        name: "real",
        column: "real",
        direction: Preference::LowerIsBetter,
        family: MetricFamily::Speed,
        in_unit: std::convert::identity,
        scales: [Scale::judged(SampleFigure::Real, CostUnit::Seconds); 2],
        words: MetricWords {
            noun: "elapsed",
            described: "elapsed time of a file transfer",
            title: None,
            beside: None,
            head: ColumnHead::Unit,
            more: ["takes", "longer"],
            less: ["takes", "less time"],
        },
    },
    MetricEntry {
        metric: Metric::Cpu,
        name: "cpu",
        column: "cpu_threads",
        direction: Preference::LowerIsBetter,
        family: MetricFamily::Cpu,
        in_unit: std::convert::identity,
        scales: [
            Scale {
                alone: Some("CPU time per transaction"),
                ..Scale::judged(SampleFigure::ThreadsPerTransaction, CostUnit::Microseconds)
            },
            Scale { alone: Some("CPU time"), ..Scale::judged(SampleFigure::ThreadsPerKb, CostUnit::NanosecondsPerKb) },
        ],
        words: MetricWords {
            noun: "CPU",
            described: "CPU time of both endpoints' threads",
            title: Some(Title { network: "CPU of both endpoints' threads", disk: "CPU of fio's threads" }),
            beside: None,
            head: ColumnHead::Word("CPU"),
            more: ["takes", "more CPU time"],
            less: ["takes", "less CPU time"],
        },
    },
    MEDIAN,
    MetricEntry {
        metric: Metric::P99,
        name: "p99",
        column: "p99_us_of_samples",
        scales: [Scale::judged(SampleFigure::P99, CostUnit::Microseconds); 2],
        words: MetricWords {
            noun: "p99",
            described: "99th percentile of the times of a sample's transactions",
            title: Some(Title { network: "99th percentile", disk: "99th percentile of the response time" }),
            head: ColumnHead::Word("p99"),
            more: ["takes", "longer at the 99th percentile"],
            less: ["takes", "less time at the 99th percentile"],
            ..MEDIAN.words
        },
        ..MEDIAN
    },
    MetricEntry {
        metric: Metric::P999,
        name: "p999",
        column: "p999_us_of_samples",
        scales: [Scale::judged(SampleFigure::P999, CostUnit::Microseconds); 2],
        words: MetricWords {
            noun: "p99.9",
            described: "99.9th percentile of the times of a sample's transactions",
            title: Some(Title { network: "99.9th percentile", disk: "99.9th percentile of the response time" }),
            head: ColumnHead::Word("p99.9"),
            more: ["takes", "longer at the 99.9th percentile"],
            less: ["takes", "less time at the 99.9th percentile"],
            ..MEDIAN.words
        },
        ..MEDIAN
    },
    MetricEntry {
        metric: Metric::HostCpu,
        name: "host_cpu",
        column: "host_cpu",
        direction: Preference::LowerIsBetter,
        family: MetricFamily::HostCpu,
        in_unit: std::convert::identity,
        scales: [
            Scale {
                alone: Some("Host CPU time per transaction"),
                ..Scale::judged(SampleFigure::HostPerTransaction, CostUnit::Microseconds)
            },
            Scale {
                alone: Some("Host CPU time"),
                ..Scale::judged(SampleFigure::HostPerKb, CostUnit::NanosecondsPerKb)
            },
        ],
        words: MetricWords {
            noun: "host CPU",
            described: "CPU time of the hosts for both endpoints",
            title: Some(Title { network: "CPU of the hosts for both endpoints", disk: "CPU of the host" }),
            beside: None,
            head: ColumnHead::Word("host CPU"),
            more: ["takes", "more CPU time of the host"],
            less: ["takes", "less CPU time of the host"],
        },
    },
    MetricEntry {
        metric: Metric::Suspend,
        name: "suspend",
        column: "suspend",
        direction: Preference::LowerIsBetter,
        family: MetricFamily::Speed,
        in_unit: std::convert::identity,
        scales: [Scale::judged(SampleFigure::Suspend, CostUnit::Milliseconds); 2],
        words: MetricWords {
            noun: "suspend time",
            described: "time from the stop of the virtual CPUs at the source to their start at the target",
            title: None,
            beside: Some((SampleFigure::DirtyRate, "measured dirty rate (MB/s)")),
            head: ColumnHead::Test,
            more: ["suspends the guest", "longer"],
            less: ["suspends the guest", "for less time"],
        },
    },
    MetricEntry {
        metric: Metric::Migrate,
        name: "migrate",
        column: "migrate_s",
        direction: Preference::LowerIsBetter,
        family: MetricFamily::Speed,
        in_unit: std::convert::identity,
        scales: [Scale::judged(SampleFigure::Migrate, CostUnit::Seconds); 2],
        words: MetricWords {
            noun: "total time",
            described: "time of the whole migration, by the source's QEMU",
            title: Some(Title { network: "Total time", disk: "Total time" }),
            beside: Some((SampleFigure::Sent, "sent (MB)")),
            head: ColumnHead::Word("total"),
            more: ["takes", "longer in total"],
            less: ["takes", "less time in total"],
        },
    },
    part(CpuRole::Guest),
    part(CpuRole::Service),
    part(CpuRole::Vhost),
    part(CpuRole::Iothread),
    part(CpuRole::Daemon),
    part(CpuRole::Qemu),
    part(CpuRole::Relay),
    part(CpuRole::Kernel),
    part(CpuRole::Interrupts),
];

/// The metric of a part of the hosts' CPU time.
const fn part(role: CpuRole) -> MetricEntry {
    let entry = role.entry();
    let [transaction, kb] = entry.figures;
    MetricEntry {
        metric: Metric::Part(role),
        name: entry.name,
        column: entry.name,
        direction: Preference::LowerIsBetter,
        family: MetricFamily::HostCpuParts,
        in_unit: std::convert::identity,
        scales: [Scale::judged(transaction, CostUnit::Microseconds), Scale::judged(kb, CostUnit::NanosecondsPerKb)],
        words: MetricWords {
            noun: entry.noun,
            described: entry.described,
            title: Some(Title { network: entry.title, disk: entry.title }),
            beside: None,
            head: ColumnHead::Word(entry.noun),
            more: ["takes", entry.more],
            less: ["takes", entry.less],
        },
    }
}

/// The other percentiles differ from the median in figure and words.
const MEDIAN: MetricEntry = MetricEntry {
    metric: Metric::P50,
    name: "p50",
    column: "p50_us_of_samples",
    direction: Preference::LowerIsBetter,
    family: MetricFamily::Percentiles,
    in_unit: std::convert::identity,
    scales: [Scale::judged(SampleFigure::P50, CostUnit::Microseconds); 2],
    words: MetricWords {
        noun: "median",
        described: "median time of a sample's transactions",
        title: Some(Title { network: "Median", disk: "Median response time" }),
        beside: None,
        head: ColumnHead::Word("p50"),
        more: ["takes", "longer at the median"],
        less: ["takes", "less time at the median"],
    },
};

const _: () = {
    let mut index = 0;
    while index < Metric::COUNT {
        assert!(METRICS[index].metric.index() == index, "each entry stands at its variant");
        index += 1;
    }
};

impl Scale {
    const fn judged(figure: SampleFigure, cost: CostUnit) -> Scale {
        Scale { figure, cost, alone: None }
    }
}
