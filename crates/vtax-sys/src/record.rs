//! Files in which vtax keeps its state and configuration: journals, configurations, locks, process numbers.
//!
//! All of them are regular files written by this program. Anything else with such a name (a FIFO, a device, a link, a
//! directory) was put there by someone else: opening a FIFO would wait forever, a device may be endless, and a link
//! leads to another file. So each record is opened by this module, which checks the file type before and after opening,
//! and reads no more than the record's bound, whatever size the file system reports.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Bound on a record of one value, such as the number of a process.
pub const SMALL: u64 = 64 << 10;

/// Reasons why a record could not be opened, read or written.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum RecordError {
    #[error("cannot {operation} {}: {error}", path.display())]
    #[diagnostic(code("file"))]
    Io { operation: &'static str, path: PathBuf, error: io::Error },
    #[error("{} is {found}, not a regular file; move it away", path.display())]
    #[diagnostic(code("damaged-record"))]
    NotAFile { path: PathBuf, found: &'static str },
    #[error("{} is too large for a file of vtax: more than {most} bytes; move it away", path.display())]
    #[diagnostic(code("damaged-record"))]
    TooLong { path: PathBuf, most: u64 },
    #[error("{}: {why}", path.display())]
    #[diagnostic(code("damaged-record"))]
    Damaged { path: PathBuf, why: String },
}

impl RecordError {
    /// Returns whether the record itself is damaged, as opposed to a failure of the system to read it.
    pub fn is_damage(&self) -> bool {
        !matches!(self, RecordError::Io { .. })
    }

    fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RecordError {
        move |error| RecordError::Io { operation, path: path.to_owned(), error }
    }
}

/// Purpose of opening a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordUse {
    /// Only to read it; nothing is locked for long.
    Read,
    /// To read it, and to append to it.
    Append,
    /// To lock it, and to read and replace its contents.
    Lock,
}

/// Opens a record. None if there is no file of this name.
pub fn open(path: &Path, purpose: RecordUse) -> Result<Option<File>, RecordError> {
    if !exists(path)? {
        return Ok(None);
    }
    let mut options = OpenOptions::new();
    match purpose {
        RecordUse::Read => options.read(true),
        RecordUse::Append => options.read(true).append(true),
        RecordUse::Lock => options.read(true).write(true),
    };
    match opened(path, &options) {
        Err(RecordError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        file => file.map(Some),
    }
}

/// Returns whether there is a record of this name, without opening it: another program, or a library, opens it.
///
/// # Errors
/// [`RecordError::NotAFile`] if something else is in its place.
pub fn exists(path: &Path) -> Result<bool, RecordError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        found => check(path, found.map_err(RecordError::io("access", path))?.file_type()).map(|()| true),
    }
}

/// Opens the file of a lock, creating it if needed. The caller locks it.
pub fn open_lock(path: &Path) -> Result<File, RecordError> {
    if let Some(file) = open(path, RecordUse::Lock)? {
        return Ok(file);
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    opened(path, &options)
}

/// Reads a record of up to `most` bytes. None if there is no file of this name.
pub fn read(path: &Path, most: u64) -> Result<Option<Vec<u8>>, RecordError> {
    open(path, RecordUse::Read)?.map(|file| read_open(&file, path, most)).transpose()
}

/// Reads an open record from its beginning.
pub fn read_open(mut file: &File, path: &Path, most: u64) -> Result<Vec<u8>, RecordError> {
    let too_long = || RecordError::TooLong { path: path.to_owned(), most };
    // A file that is obviously too large is refused without reading it up to the bound.
    if file.metadata().map_err(RecordError::io("access", path))?.len() > most {
        return Err(too_long());
    }
    io::Seek::rewind(&mut file).map_err(RecordError::io("read", path))?;
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes).map_err(RecordError::io("read", path))?;
    if bytes.len() as u64 > most { Err(too_long()) } else { Ok(bytes) }
}

/// Reads a small record that is one word, such as a process number. None if there is no file of this name.
///
/// # Errors
/// [`RecordError::Damaged`] if it isn't such a word.
pub fn read_word<T: std::str::FromStr>(path: &Path) -> Result<Option<T>, RecordError> {
    let Some(bytes) = read(path, SMALL)? else { return Ok(None) };
    let word = str::from_utf8(&bytes).ok().and_then(|text| text.trim().parse().ok());
    let damaged = || RecordError::Damaged { path: path.to_owned(), why: "not as written by vtax".to_owned() };
    word.map(Some).ok_or_else(damaged)
}

/// Creates a draft of a record next to it, to be renamed into its place. A draft left by a killed process is removed.
/// Only one process at a time may do so.
pub fn draft(path: &Path) -> Result<(File, PathBuf), RecordError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = path.with_file_name(format!(".{name}.draft"));
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(RecordError::io("remove", &draft)(error)),
        _ => {}
    }
    let file = OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(&draft);
    Ok((file.map_err(RecordError::io("create", &draft))?, draft))
}

