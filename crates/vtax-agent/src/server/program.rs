//! Programs run in the agent's guest.

use std::{
    env, io,
    io::{Read, Write},
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    path::Path,
    process::{Command, ExitStatus, Stdio},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, ioctl_fionbio, ioctl_fionread},
    process::{Pid, PidfdFlags, kill_process_group, pidfd_open},
};
use vtax_engine::Cancel;
use vtax_model::units::{ByteSize, Span};
use vtax_sys::{SysError, children::Kept, deadline::ProgramDeadline};
use vtax_wire::{
    limits::{OUTPUT_MOST, WINDOW_MOST},
    protocol::{Fault, FaultKind, ProgramOutput, ProgramSpec, Ran, Signal, Stream},
};

use super::orders::{OrderReceiver, ProgramOrder};

/// PATH of programs if the agent has none, because the kernel gives its first process no PATH.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// HOME given by the kernel to its first process. Programs get root's home directory instead, if the guest has it.
const NO_HOME: &str = "/";
const HOME: &str = "/root";
/// Maximum number of output bytes that are read and sent at a time.
const PIECE: usize = 32 << 10;
/// Interval at which the session checks whether it was cancelled.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Reasons why a program wasn't run, or not to its end.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub(super) enum ProgramError {
    #[error("no program named; give a program and its arguments")]
    #[diagnostic(code("no-program-named"))]
    Unnamed,
    #[error("in the guest: {0}")]
    #[diagnostic(code("program-not-started"))]
    Start(#[from] SysError),
    #[error("`{program}` was killed in the guest: it ran longer than {limit}")]
    #[diagnostic(code("not-in-time"))]
    TooLong { program: String, limit: Span },
    #[error("`{program}` was killed in the guest, because it cannot be watched: {source}")]
    #[diagnostic(code("kernel"))]
    Lost { program: String, source: io::Error },
    #[error("`{program}` was killed in the guest: cancelled")]
    #[diagnostic(code("cancelled"))]
    Cancelled { program: String },
}

impl From<ProgramError> for Fault {
    fn from(error: ProgramError) -> Fault {
        let kind = match error {
            ProgramError::Unnamed => FaultKind::Refused,
            ProgramError::Start(ref error) if error.is_missing() => FaultKind::NotFound,
            _ => FaultKind::System,
        };
        Fault::of(kind, &error)
    }
}

/// Runs a program to its end. Processes that it leaves in the background continue; they aren't waited for, although
/// they may hold the outputs open. With a window, `send` gets the outputs; otherwise they are collected for the reply.
pub(super) fn run(
    program: ProgramSpec,
    orders: &OrderReceiver,
    cancel: &Cancel,
    mut send: impl FnMut(ProgramOutput),
) -> Result<Ran, ProgramError> {
    let ProgramSpec { argv, stdin, limit, window, .. } = program;
    let [name, arguments @ ..] = &argv[..] else { return Err(ProgramError::Unnamed) };
    let mut child = Kept::spawn(&mut command(name, arguments, !stdin.is_empty()))?;
    let deadline = ProgramDeadline::of(&child, limit.0);
    let lost = |source| ProgramError::Lost { program: name.clone(), source };
    let mut run = Running::of(&mut child, stdin, window).map_err(lost)?;
    while !run.step(orders, &mut send).map_err(lost)? {
        if cancel.is_cancelled() {
            return Err(ProgramError::Cancelled { program: name.clone() });
        }
        if !run.ended && deadline.left().is_zero() {
            return Err(ProgramError::TooLong { program: name.clone(), limit });
        }
    }
    let status = status(child.wait().map_err(lost)?);
    let [stdout, stderr] = run.outlets.map(|outlet| outlet.text().into());
    Ok(Ran { status, stdout, stderr })
}

