//! A bench: vtax with a separate directory, results and labs.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{Arc, Condvar, Mutex, Once, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

pub(crate) struct Bench {
    folder: TempDir,
    labs: Arc<Labs>,
    alone: bool,
}

/// Directory of the tests' labs, separate from the user's. Each bench has its own directory in it.
const LABS: &str = "vtax-benches";

/// File that names the tests during which the suite runs nothing else.
const ALONE: &str = "tests/alone.txt";

/// Current users of benches. Tests whose figures must be right have the machine to themselves. Unlike a readers-writer
/// lock, this allows a test with a bench to take another one immediately.
static ROOM: Mutex<Room> = Mutex::new(Room { benches: 0, alone: false });
static LEFT: Condvar = Condvar::new();

struct Room {
    benches: usize,
    alone: bool,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench::enter(false, Arc::new(Labs::new()))
    }

    /// Waits until no other test of this program has a bench, and blocks further ones. Other programs of the suite are
    /// held back by its runner, which must know this test.
    pub(crate) fn alone() -> Bench {
        let test = thread::current();
        assert!(
            env::var_os("VTAX_TEST_RUNNER").is_none() || env::var_os("VTAX_TEST_ALONE").is_some(),
            "`{}` needs the machine to itself: name it in {ALONE}",
            test.name().unwrap_or_default()
        );
        Bench::enter(true, Arc::new(Labs::new()))
    }

    /// Returns another bench with the same labs.
    pub(crate) fn beside(other: &Bench) -> Bench {
        Bench::enter(false, Arc::clone(&other.labs))
    }

    fn enter(alone: bool, labs: Arc<Labs>) -> Bench {
        let mut room = ROOM.lock().unwrap_or_else(PoisonError::into_inner);
        while room.alone || alone && room.benches > 0 {
            room = LEFT.wait(room).unwrap_or_else(PoisonError::into_inner);
        }
        room.benches += 1;
        room.alone = alone;
        Bench { folder: labs.bench_folder(), labs, alone }
    }

    /// Writes a file into the bench's directory.
    pub(crate) fn with(self, file: &str, text: &str) -> Bench {
        fs::write(self.path().join(file), text).expect("a file of the test");
        self
    }

    /// Returns the directory of the bench's labs.
    pub(crate) fn labs(&self) -> &Path {
        self.labs.directory.path()
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vtax"));
        command.current_dir(&self.folder).env("VTAX_STATE", self.state()).env("COLUMNS", "100");
        command.env("VTAX_RUN", self.labs());
        // `VTAX_AGENT` names the agent to test, if it is not the one next to vtax.
        command.args(arguments).stdin(Stdio::null());
        command
    }

    pub(crate) fn vtax(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("vtax runs")
    }

    /// Returns the number of stored samples of the last run.
    pub(crate) fn landed(&self) -> u64 {
        let output = self.vtax(&["results", "list", "--json"]);
        let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        list[0]["samples"].as_u64().unwrap_or(0)
    }

    /// Returns vtax's message about invalid input; it must exit 2 and print nothing else.
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let output = self.vtax(arguments);
        let told = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(output.stdout.is_empty(), "{arguments:?} printed data");
        told.replace(self.path().to_str().expect("text"), "[bench]")
    }

    /// Returns vtax's output; it must succeed.
    pub(crate) fn printed(&self, arguments: &[&str]) -> String {
        printed(&self.vtax(arguments))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let mut room = ROOM.lock().unwrap_or_else(PoisonError::into_inner);
        room.benches -= 1;
        room.alone &= !self.alone;
        LEFT.notify_all();
    }
}

