//! Programs that must end by a deadline.
//!
//! The waiting thread sleeps until the program writes or ends. Polling every few milliseconds would keep the CPUs from
//! deep idle states, and so change a simultaneous measurement.

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Output};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, ioctl_fionbio, write};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Maximum number of bytes of an output that are kept: the largest message of libvirt (`VIR_NET_MESSAGE_MAX`).
const KEPT_MOST: usize = 32 << 20;

/// Time limit for a killed program to end. A program that waits for a device in the kernel ends when the device
/// answers.
const DYING: Duration = Duration::from_secs(5);

/// Maximum duration of a busy program, in multiples of its limit.
const WORKING_MOST: u32 = 10;

/// Deadline of a program, which excludes the time in which the program runs or waits for a CPU.
///
/// A hung program does neither. A healthy one may take many times as long as usual on a busy or emulated machine, so it
/// is given up to ten times its limit.
#[derive(Debug, Clone, Copy)]
pub struct ProgramDeadline {
    pid: u32,
    begun: Instant,
    limit: Duration,
}

impl ProgramDeadline {
    /// Returns the deadline of a program that has just been started.
    pub fn of(program: &Child, limit: Duration) -> ProgramDeadline {
        ProgramDeadline { pid: program.id(), begun: Instant::now(), limit }
    }

    /// Returns the remaining time. It may be extended after it has passed, so call this again.
    pub fn left(&self) -> Duration {
        let elapsed = self.begun.elapsed();
        if elapsed < self.limit {
            return self.limit - elapsed;
        }
        let (worked, runnable) = worked(self.pid);
        let left = self.limit.saturating_add(worked).saturating_sub(elapsed);
        // The kernel adds a wait for a CPU only when the wait is over.
        let left = if runnable { left.max(self.limit / 10) } else { left };
        left.min(ProgramDeadline::most(self.limit).saturating_sub(elapsed))
    }

    /// Returns the maximum time that a program with this limit may take.
    pub fn most(limit: Duration) -> Duration {
        limit.saturating_mul(WORKING_MOST)
    }
}

/// Returns how long the busiest thread of a process has run or waited for a CPU
/// (Documentation/scheduler/sched-stats.rst), and whether any of its threads does so now. A kernel without these
/// figures reports zero.
fn worked(pid: u32) -> (Duration, bool) {
    let of_thread = |thread: fs::DirEntry| {
        let read = |name| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
        let (times, state) = (read("schedstat"), read("stat"));
        let sum: u64 = times.split_ascii_whitespace().take(2).filter_map(|time| time.parse::<u64>().ok()).sum();
        // The state follows the name, which may contain parentheses (proc_pid_stat(5)).
        (Duration::from_nanos(sum), state.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('R')))
    };
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads
        .map(of_thread)
        .fold((Duration::ZERO, false), |(worked, runnable), (time, runs)| (worked.max(time), runnable | runs))
}

/// Reasons why a program returned no output.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum OutputError {
    #[error("it cannot be started ({0})")]
    #[diagnostic(code("program-not-started"))]
    Start(#[source] io::Error),
    #[error("it did not end within {0:?}")]
    #[diagnostic(code("not-in-time"))]
    Late(Duration),
    #[error(
        "it did not end within {limit:?} and cannot be killed: process {pid} waits in the kernel for a device, and \
         ends when the device answers"
    )]
    #[diagnostic(code("program-stuck"))]
    Stuck { limit: Duration, pid: u32 },
    #[error("it was cancelled")]
    #[diagnostic(code("cancelled"))]
    Cancelled,
    #[error("it cannot be watched ({0})")]
    #[diagnostic(code("kernel"))]
    Lost(#[source] io::Error),
}

/// A switch that ends programs before their deadline, from another thread. Clones share the switch, and nothing resets
/// it.
#[derive(Debug, Clone)]
pub struct ProgramCancel(Arc<OwnedFd>);

impl ProgramCancel {
    /// Returns an unused switch.
    pub fn new() -> io::Result<ProgramCancel> {
        let switch = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(ProgramCancel(Arc::new(switch)))
    }

