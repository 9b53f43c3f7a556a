//! Reports of the two endpoints beyond the joined figures, over the samples of a cell.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::Estimate;
use crate::{endpoint::Ends, measurement::Stages};

/// µs of CPU of each end's measuring threads: for a transaction, or for 1,024 bytes of a stream or a file.
pub type CpuAtEnds = Ends<Estimate>;

/// Warm-up before the measured times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WarmupSummary {
    /// Seconds that it took, of the end that took longer.
    pub seconds: Estimate,
    /// Samples whose figures were watched until they were steady; of the others it isn't known.
    pub watched: u32,
    /// Watched samples that were not steady when the longest warm-up was over.
    pub unsteady: u32,
    /// Samples of which it is known whether their flows were in slow start at the end of it.
    pub slow_start_known: u32,
    /// Samples in which a flow still was in slow start.
    pub in_slow_start: u32,
}

/// Where the time of a round trip goes, by the kernel's time stamps.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StagesSummary {
    /// The end that sends the requests.
    pub initiator: EndStages,
    /// The end that answers them.
    pub responder: EndStages,
    /// The wires there and back, µs: what the request was away less all that the responder did, by the medians (a
    /// difference of two machines' times, which share no clock); below zero where the medians don't add up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire_us: Option<f64>,
}

/// The stages of one end's messages; what it had no stamps for is absent.
pub type EndStages = Stages<StageFigures>;

/// One stage over all messages of a cell, from the merged histogram, in µs.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct StageFigures {
    /// Mean over all messages, in µs.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 99 of 100.
    pub p99: f64,
    /// Messages.
    pub n: u64,
}

/// Pairs that measured at the same time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ParallelSummary {
    /// µs between the first initiator's start and the last one's, median over samples.
    pub skew_us: f64,
    /// The longest of them.
    pub skew_us_most: f64,
    /// Their uncertainty, the worst of all samples.
    pub uncertainty_us: f64,
    /// In the order of the row's ends.
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
    /// Mean round trip, µs, over samples: the inverse of each flow's rate; absent where that isn't the mean.
    pub rtt_us: Option<f64>,
    /// Median transaction, µs: the median of the samples' medians, as no pair's histogram is kept.
    pub p50_us: Option<f64>,
    /// The median of the samples' 99th percentiles, µs.
    pub p99_us: Option<f64>,
    /// UDP messages that never arrived.
    pub lost: u64,
}
