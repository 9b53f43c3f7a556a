//! Executes a job here or elsewhere, and saves the run.

use std::path::{Path, PathBuf};

use miette::miette;
use vtax_model::{run::RunReadings, server::ServerSpec};
use vtax_store::Store;

use crate::{
    events::RunEvents,
    job::{HandedJob, Job, RanJob, Work},
    keeper::RunKeeper,
    locations::Locations,
    server::{ServerRequest, ServerRunner, Stay, is_here},
    stop::{Blamed, Stop},
    study::{LocalRunner, RunSource, imprecise},
};

/// A finished job. Its samples are in the store.
pub struct FinishedJob {
    /// The run.
    pub ran: RanJob,
    /// Store of the run.
    pub store: Store,
    /// Directory of the store.
    pub state_dir: PathBuf,
}

/// Executes the job on this machine, or on an emulated server if one is requested or if the run was started on one.
pub fn carry_out(
    job: &Job,
    server: Option<ServerSpec>,
    locations: &Locations,
    events: &RunEvents,
) -> Result<FinishedJob, Stop> {
    let state_dir = locations.state_dir()?;
    let (source, store, rounds) = match &job.work {
        // A job that cannot be measured anywhere is refused before a store is created.
        Work::New(new) => (RunSource::begin(new, &job.conditions)?, Store::open(&state_dir)?, None),
        Work::GoOn { run, rounds } => {
            let store = Store::open(&state_dir)?;
            (RunSource::Old(Box::new(old(&store, run, *rounds)?)), store, *rounds)
        }
    };
    let run = if let RunSource::Old(run) = &source { Some(&**run) } else { None };
    let events = &events.after(RunKeeper::new(store.try_clone()?, run, rounds));
    let mut ran = match server_of(run, server).or_input()? {
        Some(spec) => {
            let (exact, kernel) = (run.is_some(), job.conditions.kernel.as_deref());
            let request = ServerRequest { spec, stay: Stay::Command, exact, locations, kernel, events };
            let old = if let RunSource::Old(run) = source { Some(*run) } else { None };
            ServerRunner { request, store: &store, state_dir: &state_dir }.run(job, old)
        }
        None => LocalRunner { locations, store: Some(&store), events }.run(source, &job.conditions),
    }?;
    ran.shortfalls.extend(imprecise(&ran.run));
    Ok(FinishedJob { ran, store, state_dir })
}

/// Run to resume, with its plan from now on.
fn old(store: &Store, run: &str, rounds: Option<u32>) -> Result<RunReadings, Stop> {
    let mut run = store.load(run)?;
    if let Some(rounds) = rounds {
        run.header = run.extended(rounds).or_input()?;
    }
    Ok(run)
}

/// Executes a job that another vtax has written to a file, and which that vtax saves.
pub fn carry_out_handed(file: &Path, locations: &Locations, events: &RunEvents) -> Result<RanJob, Stop> {
    let (source, conditions) = HandedJob::read(file)?;
    LocalRunner { locations, store: None, events }.run(source, &conditions)
}

/// Returns the server to measure on, unless that is this machine. A run is resumed where it was started.
fn server_of(old: Option<&RunReadings>, asked: Option<ServerSpec>) -> miette::Result<Option<ServerSpec>> {
    let Some(run) = old else { return Ok(asked) };
    let begun = run.header.environment.server.as_ref().map(|server| server.spec.raw().parse()).transpose()?;
    match (begun, asked) {
        (Some(begun), Some(asked)) if begun != asked && !asked.is_any() => Err(miette!(
            code = "run-from-elsewhere",
            "the run {} was started on {begun} and can be resumed only there, not on {asked}",
            run.header.id
        )),
        (None, Some(_)) => Err(miette!(
            code = "run-from-elsewhere",
            "the run {} was started on this machine and can be resumed only here; omit --server",
            run.header.id
        )),
        (begun, _) => Ok(begun.filter(|_| !is_here())),
    }
}
