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
