//! Running a study: from its file to its result.

mod arrange;
mod clock;
mod interrupt;
mod options;
mod progress;
mod runner;
mod session;
mod stage;

pub(crate) use arrange::arrange;
pub(crate) use options::{Changes, Wanted, read_file};
pub(crate) use session::{Finished, Source, available, run, unavailable};
pub(crate) use stage::{build, plan_here};
