//! The agent: the process in each domain that measures, on the orders of vtax.
//!
//! [`server`] answers a coordinator, [`port`] and [`guest`] are how it is reached in a guest. The protocol and the
//! coordinator's side are the crate `vtax-wire`.
//!
//! This crate writes only frames to standard output: that *is* the control stream.

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout)]

pub mod carried;
pub mod guest;
pub mod port;
pub mod server;
