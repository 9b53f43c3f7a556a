//! The vocabulary of vtax: units, studies, samples, records, and the analysis that computes figures from them.
//!
//! Pure: nothing here reads a file, a clock or the kernel, so that every plan and every figure can be tested anywhere.

#![forbid(unsafe_code)]

pub mod address_family;
pub mod advice;
pub mod analysis;
pub mod cell;
pub mod cpus;
pub mod disk;
pub mod domain;
pub mod endpoint;
pub mod evidence;
pub mod foreign;
#[cfg(test)]
mod fuzz;
pub mod guest;
pub mod located;
pub mod masters;
pub mod measurement;
pub mod method;
pub mod metric;
pub mod migration;
pub mod nic;
pub mod options;
pub mod proof;
pub mod published;
pub mod result;
pub mod run;
pub mod server;
pub mod size;
pub mod spelling;
pub mod station;
pub mod study;
pub mod suspension;
pub mod topology;
pub mod units;
pub mod vf;
pub mod workload;

/// Used by records to omit default values.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
