//! Runs as many jobs at the same time as the machine's CPUs have room for.

use std::{
    env,
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

use super::{
    costs::JobCosts,
    error::SuiteError,
    idle::IdleTime,
    job::{JobEnd, JobFailure, SuiteJob},
    settings::state,
    supervisor::{Report, SUPERVISE},
};

/// Number of CPUs by which all jobs together may exceed the machine: estimates are rough, and no job uses its share all
/// the time.
const SLACK: f64 = 0.3;
/// Interval between two measurements of the machine's idle time: long enough that a job that has just started counts.
const LOOKS: Duration = Duration::from_secs(4);
/// Idle CPUs above which another job starts, although the estimates leave no room for it.
const IDLE: f64 = 0.25;
/// Maximum number of concurrent jobs per CPU. More would be too many once several of them stop waiting.
const MOST: usize = 3;
/// Nice value of all jobs except the longest one, which determines when the suite ends.
const NICE: &str = "5";

/// Runs all jobs, the longest first, then those that have the machine to themselves. Prints a line when a job ends.
pub(crate) fn run(mut jobs: Vec<SuiteJob>, costs: &JobCosts) -> Result<Vec<JobEnd>, SuiteError> {
    fs::create_dir_all(state()).map_err(SuiteError::file("create", &state()))?;
    jobs.sort_by(|a, b| a.alone.cmp(&b.alone).then(costs.wall_seconds(b).total_cmp(&costs.wall_seconds(a))));
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let mut room = Room::new(f64::from(u32::try_from(cpus).unwrap_or(u32::MAX)));
    let longest = jobs.first().map(|job| job.name.clone());
    let (all, mut started, mut ends) = (jobs.len(), 0, Vec::new());
    let (sender, receiver) = mpsc::channel();
    let mut idle = IdleTime::now()?;
    while ends.len() < all {
        while let Some(index) = jobs.iter().position(|job| room.has(share(job, costs, &room))) {
            let job = jobs.remove(index);
            room.enter(share(&job, costs, &room));
            let comes_first = longest.as_ref() == Some(&job.name);
            start(job, comes_first, state().join(format!("{started}")), sender.clone())?;
            started += 1;
        }
        match receiver.recv_timeout(LOOKS.saturating_sub(idle.age())) {
            Ok(end) => {
                let end = end?;
                room.leave(share(&end.job, costs, &room));
                print(&end, ends.len() + 1, all);
                ends.push(end);
            }
            Err(RecvTimeoutError::Timeout) => room.idle = idle.cpus_since()?,
            Err(RecvTimeoutError::Disconnected) => unreachable!("a sender is here"),
        }
    }
    Ok(ends)
}

/// CPUs that are free for further jobs.
struct Room {
    cpus: f64,
    taken: f64,
    jobs: usize,
    /// CPUs that were idle in the last measurement; 0 once another job has started.
    idle: f64,
}

impl Room {
    fn new(cpus: f64) -> Room {
        Room { cpus, taken: 0.0, jobs: 0, idle: 0.0 }
    }

    /// Returns true if a job may start: there is no other, its estimate fits in addition to those of the others, or they
    /// leave CPUs idle.
    fn has(&self, share: f64) -> bool {
        self.jobs == 0 || self.taken + share <= self.cpus + SLACK || self.has_idle_cpus() && share <= self.cpus
    }

    /// Returns true if CPUs are idle although the running jobs were expected to use them.
    fn has_idle_cpus(&self) -> bool {
        self.idle > IDLE && (self.jobs as f64) < self.cpus * MOST as f64
    }

    fn enter(&mut self, share: f64) {
        self.taken += share;
        self.jobs += 1;
        self.idle = 0.0;
    }

    fn leave(&mut self, share: f64) {
        self.taken -= share;
        self.jobs -= 1;
    }
}

/// Returns the CPUs that a job occupies.
fn share(job: &SuiteJob, costs: &JobCosts, room: &Room) -> f64 {
    if job.alone { room.cpus + SLACK } else { costs.cpus(job).min(room.cpus) }
}

/// Starts a job on a separate thread, which sends the outcome.
fn start(
    job: SuiteJob,
    comes_first: bool,
    files: PathBuf,
    sender: Sender<Result<JobEnd, SuiteError>>,
) -> Result<(), SuiteError> {
    let name = job.name.clone();
    let work = move || {
        // The suite ends with the first error; after that, there is no receiver.
        let _ = sender.send(carry_out(job, comes_first, &files));
    };
    thread::Builder::new().spawn(work).map_err(SuiteError::program(&name))?;
    Ok(())
}

fn carry_out(job: SuiteJob, comes_first: bool, files: &Path) -> Result<JobEnd, SuiteError> {
    let (log, report) = (files.with_extension("log"), files.with_extension("report"));
    let output = File::create(&log).map_err(SuiteError::file("create", &log))?;
    let errors = output.try_clone().map_err(SuiteError::file("open", &log))?;
    let suite = env::current_exe().map_err(SuiteError::program("this program"))?;
    let mut command = Command::new("nice");
    command.args(["-n", if comes_first { "0" } else { NICE }]).arg(suite);
    command.arg(SUPERVISE).arg(&report).args(&job.command).current_dir(&job.directory);
    command.envs(job.environment.iter().cloned()).stdin(Stdio::null()).stdout(output).stderr(errors);
    let begun = Instant::now();
    let status = command.status().map_err(SuiteError::program(&job.name))?;
    let wall = begun.elapsed();
    let output = String::from_utf8_lossy(&read(&log)?).into_owned();
    let reported = Report::parse(&String::from_utf8_lossy(&read(&report).unwrap_or_default()));
    for file in [log, report] {
        // A file that cannot be removed is overwritten the next time.
        let _ = fs::remove_file(file);
    }
    let Report { cpu, left } = reported.unwrap_or(Report { cpu: Duration::ZERO, left: Vec::new() });
    let tests = passed(&output);
    let result = judge(status, &left, job.is_test && tests == 0, output);
    Ok(JobEnd { job, result, tests, wall, cpu })
}

fn read(path: &Path) -> Result<Vec<u8>, SuiteError> {
    let mut content = Vec::new();
    let opened = File::open(path).and_then(|mut file| file.read_to_end(&mut content));
    opened.map(|_| content).map_err(SuiteError::file("read", path))
}

/// Decides whether a job passed. `is_absent` means that the job is one test but reported none.
fn judge(status: ExitStatus, left: &[String], is_absent: bool, output: String) -> Result<(), JobFailure> {
    let reason = match (status.success(), left) {
        (true, []) if is_absent => "no test of this name ran".into(),
        (true, []) => return Ok(()),
        (true, left) => format!("it left processes behind, which were killed: {}", left.join("; ")),
        (false, []) => status.to_string(),
        (false, left) => format!("{status}; killed: {}", left.join("; ")),
    };
    Err(JobFailure { reason, output })
}

/// Returns the number of passed tests, from lines such as `test result: ok. 17 passed; 0 failed`.
fn passed(output: &str) -> usize {
    let results = output.lines().filter_map(|line| line.strip_prefix("test result: "));
    let count =
        |line: &str| line.split(['.', ';']).find_map(|part| part.trim().strip_suffix(" passed")?.parse::<usize>().ok());
    results.filter_map(count).sum()
}

fn print(end: &JobEnd, number: usize, all: usize) {
    let (wall, cpu) = (end.wall.as_secs_f64(), end.cpu.as_secs_f64());
    let word = if end.passed() { "ok" } else { "FAILED" };
    println!("[{number:>4}/{all}] {word:<6} {wall:>6.1} s, CPU {cpu:>6.1} s  {}", end.job.name);
    if let Err(failure) = &end.result {
        println!("{}\n{}: {}\n", failure.output.trim_end(), end.job.name, failure.reason);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_begins_if_there_is_room_for_it() {
        let mut room = Room::new(2.0);
        let all = 2.0 + SLACK;
        assert!(room.has(all), "with nothing beside it");
        room.enter(1.0);
        assert!(room.has(1.2) && !room.has(1.5) && !room.has(all));
        room.enter(1.2);
        assert!(!room.has(0.25));
        room.leave(1.0);
        assert!(room.has(0.25));
    }

    #[test]
    fn one_job_starts_in_what_others_leave_idle() {
        let mut room = Room::new(2.0);
        let alone = 2.0 + SLACK;
        for _ in 0..2 {
            room.enter(1.1);
        }
        assert!(!room.has(1.0));
        room.idle = 0.9;
        assert!(room.has(1.0) && !room.has(alone));
        room.enter(1.0);
        assert!(!room.has(0.25), "it may need what was idle");
        for _ in 0..3 {
            room.enter(0.25);
        }
        room.idle = 0.9;
        assert!(!room.has(0.25), "six jobs run on two CPUs");
    }

    #[test]
    fn passed_tests_are_counted() {
        let output = "running 2 tests\ntest result: ok. 17 passed; 0 failed; 2 ignored\nnoise\n";
        assert_eq!(passed(output), 17);
        assert_eq!(passed("test result: FAILED. 3 passed; 1 failed"), 3);
        assert_eq!(passed("Finished"), 0);
    }

    #[test]
    fn a_job_that_leaves_processes_behind_has_failed() {
        use std::os::unix::process::ExitStatusExt;
        let ended = |code: i32, left: &[String]| judge(ExitStatus::from_raw(code << 8), left, false, "said".into());
        assert!(ended(0, &[]).is_ok());
        assert!(judge(ExitStatus::from_raw(0), &[], true, String::new()).is_err(), "a test that was renamed");
        let left = ended(0, &["7 sleep 60".into()]).expect_err("it left one");
        assert!(left.reason.contains("7 sleep 60"), "{}", left.reason);
        assert!(ended(101, &[]).expect_err("it failed").reason.contains("101"));
    }
}
