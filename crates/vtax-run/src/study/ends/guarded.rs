//! The study's guarded paths: a light load on each while a sample is taken, whose round trips are stored with the
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

/// Enough for the 99th percentile of a sample, and few enough to use only a few percent of a CPU.
const PER_SECOND: RequestRate = RequestRate::new(1_000).expect("above zero");

impl ConnectedEnds {
    /// Returns both endpoints of each path, with a load that lasts as long as the turns of the
    /// rows.
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

    /// Returns the round trips of each path, counted from when requests were actually sent: how late a thread sends by
    /// the clock doesn't depend on the path.
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