    /// Ends the programs that are watched with this switch, and those that are started later.
    pub fn cancel(&self) {
        // It fails only when the 64-bit counter is full.
        let _ = write(&self.0, &1_u64.to_ne_bytes());
    }
}

/// Starts a program. Returns its status, and what it has written to those of its outputs that are pipes.
///
/// A program that takes longer than `limit` is killed ([`ProgramDeadline`]). If the kernel cannot end it, the function
/// returns nevertheless.
pub fn output_within(command: &mut Command, limit: Duration) -> Result<Output, OutputError> {
    finish_within(command.spawn().map_err(OutputError::Start)?, limit)
}

/// Like [`output_within`], but can be cancelled.
pub fn output_unless(command: &mut Command, limit: Duration, cancel: &ProgramCancel) -> Result<Output, OutputError> {
    finish(command.spawn().map_err(OutputError::Start)?, limit, Some(cancel))
}

/// Like [`output_within`], for a program that is already running. Doesn't wait for processes that the program leaves
/// behind, even if they hold its pipes open.
pub fn finish_within(child: Child, limit: Duration) -> Result<Output, OutputError> {
    finish(child, limit, None)
}

fn finish(mut child: Child, limit: Duration, cancel: Option<&ProgramCancel>) -> Result<Output, OutputError> {
    let followed = follow(&mut child, limit, cancel);
    if !matches!(followed, Ok(Followed::End(_))) && !killed(&mut child) {
        return Err(OutputError::Stuck { limit, pid: child.id() });
    }
    let status = child.wait().map_err(OutputError::Lost)?;
    match followed.map_err(OutputError::Lost)? {
        Followed::End([stdout, stderr]) => Ok(Output { status, stdout, stderr }),
        Followed::Late => Err(OutputError::Late(limit)),
        Followed::Cancelled => Err(OutputError::Cancelled),
    }
}

/// Result of watching a program.
enum Followed {
    /// The program has ended, with these outputs.
    End([Vec<u8>; 2]),
    /// The deadline passed.
    Late,
    /// The program was cancelled.
    Cancelled,
}

/// Event of a watched program.
enum Woken {
    /// It has written, or a signal has arrived.
    Running,
    Ended,
    Late,
    Cancelled,
}

/// Kills the program. Returns true if it has ended, or if that cannot be determined.
fn killed(child: &mut Child) -> bool {
    // It may just have ended by itself.
    let _ = child.kill();
    let Ok(end) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) else { return true };
    let deadline = Instant::now() + DYING;
    loop {
        match wait(&end, &[], deadline.saturating_duration_since(Instant::now()), None) {
            Ok(Woken::Late) => return false,
            Ok(Woken::Running | Woken::Cancelled) => {}
            Ok(Woken::Ended) | Err(_) => return true,
        }
    }
}

