//! Reports of the two endpoints beyond the joined figures, over the samples of a cell.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::Estimate;
use crate::{endpoint::Ends, measurement::Stages};

/// CPU time of each endpoint's measuring threads in µs: per transaction, or per 1,024 bytes of a stream or a file.
pub type CpuAtEnds = Ends<Estimate>;

/// Warm-up before the measured times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WarmupSummary {
    /// Duration in seconds, at the endpoint that took longer.
    pub seconds: Estimate,
    /// Number of samples whose figures were watched until they were steady; of the others it isn't
    /// known.
    pub watched: u32,
    /// Number of watched samples that were not steady at the end of the longest warm-up.
    pub unsteady: u32,
    /// Number of samples for which it is known whether their flows were in slow start at its end.
    pub slow_start_known: u32,
    /// Number of samples in which a flow was still in slow start.
    pub in_slow_start: u32,
}

/// Round-trip breakdown, by the kernel's timestamps.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StagesSummary {
    /// The endpoint that sends the requests.
    pub initiator: EndStages,
    /// The endpoint that answers them.
    pub responder: EndStages,
    /// The wires in both directions, µs: the time for which the request was away, less all that the responder did, by
    /// the medians (a difference of two machines' times, which share no clock); negative if the medians don't add up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_us: Option<f64>,
}

/// The stages of one endpoint's messages; a stage without timestamps is absent.
pub type EndStages = Stages<StageFigures>;

/// One stage over all messages of a cell, from the merged histogram, in µs.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct StageFigures {
    /// Mean over all messages, in µs.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Number of messages.
    pub n: u64,
}

/// Concurrent pairs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ParallelSummary {
    /// Time between the first initiator's start and the last one's in µs, median over samples.
    pub skew_us: f64,
    /// Maximum of these.
    pub skew_us_most: f64,
    /// Their uncertainty, the largest of all samples.
    pub uncertainty_us: f64,
    /// In the order of the row's endpoints.
    pub pairs: Vec<PairSummary>,
}

/// One of several pairs, over the samples.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PairSummary {
    /// Completed transactions per second.
    pub transactions_per_s: Option<Estimate>,
    /// Streams: 10^6 bits per second.
    pub goodput_mbps: Option<Estimate>,
    /// Mean round trip, µs, over samples: the inverse of each flow's rate; absent if that isn't the mean.
    pub rtt_us: Option<f64>,
    /// Median transaction, µs: the median of the samples' medians, because no pair's histogram is
    /// kept.
    pub p50_us: Option<f64>,
    /// Median of the samples' 99th percentiles, µs.
    pub p99_us: Option<f64>,
    /// UDP messages that never arrived.
    pub lost: u64,
}
