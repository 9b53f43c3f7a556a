//! A thread that uses a known share of a CPU.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use miette::miette;
use vtax_model::{options::TestOptions, units::Span};
use vtax_run::{rig::Rig, threads::start_in};
use vtax_stats::median;
use vtax_sys::cpu::{pin_current_thread, thread_times};

use super::{Found, PLAIN, rr};
use crate::calibrate::pairs::{dice, shuffled};

/// Many short samples: other programs work in bursts, which then affect few of the pairs.
const ROUNDS: usize = 15;
const SAMPLE: Span = Span::from_millis(300);
const TOLERANCE: f64 = 0.03;
/// Most periods begin and end between two ticks, and a tick is not a multiple of the period.
const PERIOD: Duration = Duration::from_micros(1_100);

/// Measures the CPU time that a sample with a request every 20 ms reports with the spinner, less that without it.
pub(super) fn half_the_time(rig: &Rig) -> miette::Result<Found> {
    let cpu = rig.cpus().map(|[_, second]| second);
    let quiet = TestOptions { gap: Some(Span::from_millis(20)), ..TestOptions::default() };
    let sample = || rig.sample(&rr(quiet, SAMPLE), PLAIN);
    let mut dice = dice();
    let (mut burnt, mut factors, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let [(without, _), (with, share)] = shuffled(&mut dice, |which| match which {
            0 => Ok((sample()?, 0.0)),
            _ => beside_spinner(cpu, sample),
        })?;
        burnt.push(share);
        factors.push((with.busy_cpus() - without.busy_cpus()) / share);
        others.push(without.busy_cpus() / f64::from(without.cpu.initiator.machine.cpus.max(1)));
    }
    let found = Found::in_proportion("ms/s", median(&burnt) * 1e3, TOLERANCE, &factors)?;
    let detail = format!("{ROUNDS} pairs of samples of {SAMPLE}, with and without it, in random order");
    // Includes work in the kernel, which the load meter cannot distinguish from the path's own; here there is none.
    let others = Some(median(&others));
    Ok(Found { detail, others, ..found })
}

/// Returns the result of `measure` while the spinner works, and the spinner's share of a CPU by its own clock.
fn beside_spinner<T>(cpu: Option<u32>, measure: impl FnOnce() -> miette::Result<T>) -> miette::Result<(T, f64)> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let spinner = start_in(scope, "spinner", || spin(&is_over, cpu))?;
        let measured = measure();
        is_over.store(true, Ordering::Relaxed);
        let share = spinner.join().map_err(|_| miette!(code = "defect", "the spinner panicked"))??;
        Ok((measured?, share))
    })
}

/// Works for half of each period and sleeps for the rest of it.
fn spin(is_over: &AtomicBool, cpu: Option<u32>) -> miette::Result<f64> {
    if let Some(cpu) = cpu {
        pin_current_thread(&[cpu])?;
    }
    let (before, begun) = (thread_times(), Instant::now());
    let mut next = begun;
    while !is_over.load(Ordering::Relaxed) {
        let turn = Instant::now();
        while turn.elapsed() < PERIOD / 2 {}
        let over = Instant::now();
        // A late period is not made up for.
        next = if next + PERIOD > over { next + PERIOD } else { over + PERIOD / 2 };
        thread::sleep(next - over);
    }
    Ok(thread_times().since(before).total.as_secs_f64() / begun.elapsed().as_secs_f64())
}
