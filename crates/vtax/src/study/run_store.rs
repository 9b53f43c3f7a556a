//! Where a run is kept: in the store of this vtax, or by the vtax outside if this one is in an emulated server.

use std::{fs, path::PathBuf};

use miette::miette;
use vtax_model::run::{Failure, Run, RunHeader, RunState, Sample};

use super::runner::Sink;
use crate::{
    exit::{Blamed, Coded, Stop},
    locations::{Locations, RunSite},
    server::run_lines::SentLine,
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
pub(super) trait RunKeeper: Sink {
    /// Replaces the plan of the run.
    fn replan(&mut self, header: &RunHeader) -> miette::Result<()>;
    /// Ends this session of the run.
    fn finish(self: Box<Self>, state: RunState, wall_seconds: f64) -> miette::Result<()>;
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
                let old = old
                    .as_deref()
                    .ok_or_else(|| miette!(code = "defect", "--relay needs --relay-from to go on with a run"))
                    .or_input()?;
                let text = fs::read(old).coded("file", || format!("reading {}", old.display())).or_input()?;
                serde_json::from_slice(&text).coded("file", || format!("reading {}", old.display())).or_input()
            }
        }
    }

    pub(super) fn create_run(&self, header: &RunHeader) -> Result<Box<dyn RunKeeper>, Stop> {
        match self {
            RunStore::Here(store) => Ok(Box::new(store.create_run(header)?)),
            RunStore::Outside { .. } => Ok(Box::new(RunSender::begin(header).or_infrastructure()?)),
        }
    }

    /// Goes on with a run. If `rounds` is given, the run has so many in all from now on.
    pub(super) fn resume(&self, header: &RunHeader, rounds: Option<u32>) -> Result<Box<dyn RunKeeper>, Stop> {
        match self {
            RunStore::Here(store) => {
                let writer = match rounds {
                    Some(rounds) => store.extend(&header.id, rounds)?,
                    None => store.resume(&header.id)?,
                };
                Ok(Box::new(writer))
            }
            RunStore::Outside { .. } => self.create_run(header),
        }
    }
}

impl Sink for RunWriter {
    fn samples(&mut self, samples: &[Sample]) -> miette::Result<()> {
        Ok(RunWriter::samples(self, samples)?)
    }

    fn failure(&mut self, failure: &Failure) -> miette::Result<()> {
        Ok(RunWriter::failure(self, failure)?)
    }
}

impl RunKeeper for RunWriter {
    fn replan(&mut self, header: &RunHeader) -> miette::Result<()> {
        Ok(RunWriter::replan(self, header)?)
    }

    fn finish(self: Box<Self>, state: RunState, wall_seconds: f64) -> miette::Result<()> {
        Ok(RunWriter::finish(*self, state, wall_seconds)?)
    }
}

/// Sends a run to the vtax outside.
struct RunSender;

impl RunSender {
    fn begin(header: &RunHeader) -> miette::Result<RunSender> {
        SentLine::plan(header).send()?;
        Ok(RunSender)
    }
}

impl Sink for RunSender {
    fn samples(&mut self, samples: &[Sample]) -> miette::Result<()> {
        samples.iter().try_for_each(|sample| SentLine::Sample(sample).send())
    }

    fn failure(&mut self, failure: &Failure) -> miette::Result<()> {
        SentLine::Failure(failure).send()
    }
}

impl RunKeeper for RunSender {
    fn replan(&mut self, header: &RunHeader) -> miette::Result<()> {
        SentLine::plan(header).send()
    }

    fn finish(self: Box<Self>, state: RunState, _: f64) -> miette::Result<()> {
        SentLine::End(state).send()
    }
}
