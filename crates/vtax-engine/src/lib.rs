//! The measuring data path: plain threads on blocking sockets.
//!
//! Two ends run one [`TestSpec`](vtax_model::workload::TestSpec). The *responder* is bound first,
//! so that its port can be told to the *initiator*, which connects and drives the test: it sends
//! the requests (rr), the bytes (stream) or the file (file). Who tells whom is not this crate's
//! business: it knows no agent and no control protocol, only a [`Token`] that both ends hold and
//! that every flow must show before the responder answers it.
//!
//! Rooms: `flow` runs one thread per flow, starts them together and reads the CPU's and the
//! kernel's counters at the edges of the measured window. `rr`, `stream` and `file` are the
//! workloads, each a loop over a narrow trait of its own; `transport` implements these traits
//! for TCP and UDP and does the handshakes.
//!
//! Every wait has a deadline, and [`Cancel`] ends every wait from another thread.

#![forbid(unsafe_code)]

mod cancel;
mod end;
mod error;
mod file;
mod flow;
mod rr;
mod sequence;
mod stream;
mod token;
mod transport;

pub use cancel::Cancel;
pub use end::{EndSetup, Responder, STREAMS_MOST, initiate, initiate_file};
pub use error::{EngineError, compare_checksums};
pub use file::SourceFile;
pub use token::{Token, TokenError};
