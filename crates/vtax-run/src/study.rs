//! Execution of a study: from its file to its samples.

mod arrange;
mod cabling;
mod chosen_rounds;
mod clock;
mod disks;
mod draft;
mod dry_run;
mod ends;
mod forecast;
mod foretell;
mod measure;
mod measured_path;
mod migration_needs;
mod migrations;
mod options;
mod others;
mod precision;
mod runner;
mod session;
mod source;
mod steps;
mod timetable;

pub use arrange::topology;
pub use chosen_rounds::ChosenRounds;
pub(crate) use clock::{compact, now, seconds};
pub use disks::DiskRequest;
pub use draft::{available, random_seed, unavailable};
pub use dry_run::{PlannedRun, dry_run};
pub(crate) use ends::{Agent, EndpointConnector, is_link_local, lookup, mesh_dial};
pub use measure::{GivenSizes, MeasureRequest, Test};
pub use options::{Changes, Congestion, read_bounded, read_endpoints, read_file, read_text};
pub(crate) use precision::imprecise;
pub(crate) use session::LocalRunner;
pub(crate) use source::RunSource;
pub use steps::{KeptBatch, KeptChanges, find_rule, keep};
pub use timetable::Gaps;
