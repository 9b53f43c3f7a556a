//! Measurement request as plain data: created by a command line or a page, executed by a runner.

use std::{
    fs,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    process,
};

use miette::{Report, miette};
use serde::{Deserialize, Serialize};
use serde_with::{DisplayFromStr, serde_as};
use vtax_host::inspect;
use vtax_model::{endpoint::Pins, foreign::ForeignText, run::RunReadings, server::ServerSpec, study::Study};
use vtax_store::Store;
use vtax_sys::directory::create_private_file;

use crate::{
    stop::{Blamed, Coded, Stop},
    study::{Changes, DiskRequest, MeasureRequest, RunSource},
};

/// Work to do and its conditions.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// Subject of the measurement.
    pub work: Work,
    /// Directory, CPUs, kernel, label and command line of the run.
    pub conditions: Conditions,
}

/// Subject of the measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// A new run.
    New(NewRun),
    /// Resumes a run that was stopped or killed.
    GoOn {
        /// Its ID, the beginning of its ID, or `last`.
        run: String,
        /// Total number of rounds, if more than originally planned.
        rounds: Option<u32>,
    },
}

/// Subject of a new run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NewRun {
    /// A study, with changes.
    Study {
        /// The study as read from its file.
        study: Box<Study>,
        /// Changes to the study.
        changes: Box<Changes>,
    },
    /// Tests between two endpoints. They become a study once the path is known.
    Measure(Box<MeasureRequest>),
    /// Tests of existing disks.
    Disks(Box<DiskRequest>),
}

/// Conditions of a run's measurement.
#[serde_as]
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Conditions {
    /// Directory for the disk files of file tests and for Unix sockets.
    pub directory: PathBuf,
    /// CPUs of a new run. A resumed run keeps its own.
    #[serde_as(as = "DisplayFromStr")]
    pub pins: Pins,
    /// Kernel that guests boot, unless the study names one.
    pub kernel: Option<PathBuf>,
    /// True if a new run on an emulated server uses the server's cables.
    pub server_cables: bool,
    /// Label of a new run; may be empty.
    pub label: ForeignText,
    /// Words of the command line that requested the run, stored in the run's record.
    pub command: Vec<String>,
}

impl Conditions {
    /// Refuses CPU lists for network endpoints in a study of disks.
    pub(crate) fn check_pins(&self, study: &Study) -> miette::Result<()> {
        match study.network().is_some() || self.pins == Pins::default() {
            true => Ok(()),
            false => Err(miette!(
                code = "option-not-for-this",
                "--pin applies to network tests, and `{}` has disk tests; omit it",
                study.id
            )),
        }
    }

    /// Returns the command line that takes the same samples in the same order.
    pub(crate) fn repeating(&self, seed: u64) -> String {
        let has_seed = self.command.iter().any(|word| word == "--seed" || word.starts_with("--seed="));
        let seed =
            if has_seed || self.command.is_empty() { Vec::new() } else { vec!["--seed".to_owned(), seed.to_string()] };
        let words = self.command.iter().chain(&seed).map(|word| word.replace('\0', ""));
        let quoted =
            words.map(|word| shlex::try_quote(&word).map_or_else(|_| word.clone(), |quoted| quoted.into_owned()));
        quoted.collect::<Vec<_>>().join(" ")
    }
}

/// A run that has ended, successfully or not.
#[derive(Debug)]
pub struct RanJob {
    /// Measured data.
    pub run: RunReadings,
    /// Reason for an early end, unless the user stopped the run.
    pub error: Option<Report>,
    /// The user's requests that the run did not fulfil, as sentences.
    pub shortfalls: Vec<String>,
}

