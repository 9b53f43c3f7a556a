//! Metrics: a table with one entry for each, which analysis, stopping rules, tables, CSV,
//! pages and Markdown ask.
//!
//! A new metric is a variant of [`Metric`] with an entry in `metric/table.rs`, and of [`SampleFigure`] with an entry in its
//! table if no sample has the figure yet. A new part of the hosts' CPU time is a variant of [`CpuRole`] with an entry
//! in `metric/role.rs`, which makes its metric.

mod figure;
mod names;
mod percentile;
mod role;
mod table;
mod unit;

pub use figure::{FigureValues, ObservedCpu, SampleFigure};
pub use names::{CostUnit, CpuRole, Metric};
pub use percentile::SamplePercentile;
pub use unit::FigureUnit;

use crate::{
    run::Figures,
    workload::{TestKind, WorkUnit},
};
use table::{ColumnHead, METRICS, MetricEntry, MetricWords, Scale};
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
    /// Parts of the CPU time of the hosts, by role.
    HostCpuParts,
}

impl MetricFamily {
    /// Returns true if the baseline's difference from itself is told in its tables only.
    pub fn is_told_apart(self) -> bool {
        matches!(self, MetricFamily::Percentiles | MetricFamily::HostCpuParts)
    }
}

impl Metric {
    /// Metrics other than the parts of the hosts' CPU time.
    const OTHERS: usize = 12;
    const COUNT: usize = Metric::OTHERS + CpuRole::COUNT;

    /// All of them.
    pub const ALL: [Metric; Metric::COUNT] = {
        let mut all = [Metric::Rtt; Metric::COUNT];
        let mut index = 0;
        while index < Metric::COUNT {
            all[index] = METRICS[index].metric;
            index += 1;
        }
        all
    };

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

    /// The role whose CPU time it is, if it is a part of the hosts' CPU time.
    pub fn role(self) -> Option<CpuRole> {
        match self {
            Metric::Part(role) => Some(role),
            _ => None,
        }
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
        &METRICS[self.index()]
    }

    /// Its place in the table.
    const fn index(self) -> usize {
        match self {
            Metric::Rtt => 0,
            Metric::Response => 1,
            Metric::Goodput => 2,
            Metric::Throughput => 3,
            Metric::Real => 4,
            Metric::Cpu => 5,
            Metric::P50 => 6,
            Metric::P99 => 7,
            Metric::P999 => 8,
            Metric::HostCpu => 9,
            Metric::Suspend => 10,
            Metric::Migrate => 11,
            Metric::Part(role) => Metric::OTHERS + role as usize,
        }
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

    /// A figure that is told next to it, with the head of its column: for response times, the IOPS.
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
            ColumnHead::Test => test.quantity().short,
            ColumnHead::Unit => unit,
            ColumnHead::Word(word) => word,
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
            assert_eq!(serde_json::from_value::<Metric>(metric.name().into()).expect("a metric"), metric);
        }
    }

    #[test]
    fn every_metric_is_of_some_test() {
        for metric in Metric::ALL {
            assert!(TestKind::ALL.into_iter().any(|test| test.metrics().contains(&metric)), "{metric:?}");
        }
    }
}
