//! One file from the initiator's disk into a file at the responder: real, user, sys.
//!
//! Both files lose their name as soon as they are open, so that nothing is left on the disk
//! however the test ends, even by SIGKILL.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::io::Errno;
use vtax_model::{
    measurement::{EndReport, FileReport},
    units::ByteSize,
};
use vtax_sys::{clock::now_ns, process::disk_free};
use xxhash_rust::xxh3::Xxh3;

use crate::{
    cancel::Cancel,
    error::EngineError,
    flow::{Meter, Reading, seconds},
    token::Token,
    transport::{Flow, tcp::Pipe},
};

/// Bytes that each read, write, send and receive moves.
const CHUNK: usize = 128 << 10;

/// The receiver's answer when all is written.
const WRITTEN: u8 = 0x06;

/// How long an end may wait for the other's disk: the sender makes the file while the receiver
/// waits, and a full page cache stops the receiver for as long as the disk takes. A peer that
/// dies is noticed long before, by the end of the connection or by keepalive.
fn patience(size: ByteSize) -> Duration {
    const SLOWEST_DISK: u64 = 10_000_000;
    Duration::from_secs(30 + size.0 / SLOWEST_DISK)
}

/// A file of pseudo-random bytes to be sent, which may serve several samples.
///
/// It has no name in its directory; its space is free again when this is dropped.
pub struct SourceFile {
    file: File,
    directory: PathBuf,
    size: ByteSize,
}

impl SourceFile {
    /// Writes the file and waits until it is on the disk, so that writing it back doesn't go on
    /// during a measurement.
    ///
    /// # Errors
    /// [`NoSpace`](EngineError::NoSpace) before anything is written if it can't fit.
    pub fn create(directory: &Path, size: ByteSize, cancel: &Cancel) -> Result<SourceFile, EngineError> {
        check_room(directory, size)?;
        let source = SourceFile { file: nameless(directory)?, directory: directory.to_owned(), size };
        source.fill(cancel)?;
        source.file.sync_data().map_err(|error| source.failed("write", error, size.0))?;
        Ok(source)
    }

    /// Its size.
    pub fn size(&self) -> ByteSize {
        self.size
    }

    fn fill(&self, cancel: &Cancel) -> Result<(), EngineError> {
        let mut noise = Noise::new();
        let mut chunk = vec![0; CHUNK];
        let mut written = 0;
        while written < self.size.0 {
            if cancel.is_cancelled() {
                return Err(EngineError::Cancelled);
            }
            noise.fill(&mut chunk);
            let len = part(self.size.0 - written);
            self.file.write_all_at(&chunk[..len], written).map_err(|error| self.failed("write", error, written))?;
            written += len as u64;
        }
        Ok(())
    }

    fn failed(&self, operation: &'static str, error: io::Error, done: u64) -> EngineError {
        file_error(operation, &self.directory, self.size, error, done)
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): content that no compression on the way makes smaller.
struct Noise(u64);

impl Noise {
    fn new() -> Noise {
        let (seed, _) = Token::random().bytes().split_first_chunk().map(|(seed, rest)| (*seed, rest)).expect("16 > 8");
        Noise(u64::from_le_bytes(seed))
    }

