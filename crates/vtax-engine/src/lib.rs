//! The measuring data path: plain threads on sockets.
//!
//! Two ends run one [`TestSpec`](vtax_model::workload::TestSpec). The *responder* is bound first, because the
//! *initiator* needs its [`Target`](vtax_model::station::Target) to connect to it and drive the test. The caller
//! transfers the target: this crate has no agents and no control protocol, only a [`Token`](vtax_sys::token::Token)
//! shared by both ends. Every flow must show it before the responder answers.
//!
//! Modules, from the outside in: `end` has the two ends. `socket`, `options` and `admit` make flows. `crew`
//! runs the threads of an end; each has an engine of `drive`, which waits for the sockets, and a recorder of
//! `account`, which counts. `role` says what each flow does. `task` has the workloads: straight-line code for
//! one flow that knows neither threads nor engines. `watch` needs no other end. `supply` has what senders send without copying it.
//!
//! Every wait has a deadline, and [`Cancel`] ends every wait from another thread.

#![forbid(unsafe_code)]

mod account;
mod admit;
mod cancel;
mod conduct;
mod crew;
mod drive;
mod end;
mod error;
mod file;
mod flow;
#[cfg(test)]
mod fuzz;
mod group;
mod options;
mod patience;
mod role;
mod segments;
mod sequence;
mod socket;
mod supply;
mod task;
mod watch;
mod wire;

pub use cancel::Cancel;
pub use crew::FLOW_THREAD;
pub use end::{Initiator, Responder};
pub use error::{EngineError, Failed, compare_checksums};
pub use file::SourceFile;
pub use watch::watch;
