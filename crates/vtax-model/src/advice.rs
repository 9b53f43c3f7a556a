//! Advice: which ways of attaching guests meet a list of requirements.
//!
//! Hard requirements such as live migration are decided by one rule each, which reads the table of capabilities.
//! Targets for figures are decided by measurements on this machine:
//!
//! - A method meets a target if the whole interval of its figure does, and fails it if the whole interval misses it.
//!   Otherwise it is undecided, and a command is named that decides it.
//! - Intervals are widened so that those of all compared figures hold at the same time in 95 % of cases
//!   ([`BoundedMean::simultaneous`](vtax_stats::BoundedMean::simultaneous)). In at most 5 % of cases is any method
//!   wrongly reported to meet or to miss a target, even if the best one is chosen afterwards.
//! - Of several runs, the newest one counts, never the best one.
//! - The figure of one guest says nothing about twelve: with another number of guests than required, a target remains
//!   undecided, and the figure is shown as extrapolated.

mod command;
mod evidence;
mod figure;
mod inventory;
mod judge;
mod measured;
mod relaxation;
mod requirements;
mod rules;
#[cfg(test)]
mod tests;
mod verdict;

pub use command::DecidingCommand;
pub use figure::{FigureRole, FigureStanding, FigureTarget, MeasuredFigure};
pub use inventory::Inventory;
pub use judge::{AdviceInput, advise};
pub use measured::{FigureSource, WantedEvidence};
pub use relaxation::{Relaxation, RelaxedTo};
pub use requirements::{
    RequiredAvailability, RequiredDevice, RequiredMigration, Requirement, RequirementOptions, Requirements,
    RequirementsError,
};
pub use rules::Exclusion;
pub use verdict::{AdviceReport, AdviceRow, AdviceVerdict, ComparedFigure, OpenCause, OpenQuestion, TargetRelation};
