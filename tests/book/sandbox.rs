//! A directory for one command, with the files, results and labs that the pages mention.

mod prepared;

pub(crate) use prepared::remove as remove_prepared;

use std::{
    env, fmt, fs,
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::bench::Bench;

/// Exit status and output of a command.
pub(crate) struct Outcome(Output);

pub(crate) struct Sandbox {
    bench: Bench,
}

impl Sandbox {
    /// Creates the sandbox of a command: with the lab if the command works in one, and with a stopped run if the
    /// command resumes one.
    pub(crate) fn for_command(words: &[String]) -> Sandbox {
        let bench = Bench::new();
        prepared::files(bench.path());
        let resumes = words.iter().any(|word| word == "--resume");
        prepared::results(&bench, resumes);
        let in_lab = words.iter().any(|word| word.contains("zone:"))
            || words.windows(2).any(|two| two[0] == "--path" && two[1].contains('/'))
            || is_verb(words, "lab") && words.get(2).is_some_and(|word| word != "up");
        let sandbox = Sandbox { bench };
        if in_lab {
            sandbox.prepare(&["lab", "up", "rack.toml"]);
        }
        if is_verb(words, "ldm") && words.get(2).is_some_and(|word| word != "init-system") {
            sandbox.prepare(&["ldm", "init-system", "-i", "domains.json"]);
            sandbox.prepare(&["ldm", "add-spconfig", "initial"]);
            if !["create", "add-domain"].contains(&words[2].as_str()) {
                sandbox.prepare(&["ldm", "create", "pluto"]);
            }
            // Objects that the commands add must not exist yet.
            match words[2].as_str() {
                "add-vds" => sandbox.prepare(&["ldm", "remove-vds", "-f", "primary-vds0"]),
                "add-vdsdev" => sandbox.prepare(&["ldm", "remove-vdsdev", "data@primary-vds0"]),
                "remove-vcpu" => sandbox.prepare(&["ldm", "set-vcpu", "2", "pluto"]),
                _ => {}
            }
            if ["apply-reconf", "cancel-reconf", "cancel-operation"].contains(&words[2].as_str()) {
                sandbox.prepare(&["ldm", "start-reconf", "primary"]);
            }
        }
        sandbox
    }

    fn prepare(&self, arguments: &[&str]) {
        let outcome = self.command(arguments).output().expect("vtax runs");
        assert!(outcome.status.success(), "{}", Outcome(outcome));
    }

    pub(crate) fn run(&self, words: &[String]) -> Outcome {
        let arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let mut command = self.command(&arguments);
        Outcome(if is_verb(words, "ui") { until_it_speaks(&mut command) } else { command.output().expect("vtax runs") })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.bench.command(arguments);
        let path = env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.bench.path().join("bin").display()));
        command.env("VTAX_RUN", self.labs()).env("HOME", self.bench.path()).env("XDG_CACHE_HOME", cache());
        command
    }

    fn labs(&self) -> PathBuf {
        self.bench.path().join("run")
    }
}

/// Returns the cache directory, which contains the kernel for guests.
fn cache() -> PathBuf {
    let home = || Path::new(&env::var_os("HOME").unwrap_or_default()).join(".cache");
    env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from)
}

impl Drop for Sandbox {
    /// Removes its labs.
    fn drop(&mut self) {
        let labs = fs::read_dir(self.labs().join("labs")).into_iter().flatten().flatten();
        for lab in labs.map(|lab| lab.file_name()) {
            let down = self.command(&["lab", "down", &lab.to_string_lossy()]).output().expect("vtax runs");
            assert!(down.status.success() || thread::panicking(), "{}", Outcome(down));
        }
    }
}

fn is_verb(words: &[String], verb: &str) -> bool {
    words.get(1).is_some_and(|word| word == verb)
}

/// Runs a server until it has printed a line, then terminates it. SIGINT isn't used, because it is ignored if the tests
/// run in the background.
fn until_it_speaks(command: &mut Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("vtax runs");
    let mut line = String::new();
    let told = BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line);
    let pid = Pid::from_raw(child.id().try_into().expect("a process"));
    kill(pid, Signal::SIGTERM).expect("it is ours");
    let output = child.wait_with_output().expect("it ends");
    told.expect("it speaks");
    output
}

impl Outcome {
    /// Returns true if it exited as expected.
    pub(crate) fn is_well(&self, words: &[String]) -> bool {
        if is_verb(words, "ui") {
            return self.0.status.signal() == Some(Signal::SIGTERM as i32);
        }
        // On a busy machine, a reference case may be inconclusive, and a difference may be undetectable.
        let depends = is_verb(words, "calibrate") || words.iter().any(|word| word == "--show");
        let may = match is_verb(words, "advise") {
            // There are no measurements of this machine.
            true => &[0, 1, 69][..],
            false if depends => &[0, 1],
            false => &[0],
        };
        self.0.status.code().is_some_and(|code| may.contains(&code))
    }

    /// Returns true if the command was refused as incomplete.
    pub(crate) fn lacks_something(&self) -> bool {
        const LACKS: [&str; 5] = [
            "required arguments were not provided",
            "a value is required for",
            "requires a subcommand",
            "\nCommands:\n",
            "\nStart here  ",
        ];
        let told = String::from_utf8_lossy(&self.0.stderr);
        self.0.status.code() == Some(2) && LACKS.iter().any(|words| told.contains(words))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [out, err] = [&self.0.stdout, &self.0.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        write!(f, "{}\n{out}{err}", self.0.status)
    }
}
