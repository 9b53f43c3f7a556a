//! Network namespaces in which changes are made.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use vtax_model::foreign::ForeignText;
use vtax_sys::{
    SysError,
    netns::{NetNs, NsId},
};

/// A network namespace in a journal: its path and its identity.
///
/// If a namespace is removed and another one is created at the same path, the kernel often reuses the number of the old
/// one. The cookie is therefore compared as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceRef {
    /// Path at which it is pinned, or `/proc/PID/ns/net`.
    path: PathBuf,
    id: NsId,
    /// Absent before Linux 5.14.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cookie: Option<u64>,
}

impl NamespaceRef {
    /// Returns a reference to the namespace that is currently at this path.
    pub fn at(path: &Path) -> Result<NamespaceRef, SysError> {
        let path = std::path::absolute(path).map_err(|error| SysError::plain("find", path.display(), error))?;
        let namespace = NetNs::open(&path)?;
        Ok(NamespaceRef { path, id: namespace.id(), cookie: namespace.cookie()? })
    }

    /// Opens the namespace. None if it no longer exists, or if another one is at its path.
    pub(crate) fn open(&self) -> Result<Option<NetNs>, SysError> {
        let namespace = match NetNs::open(&self.path) {
            Err(SysError::NotANamespace { .. }) => return Ok(None),
            Err(error) if error.is_missing() => return Ok(None),
            namespace => namespace?,
        };
        let same = namespace.id() == self.id && namespace.cookie()? == self.cookie;
        Ok(same.then_some(namespace))
    }
}

impl fmt::Display for NamespaceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ForeignText::from(self.path.display().to_string()).fmt(f)
    }
}

/// Displays ` of network namespace PATH`, or ` of this machine`.
pub(crate) struct WhereIn<'a>(pub(crate) Option<&'a NamespaceRef>);

impl fmt::Display for WhereIn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(namespace) => write!(f, " of network namespace {namespace}"),
            None => f.write_str(" of this machine"),
        }
    }
}
