//! Meshes: which of many hosts is slow, in which direction, and how certain that is.
//!
//! The data and arithmetic of a mesh, in the order of use:
//!
//! 1. [`HostList`]: the hosts, from a rack file or from the output of Ansible, Slurm or Kubernetes.
//! 2. [`MeshPlan`]: rounds in which no host is in two tests; [`MeshAim`] determines their number.
//! 3. [`Campaign`]: takes the samples of the plan with a [`PairTester`], whatever hosts die in the meantime.
//! 4. [`MeshVerdict`]: the slow hosts, directions, uplinks and paths among the samples.
//! 5. [`MeshReport`]: the verdict as text and as data. [`MeshComparison`]: what has changed since an earlier mesh.
//!
//! Nothing here reads a file, a clock or the network.

#![forbid(unsafe_code)]

mod aim;
mod campaign;
mod comparison;
mod header;
mod hosts;
mod name;
mod pair_test;
mod report;
mod sample;
mod schedule;
#[cfg(test)]
mod simulated;
mod verdict;

pub use aim::{BadShare, Detection, MeshAim, Share};
pub use campaign::{Campaign, MeshEvent, PairTester, TestOutcome};
pub use comparison::{MeshComparison, NotComparable};
pub use header::MeshHeader;
pub use hosts::{FleetHost, FleetNic, HostExclusion, HostList, HostListError, MeshEnd};
pub use name::{BadFleetName, FleetName};
pub use pair_test::{PairTest, PairTestKind};
pub use report::{FigureRow, MatrixCell, MatrixPart, MeshMatrix, MeshReport, MeshSchedule};
pub use sample::{DirectedPair, EndId, MeshSample, MeshStage};
pub use schedule::{MeshPlan, MeshRound, UplinkLimits};
pub use verdict::{MeshDirection, MeshFinding, MeshVerdict};
