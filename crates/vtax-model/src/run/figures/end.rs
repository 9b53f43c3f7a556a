//! Reports of each endpoint of a sample, and its location.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use vtax_stats::histogram::Histogram;

use crate::{
    endpoint::Ends,
    foreign::ForeignText,
    measurement::{EndReport, Interval, QuotaStops, Stages, ThreadPriority, WarmupReport, WireCounts},
};

/// Location of an endpoint, for its share of its host's CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndLocation {
    /// In a guest whose host wasn't observed, or endpoints of several pairs in different places.
    #[default]
    Unknown,
    /// On a host, or in a zone of it.
    Host,
    /// In a guest whose host was observed.
    Guest,
    /// In a zone of a host whose traffic a program carries, which was also observed.
    Relayed,
}

/// Reports of each endpoint beyond the joined figures.
pub type BothEnds = Ends<EndDetail>;

/// Parts of an endpoint's report that are kept unchanged.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EndDetail {
    /// The warm-up before the measured time.
    pub warmup: WarmupReport,
    /// Packets of the measured sockets; of several pairs, of all of them.
    pub wire: Option<WireCounts>,
    /// One entry per interval.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Interval>,
    /// Breakdown of the messages' time.
    pub stages: Option<Stages>,
    /// UDP streams: datagrams of the whole flow, sent or arrived.
    pub whole_flow: u64,
    /// UDP: datagrams that the socket had no room for; absent if the measuring program doesn't
    /// report it.
    pub socket_drops: Option<u64>,
    /// Slices: maximum overrun of this endpoint's time in nanoseconds.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub overrun_ns: u64,
    /// Reason why idle states were not disabled although requested.
    pub idle_not_held: Option<ForeignText>,
    /// crr and cc: connections that ended without presenting the token.
    #[serde(skip_serializing_if = "crate::is_default")]
    pub strangers: u64,
    /// Real delay of the responder before its responses, if the test requests one.
    pub waits: Option<WaitFigures>,
    /// Priority of the measuring threads; absent if the measuring program does not report it.
    pub priority: Option<ThreadPriority>,
    /// Stops of the measuring process by a CPU quota; absent without a quota.
    pub throttling: Option<QuotaStops>,
}

/// Duration of deliberate delays in nanoseconds, by the responder's own clock.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WaitFigures {
    /// From the histogram.
    pub mean: f64,
    /// Median.
    pub p50: u64,
}

impl EndDetail {
    pub(super) fn of(report: &EndReport) -> EndDetail {
        let EndReport { warmup, wire, whole_flow, overrun_ns, strangers, priority, throttling, .. } = *report;
        let waits = |waits: &Histogram| WaitFigures { mean: waits.mean_ns(), p50: waits.percentile(50.0) };
        EndDetail {
            warmup,
            wire,
            series: report.series.clone(),
            stages: report.stages.clone(),
            whole_flow,
            socket_drops: Some(report.socket_drops),
            overrun_ns,
            idle_not_held: report.idle_not_held.clone(),
            strangers,
            waits: report.waits.as_ref().map(waits),
            priority,
            throttling,
        }
    }
}
