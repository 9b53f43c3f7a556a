//! Errors of planning, making and undoing changes.

use vtax_sys::SysError;

/// An error while planning, making or undoing a change.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum ChangeError {
    #[error(
        "{what} was {was} when the change was planned, and is {found} now: another program has changed it; plan again"
    )]
    #[diagnostic(code("changed-meanwhile"))]
    Meanwhile { what: String, was: String, found: String },
    #[error("cannot find {what}")]
    #[diagnostic(code("no-such-setting"))]
    Missing { what: String },
    #[error("{what} did not accept {wrote}: it reads back as {found}")]
    #[diagnostic(code("setting-not-taken"))]
    NotTaken { what: String, wrote: String, found: String },
    #[error("cannot move interrupt {irq}: the kernel manages its affinity; leave it unchanged")]
    #[diagnostic(code("managed-interrupt"))]
    ManagedIrq { irq: u32 },
    #[error("{path:?} is not a file below /sys: {why}")]
    #[diagnostic(code("bad-value"))]
    Path { path: String, why: &'static str },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Kernel(Box<SysError>),
}

impl From<SysError> for ChangeError {
    fn from(error: SysError) -> ChangeError {
        ChangeError::Kernel(Box::new(error))
    }
}
