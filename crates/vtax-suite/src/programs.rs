//! The test programs of the workspace, and the jobs that run them.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use cargo_metadata::{Artifact, Message, TargetKind};

use super::{
    error::SuiteError,
    job::SuiteJob,
    run_directory::RunDirectory,
    settings::{SuitePart, SuiteSettings, root},
};

/// File that lists the tests that have the machine to themselves, one line each: `PROGRAM TEST`.
const ALONE: &str = "tests/alone.txt";
/// Environment variable of all tests: the suite decides which of them run at the same time.
const RUNNER: &str = "VTAX_TEST_RUNNER";
/// Environment variable of a test that has the machine to itself.
const IS_ALONE: &str = "VTAX_TEST_ALONE";

/// Returns the jobs of all parts that run, except those that build.
pub(crate) fn jobs(settings: &SuiteSettings, directory: Option<&RunDirectory>) -> Result<Vec<SuiteJob>, SuiteError> {
    let mut jobs = settings.commands();
    if settings.have_tests() {
        let mut alone = Alone::read()?;
        for program in built()? {
            jobs.extend(program.jobs(settings, &mut alone)?);
        }
        alone.assert_all_seen()?;
    }
    for job in &mut jobs {
        job.environment.extend(directory.map(RunDirectory::variable));
    }
    Ok(jobs)
}

/// A test program that has been built.
struct TestProgram {
    /// e.g. `vtax/kernel`.
    name: String,
    executable: PathBuf,
    /// Directory of the package, where its tests run.
    directory: PathBuf,
}

/// Returns all test programs. They are already built, so cargo only lists them.
fn built() -> Result<Vec<TestProgram>, SuiteError> {
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--locked", "--workspace", "--no-run", "--message-format=json"]).current_dir(root());
    let output = cargo.stdin(Stdio::null()).output().map_err(SuiteError::program("cargo"))?;
    if !output.status.success() {
        return Err(SuiteError::Cargo { output: String::from_utf8_lossy(&output.stderr).into_owned() });
    }
    let messages = Message::parse_stream(output.stdout.as_slice()).flatten();
    Ok(messages
        .filter_map(|message| if let Message::CompilerArtifact(it) = message { program(it) } else { None })
        .collect())
}

fn program(artifact: Artifact) -> Option<TestProgram> {
    let executable = artifact.executable.filter(|_| artifact.profile.test)?;
    let directory = artifact.manifest_path.parent()?.to_owned();
    let target = match artifact.target.kind.first() {
        Some(TargetKind::Lib) => "lib",
        Some(TargetKind::Bin) => "bin",
        _ => &artifact.target.name,
    };
    let name = format!("{}/{target}", directory.file_name()?);
    Some(TestProgram { name, executable: executable.into(), directory: directory.into() })
}

impl TestProgram {
    fn jobs(&self, settings: &SuiteSettings, alone: &mut Alone) -> Result<Vec<SuiteJob>, SuiteError> {
        if !settings.splits(&self.name) {
            let part = settings.part_of_program(&self.name);
            return Ok(part.map(|part| self.job(part, None, false)).into_iter().collect());
        }
        let all = self.listed(&[])?;
        let ignored = self.listed(&["--ignored"])?;
        let mut jobs = Vec::new();
        for test in all.iter().filter(|test| !ignored.contains(test)) {
            let is_alone = alone.see(&self.name, test);
            jobs.extend(settings.part_of_test(&self.name, test).map(|part| self.job(part, Some(test), is_alone)));
        }
        Ok(jobs)
    }

    fn listed(&self, options: &[&str]) -> Result<Vec<String>, SuiteError> {
        let mut command = Command::new(&self.executable);
        command.args(["--list", "--format", "terse"]).args(options).current_dir(&self.directory).stdin(Stdio::null());
        let output = command.output().map_err(SuiteError::program(&self.name))?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            return Err(SuiteError::NotListed { program: self.name.clone(), output: text.into_owned() });
        }
        Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    }

    /// Returns the job of one test, or of all tests, on as many threads as the part has.
    fn job(&self, part: &SuitePart, test: Option<&str>, alone: bool) -> SuiteJob {
        let mut command: Vec<OsString> = vec![self.executable.clone().into()];
        command.extend(match test {
            Some(test) => vec!["--exact".into(), test.into()],
            None => vec![format!("--test-threads={}", part.threads).into()],
        });
        let mut environment: Vec<(String, OsString)> =
            vec![(RUNNER.into(), "1".into()), ("CARGO_MANIFEST_DIR".into(), self.directory.clone().into())];
        if alone {
            environment.push((IS_ALONE.into(), "1".into()));
        }
        SuiteJob {
            part: part.name.clone(),
            name: test.map_or_else(|| self.name.clone(), |test| format!("{} {test}", self.name)),
            command,
            directory: self.directory.clone(),
            environment,
            cpus: None,
            alone,
            is_test: test.is_some(),
        }
    }
}

/// Contents of the file that lists the tests that have the machine to themselves.
struct Alone {
    path: PathBuf,
    tests: BTreeSet<String>,
    seen: BTreeSet<String>,
}

impl Alone {
    fn read() -> Result<Alone, SuiteError> {
        let path = root().join(ALONE);
        let text = fs::read_to_string(&path).map_err(SuiteError::file("read", &path))?;
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        Ok(Alone { tests: lines.map(str::to_owned).collect(), path, seen: BTreeSet::new() })
    }

    /// Returns true if the test has the machine to itself.
    fn see(&mut self, program: &str, test: &str) -> bool {
        let name = format!("{program} {test}");
        let is_alone = self.tests.contains(&name);
        if is_alone {
            self.seen.insert(name);
        }
        is_alone
    }

    /// Fails if a listed test does not exist: after renaming, it would run next to others.
    fn assert_all_seen(self) -> Result<(), SuiteError> {
        match self.tests.difference(&self.seen).next() {
            Some(test) => Err(SuiteError::Stale { path: self.path, test: test.clone() }),
            None => Ok(()),
        }
    }
}
