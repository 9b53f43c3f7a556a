//! Cost of recording a transaction.
//!
//! `cargo bench --bench recording`; no privileges required.

use std::{hint::black_box, time::Instant};

use vtax_stats::histogram::Histogram;

const RECORDS: u64 = 2_000_000;
const ROUNDS: usize = 11;

fn main() {
    let mut costs: Vec<f64> = (0..ROUNDS).map(|_| recorded() - walked()).collect();
    costs.sort_by(f64::total_cmp);
    println!(
        "recording a transaction: {:.1} ns (median of {ROUNDS} rounds of {RECORDS}; {:.1} to {:.1})",
        costs[ROUNDS / 2],
        costs[0],
        costs[ROUNDS - 1]
    );
}

/// Returns the nanoseconds per value recorded, for values like those of a path of 20 to 80 µs.
fn recorded() -> f64 {
    let mut histogram = Histogram::new();
    let cost = each(|value| histogram.record(black_box(value)));
    black_box(histogram.count());
    cost
}

/// Returns the nanoseconds per value generated.
fn walked() -> f64 {
    each(|value| {
        black_box(value);
    })
}

fn each(mut job: impl FnMut(u64)) -> f64 {
    let mut value = 1u64;
    let begun = Instant::now();
    for _ in 0..RECORDS {
        value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        job(20_000 + value % 60_000);
    }
    begun.elapsed().as_nanos() as f64 / RECORDS as f64
}
