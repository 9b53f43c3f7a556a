//! What vtax reads of the host that it runs on.
//!
//! A result without the machine's description can't be compared with another one, so each run
//! carries it. Everything is read from `/proc` and `/sys` below a root that a test can replace.

#![forbid(unsafe_code)]

pub mod inspect;
