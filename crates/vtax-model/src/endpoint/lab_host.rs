//! A host of a lab.

use std::{fmt, str::FromStr};

use serde_with::{DeserializeFromStr, SerializeDisplay};

use crate::topology::Name;

/// A host of a lab, `LAB/HOST`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
pub struct LabHost {
    /// Name of the lab, before the slash.
    pub lab: Name,
    /// Name of the host in that lab, after the slash.
    pub host: Name,
}

/// Invalid name of a lab's host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("invalid lab host `{0}`; use LAB/HOST, e.g. rack/sut")]
#[diagnostic(code("bad-name"))]
pub struct BadLabHost(String);

impl FromStr for LabHost {
    type Err = BadLabHost;

    fn from_str(text: &str) -> Result<LabHost, BadLabHost> {
        let parts = || {
            let (lab, host) = text.split_once('/')?;
            Some(LabHost { lab: lab.parse().ok()?, host: host.parse().ok()? })
        };
        parts().ok_or_else(|| BadLabHost(text.to_owned()))
    }
}

impl fmt::Display for LabHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.lab, self.host)
    }
}
