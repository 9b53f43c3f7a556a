//! Names of saved configurations.

use std::{fmt, str::FromStr};

use serde_with::{DeserializeFromStr, SerializeDisplay};

/// Name of a saved configuration: 1 to 32 letters, digits, `-`, `_` and `.`, starting with a letter or digit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
pub struct ConfigName(String);

/// Text that isn't a valid name of a saved configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("invalid configuration name `{0}`: use 1 to 32 letters, digits, `-`, `_` and `.`, a letter or digit first")]
#[diagnostic(code("bad-name"))]
pub struct BadConfigName(String);

impl ConfigName {
    const FACTORY: &str = "factory-default";

    /// Returns the configuration of a host on which nothing was configured.
    pub fn factory_default() -> ConfigName {
        ConfigName(ConfigName::FACTORY.to_owned())
    }

    /// Returns true if the name is `factory-default`.
    pub fn is_factory_default(&self) -> bool {
        self.0 == ConfigName::FACTORY
    }
}

impl FromStr for ConfigName {
    type Err = BadConfigName;

    fn from_str(text: &str) -> Result<ConfigName, BadConfigName> {
        let first = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        let rest = text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        match first && rest && text.len() <= 32 {
            true => Ok(ConfigName(text.to_owned())),
            false => Err(BadConfigName(text.to_owned())),
        }
    }
}

impl fmt::Display for ConfigName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
