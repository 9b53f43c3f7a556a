//! Why something can't be kept or read.

use std::{io, path::Path, path::PathBuf};

use vtax_model::{domain::DomainError, spelling::there_are};
use vtax_sys::{SysError, record::RecordError};

use super::ConfigName;

/// Why something can't be kept or read.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum DomainStoreError {
    #[error("can't {operation} {}: {error}", path.display())]
    #[diagnostic(code("file"))]
    File { operation: &'static str, path: PathBuf, error: io::Error },
    #[error("domains can't be kept in {}: {error}", path.display())]
    #[diagnostic(forward(error))]
    Folder { path: PathBuf, error: Box<SysError> },
    #[error("{} can't be read: {why}; move it away to begin anew, or put an older copy in its place", path.display())]
    #[diagnostic(code("domain-store-damaged"))]
    Damaged { path: PathBuf, why: String },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Record(#[from] RecordError),
    #[error("{} has format {format}, which a later vtax has written; use that one", path.display())]
    #[diagnostic(code("domain-store-damaged"))]
    Format { path: PathBuf, format: u32 },
    #[error("there is no saved configuration `{name}`; {}", saved(name, known))]
    #[diagnostic(code("no-such-object"))]
    NoSaved { name: ConfigName, known: Vec<String> },
    #[error("the saved configuration `{name}` exists already; choose another name, or remove it (rm-spconfig {name})")]
    #[diagnostic(code("object-exists"))]
    SavedExists { name: ConfigName },
}

/// Why a change wasn't made.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum EditError {
    #[error(transparent)]
    #[diagnostic(transparent)]
    Store(#[from] DomainStoreError),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Domain(#[from] DomainError),
}

impl DomainStoreError {
    pub(super) fn file(operation: &'static str, path: &Path) -> impl Fn(io::Error) -> DomainStoreError + use<> {
        let path = path.to_owned();
        move |error| DomainStoreError::File { operation, path: path.clone(), error }
    }
}

fn saved(name: &ConfigName, known: &[String]) -> String {
    match known {
        [] => "none is saved".to_owned(),
        _ => there_are(&name.to_string(), known),
    }
}
