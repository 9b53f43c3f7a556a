//! What vtax reads of the host that it runs on, and which CPUs it measures with.
//!
//! A result without the machine's description can't be compared with another one, so each run
//! carries it. Files of `/proc` and `/sys` are read below a root that a test can replace.

#![forbid(unsafe_code)]

pub mod inspect;
pub mod pin;
