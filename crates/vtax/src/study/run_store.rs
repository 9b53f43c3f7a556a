//! Where a run is kept: in the store, or by the vtax outside of the emulated server that this one is in.

use std::{fs, path::PathBuf};

use anyhow::Context;
use vtax_model::run::{Failure, Run, RunHeader, RunState, Sample};

use super::runner::Sink;
use crate::{
    cli::Locations,
    exit::{Blamed, Stop},
    server::lines::Writer,
    store::{RunWriter, Store},
};

/// Where runs are.
pub(super) enum RunStore {
    Here(Store),
    /// Outside, which has put the run that is to go on into this file.
    Outside {
        old: Option<PathBuf>,
    },
}

/// Who writes a run as it goes on.
pub(super) enum RunKeeper {
    Here(Box<RunWriter>),
    Outside(Writer),
}

impl RunStore {
    pub(super) fn open(places: &Locations) -> Result<RunStore, Stop> {
        match places.relay.is_outside() {
            true => Ok(RunStore::Outside { old: places.relay.from.clone() }),
            false => Ok(RunStore::Here(Store::open(&places.state_dir()?)?)),
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
            RunStore::Outside { .. } => Writer::begin(header).map(RunKeeper::Outside).or_infrastructure(),
        }
    }

    /// Goes on with a run, which then has so many rounds in all if that is asked for.
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
    /// Keeps another plan of the run: it holds from now on.
    pub(super) fn replan(&mut self, header: &RunHeader) -> anyhow::Result<()> {
        match self {
            RunKeeper::Here(writer) => Ok(writer.replan(header)?),
            RunKeeper::Outside(_) => Ok(Writer::begin(header).map(drop)?),
        }
    }

    /// Ends this session, which took so long.
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
