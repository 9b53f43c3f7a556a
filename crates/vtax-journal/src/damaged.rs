//! Damaged journals.

use std::{
    fs::{self, File},
    path::PathBuf,
};

use vtax_sys::record;

use crate::{
    directory::{self, Directory},
    error::{JournalError, UndoError, UndoErrors},
    journal::Journal,
    line::{self, LONGEST},
    report::UndoReport,
    step::Step,
};

/// Journal that no living process holds, and that this process has locked.
#[derive(Debug)]
pub enum Opened<S: Step> {
    /// Intact; can be undone.
    Whole(Journal<S>),
    /// Short, empty, altered, or not a regular file.
    Damaged(DamagedJournal),
}

/// Damaged journal. Its name remains taken until it is set aside.
#[derive(Debug)]
pub struct DamagedJournal {
    /// File with the lock; `None` if it is not a regular file, which can't be locked.
    pub(crate) file: Option<File>,
    pub(crate) path: PathBuf,
    pub(crate) error: JournalError,
}

impl DamagedJournal {
    /// Undoes the steps recorded in its complete lines, in reverse order. Other steps may be missing, so this requires
    /// an explicit request.
    ///
    /// # Errors
    /// Lists every step that failed.
    pub fn undo_readable<S: Step>(&self, world: &mut S::World) -> Result<UndoReport, UndoErrors<S::Error>> {
        let (mut report, mut steps) = (UndoReport::default(), Vec::new());
        let bytes = self.file.as_ref().and_then(|file| record::read_open(file, &self.path, LONGEST).ok());
        for readable in line::readable::<S>(&self.path, &bytes.unwrap_or_default()).iter().rev() {
            match readable.step.undo(readable.progress.receipt(), world) {
                Ok(how) => report.add(&readable.step, how),
                Err(error) => steps.push(UndoError { step: readable.step.describe(), error }),
            }
        }
        let id = self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if steps.is_empty() { Ok(report) } else { Err(UndoErrors { id, steps, file: None }) }
    }

    /// Renames the file so that no scan finds it: `rack.damaged`, or `rack.damaged-2` if that exists. Call this when
    /// nothing that the job created is left. Returns the damage and the file's new name.
    pub fn set_aside(self) -> Result<(JournalError, PathBuf), JournalError> {
        let parent = self.path.parent().expect("a journal's path is made by joining a directory");
        let _entered = Directory::enter(parent)?;
        let names = (1..).map(|number| match number {
            1 => self.path.with_extension("damaged"),
            _ => self.path.with_extension(format!("damaged-{number}")),
        });
        let is_free = |name: &PathBuf| fs::symlink_metadata(name).is_err();
        let free = names.into_iter().find(is_free).expect("there is no last number");
        fs::rename(&self.path, &free).map_err(directory::io("rename", &self.path))?;
        drop(self.file);
        Ok((self.error, free))
    }
}
