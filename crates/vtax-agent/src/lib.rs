//! The agent: the process in each domain that measures on behalf of vtax.
//!
//! [`server`] answers a coordinator; [`port`] and [`guest`] make the agent reachable in a guest. The protocol and the
//! coordinator's side are in the crate `vtax-wire`.
//!
//! This crate writes only frames to standard output, which *is* the control stream.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)]

pub mod carried;
pub mod guest;
pub mod port;
pub mod server;
