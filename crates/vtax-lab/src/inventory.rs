//! Everything in this user's journals, labs and others, and the removal of what killed processes left.

mod summary;

use std::{collections::HashSet, fmt, path::PathBuf};

use vtax_guest::accel;
use vtax_journal::{DamagedJournal, Journal, JournalError, Opened, scan};
use vtax_model::topology::Name;

use crate::{
    error::LabError,
    site::{self, Site},
    step::LabStep,
    world::World,
};

pub use summary::{GuestState, GuestSummary, HoldingSummary, HoldingWhat, LabState, LabSummary};

/// The kind of a journal that is created for a removal.
const UNKNOWN: &str = "unknown";

/// Labs and leftovers that `clean` removed or skipped.
#[derive(Debug, Default)]
pub struct CleanReport {
    pub removed: Vec<Name>,
    pub left: Vec<HoldingSummary>,
    pub failures: Vec<LabError>,
    /// The labs among the removed ones that were found by their marks.
    pub notes: Vec<CleanNote>,
}

/// Reason why a lab was found by its marks, not by its journal.
#[derive(Debug)]
pub enum CleanNote {
    /// The journal can't be read. It is kept under another name.
    Damaged { lab: Name, error: JournalError, kept: PathBuf },
    /// The journal was incomplete.
    Lost { lab: Name },
    /// There was no journal.
    Missing { lab: Name },
}

impl fmt::Display for CleanNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by_marks = "the lab's objects were found by their marks and removed";
        match self {
            CleanNote::Damaged { lab, error, kept } => write!(
                f,
                "lab {lab}: its journal is unreadable ({error}); {by_marks}; the file is kept as {}, remove it when no \
                 longer needed",
                kept.display()
            ),
            CleanNote::Lost { lab } => write!(f, "lab {lab}: its journal lost lines; {by_marks}"),
            CleanNote::Missing { lab } => write!(f, "lab {lab}: its journal is missing; {by_marks}"),
        }
    }
}

/// Returns all objects that this user's journals hold, by name.
pub fn list(world: &World) -> Result<Vec<HoldingSummary>, LabError> {
    let found = scan::<LabStep>(&world.journals())?;
    let summary = |(id, snapshot)| Some(HoldingSummary::of(Name::try_from(id).ok()?, &snapshot));
    Ok(found.into_iter().filter_map(summary).collect())
}

/// Removes labs whose process was killed, or only the one named `only`, and remains of killed KVM probes. The report
/// lists what could not be removed.
pub fn clean(world: &World, only: Option<&Name>) -> Result<CleanReport, LabError> {
    accel::remove_abandoned();
    let mut report = CleanReport::default();
    let is_wanted = |name: &Name| only.is_none_or(|only| only == name);
    let journals = scan::<LabStep>(&world.journals())?;
    let has_journal: HashSet<String> = journals.iter().map(|(id, _)| id.clone()).collect();
    for (id, snapshot) in journals {
        let Some(name) = Name::try_from(id).ok().filter(is_wanted) else { continue };
        let summary = HoldingSummary::of(name.clone(), &snapshot);
        match (snapshot, summary.state) {
            (Ok(_), LabState::Abandoned) => report.note(&name, remove(world, &name)),
            (Err(error), _) if error.is_damage() => report.note(&name, remove(world, &name)),
            (Err(error), _) => report.failures.push(error.into()),
            (Ok(_), state) => report.left.push(HoldingSummary { state, ..summary }),
        }
    }
    for name in world.lab_names()?.iter().filter(|name| is_wanted(name) && !has_journal.contains(name.as_str())) {
        if let Some(removed) = remove_without_journal(world, name).transpose() {
            report.note(name, removed.map(Some));
        }
    }
    Ok(report)
}

impl CleanReport {
    fn note(&mut self, name: &Name, removed: Result<Option<CleanNote>, LabError>) {
        match removed {
            Ok(note) => {
                self.removed.push(name.clone());
                self.notes.extend(note);
            }
            // Owned by a living process, or already removed by another vtax.
            Err(LabError::Journal(JournalError::Busy { .. })) => {
                self.left.push(HoldingSummary { state: LabState::Alive, ..HoldingSummary::unknown(name.clone()) });
            }
            Err(LabError::Journal(JournalError::Missing { .. })) => {}
            Err(error) => self.failures.push(error),
        }
    }
}

/// Makes this process the keeper of an unprivileged user's kept labs. Returns when no lab needs it. A lab whose journal
/// is damaged or missing needs it until it is cleaned: its marks are in the keeper's namespaces.
pub fn keeper_main() -> Result<(), LabError> {
    World::keep(|world| {
        let labs = list(world)?;
        let is_known = |name: &Name| labs.iter().any(|lab| lab.name == *name);
        Ok(labs.iter().any(|lab| lab.state != LabState::Abandoned) || !world.lab_names()?.iter().all(is_known))
    })
}

/// Removes an abandoned lab, or one whose journal is damaged. The note reports an incomplete journal.
fn remove(world: &World, name: &Name) -> Result<Option<CleanNote>, LabError> {
    let mut site = Site::new(name, &world.lab_directory(name));
    // This comes first: opening a journal truncates a torn line, and a living lab's must stay unchanged.
    site.claim()?;
    match Journal::<LabStep>::open_any(&world.journals(), name.as_str())? {
        Opened::Whole(journal) => {
            let has_lost = site::undo(journal, &mut site)?;
            Ok(has_lost.then(|| CleanNote::Lost { lab: name.clone() }))
        }
        Opened::Damaged(damaged) => remove_by_marks(name, &mut site, damaged).map(Some),
    }
}

fn remove_by_marks(name: &Name, site: &mut Site, damaged: DamagedJournal) -> Result<CleanNote, LabError> {
    site.sweep()?;
    let (error, kept) = damaged.set_aside()?;
    Ok(CleanNote::Damaged { lab: name.clone(), error, kept })
}

/// Removes a lab that has a directory but no journal. It has an empty journal in the meantime, so that nobody else
/// takes its name. None if there is nothing to remove.
fn remove_without_journal(world: &World, name: &Name) -> Result<Option<CleanNote>, LabError> {
    let journal = match Journal::create(&world.journals(), name.as_str(), UNKNOWN, &()) {
        Err(JournalError::Taken { .. } | JournalError::Format { .. } | JournalError::OtherVersion { .. }) => {
            return Ok(None);
        }
        Err(error) if error.is_damage() => return Ok(None),
        journal => journal?,
    };
    let mut site = Site::new(name, &world.lab_directory(name));
    if let Err(error) = site.claim() {
        journal.discard_if_empty()?;
        return Err(error);
    }
    let has_lost = site::undo(journal, &mut site)?;
    Ok(has_lost.then(|| CleanNote::Missing { lab: name.clone() }))
}
