//! Check whether a range has been written.
//!
//! A block that was never written can be read without accessing the disk: a file system returns zeros for a hole, and
//! so does a disk that maps its blocks. So a test of reads first writes its range
//! ([`FioPass::Fill`](crate::job::FioPass)), and this module checks by a few samples whether that has happened.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt},
    path::Path,
};

use rustix::fs::{OFlags, SeekFrom, seek};
use vtax_model::units::ByteSize;

/// Number of samples.
const SAMPLES: u64 = 64;
/// Length of a sample in bytes: fio's data contains no zeros of that length.
const PIECE: u64 = 512;

/// Result of the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// All samples contain data.
    Whole,
    /// A hole or zeros at this offset. A device that keeps no data has zeros everywhere.
    NotAt(ByteSize),
    /// The file or device ends here, before the end of the range.
    EndsAt(ByteSize),
}

/// Checks whether the first `range` bytes of a file or device were written with anything other than zeros.
pub fn look(path: &Path, range: ByteSize) -> io::Result<Written> {
    let file = open(path)?;
    let length = seek(&file, SeekFrom::End(0))?;
    if length < range.0 {
        return Ok(Written::EndsAt(ByteSize(length)));
    }
    match hole(&file, range)? {
        Some(hole) => Ok(Written::NotAt(hole)),
        None if range.0 == 0 => Ok(Written::Whole),
        None => sample(&file, range),
    }
}

/// Opens the file for reading through the page cache. Data just written may be in the cache, and a device's contents
/// may have changed below it, but fio has emptied the cache before. Bypassing it would require aligned buffers.
fn open(path: &Path) -> io::Result<File> {
    // Without this flag, the call would wait if a pipe is in place of the file.
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(nonblocking).open(path)
}

/// Returns the first hole in the range. An allocated but unwritten extent counts as one (lseek(2) of ext4, XFS, btrfs).
/// A file system that doesn't report holes has none. A device has none either.
fn hole(file: &File, range: ByteSize) -> io::Result<Option<ByteSize>> {
    if file.metadata()?.file_type().is_block_device() {
        return Ok(None);
    }
    let at = seek(file, SeekFrom::Hole(0))?;
    Ok((at < range.0).then_some(ByteSize(at)))
}

/// Reads samples spread over the whole range, including its beginning and its end.
fn sample(file: &File, range: ByteSize) -> io::Result<Written> {
    let room = range.0.saturating_sub(PIECE);
    let mut piece = vec![0; PIECE.min(range.0) as usize];
    for number in 0..SAMPLES {
        // 128 bits, since the product exceeds 64 bits if the range has more than 2^58 bytes.
        let at = (u128::from(room) * u128::from(number) / u128::from(SAMPLES - 1)) as u64;
        file.read_exact_at(&mut piece, at)?;
        if piece.iter().all(|byte| *byte == 0) {
            return Ok(Written::NotAt(ByteSize(at)));
        }
    }
    Ok(Written::Whole)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(pieces: &[(u64, &[u8])]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new_in("/var/tmp").expect("a file");
        for (at, bytes) in pieces {
            file.as_file().write_all_at(bytes, *at).expect("written");
        }
        file
    }

    #[test]
    fn written_blocks_are_distinguished_from_holes_zeros_and_the_end() {
        let full = vec![7; 1 << 20];
        let found = |pieces: &[(u64, &[u8])], range| look(file(pieces).path(), ByteSize(range)).expect("read");
        assert_eq!(found(&[(0, &full)], 1 << 20), Written::Whole);
        assert_eq!(found(&[(0, &full)], 2 << 20), Written::EndsAt(ByteSize(1 << 20)));
        assert_eq!(found(&[(0, &full), (3 << 20, &full)], 4 << 20), Written::NotAt(ByteSize(1 << 20)));
        assert_eq!(found(&[(0, &vec![0; 1 << 20])], 1 << 20), Written::NotAt(ByteSize(0)));
        assert_eq!(found(&[(0, &full)], 0), Written::Whole);
        assert_eq!(found(&[(0, &[7; 100])], 100), Written::Whole);
    }

    #[test]
    fn allocated_blocks_are_not_written_blocks() {
        let mut file = file(&[]);
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 1 << 20).expect("room");
        assert_eq!(look(file.path(), ByteSize(1 << 20)).expect("read"), Written::NotAt(ByteSize(0)));
        file.write_all(&[7; 1 << 20]).expect("written");
        assert_eq!(look(file.path(), ByteSize(1 << 20)).expect("read"), Written::Whole);
    }
}
