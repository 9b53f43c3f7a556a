//! Errors of steps on links, guests and devices.

use std::{fmt, io, path::PathBuf};

use vtax_change::pci::PciChangeError;
use vtax_guest::GuestError;
use vtax_model::{foreign::ForeignText, topology::Name};
use vtax_sys::{SysError, pci::PciAddress, record::RecordError};

use crate::place::Place;

/// Reason why a link, guest or device could not be created or undone.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum StepError {
    #[error("{object}: {error}")]
    #[diagnostic(forward(error))]
    Kernel { object: String, error: Box<SysError> },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Guest(Box<GuestError>),
    #[error("cannot {operation} {path}: {error}")]
    #[diagnostic(code("file"))]
    File { operation: &'static str, path: PathBuf, error: io::Error },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Device(#[from] PciChangeError),
    #[error("{device} belongs to domain {owner}; remove it there first (vtax ldm rm-io)")]
    #[diagnostic(code("device-taken"))]
    Claimed { device: PciAddress, owner: Name },
    #[error("{path}: {why}; restore the device by hand as the file says, remove the file, then clean again")]
    #[diagnostic(code("damaged-journal"))]
    DeviceMark { path: PathBuf, why: String },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Record(#[from] RecordError),
    #[error("`{name}` was not built: interrupted by the user")]
    #[diagnostic(code("stopped"))]
    Stopped { name: Name },
    #[error("link {place} does not have the rate that was set; take the lab down and up again")]
    #[diagnostic(code("link-changed"))]
    Rate { place: Place },
    #[error(
        "{namespace}: nft refused the rules that translate addresses: {says}; use a method without them, e.g. bridge"
    )]
    #[diagnostic(code("no-translation"))]
    Rules { namespace: String, says: ForeignText },
    #[error("{program} of zone `{zone}` {why}: {says}; try another version of it, or another method")]
    #[diagnostic(code("relay-failed"))]
    Relay { program: String, zone: Name, why: String, says: ForeignText },
    #[error("the namespace of `{namespace}` no longer exists or was replaced; take the lab down and up again")]
    #[diagnostic(code("namespace-replaced"))]
    Replaced { namespace: Name },
}

impl StepError {
    /// Returns a function that converts an error of the kernel about an object.
    pub fn kernel(object: impl fmt::Display) -> impl Fn(SysError) -> StepError {
        move |error| StepError::Kernel { object: object.to_string(), error: Box::new(error) }
    }

    /// Returns a function that converts an error of a file operation, which is named by a verb.
    pub fn file(operation: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> StepError {
        let path = path.into();
        move |error| StepError::File { operation, path, error }
    }
}

impl From<GuestError> for StepError {
    fn from(error: GuestError) -> StepError {
        StepError::Guest(Box::new(error))
    }
}
