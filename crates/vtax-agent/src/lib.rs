//! The agent: the process in each domain that does the measuring, and the coordinator's
//! side of the stream that it is ordered by.
//!
//! One crate holds both sides of the protocol, so that they can't drift apart. [`server`], [`port`] and
//! [`guest`] are the agent; [`link`] is the coordinator's side of one agent, and [`measure`] takes samples
//! with pairs of them.
//!
//! Nothing here writes to standard output but frames: it *is* the control stream.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)]

pub mod carried;
pub mod clock;
pub mod conversations;
pub mod frame;
pub mod guest;
pub mod limits;
pub mod link;
pub mod locate;
pub mod measure;
pub mod port;
pub mod protocol;
pub mod server;
pub mod ssh;