fn command(name: &str, arguments: &[String], has_input: bool) -> Command {
    let mut command = Command::new(name);
    let input = if has_input { Stdio::piped() } else { Stdio::null() };
    command.args(arguments).stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
    if env::var_os("PATH").is_none() {
        command.env("PATH", PATH);
    }
    if env::var_os("HOME").is_none_or(|home| home == NO_HOME) && Path::new(HOME).is_dir() {
        command.env("HOME", HOME);
    }
    command
}

/// A running program and its pipes.
struct Running {
    group: Pid,
    /// A descriptor that is readable once the program has ended (pidfd_open(2)).
    end: OwnedFd,
    ended: bool,
    input: Input,
    outlets: [Outlet; 2],
    /// Number of output bytes that may be sent now; none if the outputs are collected.
    window: Option<u64>,
}

impl Running {
    fn of(child: &mut Kept, stdin: Vec<u8>, window: Option<ByteSize>) -> io::Result<Running> {
        let group = Pid::from_child(child);
        let end = pidfd_open(group, PidfdFlags::empty())?;
        let input = Input { pipe: nonblocking(child.stdin.take())?, bytes: stdin, given: 0 };
        let stdout = Outlet::new(Stream::Stdout, nonblocking(child.stdout.take())?);
        let stderr = Outlet::new(Stream::Stderr, nonblocking(child.stderr.take())?);
        let window = window.map(|window| window.0);
        Ok(Running { group, end, ended: false, input, outlets: [stdout, stderr], window })
    }

    /// Writes input, reads outputs and takes orders, after waiting for at most a tick. Returns true when the program
    /// has ended and all its output was taken.
    fn step(&mut self, orders: &OrderReceiver, send: &mut impl FnMut(ProgramOutput)) -> io::Result<bool> {
        let has_ended = self.wait(orders)?;
        orders.orders().for_each(|order| self.obey(order));
        self.input.give()?;
        for outlet in &mut self.outlets {
            if has_ended {
                outlet.close()?;
            }
            match &mut self.window {
                None => outlet.keep()?,
                Some(window) => {
                    let Some(bytes) = outlet.take(*window)? else { continue };
                    *window -= bytes.len() as u64;
                    send(ProgramOutput { stream: outlet.stream, bytes });
                }
            }
        }
        self.ended |= has_ended;
        Ok(self.ended && self.outlets.iter().all(Outlet::is_empty))
    }

