//! The agent, which is the process in each domain that measures, and the coordinator's side of its control stream.
//!
//! One crate contains both sides of the protocol, so that they always match. [`server`], [`port`] and
//! [`guest`] are the agent. [`link`] is the coordinator's side of one agent, and [`measure`] takes samples
//! with pairs of agents.
//!
//! This crate writes only frames to standard output: that *is* the control stream.

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
pub mod tuning;
