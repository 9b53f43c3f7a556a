//! What will be done, as data.
//!
//! [`plan()`] is pure: the same topology and facts give the same plan, and the kernel is asked nothing.
//! Everything that can be refused is refused here, before the first step.

mod addresses;
mod checks;
mod companions;
mod draft;
mod error;
mod functions;
mod guests;
mod member;
mod nic_error;
mod ports;
mod print;
mod segment;
#[cfg(test)]
pub(crate) mod tests;
mod tunnel;

use serde::{Deserialize, Serialize};
use vtax_model::topology::Topology;

use self::draft::Draft;
use crate::{blueprint::Blueprint, facts::Facts, script::PlanScript, step::LabStep};

pub use error::PlanError;
pub use nic_error::NicError;

/// A lab as it will be built.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Plan {
    pub blueprint: Blueprint,
    pub steps: Vec<LabStep>,
}

/// Plans a lab.
pub fn plan(topology: &Topology, facts: &Facts) -> Result<Plan, PlanError> {
    let PlanScript { blueprint, steps, .. } = Draft::begin(topology, facts)?.build()?;
    Ok(Plan { blueprint, steps })
}
