//! Names of hosts, racks, uplinks, rails and groups.

use std::{fmt, str::FromStr};

use serde_with::{DeserializeFromStr, SerializeDisplay};

/// Name of a host or of a part of a fleet. It is printable and safe to pass to ssh.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
pub struct FleetName(String);

/// A text that names neither a host nor a part of a fleet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("invalid name `{}`: use 1 to 253 letters, digits and ._-, a letter or digit first", .0.escape_debug())]
#[diagnostic(code("bad-name"))]
pub struct BadFleetName(String);

impl FleetName {
    /// Length of the longest host name (RFC 1035).
    const LONGEST: usize = 253;

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for FleetName {
    type Err = BadFleetName;

    fn from_str(text: &str) -> Result<FleetName, BadFleetName> {
        let starts = text.starts_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '_');
        let fits = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        match starts && fits && text.len() <= FleetName::LONGEST {
            true => Ok(FleetName(text.to_owned())),
            false => Err(BadFleetName(text.chars().take(FleetName::LONGEST).collect())),
        }
    }
}

impl fmt::Display for FleetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
