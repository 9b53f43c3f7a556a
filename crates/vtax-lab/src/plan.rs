//! Planned steps, as data.
//!
//! [`plan()`] is pure: the same topology and facts give the same plan, and the kernel isn't queried. Everything that
//! can be refused is refused here, before the first step.

mod addresses;
mod checks;
mod companions;
mod disks;
mod draft;
mod error;
mod functions;
mod guests;
mod member;
mod ports;
mod segment;
#[cfg(test)]
pub(crate) mod tests;
mod tunnel;

use std::fmt;

use serde::{Deserialize, Serialize};
use vtax_model::topology::Topology;
use vtax_step::StartGuest;

use self::draft::Draft;
use crate::{blueprint::Blueprint, facts::Facts, script::PlanScript, step::LabStep};
use vtax_guest::seed::SeedText;

pub use disks::disk_availability;
pub use error::{NicError, PlanError};

/// A lab as it will be built.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub blueprint: Blueprint,
    pub steps: Vec<LabStep>,
}

/// Plans a lab.
pub fn plan(topology: &Topology, facts: &Facts) -> Result<Plan, PlanError> {
    let PlanScript { blueprint, steps, .. } = Draft::begin(topology, facts)?.build()?;
    Ok(Plan { blueprint, steps })
}

/// The dry run.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.blueprint)?;
        let width = self.steps.len().to_string().len();
        for (step, number) in self.steps.iter().zip(1..) {
            writeln!(f, "{number:>width$}  {step}")?;
            if let LabStep::StartGuest(StartGuest { launch, .. }) = step {
                write!(f, "{}", SeedText(launch))?;
            }
        }
        writeln!(f, "endpoints")?;
        self.blueprint.endpoints.iter().try_for_each(|endpoint| writeln!(f, "  {endpoint}"))
    }
}
