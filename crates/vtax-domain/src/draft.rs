//! Files that are replaced atomically: readers always find the old or the new one, even after a kill or a power
//! failure.
//!
//! Everything that can fail for lack of space fails while the draft is written. So writing the draft first, then acting
//! and then committing leaves everything unchanged on a full disk.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::Serialize;
use vtax_sys::directory;

/// Suffix of drafts' names: a dot, the name of the file, and this.
const ENDING: &str = ".draft";
/// Suffix used by earlier versions.
const EARLIER: &str = ".tmp";

/// File that is written, but not yet in its place. Each file has one writer at a time, who holds a lock.
#[derive(Debug)]
#[must_use = "the file is unchanged until the draft is committed"]
pub(crate) struct FileDraft {
    draft: PathBuf,
    folder: PathBuf,
    path: PathBuf,
}

impl FileDraft {
    /// Writes the future contents of the file `name` in a directory to the disk, as JSON. Simultaneous drafts of one
    /// file have different purposes.
    pub(crate) fn write<T: Serialize>(folder: &Path, name: &str, purpose: &str, content: &T) -> io::Result<FileDraft> {
        let draft = FileDraft {
            draft: folder.join(format!(".{name}.{purpose}{ENDING}")),
            folder: folder.to_owned(),
            path: folder.join(name),
        };
        // Left by a killed writer.
        let _ = fs::remove_file(&draft.draft);
        let mut file = directory::open_private(&draft.draft, OpenOptions::new().write(true).create_new(true))?;
        // A single call: an unbuffered writer would make one for each word of it.
        let mut text = serde_json::to_vec_pretty(content)?;
        text.push(b'\n');
        file.write_all(&text)?;
        file.sync_all()?;
        Ok(draft)
    }

    /// Replaces the old file with it, so that it survives a power failure.
    pub(crate) fn commit(self) -> io::Result<()> {
        fs::rename(&self.draft, &self.path)?;
        File::open(&self.folder)?.sync_all()
    }
}

impl Drop for FileDraft {
    fn drop(&mut self) {
        // There is none after a commit.
        let _ = fs::remove_file(&self.draft);
    }
}

/// Removes the drafts of killed writers. The caller holds the lock of the directory's files.
pub(crate) fn remove_strays(folder: &Path) {
    let is_stray = |name: &str| name.starts_with(EARLIER) || (name.starts_with('.') && name.ends_with(ENDING));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(is_stray) {
            // A draft that can't be removed is as harmless as before.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_unchanged_until_its_draft_is_committed() {
        let folder = tempfile::tempdir().expect("a folder");
        let read = || fs::read_to_string(folder.path().join("state.json")).unwrap_or_default();
        let files = || fs::read_dir(folder.path()).expect("it is there").count();
        FileDraft::write(folder.path(), "state.json", "new", &1).and_then(FileDraft::commit).expect("there is space");
        let draft = FileDraft::write(folder.path(), "state.json", "new", &2).expect("there is space");
        assert_eq!((read().as_str(), files()), ("1\n", 2));
        drop(draft);
        assert_eq!((read().as_str(), files()), ("1\n", 1));
        let draft = FileDraft::write(folder.path(), "state.json", "new", &3).expect("there is space");
        std::mem::forget(draft);
        fs::write(folder.path().join(".tmpAbCdEf"), "").expect("there is space");
        FileDraft::write(folder.path(), "state.json", "new", &4)
            .and_then(FileDraft::commit)
            .expect("a killed one is replaced");
        remove_strays(folder.path());
        assert_eq!((read().as_str(), files()), ("4\n", 1));
    }
}
