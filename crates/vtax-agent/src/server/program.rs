//! Running a program in the guest that the agent is in.

use std::{
    env, io,
    io::{Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
    process::{Command, ExitStatus, Stdio},
    time::Instant,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, ioctl_fionbio},
    process::{Pid, PidfdFlags, pidfd_open},
};
use vtax_engine::Cancel;
use vtax_model::units::Span;
use vtax_sys::{SysError, children::Kept};

use crate::{
    limits::OUTPUT_MOST,
    protocol::{Fault, FaultKind, Ran},
};

/// Where programs are looked for if nobody has said so: the kernel gives its first process no PATH.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How often a cancel is looked for.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// A program that wasn't run, or not to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProgramError {
    /// An empty list.
    #[error("no program was named; give one, and its arguments")]
    Unnamed,
    /// It isn't there, say.
    #[error("{0}; it was to run in the guest")]
    Start(#[from] SysError),
    /// It was killed for it.
    #[error("`{program}` was killed in the guest: it ran longer than {limit}")]
    TooLong { program: String, limit: Span },
    /// Its outputs, or its status.
    #[error("`{program}` was killed in the guest, as it can't be followed: {source}")]
    Lost { program: String, source: io::Error },
    /// Nobody waits for it any more.
    #[error("`{program}` was killed in the guest: cancelled")]
    Cancelled { program: String },
}

impl From<ProgramError> for Fault {
    fn from(error: ProgramError) -> Fault {
        let kind = match error {
            ProgramError::Unnamed => FaultKind::Refused,
            ProgramError::Cancelled { .. } => FaultKind::Cancelled,
            _ => FaultKind::System,
        };
        Fault::new(kind, error)
    }
}

/// With this on its standard input, to the program's own end: what it leaves running in the background goes on, and isn't waited
/// for although it may hold the outputs open.
pub(super) fn run(argv: &[String], stdin: Vec<u8>, limit: Span, cancel: &Cancel) -> Result<Ran, ProgramError> {
    let [program, arguments @ ..] = argv else { return Err(ProgramError::Unnamed) };
    let until = Instant::now() + limit.0;
    let mut command = Command::new(program);
    let input = if stdin.is_empty() { Stdio::null() } else { Stdio::piped() };
    command.args(arguments).stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
    if env::var_os("PATH").is_none() {
        command.env("PATH", PATH);
    }
    let mut child = Kept::spawn(&mut command)?;
    let lost = |source| ProgramError::Lost { program: program.clone(), source };
    let mut run = Running::of(&mut child, stdin).map_err(lost)?;
    while !run.step().map_err(lost)? {
        if cancel.is_cancelled() {
            return Err(ProgramError::Cancelled { program: program.clone() });
        }
        if Instant::now() >= until {
            return Err(ProgramError::TooLong { program: program.clone(), limit });
        }
    }
    let status = status(child.wait().map_err(lost)?);
    let [stdout, stderr] = run.outputs.map(Output::text);
    Ok(Ran { status, stdout, stderr })
}

/// A program that is followed.
struct Running {
    /// Readable once it has ended (pidfd_open(2)).
    end: OwnedFd,
    input: Input,
    outputs: [Output; 2],
}

/// What is still to be given to it.
struct Input {
    pipe: Option<io::PipeWriter>,
    bytes: Vec<u8>,
    given: usize,
}

/// One of its outputs.
struct Output {
    pipe: Option<io::PipeReader>,
    kept: Vec<u8>,
}

impl Running {
    fn of(child: &mut Kept, stdin: Vec<u8>) -> io::Result<Running> {
        let end = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        let input = Input::of(child.stdin.take().map(OwnedFd::from), stdin)?;
        let stdout = child.stdout.take().map(OwnedFd::from);
        let stderr = child.stderr.take().map(OwnedFd::from);
        Ok(Running { end, input, outputs: [Output::of(stdout)?, Output::of(stderr)?] })
    }

