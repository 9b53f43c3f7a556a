//! Running a study: from its file to its result.

mod arrange;
mod cabling;
mod clock;
mod draft;
mod ends;
mod forecast;
mod measure;
mod options;
mod precision;
mod progress;
mod run_store;
mod runner;
mod session;
mod timetable;

pub(crate) use arrange::arrange;
pub(crate) use draft::{available, unavailable};
pub(crate) use measure::{GivenSizes, MeasureRequest, Test};
pub(crate) use options::{ChangedStudy, Changes, Congestion, Precision, read_endpoints, read_file, read_text};
pub(crate) use progress::minutes;
pub(crate) use session::{Conditions, Finished, RunRequest, run};
pub(crate) use timetable::Gaps;