/// Replaces a record as a whole: readers see the old or the new one, even if this process is killed. It isn't synced,
/// so a power failure may lose it.
pub fn replace(path: &Path, content: &[u8]) -> Result<(), RecordError> {
    let (mut file, draft) = draft(path)?;
    let written = file.write_all(content).and_then(|()| fs::rename(&draft, path));
    written.map_err(|error| {
        // The first error is the one to report.
        let _ = fs::remove_file(&draft);
        RecordError::io("write", path)(error)
    })
}

/// Opens with `O_NOFOLLOW` and `O_NONBLOCK`, in case the file was replaced since it was checked.
fn opened(path: &Path, options: &OpenOptions) -> Result<File, RecordError> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = options.clone().custom_flags(flags).open(path).map_err(RecordError::io("open", path))?;
    let found = file.metadata().map_err(RecordError::io("access", path))?;
    check(path, found.file_type()).map(|()| file)
}

fn check(path: &Path, found: FileType) -> Result<(), RecordError> {
    let found = match () {
        () if found.is_file() => return Ok(()),
        () if found.is_symlink() => "a symbolic link",
        () if found.is_dir() => "a directory",
        () if found.is_fifo() => "a FIFO",
        () if found.is_socket() => "a socket",
        () => "a device",
    };
    Err(RecordError::NotAFile { path: path.to_owned(), found })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use rustix::fs::{CWD, FileType as NodeType, Mode, makedev, mknodat};

    use super::*;

    const MOST: u64 = 1 << 20;

    /// Creates something at a path.
    type Put = fn(&Path);

    /// Returns functions that create something other than a record, by kind.
    fn strange() -> Vec<(&'static str, Put)> {
        fn node(path: &Path, kind: NodeType, device: u64) {
            mknodat(CWD, path, kind, Mode::RUSR | Mode::WUSR, device).expect("root may make it");
        }
        vec![
            ("a FIFO", |path| node(path, NodeType::Fifo, 0)),
            ("a device", |path| node(path, NodeType::CharacterDevice, makedev(1, 5))),
            ("a directory", |path| fs::create_dir(path).expect("there is room")),
            ("a socket", |path| drop(UnixListener::bind(path).expect("there is room"))),
            ("a symbolic link", |path| symlink("/dev/zero", path).expect("there is room")),
            ("a symbolic link", |path| symlink("nothing", path).expect("there is room")),
        ]
    }

    #[test]
    fn files_that_are_not_regular_are_named_and_never_opened() {
        for (kind, put) in strange() {
            let base = tempfile::tempdir().expect("a directory");
            let path = base.path().join("record");
            put(&path);
            let errors = [
                read(&path, MOST).expect_err(kind),
                open(&path, RecordUse::Append).expect_err(kind),
                open_lock(&path).expect_err(kind),
                read_word::<u32>(&path).expect_err(kind),
                exists(&path).expect_err(kind),
            ];
            for error in errors {
                assert!(error.is_damage() && error.to_string().contains(kind), "{kind}: {error}");
            }
        }
    }

    /// The file system reports 0 bytes for a file in `/proc`, and 2 GiB for an empty one with a hole.
    #[test]
    fn the_bound_applies_at_any_reported_file_size() {
        let base = tempfile::tempdir().expect("a directory");
        let path = base.path().join("record");
        File::create(&path).and_then(|file| file.set_len(2 << 30)).expect("a hole");
        assert!(matches!(read(&path, MOST), Err(RecordError::TooLong { most: MOST, .. })));
        assert!(matches!(read_word::<u32>(&path), Err(RecordError::TooLong { .. })));
        assert!(matches!(read(Path::new("/proc/self/maps"), 16), Err(RecordError::TooLong { most: 16, .. })));
        open_lock(&path).expect("nobody reads a lock");
        // A file that reports too large a size isn't read at all.
        let mut file = File::open(&path).expect("it is there");
        assert!(matches!(read_open(&file, &path, 1 << 30), Err(RecordError::TooLong { .. })));
        assert_eq!(io::Seek::stream_position(&mut file).expect("a position"), 0);
    }

    #[test]
    fn a_record_is_replaced_atomically_despite_a_killed_processs_draft() {
        let base = tempfile::tempdir().expect("a directory");
        let path = base.path().join("record");
        assert!(read(&path, MOST).expect("nothing is wrong").is_none());
        fs::write(base.path().join(".record.draft"), "half").expect("ours");
        replace(&path, b"7").expect("there is room");
        replace(&path, b"12\n").expect("there is room");
        assert_eq!(read_word(&path).expect("ours"), Some(12_u32));
        assert_eq!(fs::read_dir(base.path()).expect("ours").count(), 1);
        for other in ["", "x", "7 8"] {
            replace(&path, other.as_bytes()).expect("there is room");
            assert!(matches!(read_word::<u32>(&path), Err(RecordError::Damaged { .. })), "{other}");
        }
    }
}
