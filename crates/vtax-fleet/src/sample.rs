//! Samples of a mesh, as they are stored.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use vtax_model::foreign::ForeignText;

/// Position of an end in the list of a mesh's ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EndId(pub usize);

/// A pair in the direction in which data flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DirectedPair {
    /// Sends.
    pub from: EndId,
    /// Receives.
    pub to: EndId,
}

/// Part of a mesh in which a sample was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MeshStage {
    /// Rounds of all ends.
    Rounds,
    /// Pairs that could not be measured in their round.
    Missed,
    /// Suspects with cleared ends.
    Suspects,
    /// Cleared ends with each other while suspects are measured: the state of the fleet at that time.
    Controls,
    /// Pairs that were slower than their ends explain.
    Pairs,
}

/// One test of one direction of a pair.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeshSample {
    pub stage: MeshStage,
    /// Number of the wave since the beginning, from 0.
    pub wave: u32,
    #[serde(flatten)]
    pub pair: DirectedPair,
    /// Rate of each source port in turn, in bits per second. Empty if the test failed.
    pub rates: Vec<f64>,
    /// Reason for the failure.
    pub failure: Option<ForeignText>,
    /// The ends that did not answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<EndId>,
}

impl MeshSample {
    /// Returns the logarithm of the median rate, which a single slow path doesn't change.
    pub fn log_rate(&self) -> Option<f64> {
        let is_rate = |rate: &f64| rate.is_finite() && *rate >= 1.0;
        let logs: Vec<f64> = self.rates.iter().filter(|rate| is_rate(rate)).map(|rate| rate.ln()).collect();
        (!logs.is_empty()).then(|| vtax_stats::median(&logs))
    }
}

/// Request and plan of a mesh; the first record of its file.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeshHeader {
    /// `vtax.mesh-samples/v1`.
    pub schema: ForeignText,
    /// Names of the ends.
    pub ends: Vec<ForeignText>,
    /// The uplink of each end, if it has one.
    pub uplinks: Vec<Option<ForeignText>>,
    /// The rail of each end, if it has one.
    pub rails: Vec<Option<ForeignText>>,
    /// Rounds planned for each rail.
    pub rounds: u32,
    /// Rounds of all pairs.
    pub all_rounds: u32,
    /// Waves of all planned rounds. A mesh with fewer was stopped.
    pub waves: Option<u32>,
    /// The slowness that the mesh looks for, as a share: 0.1.
    pub show: f64,
    /// Seed of the order of the hosts.
    pub seed: u64,
}

impl MeshHeader {
    /// Schema of the file of samples.
    pub const SCHEMA: &'static str = "vtax.mesh-samples/v1";

    /// Returns the name of an end.
    pub fn name(&self, end: EndId) -> &ForeignText {
        &self.ends[end.0]
    }
}