/// Collects the program's output until it ends.
fn follow(child: &mut Child, limit: Duration, cancel: Option<&ProgramCancel>) -> io::Result<Followed> {
    let deadline = ProgramDeadline::of(child, limit);
    // A pidfd is readable once the process has ended, pidfd_open(2).
    let end = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let pipes = [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
    let [stdout, stderr] = pipes.map(PipeReader::of);
    let mut pipes = [stdout?, stderr?];
    loop {
        let woken = wait(&end, &pipes, deadline.left(), cancel)?;
        pipes.iter_mut().try_for_each(PipeReader::take)?;
        match woken {
            Woken::Running => {}
            Woken::Late if !deadline.left().is_zero() => {}
            Woken::Ended => return Ok(Followed::End(pipes.map(|pipe| pipe.bytes))),
            Woken::Late => return Ok(Followed::Late),
            Woken::Cancelled => return Ok(Followed::Cancelled),
        }
    }
}

/// Waits until there is something to read, the process has ended, the time is up, or the wait was cancelled.
fn wait(end: &OwnedFd, pipes: &[PipeReader], left: Duration, cancel: Option<&ProgramCancel>) -> io::Result<Woken> {
    let mut fds = vec![PollFd::new(end, PollFlags::IN)];
    fds.extend(cancel.map(|cancel| PollFd::new(&*cancel.0, PollFlags::IN)));
    fds.extend(pipes.iter().filter_map(|pipe| pipe.file.as_ref()).map(|file| PollFd::new(file, PollFlags::IN)));
    let left = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
    match poll(&mut fds, Some(&left)) {
        Ok(0) => Ok(Woken::Late),
        Ok(_) if !fds[0].revents().is_empty() => Ok(Woken::Ended),
        Ok(_) if cancel.is_some() && !fds[1].revents().is_empty() => Ok(Woken::Cancelled),
        Ok(_) | Err(Errno::INTR) => Ok(Woken::Running),
        Err(errno) => Err(errno.into()),
    }
}

/// One output of a program.
struct PipeReader {
    /// None once the output is closed.
    file: Option<std::fs::File>,
    bytes: Vec<u8>,
}

impl PipeReader {
    fn of(pipe: Option<OwnedFd>) -> io::Result<PipeReader> {
        if let Some(pipe) = &pipe {
            ioctl_fionbio(pipe.as_fd(), true)?;
        }
        Ok(PipeReader { file: pipe.map(Into::into), bytes: Vec::new() })
    }

    /// Reads the available output.
    fn take(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 << 10];
        while let Some(file) = &mut self.file {
            match file.read(&mut buffer) {
                Ok(0) => self.file = None,
                Ok(count) => {
                    let room = KEPT_MOST - self.bytes.len();
                    self.bytes.extend(&buffer[..count.min(room)]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    const SOON: Duration = Duration::from_secs(60);

    fn shell(script: &str, limit: Duration) -> Result<Output, OutputError> {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        output_within(&mut command, limit)
    }

    #[test]
    fn both_outputs_and_the_status_are_returned() {
        let output = shell("echo out; echo err >&2; exit 3", SOON).expect("it ends");
        assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
        assert_eq!(output.status.code(), Some(3));
    }

    #[test]
    fn more_than_a_pipe_holds_is_read_on_both_outputs() {
        let output = shell("head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2", SOON).expect("it ends");
        assert_eq!((output.stdout.len(), output.stderr.len()), (300_000, 300_000));
    }

    #[test]
    fn a_program_that_takes_too_long_is_killed() {
        let begun = Instant::now();
        let late = shell("exec sleep 1000", Duration::from_millis(100)).expect_err("it sleeps");
        assert!(matches!(late, OutputError::Late(_)), "{late}");
        assert!(begun.elapsed() < SOON);
    }

    #[test]
    fn a_program_that_works_gets_more_time_but_not_forever() {
        let (begun, limit) = (Instant::now(), Duration::from_millis(200));
        let late = shell("while :; do :; done", limit).expect_err("it never ends");
        assert!(matches!(late, OutputError::Late(_)), "{late}");
        assert!(begun.elapsed() > 5 * limit, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_program_ends_when_it_is_cancelled() {
        let (begun, cancel) = (Instant::now(), ProgramCancel::new().expect("an eventfd"));
        let other = cancel.clone();
        let ending = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            other.cancel();
        });
        let run = || output_unless(Command::new("sleep").arg("1000"), SOON, &cancel);
        let [first, later] = [run(), run()].map(|output| output.expect_err("it sleeps"));
        ending.join().expect("no panic");
        assert!(matches!((&first, &later), (OutputError::Cancelled, OutputError::Cancelled)), "{first} {later}");
        assert!(begun.elapsed() < SOON);
    }

    #[test]
    fn remaining_descendants_are_not_waited_for() {
        let begun = Instant::now();
        let output = shell("sleep 61 & echo $!", SOON * 2).expect("it ends");
        assert!(begun.elapsed() < SOON);
        let left: i32 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a process");
        let left = Pid::from_raw(left).expect("a process");
        rustix::process::kill_process(left, rustix::process::Signal::KILL).expect("it is there");
    }

    #[test]
    fn a_missing_program_is_reported() {
        let error = output_within(&mut Command::new("/no/such/program"), SOON).expect_err("it isn't there");
        assert!(matches!(error, OutputError::Start(_)), "{error}");
    }
}
