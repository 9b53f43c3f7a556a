//! Metrics: a table with one entry for each, read by analysis, stopping rules, tables, CSV, pages
//! and Markdown.
//!
//! A new metric is a variant of [`Metric`] with an entry in `metric/table.rs`, and of [`SampleFigure`] with an entry in
//! its table if no sample has the figure yet. A new part of the hosts' CPU time is a variant of [`CpuRole`] with an
//! entry in `metric/role.rs`, which defines its metric.

mod figure;
mod names;
mod percentile;
mod role;
mod table;
mod unit;

pub use figure::{FigureValues, ObservedCpu, SampleFigure};
pub use names::{CostUnit, CpuRole, Metric};
pub use percentile::SamplePercentile;
pub(crate) use percentile::least_transactions;
pub use unit::FigureUnit;

use crate::{
    run::Figures,
    workload::{TestKind, WorkUnit},
};
use table::{ColumnHead, METRICS, MetricEntry, MetricWords, Scale};
use vtax_stats::Preference;

/// Metrics that are judged together. Each family has its own tables and its own Holm correction.
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
    /// Returns true if the baseline's difference from itself is shown only in its tables.
    pub fn is_told_apart(self) -> bool {
        matches!(self, MetricFamily::Percentiles | MetricFamily::HostCpuParts)
    }
}

impl Metric {
    /// Number of metrics other than the parts of the hosts' CPU time.
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

    /// Returns the metric by which a test is judged.
    pub fn of(test: TestKind) -> Metric {
        test.metrics()[0]
    }

    /// Returns the percentile, if the metric is one.
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

    /// Returns the role, if the metric is a part of the hosts' CPU time.
    pub fn role(self) -> Option<CpuRole> {
        match self {
            Metric::Part(role) => Some(role),
            _ => None,
        }
    }

    /// Returns the metrics of a family by which a test is compared.
    pub fn of_family(test: TestKind, family: MetricFamily) -> impl Iterator<Item = Metric> {
        test.metrics().iter().copied().filter(move |metric| metric.family() == family)
    }

    /// Returns the metrics by which tests are compared but not judged.
    pub fn secondary() -> impl Iterator<Item = Metric> {
        let judges = |metric: Metric| TestKind::ALL.into_iter().any(|test| Metric::of(test) == metric);
        Metric::ALL.into_iter().filter(move |metric| !judges(*metric))
    }

    fn entry(self) -> &'static MetricEntry {
        &METRICS[self.index()]
    }

    /// Returns its index in the table.
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

    /// Returns its name in documents and in tables for programs.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// Returns the column of its values in tables for programs, if no test is judged by it.
    pub fn column(self) -> &'static str {
        self.entry().column
    }

    /// Returns the better direction.
    pub fn direction(self) -> Preference {
        self.entry().direction
    }

    /// Returns the family with which it is judged.
    pub fn family(self) -> MetricFamily {
        self.entry().family
    }

    /// Returns its figure in samples of this test.
    pub fn figure(self, test: TestKind) -> SampleFigure {
        self.scale(test).figure
    }

    /// Returns its value in one sample of this test: µs, Mb/s or seconds; CPU: µs per transaction, ns per KB.
    pub fn value(self, test: TestKind, figures: &Figures) -> f64 {
        self.figure(test).of(figures)
    }

    /// Returns the unit in which reports state a cost of this metric.
    pub fn cost_unit(self, test: TestKind) -> CostUnit {
        self.scale(test).cost
    }

    /// Returns a value of the metric in the unit of its costs: a goodput in Mb/s becomes a time per
    /// KB.
    pub fn in_unit(self, value: f64) -> f64 {
        (self.entry().in_unit)(value)
    }

    /// Returns a ratio of two values as the ratio of their costs: half the goodput takes twice the
    /// time.
    pub fn cost_ratio(self, ratio: f64) -> f64 {
        match self.direction() {
            Preference::LowerIsBetter => ratio,
            Preference::HigherIsBetter => ratio.recip(),
        }
    }

    /// Returns the fraction by which it is worse, for a difference of logarithms: 30 % more time, 23 % less bandwidth.
    pub fn worse(self, log: f64) -> f64 {
        match self.direction() {
            Preference::LowerIsBetter => log.exp_m1(),
            Preference::HigherIsBetter => -(-log).exp_m1(),
        }
    }

    /// Returns a noun, e.g. `round trip`.
    pub fn noun(self) -> &'static str {
        self.entry().words.noun
    }

    /// Returns a figure that is shown next to it, with its column heading: for response times, the
    /// IOPS.
    pub fn beside(self) -> Option<(SampleFigure, &'static str)> {
        self.entry().words.beside
    }

    /// Returns the exact definition, e.g. `goodput at the receiver`.
    pub fn described(self) -> &'static str {
        self.entry().words.described
    }

    /// Returns the unit of CPU time for tests of this kind of work: per transaction, or per 1,024 bytes.
    pub fn unit_of_cpu(test: TestKind) -> FigureUnit {
        Metric::Cpu.figure(test).unit()
    }

    /// Returns the unit of its values.
    pub fn unit(self, test: TestKind) -> &'static str {
        self.figure(test).unit().text()
    }

    /// Returns the heading of a column of its values in this unit: `RTT`, `Mb/s`.
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

/// Returns the time for 1,024 bytes at this goodput: 8,192 bits at 10^6 per second are 8,192 µs.
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
