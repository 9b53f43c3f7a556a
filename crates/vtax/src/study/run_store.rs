//! Where a run is kept: in the store of this vtax, or by the vtax outside if this one is in an emulated server.

use std::{fs, path::PathBuf};

use anyhow::Context;
use vtax_model::run::{Failure, Run, RunHeader, RunState, Sample};

use super::runner::Sink;
use crate::{
    exit::{Blamed, Stop},
    locations::{Locations, RunSite},
    server::run_lines::LineWriter,
    store::{RunWriter, Store},
};

/// Where runs are kept.
pub(super) enum RunStore {
    Here(Store),
    /// The vtax outside keeps runs. It has written the run that is to go on to this file.
    Outside {
        old: Option<PathBuf>,
    },
}

/// Keeps one run while it is measured.
pub(super) enum RunKeeper {
    Here(Box<RunWriter>),
    Outside(LineWriter),
}

impl RunStore {
    pub(super) fn open(locations: &Locations, site: &RunSite) -> Result<RunStore, Stop> {
        match site {
            RunSite::InServer { old } => Ok(RunStore::Outside { old: old.clone() }),
            RunSite::Here { .. } => Ok(RunStore::Here(Store::open(&locations.state_dir()?)?)),
        }
    }

    pub(super) fn load(&self, id: &str) -> Result<Run, Stop> {
        match self {
            RunStore::Here(store) => Ok(store.load(id)?),
            RunStore::Outside { old } => {
                let old = old.as_deref().context("--relay needs --relay-from to go on with a run").or_input()?;
                let text = fs::read(old).with_context(|| format!("reading {}", old.display())).or_input()?;
                serde_json::from_slice(&text).with_context(|| format!("reading {}", old.display())).or_input()
            }
        }
    }

    pub(super) fn create_run(&self, header: &RunHeader) -> Result<RunKeeper, Stop> {
        match self {
            RunStore::Here(store) => Ok(RunKeeper::Here(Box::new(store.create_run(header)?))),
            RunStore::Outside { .. } => LineWriter::begin(header).map(RunKeeper::Outside).or_infrastructure(),
        }
    }

    /// Goes on with a run. If `rounds` is given, the run has so many in all from now on.
    pub(super) fn resume(&self, header: &RunHeader, rounds: Option<u32>) -> Result<RunKeeper, Stop> {
        match self {
            RunStore::Here(store) => {
                let writer = match rounds {
                    Some(rounds) => store.extend(&header.id, rounds)?,
                    None => store.resume(&header.id)?,
                };
                Ok(RunKeeper::Here(Box::new(writer)))
            }
            RunStore::Outside { .. } => self.create_run(header),
        }
    }
}

impl RunKeeper {
    /// Replaces the plan of the run.
    pub(super) fn replan(&mut self, header: &RunHeader) -> anyhow::Result<()> {
        match self {
            RunKeeper::Here(writer) => Ok(writer.replan(header)?),
            RunKeeper::Outside(_) => Ok(LineWriter::begin(header).map(drop)?),
        }
    }

    /// Ends this session of the run.
    pub(super) fn finish(self, state: RunState, wall_seconds: f64) -> anyhow::Result<()> {
        match self {
            RunKeeper::Here(writer) => Ok(writer.finish(state, wall_seconds)?),
            RunKeeper::Outside(writer) => Ok(writer.end(state)?),
        }
    }
}

impl Sink for RunKeeper {
    fn samples(&mut self, samples: &[Sample]) -> anyhow::Result<()> {
        match self {
            RunKeeper::Here(writer) => Ok(writer.samples(samples)?),
            RunKeeper::Outside(writer) => Ok(samples.iter().try_for_each(|sample| writer.sample(sample))?),
        }
    }

    fn failure(&mut self, failure: &Failure) -> anyhow::Result<()> {
        match self {
            RunKeeper::Here(writer) => Ok(writer.failure(failure)?),
            RunKeeper::Outside(writer) => Ok(writer.failure(failure)?),
        }
    }
}