impl Job {
    /// Uses the cables of the emulated server that this machine is, if the user requests it and the study has wires.
    pub(crate) fn use_server_cables(&mut self) -> miette::Result<()> {
        let server = inspect::environment(&inspect::SystemRoot::live()).server;
        if let (Work::New(NewRun::Study { study, changes }), Some(server), true) =
            (&mut self.work, server, self.conditions.server_cables)
            && study.has_wires()
        {
            let spec: ServerSpec = server.spec.raw().parse()?;
            let cable = |[one, other]: [_; 2]| format!("{one},{other}").parse();
            changes.cable = spec.cables().map(cable).collect::<Result<_, _>>()?;
        }
        Ok(())
    }
}

/// File name suffix of a handed-over job. The name begins with the PID of the process that wrote it.
const HANDED: &str = ".job.json";

/// A job in a file, for another vtax: in the background, or in an emulated server, which sees this machine's files. The
/// first line is the job, the rest is the run to resume, if any. Dropping this removes the file.
#[derive(Debug)]
pub(crate) struct HandedJob {
    pub(crate) path: PathBuf,
}

impl HandedJob {
    pub(crate) fn write(folder: &Path, job: &Job, old: Option<(&RunReadings, &Store)>) -> miette::Result<HandedJob> {
        remove_abandoned(folder);
        let path = folder.join(format!("{}{HANDED}", process::id()));
        let writing = || format!("writing {}", path.display());
        let mut file = BufWriter::new(create_private_file(&path).coded("file", writing)?);
        let handed = HandedJob { path: std::path::absolute(&path).unwrap_or_else(|_| path.clone()) };
        let mut line = serde_json::to_vec(job).coded("file", writing)?;
        line.push(b'\n');
        file.write_all(&line).coded("file", writing)?;
        if let Some((run, store)) = old {
            store.write_run(&run.header.id, &mut file)?.coded("file", writing)?;
        }
        file.flush().coded("file", writing)?;
        Ok(handed)
    }

    /// Reads a job that another vtax has handed over.
    pub(crate) fn read(path: &Path) -> Result<(RunSource, Conditions), Stop> {
        let (mut job, old) = HandedJob::parts(path).or_input()?;
        job.use_server_cables().or_input()?;
        let Job { work, conditions } = job;
        let source = match (old, work) {
            (Some(run), _) => RunSource::Old(run),
            (None, Work::New(new)) => RunSource::begin(&new, &conditions)?,
            (None, Work::GoOn { run, .. }) => {
                let file = path.display();
                return Err(Stop::input(miette!(
                    code = "file",
                    "reading {file}: it lacks the run {run}, which is to be resumed"
                )));
            }
        };
        Ok((source, conditions))
    }

    fn parts(path: &Path) -> miette::Result<(Job, Option<Box<RunReadings>>)> {
        let reading = || format!("reading {}", path.display());
        // As everywhere, JSON is read from bytes: serde generates code for each kind of source, and a run has many
        // types.
        let text = fs::read(path).coded("file", reading)?;
        let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
        let (line, run) = text.split_at(end);
        let run = run.trim_ascii();
        let job: Job = serde_json::from_slice(line).coded("file", reading)?;
        let old = (!run.is_empty()).then(|| serde_json::from_slice(run)).transpose().coded("file", reading)?;
        Ok((job, old))
    }
}

/// Removes files left by killed vtax processes. A file that can't be removed does no harm.
fn remove_abandoned(folder: &Path) {
    for file in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = file.file_name();
        let process = name.to_str().and_then(|name| name.strip_suffix(HANDED)).and_then(|id| id.parse::<u32>().ok());
        if process.is_some_and(|id| !Path::new("/proc").join(id.to_string()).exists()) {
            let _ = fs::remove_file(file.path());
        }
    }
}

