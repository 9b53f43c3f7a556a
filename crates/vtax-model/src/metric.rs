//! Metrics: a table with one entry for each, which analysis, stopping rules, tables, CSV,
//! pages and Markdown ask.
//!
//! A new metric is a variant of [`Metric`] with an entry in `METRICS`, and of [`SampleFigure`] with an entry in its
//! table if no sample has the figure yet.

mod figure;
mod names;
mod percentile;
mod unit;

use strum::VariantArray;

pub use figure::{FigureValues, ObservedCpu, SampleFigure};
pub use names::{CostUnit, Metric};
pub use percentile::SamplePercentile;
pub use unit::{FigureUnit, UnitEstimate};

use crate::{
    run::Figures,
    workload::{TestKind, WorkUnit},
};
use vtax_stats::Preference;

/// Metrics that are judged together. Each family has tables and a correction by Holm of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MetricFamily {
    /// Performance.
    Speed,
    /// CPU time of the measuring threads.
    Cpu,
    /// Percentiles of the times of transactions.
    Percentiles,
    /// CPU time of the hosts.
    HostCpu,
}

/// A metric as it is measured in tests of one kind of work.
#[derive(Clone, Copy)]
struct Scale {
    /// Where a sample has its value.
    figure: SampleFigure,
    /// Unit of its costs.
    cost: CostUnit,
    /// Without a test and a unit: `CPU time`. None if each test has words of its own for it.
    alone: Option<&'static str>,
}

struct MetricEntry {
    metric: Metric,
    /// In documents and at the head of columns for programs.
    name: &'static str,
    /// Unit of its values in tables for programs, if no test is judged by it.
    column: &'static str,
    direction: Preference,
    family: MetricFamily,
    /// Its value in the unit of its costs.
    in_unit: fn(f64) -> f64,
    /// For transactions, and for bytes.
    scales: [Scale; 2],
    words: MetricWords,
}

struct MetricWords {
    /// Noun of the comparison, e.g. `round trip`.
    noun: &'static str,
    /// Exact definition of the measured quantity.
    described: &'static str,
    /// The title of a table before the test, if that isn't the test's own quantity.
    title: Option<Title>,
    /// Another figure of the same samples that tables tell beside it, and the head of its column.
    beside: Option<(SampleFigure, &'static str)>,
    /// The head of a column of its values.
    head: Head,
    /// Around the size of a rise: what takes so much `longer`.
    more: [&'static str; 2],
    /// Around the size of a fall.
    less: [&'static str; 2],
}

/// Owner of the CPU time.
struct Title {
    network: &'static str,
    disk: &'static str,
}

enum Head {
    /// The test's own quantity: `RTT`.
    Test,
    /// The unit, which says enough.
    Unit,
    Word(&'static str),
}

/// One entry for each, in the order of the variants.
const METRICS: [MetricEntry; Metric::COUNT] = [
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
            head: Head::Test,
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
            head: Head::Test,
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
            head: Head::Unit,
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
            head: Head::Unit,
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
            head: Head::Unit,
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
            head: Head::Word("CPU"),
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
            head: Head::Word("p99"),
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
            head: Head::Word("p99.9"),
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
            head: Head::Word("host CPU"),
            more: ["takes", "more CPU time of the host"],
            less: ["takes", "less CPU time of the host"],
        },
    },
];

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
        head: Head::Word("p50"),
        more: ["takes", "longer at the median"],
        less: ["takes", "less time at the median"],
    },
};

const _: () = {
    let mut index = 0;
    while index < Metric::COUNT {
        assert!(METRICS[index].metric as usize == index, "each entry stands at its variant");
        index += 1;
    }
};

impl Scale {
    const fn judged(figure: SampleFigure, cost: CostUnit) -> Scale {
        Scale { figure, cost, alone: None }
    }
}

impl Metric {
    const COUNT: usize = Metric::VARIANTS.len();

    /// All of them.
    pub const ALL: [Metric; Metric::COUNT] = *Metric::VARIANTS.as_array().expect("as many");

    /// The metric that a test is judged by.
    pub fn of(test: TestKind) -> Metric {
        test.metrics()[0]
    }

    /// The percentile that it is, if it is one.
    pub fn percentile(self) -> Option<SamplePercentile> {
        match self {
            Metric::P50 => Some(SamplePercentile::P50),
            Metric::P99 => Some(SamplePercentile::P99),
            Metric::P999 => Some(SamplePercentile::P999),
            _ => None,
        }
    }

    /// Returns the metric that was chosen for tests of this kind; `None` if they lack it. Without a choice, each test has
    /// its own.
    pub fn chosen(choice: Option<Metric>, test: TestKind) -> Option<Metric> {
        let choice = choice.unwrap_or(Metric::of(test));
        test.metrics().contains(&choice).then_some(choice)
    }

    /// Those of a family that a test is compared by.
    pub fn of_family(test: TestKind, family: MetricFamily) -> impl Iterator<Item = Metric> {
        test.metrics().iter().copied().filter(move |metric| metric.family() == family)
    }

    /// Those that tests are compared by and no test is judged by.
    pub fn secondary() -> impl Iterator<Item = Metric> {
        let judges = |metric: Metric| TestKind::ALL.into_iter().any(|test| Metric::of(test) == metric);
        Metric::ALL.into_iter().filter(move |metric| !judges(*metric))
    }

