//! The request and the plan of a mesh.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use vtax_model::foreign::ForeignText;

use crate::{
    hosts::{HostExclusion, MeshEnd},
    pair_test::PairTest,
    sample::EndId,
    schedule::{MeshPlan, UplinkLimits},
};

/// Request and plan of a mesh; the first record of its file.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeshHeader {
    /// `vtax.mesh-samples/v1`.
    pub schema: ForeignText,
    pub test: PairTest,
    pub ends: Vec<MeshEnd>,
    /// Tests that may cross an uplink at the same time.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: UplinkLimits,
    /// Hosts of the list that are not measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<HostExclusion>,
    /// Rounds that are planned for each rail.
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

    /// Returns the plan, which follows from the seed.
    pub fn plan(&self) -> MeshPlan {
        MeshPlan::new(&self.ends, Some(self.rounds), self.seed)
    }

    /// Returns the number of waves if no host dies.
    pub fn waves_of_rounds(&self) -> usize {
        self.plan().waves(&self.ends, &self.limits)
    }

    /// Returns the name of an end.
    pub fn name(&self, end: EndId) -> &ForeignText {
        &self.ends[end.0].name
    }
}
