//! The metrics that an option can name.

use vtax_model::metric::{CpuRole, Metric};

use crate::one_of::Choice;

/// A metric, or none for each test's own.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ChosenMetric(pub(crate) Option<Metric>);

const fn part(role: CpuRole) -> ChosenMetric {
    ChosenMetric(Some(Metric::Part(role)))
}

pub(super) const METRICS: [Choice<ChosenMetric>; 15] = [
    ("figure", "The test's own, e.g. mean round trip, response time, bandwidth", ChosenMetric(None)),
    ("p50", "Median time of transactions or I/Os", ChosenMetric(Some(Metric::P50))),
    ("p99", "99th percentile of these times", ChosenMetric(Some(Metric::P99))),
    ("p99.9", "99.9th percentile of these times", ChosenMetric(Some(Metric::P999))),
    ("cpu", "CPU time of both endpoints' threads, or of fio's", ChosenMetric(Some(Metric::Cpu))),
    ("host-cpu", "CPU time of the hosts for both endpoints, including guests", ChosenMetric(Some(Metric::HostCpu))),
    ("host-cpu-guest", "Part of host-cpu: instructions of the endpoints' guests", part(CpuRole::Guest)),
    ("host-cpu-service", "Part of host-cpu: guests that serve switches", part(CpuRole::Service)),
    ("host-cpu-vhost", "Part of host-cpu: workers of vhost", part(CpuRole::Vhost)),
    ("host-cpu-iothread", "Part of host-cpu: threads of QEMU that serve only disks", part(CpuRole::Iothread)),
    ("host-cpu-daemon", "Part of host-cpu: storage daemons", part(CpuRole::Daemon)),
    ("host-cpu-qemu", "Part of host-cpu: the rest of QEMU", part(CpuRole::Qemu)),
    ("host-cpu-relay", "Part of host-cpu: programs that carry a zone's traffic, e.g. pasta", part(CpuRole::Relay)),
    ("host-cpu-kernel", "The hosts' kernel on behalf of guests, a share of these", part(CpuRole::Kernel)),
    ("host-cpu-interrupts", "Interrupts of the whole machine, whatever caused them", part(CpuRole::Interrupts)),
];

/// Returns the name of a metric on the command line and in lists.
pub(super) fn word(metric: Metric) -> &'static str {
    let named = METRICS.iter().find(|(.., chosen)| chosen.0 == Some(metric));
    named.map_or(metric.name(), |(word, ..)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_documents_with_hyphens() {
        for metric in Metric::ALL.into_iter().filter(|metric| *metric != Metric::P999) {
            assert_eq!(word(metric), metric.name().replace('_', "-"));
        }
    }

    #[test]
    fn every_part_can_be_named() {
        let named = |role: CpuRole| METRICS.iter().any(|(.., chosen)| chosen.0 == Some(Metric::Part(role)));
        assert!(CpuRole::ALL.into_iter().all(named));
    }
}
