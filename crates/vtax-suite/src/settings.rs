//! `tests/suite.toml`: the parts of the suite.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{error::SuiteError, job::SuiteJob};

const FILE: &str = "tests/suite.toml";

/// The parts to run, in the order of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SuiteSettings {
    #[serde(rename = "part")]
    pub(crate) parts: Vec<SuitePart>,
    /// All parts of the file: a test belongs to the first part that names it, whether or not that part runs.
    #[serde(skip)]
    all: Vec<SuitePart>,
}

/// A part of the suite, e.g. the kernel tests.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SuitePart {
    pub(crate) name: String,
    /// Maximum CPU time that all its jobs together may take, in seconds.
    pub(crate) cpu_seconds: u64,
    /// True if the part runs when no parts are named.
    #[serde(default = "SuitePart::is_default")]
    default: bool,
    /// True if its commands run before all tests, because they build what is tested.
    #[serde(default)]
    first: bool,
    /// Commands, each with its words separated by spaces.
    #[serde(default)]
    commands: Vec<String>,
    /// CPUs that each command keeps busy.
    #[serde(default = "SuitePart::one_cpu")]
    cpus: f64,
    /// Programs that run as one process, as `PACKAGE/PROGRAM`; `*` stands for all programs that no other part names.
    #[serde(default)]
    programs: Vec<String>,
    /// Threads of each of these programs.
    #[serde(default = "SuitePart::one_thread")]
    pub(crate) threads: u32,
    /// Tests that run as a separate process each, as `PACKAGE/PROGRAM` or `PACKAGE/PROGRAM PREFIX`.
    #[serde(default)]
    tests: Vec<String>,
}

impl SuiteSettings {
    /// Reads the file, and keeps the named parts and those that they need; without names, the default parts.
    pub(crate) fn read(names: &[String]) -> Result<SuiteSettings, SuiteError> {
        let path = root().join(FILE);
        let text = fs::read_to_string(&path).map_err(SuiteError::file("read", &path))?;
        let settings: SuiteSettings = toml::from_str(&text).map_err(|error| SuiteError::Settings { path, error })?;
        settings.chosen(names)
    }

    fn chosen(self, names: &[String]) -> Result<SuiteSettings, SuiteError> {
        let all = self.parts;
        if let Some(name) = names.iter().find(|name| all.iter().all(|part| part.name != **name)) {
            let known = all.iter().map(|part| part.name.clone()).collect();
            return Err(SuiteError::UnknownPart { name: name.clone(), known });
        }
        let is_named = |part: &SuitePart| if names.is_empty() { part.default } else { names.contains(&part.name) };
        let tests = all.iter().any(|part| is_named(part) && part.has_tests());
        // Tests need the parts that build.
        let runs = |part: &&SuitePart| is_named(part) || tests && part.first && part.default;
        Ok(SuiteSettings { parts: all.iter().filter(runs).cloned().collect(), all })
    }

    /// Returns the commands that run before all tests.
    pub(crate) fn preparations(&self) -> Vec<SuiteJob> {
        self.parts.iter().filter(|part| part.first).flat_map(SuitePart::command_jobs).collect()
    }

    /// Returns the other commands.
    pub(crate) fn commands(&self) -> Vec<SuiteJob> {
        self.parts.iter().filter(|part| !part.first).flat_map(SuitePart::command_jobs).collect()
    }

    /// Returns the part of a program that runs as one process, e.g. `vtax/book`, if that part runs.
    pub(crate) fn part_of_program(&self, program: &str) -> Option<&SuitePart> {
        self.first(|part| part.programs.iter().any(|named| named == "*" || named == program))
    }

    /// Returns the part of a test that runs as a separate process, if that part runs.
    pub(crate) fn part_of_test(&self, program: &str, test: &str) -> Option<&SuitePart> {
        self.first(|part| part.tests.iter().any(|pattern| names(pattern, program, test)))
    }

    /// Returns the first part of the file that fulfils the condition, if that part runs.
    fn first(&self, is_so: impl Fn(&SuitePart) -> bool) -> Option<&SuitePart> {
        let part = self.all.iter().find(|part| is_so(part))?;
        self.parts.iter().find(|chosen| chosen.name == part.name)
    }

