//! The open file of a journal.

use std::{
    fs::{self, File},
    io::Write,
    marker::PhantomData,
    path::PathBuf,
};

use crate::{
    directory::{self, Directory},
    error::JournalError,
    line::{JournalLine, LineForm},
    step::Step,
};

/// A line to be written for a step that is stored elsewhere.
type Entry<'a, S> = JournalLine<&'a S, &'a <S as Step>::Receipt>;

/// The file, to which lines are appended.
#[derive(Debug)]
pub(crate) struct Log<S> {
    file: File,
    path: PathBuf,
    form: LineForm,
    /// The bytes up to the end of the last line that was written in full.
    whole: u64,
    /// A write has failed, and what it left behind could not be removed.
    torn: bool,
    steps: PhantomData<S>,
}

impl<S: Step> Log<S> {
    /// For a new file.
    pub(crate) fn new(file: File, path: PathBuf) -> Self {
        Log { file, path, form: LineForm::Checked, whole: 0, torn: false, steps: PhantomData }
    }

    /// For a file whose last line, after the first `whole` bytes, may be incomplete.
    pub(crate) fn resume(file: File, path: PathBuf, form: LineForm, whole: u64) -> Result<Self, JournalError> {
        let mut log = Log { file, path, form, whole, torn: true, steps: PhantomData };
        log.mend()?;
        Ok(log)
    }

    pub(crate) fn claim(&self) -> Result<bool, JournalError> {
        directory::claim(&self.file, &self.path)
    }

    /// Writes all lines with one `write`. If that fails, none of them is in the file.
    pub(crate) fn append<'a>(&mut self, lines: impl IntoIterator<Item = Entry<'a, S>>) -> Result<(), JournalError>
    where
        S: 'a,
    {
        self.add(lines, false)
    }

    /// As [`Log::append`], and the lines are on the disk afterwards.
    pub(crate) fn append_synced<'a>(
        &mut self,
        lines: impl IntoIterator<Item = Entry<'a, S>>,
    ) -> Result<(), JournalError>
    where
        S: 'a,
    {
        self.add(lines, true)
    }

    fn add<'a>(&mut self, lines: impl IntoIterator<Item = Entry<'a, S>>, sync: bool) -> Result<(), JournalError>
    where
        S: 'a,
    {
        self.mend()?;
        let mut buffer = Vec::new();
        for line in lines {
            line.write_to(&mut buffer, self.form).map_err(|error| self.unwritable(error))?;
        }
        let mut written = self.file.write_all(&buffer).map_err(directory::io("write", &self.path));
        if sync {
            written = written.and_then(|()| self.sync());
        }
        if written.is_ok() {
            self.whole += buffer.len() as u64;
        } else {
            self.torn = true;
            // If this fails, the next call tries it again before it writes.
            let _ = self.mend();
        }
        written
    }

    fn sync(&self) -> Result<(), JournalError> {
        self.file.sync_all().map_err(directory::io("sync", &self.path))?;
        self.directory()?.sync()
    }

    /// Removes what a failed write has left. A new line must not be appended to half of another.
    fn mend(&mut self) -> Result<(), JournalError> {
        if self.torn {
            self.file.set_len(self.whole).map_err(directory::io("truncate", &self.path))?;
            self.torn = false;
        }
        Ok(())
    }

    pub(crate) fn unwritable(&self, error: serde_json::Error) -> JournalError {
        directory::io("write", &self.path)(error.into())
    }

    fn directory(&self) -> Result<Directory, JournalError> {
        Directory::enter(self.path.parent().expect("a journal's path is made by joining a directory"))
    }

    pub(crate) fn remove(&self) -> Result<(), JournalError> {
        let _entered = self.directory()?;
        fs::remove_file(&self.path).map_err(directory::io("remove", &self.path))
    }

    pub(crate) fn id(&self) -> String {
        self.path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, fs::OpenOptions};

    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::step::Undone;

    #[derive(Debug, Serialize, Deserialize)]
    struct Nothing;

    impl Step for Nothing {
        type World = ();
        type Receipt = ();
        type Error = Infallible;

        fn describe(&self) -> String {
            "nothing".to_owned()
        }

        fn apply(&self, (): &mut ()) -> Result<(), Infallible> {
            Ok(())
        }

        fn undo(&self, _: Option<&()>, (): &mut ()) -> Result<Undone, Infallible> {
            Ok(Undone::AlreadyGone)
        }
    }

    /// The rest of the line stood before the next one, and made both of them a damaged line.
    #[test]
    fn what_a_failed_write_has_left_is_removed_before_the_next_line() {
        let directory = tempfile::tempdir().expect("a folder");
        let path = directory.path().join("rack.journal");
        let file = OpenOptions::new().append(true).create_new(true).open(&path).expect("a file");
        let mut log = Log::<Nothing>::new(file, path.clone());
        log.append([JournalLine::Kept]).expect("there is room");
        let whole = fs::read(&path).expect("it is there");
        // As a full disk leaves it.
        log.file.write_all(b"0123abcd {\"undone\":").expect("there is room");
        log.torn = true;
        log.append([JournalLine::Kept]).expect("there is room");
        assert_eq!(fs::read(&path).expect("it is there"), [whole.clone(), whole].concat());
    }

    #[test]
    fn a_line_that_could_not_be_written_is_an_error_and_never_counts() {
        let path = PathBuf::from("/dev/full");
        let file = OpenOptions::new().write(true).open(&path).expect("each Linux has it");
        let mut log = Log::<Nothing>::new(file, path);
        for _ in 0..2 {
            assert!(log.append([JournalLine::Kept]).is_err());
            assert_eq!(log.whole, 0);
        }
    }
}
