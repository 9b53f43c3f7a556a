//! Runs the project's checks: `make test`, `make lint` and the gate.
//!
//! `cargo test` runs one test program after another, each with a fixed number of threads. Here all programs share one
//! budget of CPUs: a job that mostly waits leaves room for others, CPUs that stay idle get another job, and a test that
//! judges figures has the machine to itself. Each job has a supervisor, which measures the CPU time of everything that the job starts and ends whatever
//! the job leaves behind. The parts, their tests and the CPU time that each may take are in `tests/suite.toml`.
//!
//! cargo-nextest also runs each test as a process, but does not measure CPU time, and would have to be compiled first.

#![forbid(unsafe_code)]

mod costs;
mod disk_space;
mod error;
mod idle;
mod job;
mod programs;
mod run_directory;
mod schedule;
mod settings;
mod summary;
mod supervisor;

use std::{env, process::ExitCode, time::Instant};

use costs::JobCosts;
use error::SuiteError;
use job::JobEnd;
use run_directory::RunDirectory;
use settings::SuiteSettings;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let outcome = match arguments.split_first() {
        Some((first, rest)) if first == supervisor::SUPERVISE => supervisor::supervise(rest),
        _ => run(&arguments),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("suite: {error}");
        ExitCode::from(2)
    })
}

fn run(parts: &[String]) -> Result<ExitCode, SuiteError> {
    let begun = Instant::now();
    let settings = SuiteSettings::read(parts)?;
    disk_space::check()?;
    let costs = JobCosts::read()?;
    let mut in_vain = 0.0;
    let mut ends = schedule::run(settings.preparations(), &costs)?;
    // Running tests that could not be built would only produce noise.
    if ends.iter().all(JobEnd::passed) {
        let directory = RunDirectory::make()?;
        ends.extend(schedule::run(programs::jobs(&settings, directory.as_ref())?, &costs)?);
        in_vain = costs.kept_free_in_vain(&ends);
        costs.save(&ends)?;
    }
    Ok(summary::print(&settings, &ends, begun.elapsed(), in_vain))
}