impl Drop for HandedJob {
    fn drop(&mut self) {
        // A file that can't be removed does no harm.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use vtax_model::{cell::Arm, options::Idle};
    use vtax_synthetic::{header, sample};

    use super::*;

    fn conditions() -> Conditions {
        Conditions {
            directory: "/var/tmp".into(),
            pins: "0,1:2".parse().expect("pins"),
            kernel: None,
            server_cables: false,
            label: "before tuning".into(),
            command: Vec::new(),
        }
    }

    fn job(work: Work) -> Job {
        Job { work, conditions: conditions() }
    }

    fn store(folder: &Path) -> Store {
        Store::open(folder).expect("it opens")
    }

    #[test]
    fn the_command_line_of_a_run_can_be_given_to_a_shell_again() {
        let repeating = |words: &[&str]| {
            let command = words.iter().map(|word| (*word).to_owned()).collect();
            Conditions { command, ..conditions() }.repeating(7)
        };
        assert_eq!(repeating(&["vtax", "run", "my study.toml"]), "vtax run 'my study.toml' --seed 7");
        assert_eq!(repeating(&["vtax", "run", "demo", "--seed=3"]), "vtax run demo '--seed=3'");
        assert_eq!(repeating(&[]), "");
    }

    #[test]
    fn pins_of_ends_are_refused_where_disks_are_measured() {
        let told = |id: &str, pins: &str| {
            let study = Box::new(Study::built_in(id).expect("built in"));
            let new = NewRun::Study { study, changes: Box::default() };
            let conditions = Conditions { pins: pins.parse().expect("pins"), ..conditions() };
            RunSource::begin(&new, &conditions).map(drop).map_err(|stop| stop.to_string())
        };
        assert!(told("vdisk", "0,1").expect_err("refused").starts_with("--pin applies to network tests, and `vdisk`"));
        assert!(told("vdisk", "auto").is_ok() && told("demo", "0,1").is_ok());
    }

    #[test]
    fn a_job_is_read_back_as_written() {
        let folder = tempfile::tempdir().expect("a directory");
        let congestion = Some("system".parse().expect("a word"));
        let changes = Changes { congestion, idle: Some(Idle::Poll), ..Changes::default() };
        for (id, _) in Study::BUILT_IN {
            let study = Box::new(Study::built_in(id).expect("built in"));
            let job = job(Work::New(NewRun::Study { study, changes: Box::new(changes.clone()) }));
            let handed = HandedJob::write(folder.path(), &job, None).expect("written");
            let (read, old) = HandedJob::parts(&handed.path).expect("just written");
            assert_eq!((format!("{read:?}"), old), (format!("{job:?}"), None));
        }
    }

    #[test]
    fn a_handed_job_is_removed_also_after_a_kill() {
        let folder = tempfile::tempdir().expect("a directory");
        // No process has this PID.
        let killed = folder.path().join("4194305.job.json");
        fs::write(&killed, "{}").expect("written");
        let job = job(Work::GoOn { run: "last".to_owned(), rounds: None });
        let handed = HandedJob::write(folder.path(), &job, None).expect("written");
        assert!(!killed.exists() && handed.path.exists());
        let path = handed.path.clone();
        drop(handed);
        assert!(!path.exists());
    }

    #[test]
    fn the_run_that_continues_is_with_the_job() {
        let folder = tempfile::tempdir().expect("a directory");
        let store = store(folder.path());
        let mut writer = store.create_run(&header("demo-1", "2026-01-01T00:00:00Z")).expect("begun");
        writer.samples(&[sample(0, Arm::A, 1)]).expect("kept");
        let job = job(Work::GoOn { run: "last".to_owned(), rounds: None });
        let run = store.load("last").expect("it is there");
        let handed = HandedJob::write(folder.path(), &job, Some((&run, &store))).expect("written");
        let (source, _) = HandedJob::read(&handed.path).expect("just written");
        let RunSource::Old(read) = source else { panic!("it goes on") };
        assert_eq!(format!("{read:?}"), format!("{run:?}"));
        let alone = HandedJob::write(folder.path(), &job, None).expect("written");
        let told = HandedJob::read(&alone.path).map(drop).expect_err("there is no run").to_string();
        assert!(told.contains("lacks the run last"), "{told}");
    }
}
