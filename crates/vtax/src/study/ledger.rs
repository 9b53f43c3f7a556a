//! Where a run is kept: in the store, or by the vtax outside of the emulated server that this one is in.

use std::{fs, path::PathBuf};

use anyhow::Context;
use vtax_model::run::{Failure, Run, RunHeader, RunState, Sample};

use super::runner::Sink;
use crate::{
    cli::Places,
    exit::{Blamed, Stop},
    server::lines::Writer,
    store::{RunWriter, Store},
};

/// Where runs are.
pub(super) enum Books {
    Here(Store),
    /// Outside, which has put the run that is to go on into this file.
    Outside {
        old: Option<PathBuf>,
    },
}

/// Who writes a run as it goes on.
pub(super) enum Ledger {
    Here(Box<RunWriter>),
    Outside(Writer),
}

impl Books {
    pub(super) fn open(places: &Places) -> Result<Books, Stop> {
        match places.relay.is_outside() {
            true => Ok(Books::Outside { old: places.relay.from.clone() }),
            false => Ok(Books::Here(Store::open(&places.state_dir()?)?)),
        }
    }

    pub(super) fn load(&self, id: &str) -> Result<Run, Stop> {
        match self {
            Books::Here(store) => Ok(store.load(id)?),
            Books::Outside { old } => {
                let old = old.as_deref().context("--relay needs --relay-from to go on with a run").or_input()?;
                let text = fs::read(old).with_context(|| format!("reading {}", old.display())).or_input()?;
                serde_json::from_slice(&text).with_context(|| format!("reading {}", old.display())).or_input()
            }
        }
    }

    pub(super) fn create_run(&self, header: &RunHeader) -> Result<Ledger, Stop> {
        match self {
            Books::Here(store) => Ok(Ledger::Here(Box::new(store.create_run(header)?))),
            Books::Outside { .. } => Writer::begin(header).map(Ledger::Outside).or_infrastructure(),
        }
    }

    /// Goes on with a run, which then has so many rounds in all if that is asked for.
    pub(super) fn resume(&self, header: &RunHeader, rounds: Option<u32>) -> Result<Ledger, Stop> {
        match self {
            Books::Here(store) => {
                let writer = match rounds {
                    Some(rounds) => store.extend(&header.id, rounds)?,
                    None => store.resume(&header.id)?,
                };
                Ok(Ledger::Here(Box::new(writer)))
            }
            Books::Outside { .. } => self.create_run(header),
        }
    }
}

impl Ledger {
    /// Keeps another plan of the run: it holds from now on.
    pub(super) fn replan(&mut self, header: &RunHeader) -> anyhow::Result<()> {
        match self {
            Ledger::Here(writer) => Ok(writer.replan(header)?),
            Ledger::Outside(_) => Ok(Writer::begin(header).map(drop)?),
        }
    }

    /// Ends this session, which took so long.
    pub(super) fn finish(self, state: RunState, wall_seconds: f64) -> anyhow::Result<()> {
        match self {
            Ledger::Here(writer) => Ok(writer.finish(state, wall_seconds)?),
            Ledger::Outside(writer) => Ok(writer.end(state)?),
        }
    }
}

impl Sink for Ledger {
    fn samples(&mut self, samples: &[Sample]) -> anyhow::Result<()> {
        match self {
            Ledger::Here(writer) => Ok(writer.samples(samples)?),
            Ledger::Outside(writer) => Ok(samples.iter().try_for_each(|sample| writer.sample(sample))?),
        }
    }

    fn failure(&mut self, failure: &Failure) -> anyhow::Result<()> {
        match self {
            Ledger::Here(writer) => Ok(writer.failure(failure)?),
            Ledger::Outside(writer) => Ok(writer.failure(failure)?),
        }
    }
}
