//! How the program ends: one code for each kind of ending, so that scripts can tell them apart.

use std::process::ExitCode;

pub(crate) use vtax_run::{Blamed, Coded, Stop};

use crate::explain;

/// An ending that is no error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    /// A study ran, but some of its cells failed.
    CellsFailed,
    /// What was to be reached was not: a precision, a difference that a study can show, a run no worse than another.
    NotReached,
    /// The user stopped it; what was measured is kept.
    Interrupted,
    /// The status of the program that vtax was asked to run.
    Child(u8),
}

impl Exit {
    pub(crate) fn code(self) -> ExitCode {
        ExitCode::from(match self {
            Exit::Done => 0,
            Exit::CellsFailed | Exit::NotReached => 1,
            // As a shell reports a program that SIGINT ended.
            Exit::Interrupted => 130,
            Exit::Child(code) => code,
        })
    }
}

/// Says what is wrong, and returns the status that says who can mend it.
pub(crate) fn tell(stop: &Stop, json: bool) -> ExitCode {
    let (code, status) = (stop.code(), stop.status());
    explain::tell(code.as_deref().unwrap_or(explain::DEFECT), &stop.to_string(), status, json);
    ExitCode::from(status)
}