    fn entry(self) -> &'static MetricEntry {
        &METRICS[self as usize]
    }

    fn scale(self, test: TestKind) -> &'static Scale {
        let [transactions, bytes] = &self.entry().scales;
        match test.work_unit() {
            WorkUnit::Transaction => transactions,
            WorkUnit::Kilobyte => bytes,
        }
    }

    /// Its name in documents and in tables for programs.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// The column of its values in tables for programs, where no test is judged by it.
    pub fn column(self) -> &'static str {
        self.entry().column
    }

    /// Returns the better direction.
    pub fn direction(self) -> Preference {
        self.entry().direction
    }

    /// With which others it is judged.
    pub fn family(self) -> MetricFamily {
        self.entry().family
    }

    /// The figure that it is of samples of this test.
    pub fn figure(self, test: TestKind) -> SampleFigure {
        self.scale(test).figure
    }

    /// Its value in one sample of this test: µs, Mb/s or seconds; CPU: µs for a transaction, ns for a KB.
    pub fn value(self, test: TestKind, figures: &Figures) -> f64 {
        self.figure(test).of(figures)
    }

    /// The unit in which a cost is told.
    pub fn cost_unit(self, test: TestKind) -> CostUnit {
        self.scale(test).cost
    }

    /// A value of the metric in the unit of its costs: a goodput in Mb/s is a time per KB.
    pub fn in_unit(self, value: f64) -> f64 {
        (self.entry().in_unit)(value)
    }

    /// A ratio of two values as the ratio of their costs: half the goodput takes twice the time.
    pub fn cost_ratio(self, ratio: f64) -> f64 {
        match self.direction() {
            Preference::LowerIsBetter => ratio,
            Preference::HigherIsBetter => ratio.recip(),
        }
    }

    /// The fraction by which it is worse, for a difference of logarithms: 30 % more time, 23 % less bandwidth.
    pub fn worse(self, log: f64) -> f64 {
        match self.direction() {
            Preference::LowerIsBetter => log.exp_m1(),
            Preference::HigherIsBetter => -(-log).exp_m1(),
        }
    }

    /// `round trip`
    pub fn noun(self) -> &'static str {
        self.entry().words.noun
    }

    /// A figure that is told beside it, with the head of its column: for response times, the IOPS.
    pub fn beside(self) -> Option<(SampleFigure, &'static str)> {
        self.entry().words.beside
    }

    /// `goodput at the receiver`
    pub fn described(self) -> &'static str {
        self.entry().words.described
    }

    /// The unit in which CPU time is told of tests of one kind of work: for a transaction, or for 1,024 bytes.
    pub fn unit_of_cpu(test: TestKind) -> FigureUnit {
        Metric::Cpu.figure(test).unit()
    }

    /// The unit of its values.
    pub fn unit(self, test: TestKind) -> &'static str {
        self.figure(test).unit().text()
    }

    /// The head of a column of its values in this unit: `RTT`, `Mb/s`.
    pub fn head(self, test: TestKind, unit: &'static str) -> &'static str {
        match self.entry().words.head {
            Head::Test => test.quantity().short,
            Head::Unit => unit,
            Head::Word(word) => word,
        }
    }

    /// Returns the title of a table with the unit, e.g. `Reverse bandwidth (Mb/s)`, `CPU of both endpoints' threads, RR (µs)`.
    pub fn caption(self, test: TestKind, unit: &str) -> String {
        match &self.entry().words.title {
            Some(title) if test.is_of_disk() => format!("{} ({unit})", title.disk),
            Some(title) => format!("{}, {test} ({unit})", title.network),
            None => format!("{} ({unit})", test.quantity().full),
        }
    }

    /// Returns the head for a cell whose test is known, e.g. `RTT (µs)`, `CPU time per transaction (µs)`.
    pub fn quantity(self, test: TestKind, unit: &str) -> String {
        let alone = self.scale(test).alone.filter(|_| !test.is_of_disk());
        alone.map_or_else(|| self.caption(test, unit), |alone| format!("{alone} ({unit})"))
    }

    /// Returns the head next to a transport, e.g. `RTT`, `RR's CPU`.
    pub fn name_of(self, test: TestKind) -> String {
        match self.entry().words.title {
            Some(_) => format!("{test}'s {}", self.head(test, self.unit(test))),
            None => test.quantity().full.to_owned(),
        }
    }

    /// Returns a phrase for a ratio, e.g. `takes 12 % longer`.
    pub fn changed(self, ratio: f64, size: &str) -> String {
        let MetricWords { more, less, .. } = &self.entry().words;
        let [verb, rest] = if ratio > 1.0 { more } else { less };
        format!("{verb} {size} {rest}")
    }
}

/// The time that 1,024 bytes take at this goodput: 8,192 bits at 10^6 a second each are 8,192 µs.
pub fn ns_per_kb(goodput_mbps: f64) -> f64 {
    8192.0 * 1e3 / goodput_mbps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_that_of_documents() {
        for metric in Metric::ALL {
            assert_eq!(serde_json::to_value(metric).expect("a name"), metric.name());
        }
    }

    #[test]
    fn every_metric_is_of_some_test() {
        for metric in Metric::ALL {
            assert!(TestKind::ALL.into_iter().any(|test| test.metrics().contains(&metric)), "{metric:?}");
        }
    }
}
