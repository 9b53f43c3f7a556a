//! TCP congestion control as an option.

use std::{fmt, str::FromStr};

use serde_with::{DeserializeFromStr, SerializeDisplay};
use vtax_model::options::{CongestionControl, OptionError};

/// A congestion control by name, or none for `system`, the machine's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub struct Congestion(pub Option<CongestionControl>);

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => name.fmt(f),
            None => f.write_str("system"),
        }
    }
}

impl FromStr for Congestion {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        if text == "system" { Ok(Congestion(None)) } else { Ok(Congestion(Some(text.parse()?))) }
    }
}