/// Returns a command that runs vtax through a wrapper, e.g. nsenter(1), with its arguments, environment and directory.
pub(crate) fn wrapped(wrapper: &[&str], vtax: &Command) -> Command {
    let mut command = Command::new(wrapper[0]);
    command.args(&wrapper[1..]).arg(vtax.get_program()).args(vtax.get_args()).stdin(Stdio::null());
    command.envs(vtax.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(folder) = vtax.get_current_dir() {
        command.current_dir(folder);
    }
    command
}

/// Returns the standard output of a vtax that must have succeeded.
pub(crate) fn printed(output: &Output) -> String {
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// A directory of labs. A lock on it distinguishes a running test from leftovers of a killed one.
struct Labs {
    directory: TempDir,
    _lives: File,
}

impl Labs {
    fn new() -> Labs {
        static FIRST: Once = Once::new();
        FIRST.call_once(|| left_by_killed_tests().into_iter().for_each(Left::remove));
        let _admission = admission();
        let directory = tempfile::Builder::new().prefix("").tempdir_in(all_labs()).expect("a directory");
        let lives = File::open(directory.path()).expect("just made");
        lives.try_lock().expect("nobody else knows it");
        Labs { directory, _lives: lives }
    }

    /// Creates a directory for a bench, whose name identifies the labs.
    fn bench_folder(&self) -> TempDir {
        tempfile::Builder::new().prefix(&bench_prefix(self.directory.path())).tempdir().expect("a directory")
    }
}

/// Returns the prefix of the names of the benches with these labs.
fn bench_prefix(labs: &Path) -> String {
    format!("{LABS}-{}-", labs.file_name().expect("a name").to_string_lossy())
}

/// Returns the directory of all tests' labs: in `/run`, or where an unprivileged user may have one.
fn all_labs() -> PathBuf {
    let run = Path::new("/run").join(LABS);
    if fs::create_dir_all(&run).is_ok() {
        return run;
    }
    let own = env::temp_dir().join(LABS);
    fs::create_dir_all(&own).expect("a directory");
    own
}

/// Prevents other processes from creating a directory of labs, and from searching for leftovers.
fn admission() -> File {
    let all = File::open(all_labs()).expect("a directory");
    all.lock().expect("a lock");
    all
}

/// Labs left by a killed test, locked so that only one later test removes them.
struct Left {
    labs: PathBuf,
    _removes: File,
}

fn left_by_killed_tests() -> Vec<Left> {
    let _admission = admission();
    let entries = fs::read_dir(all_labs()).expect("a directory").flatten();
    let left = |labs: PathBuf| {
        let removes = File::open(&labs).ok()?;
        removes.try_lock().ok()?;
        Some(Left { labs, _removes: removes })
    };
    entries.filter_map(|entry| left(entry.path())).collect()
}

impl Left {
    /// Kills the processes of these labs, then removes the labs and their benches. Failures are reported, but fail no
    /// test, because each bench has its own labs.
    fn remove(self) {
        eprintln!("removing what a killed test has left in {}", self.labs.display());
        let mark = format!("VTAX_RUN={}\0", self.labs.display());
        for pid in processes_marked(mark.as_bytes()) {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).stderr(Stdio::null()).status();
        }
        self.vtax(&["lab", "clean"]);
        let list = self.vtax(&["lab", "list", "--json"]);
        let list: serde_json::Value = serde_json::from_slice(&list.stdout).unwrap_or_default();
        for lab in list.as_array().into_iter().flatten().filter_map(|lab| lab["name"].as_str()) {
            self.vtax(&["lab", "down", lab]);
        }
        let prefix = bench_prefix(&self.labs);
        let benches = fs::read_dir(env::temp_dir()).into_iter().flatten().flatten();
        for bench in benches.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)) {
            let _ = fs::remove_dir_all(bench.path());
        }
        if let Err(error) = fs::remove_dir_all(&self.labs) {
            eprintln!("{} can't be removed: {error}", self.labs.display());
        }
    }

    fn vtax(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vtax"));
        command.args(arguments).env("VTAX_RUN", &self.labs).stdin(Stdio::null());
        command.output().expect("vtax runs")
    }
}

/// Returns the processes with these bytes in their environment.
pub(crate) fn processes_marked(mark: &[u8]) -> Vec<u32> {
    let is_marked = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.windows(mark.len()).any(|window| window == mark)
    };
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_marked).collect()
}

/// Time limit of a wait. It ends a hang and is not a limit on speed: a busy machine may take as long as it needs.
pub(crate) const HANGS: Duration = Duration::from_secs(300);

/// Waits until a condition holds. Fails after the time limit.
pub(crate) fn wait_until(what: &str, is_so: impl FnMut() -> bool) {
    wait(HANGS, is_so, || what.to_owned());
}

/// Waits until a system has booted. After the time limit, fails with the text of `console`. Without KVM a boot takes
/// seconds, in an emulated server half a minute, and on a busy machine several times as long.
pub(crate) fn wait_for_boot(system: &str, is_up: impl FnMut() -> bool, console: impl Fn() -> String) {
    wait(2 * HANGS, is_up, || format!("{system} has booted. It says:\n{}", console()));
}

/// Polls for at most a quarter of the time: in an emulated server, polling takes CPU time from the process that is
/// waited for.
fn wait(most: Duration, mut is_so: impl FnMut() -> bool, what: impl Fn() -> String) {
    let begun = Instant::now();
    loop {
        let looked = Instant::now();
        if is_so() {
            return;
        }
        assert!(begun.elapsed() < most, "timed out after {most:?}: {}", what());
        thread::sleep(3 * looked.elapsed().max(Duration::from_millis(10)));
    }
}
