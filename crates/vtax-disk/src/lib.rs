//! Measures disks with fio.
//!
//! | module | purpose |
//! |---|---|
//! | [`target`] | checks before anything is written: refuses disks that are in use, not empty or too small |
//! | [`inside`] | report of a guest on its disk, including its users there |
//! | [`path`] | path to a disk |
//! | [`job`] | test as fio's arguments |
//! | [`mod@prepare`], [`written`] | writing of all blocks before they are read |
//! | [`output`] | conversion of fio's JSON to a report |
//! | [`run`] | execution of fio with a time limit |
//! | [`carried`] | fio with its libraries for a guest that has neither |
//!
//! fio never runs as a server: each run is one program with all of its arguments, and ends by itself.

#![forbid(unsafe_code)]

pub mod carried;
pub mod inside;
pub mod job;
pub mod output;
pub mod path;
pub mod prepare;
pub mod run;
pub mod target;
pub mod written;
