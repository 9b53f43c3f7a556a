//! Running a study: from its file to its result.

mod arrange;
mod cabling;
mod clock;
mod draft;
mod foresight;
mod interrupt;
mod ledger;
mod measure;
mod options;
mod phases;
mod precision;
mod progress;
mod runner;
mod session;
mod stage;
mod timetable;

pub(crate) use arrange::arrange;
pub(crate) use draft::{available, unavailable};
pub(crate) use interrupt::Interrupt;
pub(crate) use measure::{GivenPlan, GivenSizes, MeasureRequest, Test};
pub(crate) use options::{ChangedStudy, Changes, Congestion, read_endpoints, read_file, read_text};
pub(crate) use phases::Phases;
pub(crate) use progress::minutes;
pub(crate) use session::{Conditions, Finished, RunSource, agent_program, run};
pub(crate) use stage::{build, build_planned, open_lab, remove_abandoned, told_of_boot};
pub(crate) use timetable::Gaps;
