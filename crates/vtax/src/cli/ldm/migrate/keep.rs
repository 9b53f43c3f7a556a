//! Stores the result of a migration.

use vtax_model::{foreign::ForeignText, run::MigrationFigures};
use vtax_run::{Locations, MigrationAttempt};
use vtax_store::Store;

use crate::{cli::run::keep_brief, exit::Stop};

/// Result of an attempt: its figures, or the reason why there are none.
pub(super) type AttemptOutcome = Result<MigrationFigures, ForeignText>;

/// Stores an attempt that has ended, and reports where. The domain has moved or stayed, so an error is only a warning.
pub(super) fn keep(attempt: &MigrationAttempt, outcome: AttemptOutcome, places: &Locations) {
    match stored(attempt, outcome, places) {
        Ok(place) => tell!("{place}"),
        Err(stop) => tell!("warning: the result of this migration is not stored: {stop}"),
    }
}

fn stored(attempt: &MigrationAttempt, outcome: AttemptOutcome, places: &Locations) -> Result<String, Stop> {
    let dir = places.state_dir()?;
    let run = attempt.ended(outcome)?;
    let store = Store::open(&dir)?;
    store.add(&run)?;
    let Ok(readings) = run.readings();
    keep_brief(&store, &readings)?;
    Ok(format!("saved as {} in {}: {}", run.header.id, dir.display(), run.header.study.title))
}
