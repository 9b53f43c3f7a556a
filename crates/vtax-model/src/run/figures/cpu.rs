//! CPU time of a sample.

use serde::{Deserialize, Serialize};

use crate::measurement::{EndReport, MachineCpu, SessionCpu, ThreadCpu};

/// CPU seconds of a sample.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CpuFigures {
    /// True if both endpoints were on one machine, whose CPU time then must not be counted twice.
    pub one_machine: bool,
    /// The endpoint that sends requests or the stream.
    pub initiator: EndCpu,
    /// The endpoint that answers or receives.
    pub responder: EndCpu,
}

/// CPU seconds at one endpoint.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EndCpu {
    /// Each measuring thread.
    pub threads: Vec<ThreadCpu>,
    /// The whole machine in this endpoint's measured time.
    pub machine: MachineCpu,
    /// Measured time of this endpoint, in seconds.
    pub seconds: f64,
    /// The CPU time from the first slice to the last one, if the sample was cut into slices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionCpu>,
}

impl CpuFigures {
    /// Returns the machines that were observed, each once.
    pub(super) fn machines(&self) -> impl Iterator<Item = &MachineCpu> {
        let responder = (!self.one_machine).then_some(&self.responder);
        [&self.initiator].into_iter().chain(responder).map(|end| &end.machine).filter(|machine| machine.cpus > 0)
    }

    /// Returns true if the CPU time of the machines is known: between slices others were measured.
    pub fn tells_machines(&self) -> bool {
        self.machines().next().is_some()
    }

    /// Returns true if the CPU time of a machine is known from ticks only, as in older versions.
    pub fn is_by_ticks(&self) -> bool {
        self.machines().any(MachineCpu::is_by_ticks)
    }

    /// Returns true if it is the time of the measuring threads, in the absence of a better figure.
    pub fn is_raised(&self) -> bool {
        self.machines().any(|machine| machine.raised)
    }
}

impl EndCpu {
    pub(super) fn of(report: &EndReport) -> EndCpu {
        EndCpu {
            threads: report.threads.clone(),
            machine: report.machine,
            seconds: report.seconds,
            session: report.session,
        }
    }
}

/// Returns the cycles of an endpoint's measuring threads, if all of them counted.
pub(super) fn cycles(end: &EndCpu) -> Option<f64> {
    let of_threads = end.threads.iter().map(|thread| thread.cycles.map(|cycles| cycles as f64));
    of_threads.sum::<Option<f64>>().filter(|sum| *sum > 0.0)
}

/// Returns the CPUs that an endpoint's measuring threads used.
pub(super) fn threads_per_second(end: &EndCpu) -> f64 {
    let used: f64 = end.threads.iter().map(|thread| thread.user + thread.system).sum();
    if end.seconds > 0.0 { used / end.seconds } else { 0.0 }
}
