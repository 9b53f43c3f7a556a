//! Settings that are changed for one row, and restored after it.

use std::{collections::BTreeMap, fmt, str::FromStr};

use arrayvec::ArrayString;
use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};

/// Name of a tuning step. Rows are copied often, so the text is stored inline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
pub struct StepName(ArrayString<{ StepName::LONGEST }>);

/// Invalid name of a tuning step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error(
    "invalid step name `{0}`: use 1 to {longest} lower-case letters, digits, `-` and `,`, a letter first",
    longest = StepName::LONGEST
)]
#[diagnostic(code("bad-name"))]
pub struct BadStepName(String);

impl StepName {
    /// In bytes. The names of three rules fit, joined by commas.
    pub const LONGEST: usize = 64;

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for StepName {
    type Err = BadStepName;

    fn from_str(text: &str) -> Result<StepName, BadStepName> {
        let refused = || BadStepName(text.to_owned());
        let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b',';
        if !text.starts_with(|first: char| first.is_ascii_lowercase()) || !text.bytes().all(good) {
            return Err(refused());
        }
        ArrayString::from(text).map(StepName).map_err(|_| refused())
    }
}

impl fmt::Display for StepName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Changes of one row on the machines of its path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TuningStep {
    /// Its name, which follows a `+` in the row's name.
    pub name: StepName,
    /// Rules whose findings are applied (`vtax tune check`), on each machine where they have any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
    /// Kernel settings and their values, on each machine of the path.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctl: BTreeMap<String, String>,
}

/// Changes of a step on one machine of the path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRecord {
    /// Name of the step, which follows a `+` in its rows' names.
    pub step: StepName,
    /// E.g. `sysctl net.ipv4.tcp_wmem of this machine: 4096 8192 8192 -> 4096 16384 4194304`.
    pub changes: Vec<crate::foreign::ForeignText>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_of_plain_letters() {
        for good in ["gro", "tcp-buffers", "rps,xps", "a"] {
            assert_eq!(good.parse::<StepName>().map(|name| name.to_string()), Ok(good.to_owned()));
        }
        let long = "a".repeat(StepName::LONGEST + 1);
        for bad in ["", "-a", "1", "A", "a b", "a+b", "\u{e9}", &long] {
            assert!(bad.parse::<StepName>().is_err(), "{bad}");
        }
    }
}
