//! Exit statuses: one for each kind of ending, so that scripts can distinguish them.

use std::process::ExitCode;

pub(crate) use vtax_run::{Blamed, Coded, Stop};

use crate::explain;

/// An ending that is not an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    /// A study ran, but some of its cells failed.
    CellsFailed,
    /// A goal was not reached: a precision, a detectable difference, a run no worse than another.
    NotReached,
    /// The user stopped it; stored samples are kept.
    Interrupted,
    /// The exit status of the program that the user had vtax run.
    Child(u8),
}

impl Exit {
    pub(crate) fn code(self) -> ExitCode {
        ExitCode::from(match self {
            Exit::Done => 0,
            Exit::CellsFailed | Exit::NotReached => 1,
            // The status that a shell reports for a program killed by SIGINT.
            Exit::Interrupted => 130,
            Exit::Child(code) => code,
        })
    }
}

/// Reports an error, and returns the exit status that shows who can fix it.
pub(crate) fn tell(stop: &Stop, json: bool) -> ExitCode {
    let (code, status) = (stop.code(), stop.status());
    explain::tell(code.as_deref().unwrap_or(explain::DEFECT), &stop.to_string(), status, json);
    ExitCode::from(status)
}
