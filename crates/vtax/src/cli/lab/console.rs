//! `vtax lab console`.

use std::{
    io::{self, IsTerminal, Read, Write},
    os::{fd::AsFd, unix::net::UnixStream},
    time::Duration,
};

use miette::{bail, miette};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    termios::{OptionalActions, Termios, tcgetattr, tcsetattr},
};
use vtax_guest::{launch::Boot, process::Qemu};
use vtax_lab::{Lab, PlannedGuest};
use vtax_run::LockFile;

use super::guest;
use crate::{
    exit::{Blamed, Coded, Exit, Stop},
    terminal::print,
};

/// Ctrl-], as in telnet and virsh.
const ESCAPE: u8 = 0x1d;
/// The silence after which a console without further input is left.
const SILENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
const BUFFER: usize = 4096;
/// The time limit for QEMU to report who is attached to the console; it may be busy with another monitor.
const MONITOR: Duration = Duration::from_secs(2);

/// Prints the guest's last output, and connects its console to the terminal or to standard input and output.
pub(super) fn console(lab: &Lab, guest: &PlannedGuest) -> Result<Exit, Stop> {
    let mut qemu = guest::running(lab, guest)?;
    let _lock = take_lock(&mut qemu, guest).or_infrastructure()?;
    let path = guest.launch.console_socket();
    let stream = UnixStream::connect(&path);
    let stream =
        stream.coded("file", || format!("connecting to the console of `{}` at {}", guest.name, path.display()));
    let stream = stream.or_infrastructure()?;
    for line in qemu.last_words().console {
        print(&format!("{line}\n"))?;
    }
    let end = attend(&stream, guest).coded("file", || "copying the console").or_infrastructure()?;
    match end {
        End::Escape => tell!("left the console of `{}`; the guest keeps running", guest.name),
        End::Guest => tell!("guest `{}` exited", guest.name),
        End::Input => {}
    }
    Ok(Exit::Done)
}

/// Takes the lock of a guest's console: QEMU accepts one client at a time, and a second would wait silently.
fn take_lock(qemu: &mut Qemu, guest: &PlannedGuest) -> miette::Result<LockFile> {
    let name = &guest.name;
    let lock = LockFile::take(&guest.launch.directory.join("console.lock"))?.map_err(|holder| {
        miette!(
            code = "console-in-use", "another `vtax lab console` is attached to the console of `{name}`: {holder}; leave it with Ctrl-], or stop it"
        )
    })?;
    // A busy monitor does not answer; then vtax waits for the other client.
    if qemu.monitor(MONITOR).and_then(|mut monitor| monitor.is_console_taken()).unwrap_or(false) {
        let socket = guest.launch.console_socket();
        bail!(
            code = "console-in-use",
            "another program is attached to the console of `{name}`, at {}; stop it first",
            socket.display()
        );
    }
    Ok(lock)
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Escape,
    Guest,
    Input,
}

fn attend(stream: &UnixStream, guest: &PlannedGuest) -> io::Result<End> {
    let terminal = io::stdin().is_terminal();
    if terminal {
        tell!("console of `{}`; press Ctrl-] to leave", guest.name);
    }
    if matches!(guest.launch.boot, Boot::Kernel { .. }) && guest.launch.server.is_none() {
        tell!("vtax's own image has no shell: the console shows kernel and agent messages; see vtax lab exec");
    }
    // Restored before any further output.
    let _raw = terminal.then(Raw::enter).transpose()?;
    Copy { stream, input: io::stdin(), escape: terminal, listening: true }.until_end()
}

/// A terminal that passes every key on until this is dropped.
struct Raw {
    before: Termios,
}

impl Raw {
    fn enter() -> io::Result<Raw> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Flush, &raw)?;
        Ok(Raw { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // If the terminal is gone, there is nothing to restore.
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
    }
}

struct Copy<'a, I> {
    stream: &'a UnixStream,
    input: I,
    /// True if [`ESCAPE`] ends it.
    escape: bool,
    /// True if there may be more input.
    listening: bool,
}

impl<I: AsFd> Copy<'_, I> {
    fn until_end(mut self) -> io::Result<End> {
        loop {
            let Some([output, input]) = self.wait()? else { return Ok(End::Input) };
            let end = if output { self.show()? } else { None };
            let end = if end.is_none() && input { self.pass_on()? } else { end };
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }

    /// Waits for output of the guest and input for it, and returns which there is; None if neither will come.
    fn wait(&self) -> io::Result<Option<[bool; 2]>> {
        let mut ends = [PollFd::new(self.stream, PollFlags::IN), PollFd::new(&self.input, PollFlags::IN)];
        let asked = if self.listening { &mut ends[..] } else { &mut ends[..1] };
        let patience = (!self.listening).then_some(&SILENCE);
        match poll(asked, patience) {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(ends.each_ref().map(|end| !end.revents().is_empty()))),
            Err(Errno::INTR) => Ok(Some([false, false])),
            Err(error) => Err(error.into()),
        }
    }

    fn show(&mut self) -> io::Result<Option<End>> {
        let mut buffer = [0; BUFFER];
        let length = match self.stream.read(&mut buffer) {
            // QEMU was killed before it read all input.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            read => read?,
        };
        let mut out = io::stdout().lock();
        out.write_all(&buffer[..length])?;
        out.flush()?;
        Ok((length == 0).then_some(End::Guest))
    }

    /// Passes input on, bypassing the buffer of standard input, which poll(2) does not see.
    fn pass_on(&mut self) -> io::Result<Option<End>> {
        let mut buffer = [0; BUFFER];
        let length = rustix::io::read(&self.input, &mut buffer)?;
        self.listening = length > 0;
        let typed = &buffer[..length];
        let escape = typed.iter().position(|byte| self.escape && *byte == ESCAPE);
        self.stream.write_all(&typed[..escape.unwrap_or(length)])?;
        Ok(escape.map(|_| End::Escape))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the input that reaches the guest, and the reason why the console is left.
    fn typed(input: &[u8], escape: bool) -> (Vec<u8>, End) {
        let (ours, mut guest) = UnixStream::pair().expect("a pair");
        let (reader, mut writer) = io::pipe().expect("a pipe");
        writer.write_all(input).expect("room");
        drop(writer);
        let copy = Copy { stream: &ours, input: reader, escape, listening: true };
        let end = copy.until_end().expect("both are there");
        drop(ours);
        let mut got = Vec::new();
        guest.read_to_end(&mut got).expect("ours");
        (got, end)
    }

    #[test]
    fn the_escape_ends_a_terminal_and_is_a_byte_like_others_of_a_file() {
        assert_eq!(typed(b"ab\x1dcd", true), (b"ab".to_vec(), End::Escape));
        assert_eq!(typed(b"ab\x1dcd", false), (b"ab\x1dcd".to_vec(), End::Input));
    }

    #[test]
    fn the_end_of_the_guest_is_the_end() {
        let (ours, guest) = UnixStream::pair().expect("a pair");
        let (reader, _writer) = io::pipe().expect("a pipe");
        drop(guest);
        let copy = Copy { stream: &ours, input: reader, escape: true, listening: true };
        assert_eq!(copy.until_end().expect("both are there"), End::Guest);
    }
}