    /// Gives what it takes and takes what has come, waiting a tick for it; true when the program has ended and all that it
    /// wrote is taken.
    fn step(&mut self) -> io::Result<bool> {
        let pipes = self.outputs.iter().filter_map(|output| output.pipe.as_ref());
        let mut fds: Vec<_> = pipes.map(|pipe| PollFd::new(pipe, PollFlags::IN)).collect();
        fds.extend(self.input.pipe.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
        fds.push(PollFd::new(&self.end, PollFlags::IN));
        match poll(&mut fds, Some(&TICK)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ended = fds.last().is_some_and(|end| end.revents().contains(PollFlags::IN));
        self.input.give()?;
        for output in &mut self.outputs {
            output.take()?;
        }
        Ok(ended)
    }
}

impl Input {
    fn of(pipe: Option<OwnedFd>, bytes: Vec<u8>) -> io::Result<Input> {
        if let Some(pipe) = &pipe {
            ioctl_fionbio(pipe.as_fd(), true)?;
        }
        Ok(Input { pipe: pipe.map(io::PipeWriter::from), bytes, given: 0 })
    }

    /// As much as the pipe has room for; behind the last byte it is closed.
    fn give(&mut self) -> io::Result<()> {
        while let Some(pipe) = &mut self.pipe {
            match pipe.write(&self.bytes[self.given..]) {
                Ok(count) => self.given += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // It doesn't want to know the rest.
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

impl Output {
    fn of(pipe: Option<OwnedFd>) -> io::Result<Output> {
        if let Some(pipe) = &pipe {
            ioctl_fionbio(pipe.as_fd(), true)?;
        }
        Ok(Output { pipe: pipe.map(io::PipeReader::from), kept: Vec::new() })
    }

    /// What is there now, and no more than a pipe holds: somebody may write without end.
    fn take(&mut self) -> io::Result<()> {
        const PIPE: usize = 64 << 10;
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        let (mut buffer, mut taken) = ([0; 8 << 10], 0);
        while taken < PIPE {
            match pipe.read(&mut buffer) {
                Ok(0) => {
                    self.pipe = None;
                    return Ok(());
                }
                Ok(count) => {
                    taken += count;
                    let room = usize::try_from(OUTPUT_MOST.0).unwrap_or(usize::MAX) - self.kept.len();
                    self.kept.extend(&buffer[..count.min(room)]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn text(self) -> String {
        String::from_utf8_lossy(&self.kept).into_owned()
    }
}

/// As a shell has it.
fn status(status: ExitStatus) -> i32 {
    const KILLED: i32 = 128;
    status.code().or_else(|| status.signal().map(|signal| KILLED + signal)).unwrap_or(KILLED)
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;

    const SOON: Span = Span(Duration::from_secs(10));

    fn shell(script: &str, limit: Span) -> Result<Ran, ProgramError> {
        let argv = ["sh", "-c", script].map(str::to_owned);
        run(&argv, Vec::new(), limit, &Cancel::new())
    }

    #[test]
    fn a_program_reads_its_input_to_the_end_or_not() {
        let bytes: Vec<u8> = (0..300_000).map(|index| (index % 251) as u8).collect();
        let with = |script: &str| {
            let argv = ["sh", "-c", script].map(str::to_owned);
            run(&argv, bytes.clone(), SOON, &Cancel::new()).expect("it runs")
        };
        // While it is given, what comes back is taken: neither side waits for the other.
        assert_eq!(with("tr -d '\\000-\\377' | wc -c").stdout.trim(), "0");
        assert_eq!(with("cat | wc -c").stdout.trim(), "300000");
        assert_eq!(with("head -c 3 | od -An -tu1").stdout.split_whitespace().collect::<Vec<_>>(), ["0", "1", "2"]);
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
    fn an_output_beyond_the_limit_is_cut_and_the_program_goes_on() {
        let ran = shell(r"head -c 3000000 /dev/zero | tr '\0' x; printf '\377' >&2; exit 4", SOON).expect("it runs");
        assert_eq!((ran.status, ran.stdout.len() as u64, &*ran.stderr), (4, OUTPUT_MOST.0, "\u{fffd}"));
    }

    #[test]
    fn what_stays_in_the_background_isnt_waited_for() {
        let start = Instant::now();
        let ran = shell("sleep 60 & echo $!", SOON).expect("it runs");
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        let sleeper = ran.stdout.trim().parse().ok().and_then(Pid::from_raw).expect("its number");
        rustix::process::kill_process(sleeper, rustix::process::Signal::KILL).expect("it goes on");
    }

    #[test]
    fn a_program_ends_with_its_time_and_with_its_caller() {
        let start = Instant::now();
        let late = shell("sleep 60", Span::from_millis(100)).expect_err("late").to_string();
        assert!(late.contains("`sh`") && late.contains("100ms"), "{late}");
        let cancel = Cancel::new();
        let argv = ["sleep", "60"].map(str::to_owned);
        let cancelled = thread::scope(|scope| {
            let run = scope.spawn(|| run(&argv, Vec::new(), SOON, &cancel));
            thread::sleep(Duration::from_millis(100));
            cancel.cancel();
            run.join().expect("no panic")
        });
        assert!(matches!(cancelled, Err(ProgramError::Cancelled { .. })), "{cancelled:?}");
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    }

    #[test]
    fn a_program_that_isnt_there_is_named() {
        let missing =
            run(&["no-such-program".to_owned()], Vec::new(), SOON, &Cancel::new()).expect_err("missing").to_string();
        assert!(missing.contains("no-such-program"), "{missing}");
        assert!(matches!(run(&[], Vec::new(), SOON, &Cancel::new()), Err(ProgramError::Unnamed)));
    }
}
