//! Facts about the host that vtax runs on, and the choice of CPUs for measurements.
//!
//! A result can't be compared with others without a description of its machine, so each run has one. Files of `/proc`
//! and `/sys` are read below a root directory that a test can replace.

#![forbid(unsafe_code)]

#[cfg(test)]
mod fuzz;
pub mod inspect;
pub mod pin;
