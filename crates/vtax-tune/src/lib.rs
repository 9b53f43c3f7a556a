//! Finds host settings that reduce network performance, and recommends changes.
//!
//! A [`TuningRule`] is a pure function of [`vtax_host::inspect::HostFacts`]. It reads and changes nothing, so all rules
//! are tested on files copied from machines. [`check()`] runs all of them, and [`plan()`] turns their proposals into
//! changes. A [`Tuner`] makes these changes on the local machine, for vtax or for an agent that receives a
//! [`TuningOrder`].

#![forbid(unsafe_code)]

mod case;
mod check;
mod finding;
mod keep;
mod needs;
mod observed;
mod order;
mod page;
mod path;
mod plan;
mod rule;
mod rules;
mod setting;
mod tuner;

pub use case::{PathRtt, RttSource, TuningCase, TuningGoal};
pub use check::{CheckedRule, HostCheck, check, check_named};
pub use finding::{ExpectedGain, RuleOutcome, TuningFinding, TuningRemedy};
pub use keep::{KeptPlan, NotKept, plan_kept};
pub use observed::Observation;
pub use order::{
    BatchStage, BatchStatus, ForcedReport, RecoveredBatch, RevertReport, SettingLeft, SettingStatus, TriedOut,
    TuningOrder, TuningReply, TuningStatus, WantedChanges,
};
pub use page::page;
pub use path::{GuestsOnPath, NoSuchObject, TuningPath};
pub use plan::plan;
pub use rule::{ChangeRisk, TuningRule};
pub use rules::RULES;
pub use setting::{HostSetting, Proposal};
pub use tuner::{TunedMachine, Tuner, TuningError, connect_time, read_host};
