//! Cost of showing a run of 100,000 samples, and of listing 10,000 runs.
//!
//! `cargo bench --bench results`; no privileges required. Times are of the whole program, from start to exit.

#[path = "../tests/many_runs.rs"]
mod many_runs;

use std::{
    error::Error,
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use nix::sys::resource::{UsageWho, getrusage};
use vtax_model::run::{Run, RunState, Sample};
use vtax_store::Store;

type Outcome<T> = Result<T, Box<dyn Error>>;

const SAMPLES: usize = 100_000;
const RUNS: i64 = 10_000;
const ROUNDS: usize = 11;

fn main() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let (one, many) = (folder.path().join("one"), folder.path().join("many"));
    let run = vtax_synthetic::built_in("demo");
    let stored = store_samples(&run, &one)?;
    fs::create_dir_all(&many)?;
    many_runs::store_in(&many, RUNS);

    println!("median of {ROUNDS} (least to most)\n");
    let cells = run.header.study.cells.len();
    println!("a run of {SAMPLES} samples of {cells} cells, {} MB:", stored / 1_000_000);
    timed(&one, &["results", "show", "last"])?;
    println!("{RUNS} runs:");
    timed(&many, &["results", "list"])?;
    let most = getrusage(UsageWho::RUSAGE_CHILDREN)?.max_rss();
    println!("\nmost memory that any of them had: {} MB", most / 1024);
    Ok(())
}

/// Runs vtax several times, after one run that loads the file into memory.
fn timed(state: &Path, arguments: &[&str]) -> Outcome<()> {
    seconds(state, arguments)?;
    let mut taken = (0..ROUNDS).map(|_| seconds(state, arguments)).collect::<Outcome<Vec<f64>>>()?;
    taken.sort_by(f64::total_cmp);
    let [least, middle, most] = [0, ROUNDS / 2, ROUNDS - 1].map(|place| taken[place]);
    println!("  vtax {:14} {middle:.3} s ({least:.3} to {most:.3})", arguments[..2].join(" "));
    Ok(())
}

fn seconds(state: &Path, arguments: &[&str]) -> Outcome<f64> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vtax"));
    command.args(arguments).env("VTAX_STATE", state).stdout(Stdio::null());
    let begun = Instant::now();
    let status = command.status()?;
    let taken = begun.elapsed().as_secs_f64();
    if status.success() { Ok(taken) } else { Err(format!("vtax {} {status}", arguments.join(" ")).into()) }
}

/// Stores the samples of a run repeatedly, as those of later rounds. Returns the size of the store in bytes.
fn store_samples(run: &Run, state: &Path) -> Outcome<u64> {
    let planned = run.header.rounds();
    let a_round = run.samples.len() / planned as usize;
    let mut header = run.header.clone();
    header.plan.samples = u32::try_from(SAMPLES.div_ceil(a_round))?;
    let mut writer = Store::open(state)?.create_run(&header)?;
    for round in 1..=header.plan.samples {
        let like = (round - 1) % planned + 1;
        let taken = run.samples.iter().filter(|sample| sample.round == like);
        let samples: Vec<Sample> = taken.map(|sample| Sample { round, ..sample.clone() }).collect();
        writer.samples(&samples)?;
    }
    writer.finish(RunState::Complete, f64::from(header.plan.samples))?;
    Ok(fs::metadata(state.join("results.db"))?.len())
}