    fn fill(&mut self, chunk: &mut [u8]) {
        for word in chunk.chunks_exact_mut(8) {
            word.copy_from_slice(&self.next().to_le_bytes());
        }
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

/// Refuses a file that can't fit, before a byte is written.
pub(crate) fn check_room(directory: &Path, needed: ByteSize) -> Result<(), EngineError> {
    let free = ByteSize(disk_free(directory)?);
    if free < needed {
        return Err(EngineError::NoSpace { directory: directory.to_owned(), needed, free });
    }
    Ok(())
}

/// Sends the source, and reports when the receiver has written all of it.
pub(crate) fn send(flow: &Flow, meter: &Meter<'_>, source: &SourceFile) -> Result<EndReport, EngineError> {
    let pipe = Pipe::new(flow, patience(source.size))?;
    let mut chunk = vec![0; CHUNK];
    let opened = meter.read()?;
    let start = now_ns();
    let mut sent = 0;
    while sent < source.size.0 {
        let len = source.file.read_at(&mut chunk, sent).map_err(|error| source.failed("read", error, sent))?;
        if len == 0 {
            return Err(source.failed("read", io::ErrorKind::UnexpectedEof.into(), sent));
        }
        pipe.send_all(&chunk[..len])?;
        sent += len as u64;
    }
    let mut answer = [0];
    pipe.receive_all(&mut answer)?;
    if answer != [WRITTEN] {
        return Err(EngineError::Protocol { peer: flow.peer, what: "a wrong acknowledgement of the file" });
    }
    let span = Span { start, end: now_ns(), opened, closed: meter.read()? };
    let checksum = checksum(&source.file, &source.directory, source.size)?;
    span.report(meter, source.size, checksum)
}

/// Writes what comes into a new file, which is gone when this returns.
pub(crate) fn receive(
    flow: &Flow,
    meter: &Meter<'_>,
    directory: &Path,
    size: ByteSize,
    ready: impl FnOnce() -> Result<(), EngineError>,
) -> Result<EndReport, EngineError> {
    let mut file = nameless(directory)?;
    let pipe = Pipe::new(flow, patience(size))?;
    let mut chunk = vec![0; CHUNK];
    ready()?;
    let mut len = pipe.receive_some(&mut chunk[..part(size.0)])?;
    let start = now_ns();
    let opened = meter.read()?;
    let mut written = 0;
    loop {
        file.write_all(&chunk[..len]).map_err(|error| file_error("write", directory, size, error, written))?;
        written += len as u64;
        if written == size.0 {
            break;
        }
        len = pipe.receive_some(&mut chunk[..part(size.0 - written)])?;
    }
    let end = now_ns();
    pipe.send_all(&[WRITTEN])?;
    let span = Span { start, end, opened, closed: meter.read()? };
    let checksum = checksum(&file, directory, size)?;
    span.report(meter, size, checksum)
}

struct Span {
    start: u64,
    end: u64,
    opened: Reading,
    closed: Reading,
}

impl Span {
    fn report(self, meter: &Meter<'_>, size: ByteSize, checksum: u64) -> Result<EndReport, EngineError> {
        let costs = meter.between(&self.opened, &self.closed)?;
        let real = seconds(self.start, self.end);
        let user = costs.threads.iter().map(|thread| thread.user).sum();
        let sys = costs.threads.iter().map(|thread| thread.system).sum();
        let file = Some(FileReport { real, user, sys, checksum });
        Ok(EndReport { seconds: real, bytes: size.0, file, ..costs })
    }
}

/// XXH3-64 of the file as it is read back.
fn checksum(file: &File, directory: &Path, size: ByteSize) -> Result<u64, EngineError> {
    let mut hash = Xxh3::new();
    let mut chunk = vec![0; CHUNK];
    let mut read = 0;
    loop {
        let len =
            file.read_at(&mut chunk, read).map_err(|error| file_error("read back", directory, size, error, read))?;
        if len == 0 {
            return Ok(hash.digest());
        }
        hash.update(&chunk[..len]);
        read += len as u64;
    }
}

/// The length of the next chunk when `left` bytes are.
fn part(left: u64) -> usize {
    usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK))
}

/// A new file whose name is gone already.
fn nameless(directory: &Path) -> Result<File, EngineError> {
    let failed = |operation, source| EngineError::File { operation, directory: directory.to_owned(), source };
    let path = directory.join(format!(".vtax-{}", Token::random()));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .map_err(|error| failed("create a file", error))?;
    fs::remove_file(&path).map_err(|error| failed("remove a file", error))?;
    Ok(file)
}

fn file_error(
    operation: &'static str,
    directory: &Path,
    needed: ByteSize,
    source: io::Error,
    done: u64,
) -> EngineError {
    let directory = directory.to_owned();
    match Errno::from_io_error(&source) {
        Some(Errno::NOSPC | Errno::DQUOT) => {
            EngineError::DiskFull { directory, needed, written: ByteSize(done), source }
        }
        _ => EngineError::File { operation, directory, source },
    }
}