    /// Waits until something happens, at most a tick. Returns true if the program has just ended.
    fn wait(&self, orders: &OrderReceiver) -> io::Result<bool> {
        let mut fds = vec![PollFd::new(orders, PollFlags::IN)];
        if self.window != Some(0) {
            let pipes = self.outlets.iter().filter_map(|outlet| outlet.pipe.as_ref());
            fds.extend(pipes.map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        }
        fds.extend(self.input.pipe.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
        if !self.ended {
            fds.push(PollFd::new(&self.end, PollFlags::IN));
        }
        match poll(&mut fds, Some(&TICK)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(!self.ended && fds.last().is_some_and(|end| end.revents().contains(PollFlags::IN)))
    }

    /// Carries out an order. After the program's end, processes that it left running no longer count as its group.
    fn obey(&mut self, order: ProgramOrder) {
        match order {
            ProgramOrder::More(taken) => {
                self.window = self.window.map(|window| window.saturating_add(taken.0).min(WINDOW_MOST.0));
            }
            ProgramOrder::Signal(_) if self.ended => {}
            ProgramOrder::Signal(signal) => {
                let signal = match signal {
                    Signal::Int => rustix::process::Signal::INT,
                    Signal::Term => rustix::process::Signal::TERM,
                    Signal::Kill => rustix::process::Signal::KILL,
                };
                // Nobody has waited for the program yet, so its pid is still valid. An error means that it has just
                // ended.
                let _ = kill_process_group(self.group, signal);
            }
        }
    }
}

fn nonblocking<P: From<OwnedFd>>(pipe: Option<impl Into<OwnedFd>>) -> io::Result<Option<P>> {
    let pipe = pipe.map(Into::into);
    pipe.as_ref().map(|pipe| ioctl_fionbio(pipe, true)).transpose()?;
    Ok(pipe.map(P::from))
}

/// Input that the program still has to get.
struct Input {
    pipe: Option<io::PipeWriter>,
    bytes: Vec<u8>,
    given: usize,
}

impl Input {
    /// Writes as much as the pipe has room for, and closes it after the last byte.
    fn give(&mut self) -> io::Result<()> {
        while let Some(pipe) = &mut self.pipe {
            match pipe.write(&self.bytes[self.given..]) {
                Ok(count) => self.given += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The program has closed its input.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.given = self.bytes.len(),
                Err(error) => return Err(error),
            }
            if self.given == self.bytes.len() {
                self.pipe = None;
            }
        }
        Ok(())
    }
}

/// An output of the program.
struct Outlet {
    stream: Stream,
    /// None after the end of the output.
    pipe: Option<io::PipeReader>,
    /// After the program's end: number of its bytes that are still in the pipe.
    left: Option<u64>,
    kept: Vec<u8>,
}

impl Outlet {
    fn new(stream: Stream, pipe: Option<io::PipeReader>) -> Outlet {
        Outlet { stream, pipe, left: None, kept: Vec::new() }
    }

    /// The bytes that are in the pipe now are the rest, even if another process continues writing.
    fn close(&mut self) -> io::Result<()> {
        self.left = self.pipe.as_ref().map(ioctl_fionread).transpose()?;
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.pipe.is_none() || self.left == Some(0)
    }

    /// Reads what is available now: one piece, and at most `room` bytes.
    fn take(&mut self, room: u64) -> io::Result<Option<Vec<u8>>> {
        let room = self.left.unwrap_or(u64::MAX).min(room).min(PIECE as u64);
        let Some(pipe) = self.pipe.as_mut().filter(|_| room > 0) else { return Ok(None) };
        let mut piece = vec![0; PIECE];
        let room = usize::try_from(room).unwrap_or(PIECE);
        match pipe.read(&mut piece[..room]) {
            Ok(0) => self.pipe = None,
            Ok(count) => {
                piece.truncate(count);
                self.left = self.left.map(|left| left - count as u64);
                return Ok(Some(piece));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(None)
    }

    /// Reads a piece, and collects as much of it for the reply as is allowed.
    fn keep(&mut self) -> io::Result<()> {
        if let Some(piece) = self.take(u64::MAX)? {
            let room = usize::try_from(OUTPUT_MOST.0).unwrap_or(usize::MAX) - self.kept.len();
            self.kept.extend(&piece[..piece.len().min(room)]);
        }
        Ok(())
    }

    fn text(self) -> String {
        String::from_utf8_lossy(&self.kept).into_owned()
    }
}

/// Returns the status as a shell reports it.
fn status(status: ExitStatus) -> i32 {
    const KILLED: i32 = 128;
    status.code().or_else(|| status.signal().map(|signal| KILLED + signal)).unwrap_or(KILLED)
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc,
        thread,
        time::{Duration, Instant},
    };

    use vtax_wire::protocol::SessionId;

    use super::*;
    use crate::server::orders::{OrderSender, channel};

    const SOON: Span = Span(Duration::from_secs(300));

    fn shell_program(script: &str, limit: Span) -> ProgramSpec {
        let argv = ["sh", "-c", script].map(str::to_owned).to_vec();
        ProgramSpec { session: SessionId(1), argv, stdin: Vec::new(), limit, window: None }
    }

    /// Runs a program without orders and collects its outputs.
    fn run_alone(program: ProgramSpec, cancel: &Cancel) -> Result<Ran, ProgramError> {
        let (_sender, orders) = channel().expect("a bell");
        run(program, &orders, cancel, |output| panic!("{output:?} was sent"))
    }

    fn shell(script: &str, limit: Span) -> Result<Ran, ProgramError> {
        run_alone(shell_program(script, limit), &Cancel::new())
    }

    /// Runs a script with a window. Returns its outputs and its status. `seen` gets each piece and may give orders.
    fn watch(script: &str, window: u64, mut seen: impl FnMut(&OrderSender, &ProgramOutput)) -> ([Vec<u8>; 2], i32) {
        let (sender, orders) = channel().expect("a bell");
        let program = ProgramSpec { window: Some(ByteSize(window)), ..shell_program(script, SOON) };
        let mut outputs = [Vec::new(), Vec::new()];
        let ran = run(program, &orders, &Cancel::new(), |output| {
            outputs[output.stream as usize].extend(&output.bytes);
            seen(&sender, &output);
        });
        let Ran { status, stdout, stderr } = ran.expect("it runs");
        assert_eq!((stdout.raw(), stderr.raw()), ("", ""), "what was sent isn't kept");
        (outputs, status)
    }

    #[test]
    fn a_program_that_is_watched_is_heard_as_it_writes_and_to_the_last_byte() {
        let more = |sender: &OrderSender, output: &ProgramOutput| {
            sender.give(ProgramOrder::More(ByteSize(output.bytes.len() as u64)))
        };
        let script = r"head -c 3000000 /dev/zero | tr '\0' x; printf '\377' >&2; exit 4";
        let ([stdout, stderr], status) = watch(script, 40_000, more);
        assert_eq!((stdout.len(), &stderr[..], status), (3_000_000, &[0xff][..], 4));
        let mut pieces = Vec::new();
        watch("echo a; sleep 0.3; echo b", 64, |_, output| pieces.push(output.bytes.clone()));
        assert_eq!(pieces, [b"a\n", b"b\n"]);
    }

    /// The program has long ended when the test asks for its last output.
    #[test]
    fn no_more_is_sent_than_there_is_room_for() {
        let (sender, orders) = channel().expect("a bell");
        let program =
            ProgramSpec { window: Some(ByteSize(10)), ..shell_program("printf 0123456789abcdef; exit 3", SOON) };
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            let run =
                scope.spawn(move || run(program, &orders, &Cancel::new(), |output| drop(tell.send(output.bytes))));
            assert_eq!(told.recv().expect("sent"), b"0123456789");
            assert!(told.recv_timeout(Duration::from_millis(300)).is_err());
            sender.give(ProgramOrder::Signal(Signal::Kill));
            sender.give(ProgramOrder::More(ByteSize(4)));
            assert_eq!(told.recv().expect("sent"), b"abcd");
            sender.give(ProgramOrder::More(ByteSize(u64::MAX)));
            assert_eq!(told.recv().expect("sent"), b"ef");
            assert_eq!(run.join().expect("no panic").expect("it runs").status, 3);
        });
    }

    #[test]
    fn a_process_that_writes_after_the_programs_end_isnt_waited_for() {
        let script = "{ trap 'exit 0' TERM; while :; do echo x; done; } & echo $! >&2; sleep 0.2";
        let mut writer = Vec::new();
        watch(script, 64 << 10, |sender, output| {
            sender.give(ProgramOrder::More(ByteSize(output.bytes.len() as u64)));
            if output.stream == Stream::Stderr {
                writer.extend(&output.bytes);
            }
        });
        let writer = String::from_utf8(writer).expect("text");
        let writer = writer.lines().next().and_then(|line| line.parse().ok()).and_then(Pid::from_raw);
        // Its pipe was closed, so it may already have ended.
        let _ = rustix::process::kill_process(writer.expect("its number"), rustix::process::Signal::KILL);
    }

    #[test]
    fn a_program_gets_signals() {
        let script = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done";
        let interrupted = watch(script, 1 << 10, |sender, output| {
            if output.bytes == b"ready\n" {
                sender.give(ProgramOrder::Signal(Signal::Int));
            }
        });
        assert_eq!(interrupted, ([b"ready\ncaught\n".to_vec(), Vec::new()], 9));
        for (signal, number) in [(Signal::Term, 15), (Signal::Kill, 9)] {
            let (_, status) = watch("echo; exec sleep 60", 1, |sender, _| sender.give(ProgramOrder::Signal(signal)));
            assert_eq!(status, 128 + number);
        }
    }

    #[test]
    fn a_program_reads_its_input_to_the_end_or_not() {
        let bytes: Vec<u8> = (0..300_000).map(|index| (index % 251) as u8).collect();
        let with = |script: &str| {
            let program = ProgramSpec { stdin: bytes.clone(), ..shell_program(script, SOON) };
            run_alone(program, &Cancel::new()).expect("it runs")
        };
        // The program's output is read while its input is written, so neither side waits for the other.
        assert_eq!(with("tr -d '\\000-\\377' | wc -c").stdout.raw().trim(), "0");
        assert_eq!(with("cat | wc -c").stdout.raw().trim(), "300000");
        assert_eq!(
            with("head -c 3 | od -An -tu1").stdout.raw().split_whitespace().collect::<Vec<_>>(),
            ["0", "1", "2"]
        );
        assert_eq!(with("exec <&-; exit 7").status, 7);
        assert_eq!(shell("cat", SOON).expect("it runs").stdout, "");
    }

    #[test]
    fn a_program_has_its_status_and_both_outputs() {
        let ran = shell("echo out; echo err >&2; exit 3", SOON).expect("it runs");
        assert_eq!(ran, Ran { status: 3, stdout: "out\n".into(), stderr: "err\n".into() });
        assert_eq!(shell("kill -9 $$", SOON).expect("it runs").status, 128 + 9);
    }

    #[test]
    fn an_output_beyond_the_limit_is_cut_and_the_program_continues() {
        let ran = shell(r"head -c 3000000 /dev/zero | tr '\0' x; printf '\377' >&2; exit 4", SOON).expect("it runs");
        assert_eq!((ran.status, ran.stdout.raw().len() as u64, ran.stderr.raw()), (4, OUTPUT_MOST.0, "\u{fffd}"));
    }

    #[test]
    fn background_processes_arent_waited_for() {
        let start = Instant::now();
        let ran = shell("sleep 1000 & echo $!", SOON).expect("it runs");
        assert!(start.elapsed() < SOON.0, "{:?}", start.elapsed());
        let sleeper = ran.stdout.raw().trim().parse().ok().and_then(Pid::from_raw).expect("its number");
        rustix::process::kill_process(sleeper, rustix::process::Signal::KILL).expect("it goes on");
    }

    #[test]
    fn a_program_ends_with_its_time_and_with_its_caller() {
        let late = shell("sleep 60", Span::from_millis(100)).expect_err("late").to_string();
        assert!(late.contains("`sh`") && late.contains("100ms"), "{late}");
        let cancel = Cancel::new();
        let cancelled = thread::scope(|scope| {
            let run = scope.spawn(|| run_alone(shell_program("sleep 60", SOON), &cancel));
            thread::sleep(Duration::from_millis(100));
            cancel.cancel();
            run.join().expect("no panic")
        });
        assert!(matches!(cancelled, Err(ProgramError::Cancelled { .. })), "{cancelled:?}");
    }

    #[test]
    fn a_program_that_isnt_there_is_named() {
        let named = |argv: Vec<String>| run_alone(ProgramSpec { argv, ..shell_program("", SOON) }, &Cancel::new());
        let missing = named(vec!["no-such-program".to_owned()]).expect_err("missing").to_string();
        assert!(missing.contains("no-such-program"), "{missing}");
        assert!(matches!(named(Vec::new()), Err(ProgramError::Unnamed)));
    }
}
