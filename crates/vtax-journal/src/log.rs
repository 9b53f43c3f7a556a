//! Open file of a journal.

use std::{
    fs::{self, File},
    io::Write,
    marker::PhantomData,
    path::{Path, PathBuf},
};

use crate::{
    directory::{self, Directory},
    error::JournalError,
    line::{Contents, Header, JournalLine, LONGEST_INTENDED, LineForm},
    step::Step,
};

/// Line to write for a step that is stored elsewhere.
type Entry<'a, S> = JournalLine<&'a S, &'a <S as Step>::Receipt>;

/// File to which lines are appended.
#[derive(Debug)]
pub(crate) struct Log<S> {
    file: File,
    path: PathBuf,
    form: LineForm,
    header: Header,
    /// Lines below the header and the seal.
    body: Vec<u8>,
    /// Number of bytes up to the end of the last line that was written completely.
    whole: u64,
    /// Set if a write has failed and its remains could not be removed.
    torn: bool,
    steps: PhantomData<S>,
}

impl<S: Step> Log<S> {
    /// Creates a file with this header in `directory`. It gets its name when it is complete.
    pub(crate) fn create(directory: &Directory, path: PathBuf, header: Header) -> Result<Self, JournalError> {
        let form = LineForm::Checked;
        let content = content::<S>(&header, &[], form).map_err(|error| directory::io("write", &path)(error.into()))?;
        let file = renamed(directory, &path, &content)?;
        let whole = content.len() as u64;
        Ok(Log { file, path, form, header, body: Vec::new(), whole, torn: false, steps: PhantomData })
    }

    /// Continues a file with these contents. An incomplete last line is removed.
    pub(crate) fn resume(
        file: File,
        path: PathBuf,
        contents: &Contents<S>,
        bytes: &[u8],
    ) -> Result<Self, JournalError> {
        let Contents { header, form, whole, head, .. } = contents;
        let body = bytes[*head..bytes.len().min(*whole as usize)].to_vec();
        let (header, form, whole) = (header.clone(), *form, *whole);
        let mut log = Log { file, path, form, header, body, whole, torn: true, steps: PhantomData };
        log.mend()?;
        Ok(log)
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// Writes all lines with one `write`. If that fails, none of them stays in the file.
    pub(crate) fn append<'a>(&mut self, lines: impl IntoIterator<Item = Entry<'a, S>>) -> Result<(), JournalError>
    where
        S: 'a,
    {
        let buffer = self.buffer(lines)?;
        self.add(&buffer, false)
    }

    /// Like [`Log::seal`], for steps that have not begun.
    ///
    /// # Errors
    /// [`JournalError::Full`] if the file would become too long to have room for the lines that follow from these
    /// steps.
    pub(crate) fn intend<'a>(&mut self, lines: impl IntoIterator<Item = Entry<'a, S>>) -> Result<(), JournalError>
    where
        S: 'a,
    {
        let buffer = self.buffer(lines)?;
        if self.whole + buffer.len() as u64 > LONGEST_INTENDED {
            return Err(JournalError::Full { path: self.path.clone() });
        }
        self.add_sealed(&buffer)
    }

    /// Replaces the file with one that also has these lines, and that is sealed, so that the loss of a line is detected
    /// later. The new file is on the disk when this returns. On failure, the file is unchanged.
    pub(crate) fn seal<'a>(&mut self, lines: impl IntoIterator<Item = Entry<'a, S>>) -> Result<(), JournalError>
    where
        S: 'a,
    {
        let buffer = self.buffer(lines)?;
        self.add_sealed(&buffer)
    }

    /// Replaces the file with a sealed one that has only these lines. On failure, the file is unchanged.
    pub(crate) fn rewrite<'a>(&mut self, lines: impl IntoIterator<Item = Entry<'a, S>>) -> Result<(), JournalError>
    where
        S: 'a,
    {
        let body = self.buffer(lines)?;
        self.replace(body)
    }

    /// Returns the number of bytes up to the end of the last line.
    pub(crate) fn length(&self) -> u64 {
        self.whole
    }

    fn add_sealed(&mut self, buffer: &[u8]) -> Result<(), JournalError> {
        match self.header.is_sealed() {
            true => self.replace([self.body.as_slice(), buffer].concat()),
            false => self.add(buffer, true),
        }
    }

    fn replace(&mut self, body: Vec<u8>) -> Result<(), JournalError> {
        let content = content::<S>(&self.header, &body, self.form).map_err(|error| self.unwritable(error))?;
        self.file = renamed(&self.directory()?, &self.path, &content)?;
        (self.body, self.whole, self.torn) = (body, content.len() as u64, false);
        Ok(())
    }

    fn buffer<'a>(&self, lines: impl IntoIterator<Item = Entry<'a, S>>) -> Result<Vec<u8>, JournalError>
    where
        S: 'a,
    {
        let mut buffer = Vec::new();
        for line in lines {
            line.write_to(&mut buffer, self.form).map_err(|error| self.unwritable(error))?;
        }
        Ok(buffer)
    }

    fn add(&mut self, buffer: &[u8], sync: bool) -> Result<(), JournalError> {
        self.mend()?;
        let mut written = self.file.write_all(buffer).map_err(directory::io("write", &self.path));
        if sync {
            written = written.and_then(|()| self.sync());
        }
        if written.is_ok() {
            self.body.extend_from_slice(buffer);
            self.whole += buffer.len() as u64;
        } else {
            self.torn = true;
            // If this fails, the next call retries it before it writes.
            let _ = self.mend();
        }
        written
    }

    fn sync(&self) -> Result<(), JournalError> {
        self.file.sync_all().map_err(directory::io("sync", &self.path))?;
        self.directory()?.sync()
    }

    /// Removes the remains of a failed write: a new line must not be appended to half of another.
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

