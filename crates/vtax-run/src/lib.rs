//! Executes jobs: the measurement request comes in as data, and results go out as events.
//!
//! A command line, a page or another vtax creates a [`Job`]. [`carry_out()`] executes it, on this machine or on an
//! emulated server, and saves the run in the store. Receivers of its events implement [`EventSink`]. This crate reads
//! no command line and prints nothing.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod background_job;
mod carry_out;
mod event_lines;
mod events;
mod follow;
mod interrupt;
mod job;
mod keeper;
pub mod labs;
mod ldm_remote;
mod live_run;
mod locations;
mod lock_file;
mod mesh;
mod migration_link;
mod migration_result;
mod phases;
pub mod remote_command;
pub mod rig;
pub mod server;
mod stop;
pub mod study;
mod suspend_watch;
pub mod threads;
mod tuning;

pub use background_job::BackgroundJob;
pub use carry_out::{FinishedJob, carry_out, carry_out_handed};
pub use event_lines::EventLines;
pub use events::{EventSink, EveryFewSeconds, RunEvent, RunEvents, SampleProgress, SessionEnd};
pub use follow::RunFollower;
pub use interrupt::Interrupt;
pub use job::{Conditions, Job, NewRun, RanJob, Work};
pub use ldm_remote::{OrderLink, OrderRefusal, OrderServer, RemoteLdm};
pub use live_run::LiveRun;
pub use locations::Locations;
pub use lock_file::LockFile;
pub use mesh::MeshAgents;
pub use migration_link::{
    LabTarget, ReachableTarget, SshTarget, reach_agent, receive_channel, receive_disk, receive_guest,
};
pub use migration_result::{AttemptStart, MigrationAttempt, migration_figures};
pub use stop::{Blamed, Coded, Stop};
pub use suspend_watch::{ObservedSuspension, PeerSilence, SuspendWatch};
pub use tuning::{GUARD_VERB, HostTask, IoConfinement, IoThreads, LabPath, SharedTuner, TuningGuard, TuningHost};
