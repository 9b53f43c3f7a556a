//! The input and output of a command that an agent runs.

use std::io::{self, IsTerminal, Read, Write};

use miette::ensure;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vtax_wire::{limits::INPUT_MOST, protocol::Stream};

use crate::exit::{Blamed, Coded, Stop};

/// After this time without input, vtax reports what it waits for.
const SOON: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Writes the command's output to the same stream here.
pub(crate) fn show(stream: Stream, bytes: &[u8]) -> io::Result<()> {
    let write = |out: &mut dyn Write| out.write_all(bytes).and_then(|()| out.flush());
    match stream {
        Stream::Stdout => write(&mut io::stdout().lock()),
        Stream::Stderr => write(&mut io::stderr().lock()),
    }
}

/// Reads standard input to its end, or nothing from a terminal. `whom` names the command in messages.
pub(crate) fn read_input_for(whom: &str) -> Result<Vec<u8>, Stop> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return Ok(Vec::new());
    }
    if poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&SOON)) == Ok(0) {
        tell!("vtax: reading standard input to its end, for {whom}; use </dev/null for none");
    }
    let mut input = Vec::new();
    let read = stdin.lock().take(INPUT_MOST.0 + 1).read_to_end(&mut input).coded("file", || "reading standard input");
    read.or_infrastructure()?;
    fits(&input, whom).or_input()?;
    Ok(input)
}

fn fits(input: &[u8], whom: &str) -> miette::Result<()> {
    let too_much = input.len() as u64 > INPUT_MOST.0;
    ensure!(!too_much, code = "input-too-large", "{whom} gets at most {INPUT_MOST} of standard input: use a file");
    Ok(())
}
