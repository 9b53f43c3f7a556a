//! Files that others have written and the user has named: kernels, images, programs.
//!
//! Another user may put something else in their place at any time. Opening a FIFO waits for a writer, perhaps forever
//! and while a lock is held; a device may be endless. So each of these files is opened here, without waiting, and read
//! up to a bound, whatever size the file system reports. Links are followed: the user has chosen the path.

use std::fs::{self, File, FileType};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// Opens a regular file for reading.
pub fn open(path: &Path) -> io::Result<File> {
    opened(path, |found| found.is_file())
}

/// Opens a regular file or a block device for reading.
pub fn open_disk(path: &Path) -> io::Result<File> {
    opened(path, |found| found.is_file() || found.is_block_device())
}

/// Reads a regular file of up to `most` bytes.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let too_large = || io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {} MiB", most >> 20));
    let file = open(path)?;
    // A file that is obviously too large is refused without reading it up to the bound.
    if file.metadata()?.len() > most {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most { Err(too_large()) } else { Ok(bytes) }
}

/// Opens a file. Its type is checked before, since opening a device may have an effect, and again afterwards.
fn opened(path: &Path, is_wanted: impl Fn(FileType) -> bool) -> io::Result<File> {
    let check = |found: FileType| match () {
        () if is_wanted(found) => Ok(()),
        () if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        () => Err(io::Error::other("not a regular file")),
    };
    check(fs::metadata(path)?.file_type())?;
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    check(file.metadata()?.file_type())?;
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType as NodeType, Mode, mknodat};

    use super::*;

    #[test]
    fn opening_never_waits() {
        let base = tempfile::tempdir().expect("a directory");
        let fifo = base.path().join("fifo");
        mknodat(CWD, &fifo, NodeType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("there is room");
        for path in [fifo.as_path(), Path::new("/dev/zero"), base.path()] {
            let errors = [open(path).expect_err("it isn't one"), open_disk(path).expect_err("it isn't one")];
            let are_told = errors
                .iter()
                .all(|error| error.to_string().contains("irectory") || error.to_string().contains("not a"));
            assert!(are_told, "{}: {errors:?}", path.display());
        }
    }

    #[test]
    fn the_bound_applies_at_any_reported_file_size() {
        let base = tempfile::tempdir().expect("a directory");
        let path = base.path().join("file");
        File::create(&path).and_then(|file| file.set_len(2 << 30)).expect("a hole");
        assert_eq!(read(&path, 1 << 20).expect_err("too large").to_string(), "larger than 1 MiB");
        assert_eq!(read(Path::new("/proc/self/maps"), 16).expect_err("too large").kind(), io::ErrorKind::FileTooLarge);
        fs::write(&path, "0123456789abcdef").expect("ours");
        assert_eq!(read(&path, 16).expect("it fits").len(), 16);
    }
}