    /// Returns true if each test of this program runs as a separate process.
    pub(crate) fn splits(&self, program: &str) -> bool {
        let of_program = |pattern: &String| pattern.split(' ').next() == Some(program);
        self.all.iter().any(|part| part.tests.iter().any(of_program))
    }

    pub(crate) fn have_tests(&self) -> bool {
        self.parts.iter().any(SuitePart::has_tests)
    }
}

impl SuitePart {
    fn is_default() -> bool {
        true
    }

    fn one_cpu() -> f64 {
        1.0
    }

    fn one_thread() -> u32 {
        1
    }

    fn command_jobs(&self) -> Vec<SuiteJob> {
        let job = |line: &String| SuiteJob {
            part: self.name.clone(),
            name: line.clone(),
            command: line.split_whitespace().map(Into::into).collect(),
            directory: root(),
            environment: Vec::new(),
            cpus: Some(self.cpus),
            alone: false,
            is_test: false,
        };
        self.commands.iter().map(job).collect()
    }

    fn has_tests(&self) -> bool {
        !self.tests.is_empty() || !self.programs.is_empty()
    }
}

fn names(pattern: &str, program: &str, test: &str) -> bool {
    match pattern.split_once(' ') {
        Some((of, prefix)) => of == program && test.starts_with(prefix),
        None => pattern == program,
    }
}

/// Returns the project's directory.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the directory of the suite's files.
pub(crate) fn state() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join("suite")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(names: &[&str]) -> Result<SuiteSettings, SuiteError> {
        let text = r#"
            [[part]]
            name = "lint"
            cpu_seconds = 1
            default = false
            first = true
            commands = ["cargo clippy"]
            [[part]]
            name = "build"
            cpu_seconds = 1
            first = true
            commands = ["cargo test --no-run"]
            [[part]]
            name = "guests"
            cpu_seconds = 1
            tests = ["vtax/kernel guests::", "vtax-guest/guest"]
            [[part]]
            name = "kernel"
            cpu_seconds = 1
            tests = ["vtax/kernel"]
            [[part]]
            name = "unit"
            cpu_seconds = 1
            programs = ["*"]
        "#;
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        toml::from_str::<SuiteSettings>(text).expect("good settings").chosen(&names)
    }

    fn names(settings: &SuiteSettings) -> Vec<&str> {
        settings.parts.iter().map(|part| part.name.as_str()).collect()
    }

    #[test]
    fn tests_need_what_is_built_and_linters_do_not() {
        assert_eq!(names(&settings(&[]).expect("parts")), ["build", "guests", "kernel", "unit"]);
        assert_eq!(names(&settings(&["lint"]).expect("parts")), ["lint"]);
        assert_eq!(names(&settings(&["kernel"]).expect("parts")), ["build", "kernel"]);
        let error = settings(&["kernle"]).expect_err("no such part").to_string();
        assert_eq!(error, "unknown part `kernle`: use lint, build, guests, kernel, unit");
    }

    #[test]
    fn a_test_belongs_to_the_first_part_that_names_it() {
        let all = settings(&[]).expect("parts");
        let part = |program, test| all.part_of_test(program, test).map(|part| part.name.as_str());
        assert_eq!(part("vtax/kernel", "guests::boot"), Some("guests"));
        assert_eq!(part("vtax/kernel", "labs::up"), Some("kernel"));
        assert_eq!(part("vtax-guest/guest", "boots"), Some("guests"));
        assert!(all.part_of_program("vtax-model/lib").is_some_and(|part| part.name == "unit"));
        let kernel = settings(&["kernel"]).expect("parts");
        assert!(kernel.part_of_test("vtax/kernel", "guests::boot").is_none(), "that part does not run");
        assert!(kernel.splits("vtax-guest/guest") && !kernel.splits("vtax-model/lib"));
    }

    #[test]
    fn the_file_of_the_project_is_good() {
        let settings = SuiteSettings::read(&[]).expect("good settings");
        assert!(settings.part_of_program("vtax-model/lib").is_some_and(|part| part.name == "unit"));
    }
}
