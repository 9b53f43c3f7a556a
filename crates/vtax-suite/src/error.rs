//! Errors that prevent the suite from running.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

/// Reason why the suite cannot run, the location, and a remedy.
#[derive(Debug)]
pub(crate) enum SuiteError {
    File { what: &'static str, path: PathBuf, error: io::Error },
    Settings { path: PathBuf, error: toml::de::Error },
    Costs { path: PathBuf, line: usize },
    DiskSpace { path: PathBuf, free: u64, needed: u64 },
    UnknownPart { name: String, known: Vec<String> },
    Program { command: String, error: io::Error },
    Cargo { output: String },
    NotListed { program: String, output: String },
    Stale { path: PathBuf, test: String },
}

impl SuiteError {
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SuiteError {
        let path = path.to_owned();
        move |error| SuiteError::File { what, path, error }
    }

    pub(crate) fn program(command: &str) -> impl FnOnce(io::Error) -> SuiteError {
        let command = command.to_owned();
        move |error| SuiteError::Program { command, error }
    }
}

impl fmt::Display for SuiteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SuiteError::File { what, path, error } => write!(f, "cannot {what} {}: {error}", path.display()),
            SuiteError::Settings { path, error } => write!(f, "{}: {error}", path.display()),
            SuiteError::Costs { path, line } => {
                write!(f, "{}, line {line}: not a test, its wall and CPU seconds, separated by tabs", path.display())
            }
            SuiteError::DiskSpace { path, free, needed } => {
                let mib = |bytes: &u64| bytes >> 20;
                let (free, needed) = (mib(free), mib(needed));
                let path = path.display();
                write!(
                    f,
                    "{path} has {free} MiB free, and the build needs {needed}: remove files, e.g. with `cargo clean`"
                )
            }
            SuiteError::UnknownPart { name, known } => write!(f, "unknown part `{name}`: use {}", known.join(", ")),
            SuiteError::Program { command, error } => write!(f, "cannot run {command}: {error}"),
            SuiteError::Cargo { output } => write!(f, "cargo does not list the test programs:\n{output}"),
            SuiteError::NotListed { program, output } => write!(f, "{program} does not list its tests:\n{output}"),
            SuiteError::Stale { path, test } => {
                write!(f, "{}: there is no test `{test}`: remove or correct the line", path.display())
            }
        }
    }
}
