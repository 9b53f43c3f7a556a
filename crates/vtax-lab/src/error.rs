//! Errors of a lab after planning.

use std::{fmt, io, path::PathBuf};

use ipnet::IpNet;
use vtax_guest::GuestError;
use vtax_journal::{ExecuteError, JournalError, JournalState, StepCause, UndoErrors};
use vtax_model::topology::Name;
use vtax_step::{Place, StepError};
use vtax_sys::{SysError, record::RecordError};

/// Reason why something could not be done with a lab.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum LabError {
    #[error(transparent)]
    #[diagnostic(transparent)]
    Step(#[from] StepError),
    #[error("lab `{lab}` has no running guest `{guest}`; list its guests: vtax lab list")]
    #[diagnostic(code("no-such-guest"))]
    NoGuest { lab: Name, guest: Name },
    #[error("`{name}` is {what}, not a lab; list labs: vtax lab list")]
    #[diagnostic(code("no-such-lab"))]
    NoLab { name: Name, what: &'static str },
    #[error("{}{}", .0, remedy_for(.0))]
    #[diagnostic(forward(0))]
    Journal(#[from] JournalError),
    #[error("lab `{lab}` could not be built: {error}")]
    #[diagnostic(forward(error))]
    Build { lab: Name, error: Box<ExecuteError<LabError>> },
    #[error("lab {0}")]
    #[diagnostic(transparent)]
    Remove(Box<UndoErrors<LabError>>),
    #[error("`{namespace}` is still used by {}; stop them first", .holders.join(", "))]
    #[diagnostic(code("namespace-in-use"))]
    Occupied { namespace: Name, holders: Vec<String> },
    #[error("the addresses {range} were just taken by lab `{by}`; run again to choose others")]
    #[diagnostic(code("range-in-use"))]
    RangeTaken { range: IpNet, by: Name },
    #[error("lab `{lab}`: the MTU of {place} is {found}, not {wanted}")]
    #[diagnostic(code("link-changed"))]
    Mtu { lab: Name, place: Place, wanted: u32, found: u32 },
    #[error("lab `{lab}`: link {place} {why}; take the lab down and up again")]
    #[diagnostic(code("link-changed"))]
    Link { lab: Name, place: Place, why: &'static str },
    #[error("lab `{lab}`: link {place} has no queue that counts losses; set a rate on its wire")]
    #[diagnostic(code("loss-not-counted"))]
    Uncounted { lab: Name, place: Place },
    #[error("lab `{lab}` was created by another version of vtax ({why}); use that one")]
    #[diagnostic(code("journal-version"))]
    Blueprint { lab: String, why: String },
    #[error("lab `{lab}` is {state}: {remedy}")]
    #[diagnostic(code("lab-abandoned"))]
    State { lab: Name, state: JournalState, remedy: &'static str },
    #[error(
        "{path} is among the namespaces of lab `{lab}` but lacks the lab's mark: another program created it; vtax \
         did not remove it: remove it manually"
    )]
    #[diagnostic(code("namespace-unknown"))]
    Unrecorded { lab: Name, path: PathBuf },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Record(#[from] RecordError),
    #[error("lab `{lab}` was not completely removed: {}", .errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    #[diagnostic(code("not-undone"))]
    Unswept { lab: Name, errors: Vec<LabError> },
    #[error("no wire leads from `{from}` to `{to}`")]
    #[diagnostic(code("no-wire-between"))]
    NoPath { from: Name, to: Name },
    #[error("{path} {why}; remove it, or set XDG_RUNTIME_DIR to your own directory")]
    #[diagnostic(code("unsafe-directory"))]
    RunDirectory { path: PathBuf, why: &'static str },
    #[error("labs need network namespaces: {0}")]
    #[diagnostic(forward(0))]
    Privilege(Box<SysError>),
    #[error("the process that keeps labs {why}; run the command again, or run it as root")]
    #[diagnostic(code("keeper-failed"))]
    Keeper { why: String },
}

impl LabError {
    /// Returns whether a guest's QEMU crashed while the lab was built: see [`GuestError::is_crash`].
    pub fn is_crash(&self) -> bool {
        match self {
            LabError::Step(StepError::Guest(error)) => error.is_crash(),
            LabError::Build { error, .. } => matches!(&error.cause, StepCause::Apply(error) if error.is_crash()),
            _ => false,
        }
    }

    /// Error of the kernel about an object.
    pub(crate) fn kernel(object: impl fmt::Display) -> impl Fn(SysError) -> LabError {
        move |error| StepError::kernel(&object)(error).into()
    }

    pub(crate) fn link(lab: &Name, place: &Place, why: &'static str) -> LabError {
        LabError::Link { lab: lab.clone(), place: place.clone(), why }
    }

    pub(crate) fn file(operation: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> LabError {
        let wrong = StepError::file(operation, path);
        move |error| wrong(error).into()
    }
}

/// Returns the remedy for a journal error, as the end of a message.
fn remedy_for(error: &JournalError) -> &'static str {
    match error.is_damage() {
        true => "; vtax lab clean removes the lab's objects and keeps the file",
        false => "",
    }
}

impl From<GuestError> for LabError {
    fn from(error: GuestError) -> LabError {
        StepError::from(error).into()
    }
}
