//! Links that guests are attached to.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The name of a link, such as `vnet0`. Whoever creates one keeps it short enough for the kernel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LinkName(String);

impl LinkName {
    /// Wraps a name without checking its length or characters.
    pub fn new(name: impl Into<String>) -> LinkName {
        LinkName(name.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
