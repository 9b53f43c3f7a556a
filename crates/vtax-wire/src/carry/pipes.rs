//! Streams of the process that runs the script. Each wait has a deadline.

use std::{
    io::{self, Cursor, Read, Write},
    os::fd::AsFd,
    process::{Child, ChildStdin, ChildStdout},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};

use crate::link::ChildProcess;

/// Number of bytes that a pipe accepts without blocking once poll reports it as writable (`PIPE_BUF`, pipe(7)).
const PIECE: usize = 4096;

/// Error of reading or writing a stream.
#[derive(Debug)]
pub(super) enum PipeError {
    /// Nothing was read or written in time.
    Late,
    /// The other side has closed the stream.
    Ended,
    /// The line is too long. This is its beginning.
    TooLong(Vec<u8>),
    /// Anything else.
    Io(io::Error),
}

impl From<io::Error> for PipeError {
    fn from(error: io::Error) -> PipeError {
        match error.kind() {
            io::ErrorKind::BrokenPipe => PipeError::Ended,
            _ => PipeError::Io(error),
        }
    }
}

/// A child process and its streams.
pub(super) struct Pipes {
    // Fields are dropped in this order: the child exits when its input is closed.
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    /// Bytes read beyond the last line.
    pub(super) unread: Cursor<Vec<u8>>,
    pub(super) process: ChildProcess,
}

impl Pipes {
    /// Takes the streams of a child. `None` if its standard input or output isn't a pipe.
    pub(super) fn of(mut child: Child) -> Option<Pipes> {
        let (stdin, stdout) = (child.stdin.take()?, child.stdout.take()?);
        Some(Pipes { stdin, stdout, unread: Cursor::default(), process: ChildProcess::adopt(child) })
    }

    /// Returns the next line, which must be complete by `until`. If more than `most` bytes contain no line feed, the
    /// line is too long.
    pub(super) fn line(&mut self, most: usize, until: Instant) -> Result<Vec<u8>, PipeError> {
        let mut line = std::mem::take(&mut self.unread).into_inner();
        loop {
            if let Some(end) = line.iter().position(|byte| *byte == b'\n') {
                self.unread = Cursor::new(line.split_off(end + 1));
                return Ok(line);
            }
            if line.len() > most {
                return Err(PipeError::TooLong(line));
            }
            wait(&self.stdout, PollFlags::IN, until)?;
            let mut buffer = [0; PIECE];
            match self.stdout.read(&mut buffer)? {
                0 => return Err(PipeError::Ended),
                count => line.extend(&buffer[..count]),
            }
        }
    }

    /// Writes all bytes. The deadline applies to each piece.
    pub(super) fn write(&mut self, bytes: &[u8], deadline: Duration) -> Result<(), PipeError> {
        for piece in bytes.chunks(PIECE) {
            wait(&self.stdin, PollFlags::OUT, Instant::now() + deadline)?;
            self.stdin.write_all(piece)?;
        }
        Ok(())
    }
}

/// Waits until the stream is ready or has ended.
fn wait(stream: &impl AsFd, flags: PollFlags, until: Instant) -> Result<(), PipeError> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(|_| PipeError::Io(Errno::INVAL.into()))?;
        match poll(&mut [PollFd::new(stream, flags)], Some(&left)) {
            Ok(0) => return Err(PipeError::Late),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(PipeError::Io(errno.into())),
        }
    }
}
