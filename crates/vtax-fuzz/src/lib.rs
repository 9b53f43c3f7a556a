//! Tries what reads foreign bytes with inputs that nobody thought of.
//!
//! A target is an ordinary test beside the code that it tries. It calls [`fuzz`] with a name, inputs of the kind that
//! the code reads, and what to do with one:
//!
//! ```
//! vtax_fuzz::fuzz_text("whole-numbers", &["7", "-12"], |text| {
//!     let number: i64 = text.parse().ok()?;
//!     assert_eq!(number.to_string().parse(), Ok(number));
//!     Some(())
//! });
//! ```
//!
//! `cargo test` tries every file of `tests/corpus/NAME`, then changed ones for [`SECONDS`]. `make fuzz` has
//! libFuzzer do that for millions of inputs: it sees which code an input reaches and keeps those that reach more.
//! What it has kept, reduced to a few small files, is the corpus.
//!
//! An input fails if it makes the target panic, takes longer than [`SLOW`] or takes more memory than [`MEMORY_MOST`].
//! The message says in which file it is.

// Only libFuzzer's interface needs it.
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

/// How long `cargo test` tries a target; `VTAX_FUZZ_SECONDS` says otherwise.
pub const SECONDS: f64 = 1.6;
/// How much processor time one input may take. The tests aren't optimised and the machine may be busy, so that is far
/// more than any of them needs.
pub const SLOW: Duration = Duration::from_secs(2);
/// How much memory the process may take.
pub const MEMORY_MOST: u64 = 2 << 30;
/// Longer inputs find nothing that shorter ones don't, and take longer.
pub const LENGTH_MOST: usize = 32 << 10;

/// Tries a target: `seeds` and the corpus `name`, and inputs that are made of these.
///
/// The target says whether it has understood an input. It must understand the seeds: what is made of inputs that are
/// refused at once finds nothing.
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

/// [`fuzz`] with texts. What is no text is not understood.
///
/// # Panics
/// As [`fuzz`] does.
pub fn fuzz_text<Seed: AsRef<[u8]>>(name: &str, seeds: &[Seed], target: impl Fn(&str) -> Option<()> + 'static) {
    fuzz(name, seeds, move |bytes| target(std::str::from_utf8(bytes).ok()?));
}
