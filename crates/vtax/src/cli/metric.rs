//! The metrics that an option can name.

use vtax_model::metric::Metric;

use crate::one_of::Choice;

/// A metric, or none for each test's own.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ChosenMetric(pub(crate) Option<Metric>);

pub(super) const METRICS: [Choice<ChosenMetric>; 6] = [
    ("figure", "The test's own: mean round trip or response time, bandwidth, or time of a file", ChosenMetric(None)),
    ("p50", "Median time of transactions or I/Os", ChosenMetric(Some(Metric::P50))),
    ("p99", "99th percentile of these times", ChosenMetric(Some(Metric::P99))),
    ("p99.9", "99.9th percentile of these times", ChosenMetric(Some(Metric::P999))),
    ("cpu", "CPU time of both endpoints' threads, or of fio's", ChosenMetric(Some(Metric::Cpu))),
    ("host-cpu", "CPU time of the hosts for both endpoints, including guests", ChosenMetric(Some(Metric::HostCpu))),
];

/// Returns the name of a metric on the command line and in lists.
pub(super) fn word(metric: Metric) -> &'static str {
    match metric {
        Metric::P999 => "p99.9",
        Metric::HostCpu => "host-cpu",
        other => other.name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_has_one_name() {
        let named = METRICS.iter().filter_map(|(name, _, chosen)| Some((*name, chosen.0?)));
        named.for_each(|(name, metric)| assert_eq!(name, word(metric)));
    }
}
