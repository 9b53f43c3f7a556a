//! The measuring data path: plain threads on sockets.
//!
//! Two ends run one [`TestSpec`](vtax_model::workload::TestSpec). The *responder* is bound first,
//! so that its [`Target`] can be told to the *initiator*, which connects and drives the test. Who
//! tells whom is not this crate's business: it knows no agent and no control protocol, only a
//! [`Token`] that both ends hold and that every flow must show before the responder answers it.
//!
//! Rooms, from the outside in: `end` has the two ends. `socket`, `options` and `admit` make flows.
//! `crew` runs the threads of an end, each with an engine of `drive` (what waits for the sockets)
//! and a desk of `account` (what is counted, and when). `role` says what each flow does, and `task`
//! has the workloads, straight-line code for one flow that knows neither threads nor engines. `supply`
//! is what senders hand over without copying it.
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
mod options;
mod patience;
mod place;
mod role;
mod segments;
mod sequence;
mod socket;
mod supply;
mod task;
mod token;
mod wire;

pub use cancel::Cancel;
pub use end::{Initiator, Responder};
pub use error::{EngineError, Failed, compare_checksums};
pub use file::SourceFile;
pub use options::check_congestion_control;
pub use place::{EndSetup, Schedule, Station, Target};
pub use socket::check_vsock_loopback;
pub use token::{Token, TokenError};
