//! Measures disks with fio.
//!
//! | module | for |
//! |---|---|
//! | [`target`] | what is refused before anything is written: disks in use, with something on them, too small |
//! | [`inside`] | what a guest reports about its disk: whether something there uses it |
//! | [`path`] | what the path to a disk is |
//! | [`job`] | a test as fio's arguments |
//! | [`mod@prepare`], [`written`] | all blocks are written before they are read |
//! | [`output`] | fio's JSON as a report |
//! | [`run`] | fio as a program that ends in time |
//! | [`carried`] | fio with its libraries for a guest that has neither |
//!
//! fio is never started as a server: each run is one program with all of its arguments, which ends.

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
