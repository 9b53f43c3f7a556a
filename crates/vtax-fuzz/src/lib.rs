//! Fuzzing of vtax's parsers of untrusted input.
//!
//! A target is an ordinary test next to the code that it tests. It calls [`fuzz`] with a name, inputs of the kind that
//! the code reads, and a function to run on each input:
//!
//! ```
//! vtax_fuzz::fuzz_text("whole-numbers", &["7", "-12"], |text| {
//!     let number: i64 = text.parse().ok()?;
//!     assert_eq!(number.to_string().parse(), Ok(number));
//!     Some(())
//! });
//! ```
//!
//! `cargo test` tries every file of `tests/corpus/NAME`, then mutated ones for [`SECONDS`]. `make fuzz` makes libFuzzer
//! do that for millions of inputs: it traces the code that an input reaches and keeps inputs that reach more. The kept
//! inputs, reduced to a few small files, are the corpus.
//!
//! An input fails if it makes the target panic, takes longer than [`SLOW`] or takes more memory than [`MEMORY_MOST`].
//! The message names the file with the input.

// Only libFuzzer's interface needs unsafe code.
#![cfg_attr(not(fuzzing), forbid(unsafe_code))]

#[cfg(fuzzing)]
mod coverage;
mod inputs;
#[cfg(not(fuzzing))]
mod mutate;
#[cfg(not(fuzzing))]
mod watch;

#[cfg(not(fuzzing))]
mod trial;

#[cfg(fuzzing)]
use coverage as trial;

use std::time::Duration;

/// Time for which `cargo test` tries a target; `VTAX_FUZZ_SECONDS` overrides it.
pub const SECONDS: f64 = 1.6;
/// Limit on the CPU time of one input. It is far more than any input needs, because tests are not optimized and the
/// machine may be busy.
pub const SLOW: Duration = Duration::from_secs(2);
/// Limit on the memory of the process.
pub const MEMORY_MOST: u64 = 2 << 30;
/// Limit on the length of an input. Longer inputs find nothing that shorter ones do not, and take longer.
pub const LENGTH_MOST: usize = 32 << 10;

/// Tests a target with `seeds`, the corpus `name`, and mutations of these.
///
/// The target returns `Some` if it has understood an input. It must understand the seeds, because mutations of inputs
/// that are refused immediately find nothing.
///
/// # Panics
/// If an input fails, or if a seed is not understood.
pub fn fuzz<Seed: AsRef<[u8]>>(name: &str, seeds: &[Seed], target: impl Fn(&[u8]) -> Option<()> + 'static) {
    let seeds: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.as_ref().to_vec()).collect();
    for (seed, number) in seeds.iter().zip(1..) {
        assert!(seed.len() <= LENGTH_MOST, "{name}: seed number {number} has {} bytes", seed.len());
        assert!(target(seed).is_some(), "{name} doesn't understand its seed number {number}");
    }
    trial::run(&inputs::Corpus::of(name, seeds), move |input| {
        let _ = target(input);
    });
}

/// Like [`fuzz`], for targets that read text. Input that is not text counts as not understood.
///
/// # Panics
/// As for [`fuzz`].
pub fn fuzz_text<Seed: AsRef<[u8]>>(name: &str, seeds: &[Seed], target: impl Fn(&str) -> Option<()> + 'static) {
    fuzz(name, seeds, move |bytes| target(std::str::from_utf8(bytes).ok()?));
}
