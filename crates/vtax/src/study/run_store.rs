//! Where a run is kept: in the store of this vtax, or by the vtax outside if this one is in an emulated server.

use std::{fs::File, io::BufReader, path::PathBuf};

use miette::miette;
use vtax_model::run::{Failure, RunHeader, RunReadings, RunState, Sample};
use vtax_store::{RunWriter, Store};

use super::runner::Sink;
use crate::{
    exit::{Blamed, Coded, Stop},
    locations::{Locations, RunSite},
    server::run_lines::SentLine,
};

pub(super) enum RunStore {
    Here(Store),
    /// The vtax outside keeps runs. It has written the run that is to go on to this file.
    Outside {
        old: Option<PathBuf>,
    },
}

pub(super) enum RunKeeper {
    Here(Box<RunWriter>),
    /// Sends the run to the vtax outside.
    Outside,
}

impl RunStore {
    pub(super) fn open(locations: &Locations, site: &RunSite) -> Result<RunStore, Stop> {
        match site {
            RunSite::InServer { old } => Ok(RunStore::Outside { old: old.clone() }),
            RunSite::Here { .. } => Ok(RunStore::Here(Store::open(&locations.state_dir()?)?)),
        }
    }

    /// The store of this vtax, if the run is kept there.
    pub(super) fn here(self) -> Option<Store> {
        match self {
            RunStore::Here(store) => Some(store),
            RunStore::Outside { .. } => None,
        }
    }

    pub(super) fn load(&self, id: &str) -> Result<RunReadings, Stop> {
        match self {
            RunStore::Here(store) => Ok(store.load(id)?),
            RunStore::Outside { old } => {
                let old = old
                    .as_deref()
                    .ok_or_else(|| miette!(code = "defect", "--relay needs --relay-from to go on with a run"))
                    .or_input()?;
                let reading = || format!("reading {}", old.display());
                let file = File::open(old).coded("file", reading).or_input()?;
                serde_json::from_reader(BufReader::new(file)).coded("file", reading).or_input()
            }
        }
    }

    pub(super) fn create_run(&self, header: &RunHeader) -> Result<RunKeeper, Stop> {
        match self {
            RunStore::Here(store) => Ok(RunKeeper::Here(Box::new(store.create_run(header)?))),
            RunStore::Outside { .. } => {
                SentLine::plan(header).send().or_infrastructure()?;
                Ok(RunKeeper::Outside)
            }
        }
    }

    /// Goes on with a run. If `rounds` is given, the run has so many in all from now on.
    pub(super) fn resume(&self, header: &RunHeader, rounds: Option<u32>) -> Result<RunKeeper, Stop> {
        match (self, rounds) {
            (RunStore::Here(store), Some(rounds)) => Ok(RunKeeper::Here(Box::new(store.extend(&header.id, rounds)?))),
            (RunStore::Here(store), None) => Ok(RunKeeper::Here(Box::new(store.resume(&header.id)?))),
            (RunStore::Outside { .. }, _) => self.create_run(header),
        }
    }
}

impl RunKeeper {
    pub(super) fn replan(&mut self, header: &RunHeader) -> miette::Result<()> {
        match self {
            RunKeeper::Here(writer) => Ok(writer.replan(header)?),
            RunKeeper::Outside => SentLine::plan(header).send(),
        }
    }

    pub(super) fn finish(self, state: RunState, wall_seconds: f64) -> miette::Result<()> {
        match self {
            RunKeeper::Here(writer) => Ok(writer.finish(state, wall_seconds)?),
            RunKeeper::Outside => SentLine::End(state).send(),
        }
    }
}

impl Sink for RunKeeper {
    fn samples(&mut self, samples: &[Sample]) -> miette::Result<()> {
        match self {
            RunKeeper::Here(writer) => Ok(writer.samples(samples)?),
            RunKeeper::Outside => samples.iter().try_for_each(|sample| SentLine::Sample(sample).send()),
        }
    }

    fn failure(&mut self, failure: &Failure) -> miette::Result<()> {
        match self {
            RunKeeper::Here(writer) => Ok(writer.failure(failure)?),
            RunKeeper::Outside => SentLine::Failure(failure).send(),
        }
    }
}
