//! A job: a process that the suite starts and judges by its exit status.

use std::{ffi::OsString, path::PathBuf, time::Duration};

/// One test, one test program, or a command such as a linter.
#[derive(Debug, Clone)]
pub(crate) struct SuiteJob {
    /// Name of the job's part of the suite.
    pub(crate) part: String,
    /// Name in tables and in the list of costs, e.g. `vtax/kernel labs::a_lab_comes_and_goes`.
    pub(crate) name: String,
    pub(crate) command: Vec<OsString>,
    pub(crate) directory: PathBuf,
    pub(crate) environment: Vec<(String, OsString)>,
    /// CPUs that the job keeps busy, if known in advance.
    pub(crate) cpus: Option<f64>,
    /// True if no other job of the suite runs at the same time.
    pub(crate) alone: bool,
    /// True if the job is one test, which must report that it has passed.
    pub(crate) is_test: bool,
}

#[derive(Debug)]
pub(crate) struct JobEnd {
    pub(crate) job: SuiteJob,
    pub(crate) result: Result<(), JobFailure>,
    /// Number of tests that passed; 0 for a command.
    pub(crate) tests: usize,
    pub(crate) wall: Duration,
    /// CPU time of the job and all its descendants.
    pub(crate) cpu: Duration,
}

/// Reason why a job counts as failed, with its output.
#[derive(Debug)]
pub(crate) struct JobFailure {
    pub(crate) reason: String,
    pub(crate) output: String,
}

impl JobEnd {
    pub(crate) fn passed(&self) -> bool {
        self.result.is_ok()
    }
}
