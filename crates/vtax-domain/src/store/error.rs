//! Errors of saving and reading domains.

use std::{io, path::Path, path::PathBuf};

use vtax_model::{domain::DomainError, spelling::available};
use vtax_sys::{SysError, record::RecordError};

use super::ConfigName;

/// Reason why something can't be saved or read.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum DomainStoreError {
    #[error("cannot {operation} {}: {error}", path.display())]
    #[diagnostic(code("file"))]
    File { operation: &'static str, path: PathBuf, error: io::Error },
    #[error("cannot store domains in {}: {error}", path.display())]
    #[diagnostic(forward(error))]
    Folder { path: PathBuf, error: Box<SysError> },
    #[error("{} cannot be read: {why}; move it away to start anew, or restore an older copy", path.display())]
    #[diagnostic(code("domain-store-damaged"))]
    Damaged { path: PathBuf, why: String },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Record(#[from] RecordError),
    #[error("{} has format {format}, written by a later version of vtax; use that version", path.display())]
    #[diagnostic(code("domain-store-damaged"))]
    Format { path: PathBuf, format: u32 },
    #[error("there is no saved configuration `{name}`; {}", saved(name, known))]
    #[diagnostic(code("no-such-object"))]
    NoSaved { name: ConfigName, known: Vec<String> },
    #[error("the saved configuration `{name}` already exists; choose another name, or remove it (rm-spconfig {name})")]
    #[diagnostic(code("object-exists"))]
    SavedExists { name: ConfigName },
    #[error(
        "factory-default is the configuration of a host without domains, which cannot be replaced or removed; choose another name"
    )]
    #[diagnostic(code("object-exists"))]
    FactoryDefault,
}

/// Reason why a change was refused.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum EditError {
    #[error(transparent)]
    #[diagnostic(transparent)]
    Store(#[from] DomainStoreError),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Domain(#[from] DomainError),
}

impl DomainStoreError {
    pub(crate) fn file(operation: &'static str, path: &Path) -> impl Fn(io::Error) -> DomainStoreError + use<> {
        let path = path.to_owned();
        move |error| DomainStoreError::File { operation, path: path.clone(), error }
    }
}

fn saved(name: &ConfigName, known: &[String]) -> String {
    match known {
        [] => "no configuration is saved".to_owned(),
        _ => available(&name.to_string(), known),
    }
}
