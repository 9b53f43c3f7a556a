//! Copies one file from the initiator's disk into a file at the responder, and measures real, user and sys time.
//!
//! Both files are unlinked as soon as they are open. So nothing is left on the disk however the test ends,
//! even by SIGKILL.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::Duration,
};

use rand_xoshiro::{
    SplitMix64,
    rand_core::{Rng, SeedableRng},
};
use rustix::{
    io::{Errno, retry_on_intr},
    net::{self, RecvFlags, SendFlags},
};
use vtax_model::{measurement::FileReport, units::ByteSize};
use vtax_sys::{clock::now_ns, process::disk_free, token::Token};
use xxhash_rust::xxh3::Xxh3;

use crate::{
    account::{FlowRecorder, Sender, seconds},
    cancel::Cancel,
    error::{EngineError, Result},
    flow::Flow,
    options::set_timeout,
};

/// Bytes of each read, write, send and receive.
const CHUNK: usize = 128 << 10;

/// The receiver's acknowledgement that everything is written.
const WRITTEN: u8 = 0x06;

/// A file of pseudo-random bytes to be sent, possibly by several samples.
///
/// It has no name in its directory. Its disk space is released when this is dropped.
pub struct SourceFile {
    file: File,
    directory: PathBuf,
    size: ByteSize,
}

impl SourceFile {
    /// Writes the file and waits until it is on the disk, so that the kernel doesn't write it back during a
    /// measurement.
    ///
    /// # Errors
    /// [`NoSpace`](EngineError::NoSpace) if the file can't fit; then nothing has been written.
    pub fn create(directory: &Path, size: ByteSize, cancel: &Cancel) -> Result<SourceFile> {
        check_room(directory, size)?;
        let source = SourceFile { file: nameless(directory)?, directory: directory.to_owned(), size };
        source.fill(cancel)?;
        source.file.sync_data().map_err(|error| source.failed("write", error, size.0))?;
        Ok(source)
    }

    /// Number of bytes of the file to be sent.
    pub fn size(&self) -> ByteSize {
        self.size
    }

    fn fill(&self, cancel: &Cancel) -> Result<()> {
        // Random content, so that compression on the path can't shrink it.
        let mut noise = SplitMix64::seed_from_u64(Token::random().seed());
        let mut chunk = vec![0; CHUNK];
        let mut written = 0;
        while written < self.size.0 {
            if cancel.is_cancelled() {
                return Err(EngineError::Cancelled);
            }
            noise.fill_bytes(&mut chunk);
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

/// Refuses a file that can't fit, before anything is written.
pub(crate) fn check_room(directory: &Path, needed: ByteSize) -> Result<()> {
    let free = ByteSize(disk_free(directory)?);
    if free < needed {
        return Err(EngineError::NoSpace { directory: directory.to_owned(), needed, free });
    }
    Ok(())
}

/// Sends the source, and waits until the receiver has written all of it.
pub(crate) fn send(flow: &Flow, desk: FlowRecorder<'_>, source: &SourceFile) -> Result<()> {
    let pipe = Pipe::new(flow)?;
    let mut chunk = vec![0; CHUNK];
    desk.begun(now_ns());
    let start = desk.open(Sender::There)?;
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
    pipe.receive_some(&mut answer)?;
    if answer != [WRITTEN] {
        return Err(flow.strange("a wrong acknowledgement of the file"));
    }
    let end = now_ns();
    desk.close()?;
    report(desk, source.size, [start, end], checksum(&source.file, &source.directory, source.size)?)
}

/// Writes received data to a new file, which is removed when this returns.
pub(crate) fn receive(flow: &Flow, desk: FlowRecorder<'_>, directory: &Path, size: ByteSize) -> Result<()> {
    let mut file = nameless(directory)?;
    let pipe = Pipe::new(flow)?;
    let mut chunk = vec![0; CHUNK];
    flow.say_ready()?;
    let mut len = pipe.receive_some(&mut chunk[..part(size.0)])?;
    desk.begun(now_ns());
    let start = desk.open(Sender::Here)?;
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
    desk.close()?;
    report(desk, size, [start, end], checksum(&file, directory, size)?)
}

fn report(desk: FlowRecorder<'_>, size: ByteSize, [start, end]: [u64; 2], checksum: u64) -> Result<()> {
    desk.bytes(usize::try_from(size.0).unwrap_or(usize::MAX), end)?;
    desk.file(|user, sys| FileReport { real: seconds(start, end), user, sys, checksum });
    Ok(())
}

/// A connection with blocking calls, whatever the engine: the disk is what is measured here.
struct Pipe<'a> {
    flow: &'a Flow,
    patience: Duration,
}

impl<'a> Pipe<'a> {
    fn new(flow: &'a Flow) -> Result<Pipe<'a>> {
        let patience = flow.session.patience.silence;
        flow.option("SO_RCVTIMEO", set_timeout(&flow.socket, patience))?;
        Ok(Pipe { flow, patience })
    }

    fn send_all(&self, mut message: &[u8]) -> Result<()> {
        while !message.is_empty() {
            let sent = retry_on_intr(|| net::send(&*self.flow.socket, message, SendFlags::NOSIGNAL));
            message = &message[sent.map_err(|errno| self.flow.failed("send", errno, self.patience))?..];
        }
        Ok(())
    }

    /// Receives available data, at least one byte.
    fn receive_some(&self, buffer: &mut [u8]) -> Result<usize> {
        match retry_on_intr(|| net::recv(&*self.flow.socket, &mut *buffer, RecvFlags::empty())) {
            Ok((0, _)) => Err(self.flow.ended("receive")),
            Ok((len, _)) => Ok(len),
            Err(errno) => Err(self.flow.failed("receive", errno, self.patience)),
        }
    }
}

/// XXH3-64 of the file, which is read back for it.
fn checksum(file: &File, directory: &Path, size: ByteSize) -> Result<u64> {
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

/// The length of the next chunk if `left` bytes are left.
fn part(left: u64) -> usize {
    usize::try_from(left).map_or(CHUNK, |left| left.min(CHUNK))
}

/// A new file that is already unlinked.
fn nameless(directory: &Path) -> Result<File> {
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
