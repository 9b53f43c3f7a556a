//! The parent of one job. It adopts every process that the job leaves without a parent, measures the CPU time of all of
//! them, and ends those that outlive the job.

use std::{
    fs, io,
    os::unix::process::ExitStatusExt,
    process::{Child, Command, ExitCode, ExitStatus},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::{
        prctl,
        resource::{UsageWho, getrusage},
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{Pid, getpid, getppid},
};

use signal_hook::consts::{SIGINT, SIGTERM};

use super::error::SuiteError;

/// Argument that makes this program a supervisor: `--supervise REPORT PROGRAM [ARGUMENT...]`.
pub(crate) const SUPERVISE: &str = "--supervise";
/// Time for a job's leftover processes to exit.
const GRACE: Duration = Duration::from_secs(20);
/// Time after which a job counts as hung.
const HANGS: Duration = Duration::from_secs(5_400);

/// A supervisor's report about its job: the CPU time in microseconds, then a line for each process that had to be
/// ended.
#[derive(Debug, PartialEq)]
pub(crate) struct Report {
    pub(crate) cpu: Duration,
    pub(crate) left: Vec<String>,
}

impl Report {
    pub(crate) fn parse(text: &str) -> Option<Report> {
        let mut lines = text.lines();
        let cpu = Duration::from_micros(lines.next()?.parse().ok()?);
        Some(Report { cpu, left: lines.map(str::to_owned).collect() })
    }

    fn text(&self) -> String {
        [self.cpu.as_micros().to_string()].iter().chain(&self.left).map(|line| format!("{line}\n")).collect()
    }
}

/// Runs the job and returns its exit status.
pub(crate) fn supervise(words: &[String]) -> Result<ExitCode, SuiteError> {
    let [report, program, arguments @ ..] = words else { return Ok(ExitCode::from(2)) };
    prctl::set_child_subreaper(true).map_err(|error| SuiteError::program("prctl")(error.into()))?;
    let ending = Ending::watch().map_err(SuiteError::program("sigaction"))?;
    let child = Command::new(program).args(arguments).spawn().map_err(SuiteError::program(program))?;
    let (status, mut left) = wait(&child, &ending);
    left.extend(end_all(if ending.is_due() { Duration::ZERO } else { GRACE }));
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).map_err(|error| SuiteError::program("getrusage")(error.into()))?;
    let micros = [usage.user_time(), usage.system_time()].map(|time| time.tv_sec() * 1_000_000 + time.tv_usec());
    let cpu = Duration::from_micros(micros.iter().sum::<i64>().unsigned_abs());
    fs::write(report, Report { cpu, left }.text()).map_err(SuiteError::file("write", report.as_ref()))?;
    Ok(ExitCode::from(status.code().and_then(|code| code.try_into().ok()).unwrap_or_else(|| signalled(status))))
}

/// Reasons to end a job early: the suite was asked to stop, or has exited.
struct Ending {
    suite: Pid,
    asked: Arc<AtomicBool>,
}

impl Ending {
    fn watch() -> io::Result<Ending> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&asked))?;
        }
        Ok(Ending { suite: getppid(), asked })
    }

    fn is_due(&self) -> bool {
        self.asked.load(Ordering::Relaxed) || getppid() != self.suite
    }
}

/// Returns the exit status that a shell reports for a signal.
fn signalled(status: ExitStatus) -> u8 {
    128 + u8::try_from(status.signal().unwrap_or(0)).unwrap_or(0)
}

/// Waits for the job, and reaps the processes that it orphans. Ends the job if it hangs or the suite ends.
fn wait(child: &Child, ending: &Ending) -> (ExitStatus, Vec<String>) {
    let begun = Instant::now();
    let job = Pid::from_raw(child.id().try_into().expect("process ids are positive"));
    let mut ended = Vec::new();
    loop {
        match reap() {
            Reaped::Child(pid, status) if pid == job => return (status, ended),
            Reaped::Child(..) => continue,
            Reaped::NoneEnded | Reaped::NoneLeft => thread::sleep(Duration::from_millis(20)),
        }
        if ended.is_empty() && (begun.elapsed() > HANGS || ending.is_due()) {
            ended.push(format!("the job itself, after {} s", begun.elapsed().as_secs()));
            let _ = kill(job, Signal::SIGKILL);
        }
    }
}

enum Reaped {
    Child(Pid, ExitStatus),
    NoneEnded,
    NoneLeft,
}

fn reap() -> Reaped {
    match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::Exited(pid, code)) => Reaped::Child(pid, ExitStatus::from_raw(code << 8)),
        Ok(WaitStatus::Signaled(pid, signal, _)) => Reaped::Child(pid, ExitStatus::from_raw(signal as i32)),
        Ok(_) | Err(Errno::EINTR) => Reaped::NoneEnded,
        Err(_) => Reaped::NoneLeft,
    }
}

/// Waits until all descendants have ended, and kills them after the grace period. Returns the names of the killed ones.
fn end_all(grace: Duration) -> Vec<String> {
    let begun = Instant::now();
    let mut names = Vec::new();
    loop {
        match reap() {
            Reaped::Child(..) => continue,
            Reaped::NoneLeft => return names,
            Reaped::NoneEnded => thread::sleep(Duration::from_millis(20)),
        }
        if begun.elapsed() > grace {
            // Their children become children of this process, and are killed in a later pass.
            for pid in children() {
                names.push(format!("{pid} {}", command_line(pid)));
                let _ = kill(pid, Signal::SIGKILL);
                let _ = waitpid(pid, None);
            }
        }
    }
}

fn children() -> Vec<Pid> {
    let own = getpid();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.map(Pid::from_raw).filter(|pid| parent(*pid) == Some(own)).collect()
}

/// Reads the fourth field of `stat` (proc_pid_stat(5)). The second may contain spaces and parentheses.
fn parent(pid: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok().map(Pid::from_raw)
}

fn command_line(pid: Pid) -> String {
    const MOST: usize = 200;
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words).replace('\0', " ").chars().take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    /// A supervisor reaps every child of its process, so tests with children run one at a time.
    static CHILDREN: Mutex<()> = Mutex::new(());

    #[test]
    fn a_report_is_read_back_as_written() {
        let report = Report { cpu: Duration::from_micros(1_500_000), left: vec!["7 sleep 60".into()] };
        assert_eq!(report.text(), "1500000\n7 sleep 60\n");
        assert_eq!(Report::parse(&report.text()), Some(report));
        assert_eq!(Report::parse(""), None);
    }

    #[test]
    fn a_supervisor_that_is_asked_to_stop_ends_its_job_first() {
        let _turn = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut job = Command::new("sleep").arg("600").spawn().expect("sleep");
        let ending = Ending { suite: getppid(), asked: Arc::new(AtomicBool::new(true)) };
        let (status, ended) = wait(&job, &ending);
        assert_eq!(status.signal(), Some(Signal::SIGKILL as i32));
        assert_eq!(ended.len(), 1, "{ended:?}");
        assert!(job.wait().is_err(), "the supervisor has reaped it");
    }

    #[test]
    fn a_process_has_the_parent_that_started_it() {
        let _turn = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = Pid::from_raw(child.id().try_into().expect("a process"));
        assert_eq!(parent(pid), Some(getpid()));
        assert!(children().contains(&pid));
        // Its command line is empty for a moment after exec.
        let begun = Instant::now();
        while command_line(pid).is_empty() && begun.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(command_line(pid), "sleep 60 ");
        child.kill().expect("it is ours");
        child.wait().expect("it ends");
    }
}
