//! A journal that can't be read.

use std::{
    fs::{self, File},
    path::PathBuf,
};

use crate::{
    directory::{self, Directory},
    error::JournalError,
    journal::Journal,
    step::Step,
};

/// A journal that no living process holds, and that this process has locked.
#[derive(Debug)]
pub enum Opened<S: Step> {
    /// It can be undone.
    Whole(Journal<S>),
    /// It has a line that isn't as it was written.
    Damaged(DamagedJournal),
}

/// A damaged journal, which keeps its name taken until it is set aside.
#[derive(Debug)]
pub struct DamagedJournal {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    pub(crate) error: JournalError,
}

impl DamagedJournal {
    /// Keeps the file under another name, which no scan finds: `rack.damaged`, or `rack.damaged-2` if that is taken.
    /// Call this when everything that the job has made is gone. Returns what is wrong with the file, and its new name.
    pub fn set_aside(self) -> Result<(JournalError, PathBuf), JournalError> {
        let parent = self.path.parent().expect("a journal's path is made by joining a directory");
        let _entered = Directory::enter(parent)?;
        let names = (1..).map(|number| match number {
            1 => self.path.with_extension("damaged"),
            _ => self.path.with_extension(format!("damaged-{number}")),
        });
        let free = names.into_iter().find(|name| !name.exists()).expect("there is no last number");
        fs::rename(&self.path, &free).map_err(directory::io("rename", &self.path))?;
        drop(self.file);
        Ok((self.error, free))
    }
}
