//! Consoles of domains, and the services by which they are reached.

use std::{collections::BTreeSet, fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay, skip_serializing_none};

use super::DomainError;
use crate::topology::Name;

/// A console service (vcc): it listens at one port for each group of consoles.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsoleService {
    /// The domain that it runs in.
    pub domain: Name,
    /// The ports that it may use.
    pub ports: PortRange,
    /// Users of the host who may use its consoles; everybody if absent.
    #[serde(default)]
    pub users: Option<BTreeSet<UserName>>,
}

/// A user name of the host, portable by POSIX: letters, digits, `.`, `_` and `-`, which isn't the first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
pub struct UserName(String);

impl UserName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for UserName {
    type Err = DomainError;

    fn from_str(text: &str) -> Result<UserName, DomainError> {
        let allowed = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        let is_name = !text.is_empty() && text.len() <= 32 && !text.starts_with('-') && text.chars().all(allowed);
        is_name.then(|| UserName(text.to_owned())).ok_or_else(|| DomainError::value("users", text, "names of users"))
    }
}

impl fmt::Display for UserName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Console of a domain.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VirtualConsole {
    /// The service; the only one if absent.
    pub service: Option<Name>,
    /// The group whose port it shares; a separate one with the domain's name if absent.
    pub group: Option<Name>,
    /// The port; if absent, the service's first free one when the domain is bound.
    pub port: Option<u16>,
}

/// TCP ports, from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// Ports below it belong to the system.
    pub const LEAST: u16 = 1024;
    /// The ports in an article of 2012, extended to the maximum number of domains of a host.
    pub const USUAL: PortRange = PortRange { first: 5000, last: 5255 };

    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    /// All of them.
    pub fn ports(self) -> impl Iterator<Item = u16> {
        self.first..=self.last
    }

    /// Returns true if both ranges share a port.
    pub fn overlaps(self, other: PortRange) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

impl FromStr for PortRange {
    type Err = DomainError;

    fn from_str(text: &str) -> Result<PortRange, DomainError> {
        let range = || {
            let (first, last) = text.split_once('-')?;
            let range = PortRange { first: first.parse().ok()?, last: last.parse().ok()? };
            (range.first >= PortRange::LEAST && range.first <= range.last).then_some(range)
        };
        range().ok_or_else(|| DomainError::value("port-range", text, "two ports from 1024 to 65535, e.g. 5000-5100"))
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}
