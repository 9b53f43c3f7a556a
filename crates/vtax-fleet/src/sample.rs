//! Samples of a mesh, as they are stored.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use vtax_model::foreign::ForeignText;

use crate::pair_test::PairTestKind;

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
    /// Value of each source port in turn, in the unit of [`PairTestKind`]. Empty if the test failed.
    pub values: Vec<f64>,
    /// Why the test failed.
    pub failure: Option<ForeignText>,
    /// The ends that did not answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<EndId>,
}

impl MeshSample {
    /// Returns the logarithm of the median speed, which one slow path of several doesn't change.
    pub fn log_speed(&self, kind: PairTestKind) -> Option<f64> {
        let logs: Vec<f64> = self.values.iter().filter_map(|value| kind.log_speed(*value)).collect();
        (!logs.is_empty()).then(|| vtax_stats::median(&logs))
    }
}