/// Returns the whole file: the header, the number of lines that follow, and these lines.
fn content<S: Step>(header: &Header, body: &[u8], form: LineForm) -> Result<Vec<u8>, serde_json::Error> {
    let lines = body.iter().filter(|byte| **byte == b'\n').count();
    let mut content = Vec::new();
    Entry::<S>::Header(header.clone()).write_to(&mut content, form)?;
    Entry::<S>::Sealed(lines).write_to(&mut content, form)?;
    content.extend_from_slice(body);
    Ok(content)
}

/// Writes a new file next to the journal, locks and syncs it, and renames it to the journal's name. Readers wait for
/// the directory's lock in the meantime, so none of them finds the journal without its lock.
fn renamed(directory: &Directory, path: &Path, content: &[u8]) -> Result<File, JournalError> {
    let (mut file, draft) = directory.begin_draft()?;
    let written = directory::claim(&file, &draft)
        .and_then(|_| file.write_all(content).and_then(|()| file.sync_all()).map_err(directory::io("write", path)))
        .and_then(|()| fs::rename(&draft, path).map_err(directory::io("write", path)));
    if let Err(error) = written {
        let _ = fs::remove_file(&draft);
        return Err(error);
    }
    directory.sync()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, fs::OpenOptions};

    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::{line::FORMAT, owner::Owner, step::Undone};

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

    fn header() -> Header {
        let (id, kind, owner) = ("rack".to_owned(), "test".to_owned(), Owner::current());
        Header { format: FORMAT, id, kind, owner, about: serde_json::Value::Null }
    }

    fn log(directory: &Path) -> Log<Nothing> {
        let entered = Directory::enter(directory).expect("ours");
        Log::create(&entered, directory.join("rack.journal"), header()).expect("there is room")
    }

    /// The remains stayed in front of the next line, so that both together were one damaged line.
    #[test]
    fn leftovers_of_a_failed_write_are_removed_before_the_next_line() {
        let directory = tempfile::tempdir().expect("a folder");
        let mut log = log(directory.path());
        let path = log.path.clone();
        let begin = fs::read(&path).expect("it is there");
        log.append([JournalLine::Kept]).expect("there is room");
        let whole = fs::read(&path).expect("it is there");
        let line = &whole[begin.len()..];
        // As left by a full disk.
        log.file.write_all(b"0123abcd {\"undone\":").expect("there is room");
        log.torn = true;
        log.append([JournalLine::Kept]).expect("there is room");
        assert_eq!(fs::read(&path).expect("it is there"), [begin.as_slice(), line, line].concat());
    }

    #[test]
    fn a_line_that_could_not_be_written_is_an_error_and_never_counts() {
        let directory = tempfile::tempdir().expect("a folder");
        let mut log = log(directory.path());
        log.file = OpenOptions::new().write(true).open("/dev/full").expect("each Linux has it");
        let whole = log.whole;
        for _ in 0..2 {
            assert!(log.append([JournalLine::Kept]).is_err());
            assert_eq!((log.whole, log.body.len()), (whole, 0));
        }
    }

    /// The old file stays if the new one can't be written, and the lock is on the file that has the name.
    #[test]
    fn a_seal_replaces_the_file_or_leaves_it() {
        let directory = tempfile::tempdir().expect("a folder");
        let mut log = log(directory.path());
        log.append([JournalLine::Kept]).expect("there is room");
        log.seal([JournalLine::Undoing]).expect("there is room");
        let sealed = fs::read_to_string(&log.path).expect("it is there");
        assert!(sealed.lines().nth(1).expect("the seal").ends_with("{\"sealed\":2}"), "{sealed}");
        let other = OpenOptions::new().write(true).open(&log.path).expect("it is there");
        assert!(!directory::claim(&other, &log.path).expect("a lock"), "the log has it");
        // A directory in place of the draft can't be removed as a file.
        fs::create_dir(directory.path().join(".new.draft")).expect("ours");
        assert!(log.seal([JournalLine::Kept]).is_err());
        assert_eq!(fs::read_to_string(&log.path).expect("it is there"), sealed);
        log.append([JournalLine::Kept]).expect("there is room");
    }
}
