//! A job: a process that the suite starts and judges by its exit status.

use std::{ffi::OsString, path::PathBuf, time::Duration};

/// One test, one program of tests, or a command such as a linter.
#[derive(Debug, Clone)]
pub(crate) struct SuiteJob {
    /// The part that it belongs to.
    pub(crate) part: String,
    /// Its name in tables and among the costs, e.g. `vtax/kernel labs::a_lab_comes_and_goes`.
    pub(crate) name: String,
    pub(crate) command: Vec<OsString>,
    pub(crate) directory: PathBuf,
    pub(crate) environment: Vec<(String, OsString)>,
    /// CPUs that it keeps busy, if that is known in advance.
    pub(crate) cpus: Option<f64>,
    /// True if nothing else of the suite runs next to it.
    pub(crate) alone: bool,
    /// True if it is one test, which must report that it has passed.
    pub(crate) is_test: bool,
}

#[derive(Debug)]
pub(crate) struct JobEnd {
    pub(crate) job: SuiteJob,
    pub(crate) result: Result<(), JobFailure>,
    /// Tests that ran; none of a command.
    pub(crate) tests: usize,
    pub(crate) wall: Duration,
    /// CPU time of the job and all its descendants.
    pub(crate) cpu: Duration,
}

/// Why a job counts as failed, with what it printed.
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
