//! Guarded paths of a study. Each has a light load while a sample is taken, whose round trips are stored with the
//! sample.

use vtax_model::{
    measurement::{EndReport, IntervalRtt},
    options::{ArrivalProcess, Arrivals, RequestRate, TestOptions},
    units::{ByteSize, Span},
    workload::{TestSpec, Transport, Warmup, Workload},
};
use vtax_wire::measure::AgentPair;

use super::{ConnectedEnds, end::ConnectedEnd};
use crate::study::{runner::SampleError, timetable::Timetable};

/// Enough for the 99th percentile of a sample, at a cost of only a few percent of a CPU.
const PER_SECOND: RequestRate = RequestRate::new(1_000).expect("above zero");

impl ConnectedEnds {
    /// Returns both endpoints of each path, with a load that lasts until all slices of the rows have ended.
    pub(super) fn guarded_pairs(&self, warmup: Span, timetable: &Timetable<'_>) -> Vec<AgentPair<'_>> {
        let spec = TestSpec {
            transport: Transport::Tcp,
            workload: Workload::Rr { request: ByteSize(1), response: ByteSize(1) },
            streams: 1,
            warmup: Warmup::For(warmup),
            duration: Span(timetable.ends().saturating_sub(warmup.0)),
            slices: None,
            options: TestOptions {
                arrivals: Some(Arrivals { per_second: PER_SECOND, process: ArrivalProcess::Poisson }),
                ..TestOptions::default()
            },
        };
        self.guarded.iter().map(|ends| self.pair(ends, &spec)).collect()
    }

    /// Returns the round trips of each path. They begin when a request was actually sent, not when it was due: the
    /// delay of the sending thread doesn't depend on the path.
    pub(super) fn guarded_rtt(&self, reports: &[(EndReport, EndReport)]) -> Result<Vec<IntervalRtt>, SampleError> {
        let rtt = |(nth, (initiator, _)): (usize, &(EndReport, EndReport))| {
            let nothing = || self.of_guarded(nth, SampleError::cell("no request was answered"));
            let sent = initiator.rtt_from_send.as_ref().filter(|rtt| !rtt.is_empty());
            sent.map(IntervalRtt::of).ok_or_else(nothing)
        };
        reports.iter().enumerate().map(rtt).collect()
    }

    /// Adds the endpoints of a guarded path to its error.
    pub(super) fn of_guarded(&self, nth: usize, error: SampleError) -> SampleError {
        match (error, self.guarded.get(nth)) {
            (
                SampleError::Cell { error, partial },
                Some([ConnectedEnd { name: from, .. }, ConnectedEnd { name: to, .. }]),
            ) => SampleError::Cell { error: format!("--guard: from {from} to {to}: {error}"), partial },
            (error, _) => error,
        }
    }
}
