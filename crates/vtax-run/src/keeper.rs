//! Saves a run while it is being measured.

use std::sync::{Mutex, PoisonError};

use miette::{Context, miette};
use vtax_model::run::{RunHeader, RunReadings};
use vtax_store::{RunWriter, Store, StoreError};

use crate::events::{EventSink, RunEvent};

/// Sink that must receive each event first: a sample is on the disk before anyone else hears of it.
pub(crate) struct RunKeeper(Mutex<Keeping>);

struct Keeping {
    store: Store,
    /// ID of the resumed run, and its new total number of rounds, if extended.
    old: Option<(String, Option<u32>)>,
    /// The run being written, and its ID.
    writer: Option<(String, RunWriter)>,
}

impl RunKeeper {
    /// Saves a new run, or resumes `old` with `rounds` rounds in total.
    pub(crate) fn new(store: Store, old: Option<&RunReadings>, rounds: Option<u32>) -> RunKeeper {
        let old = old.map(|run| (run.header.id.clone(), rounds));
        RunKeeper(Mutex::new(Keeping { store, old, writer: None }))
    }
}

impl Keeping {
    /// Opens the run for writing. From now on no other vtax can write it.
    fn open(&self, header: &RunHeader) -> Result<RunWriter, StoreError> {
        match &self.old {
            Some((id, Some(rounds))) if *id == header.id => self.store.extend(id, *rounds),
            Some((id, None)) if *id == header.id => self.store.resume(id),
            _ => self.store.create_run(header),
        }
    }
}

impl EventSink for RunKeeper {
    fn take(&self, event: &RunEvent<'_>) -> miette::Result<()> {
        // Messages aren't saved. They also come from other threads, which must not wait for the
        // disk.
        if matches!(event, RunEvent::Progress(_) | RunEvent::Told(_)) {
            return Ok(());
        }
        let keeping = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (event, &mut keeping.writer) {
            (RunEvent::Plan(header), None) => keeping.writer = Some((header.id.clone(), keeping.open(header)?)),
            (RunEvent::Plan(header), Some((id, writer))) if header.id == *id => writer.replan(header)?,
            (RunEvent::Plan(_), Some(_)) => return Err(miette!(code = "defect", "a second run began within a job")),
            (RunEvent::Samples(samples), Some((_, writer))) => writer.samples(samples)?,
            (RunEvent::Failure(failure), Some((_, writer))) => writer.failure(failure)?,
            (RunEvent::End(end), writer) => {
                let writer = writer.take().map(|(_, writer)| writer.finish(end.state, end.wall_seconds));
                writer.transpose().context("ending the run")?;
            }
            (_, None) => return Err(miette!(code = "defect", "a sample came before the plan of its run")),
            (RunEvent::Progress(_) | RunEvent::Told(_), Some(_)) => {}
        }
        Ok(())
    }
}
