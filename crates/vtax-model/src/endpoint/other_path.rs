//! A path in addition to the one that a study measures.

use std::{fmt, str::FromStr};

use serde_with::{DeserializeFromStr, SerializeDisplay};

use super::{BadControl, Control, Ends};

/// The two endpoints of another path, as the user names them: `TO`, or `FROM,TO`.
#[derive(Debug, Clone, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub struct OtherPath {
    /// The initiator. None if it is that of the measured path.
    pub from: Option<Control>,
    /// The responder.
    pub to: Control,
}

impl OtherPath {
    /// The path between two known endpoints.
    pub fn between(Ends { initiator, responder }: &Ends<Control>) -> OtherPath {
        OtherPath { from: Some(initiator.clone()), to: responder.clone() }
    }
}

impl FromStr for OtherPath {
    type Err = BadControl;

    fn from_str(text: &str) -> Result<OtherPath, BadControl> {
        match text.split_once(',') {
            Some((from, to)) => Ok(OtherPath { from: Some(from.parse()?), to: to.parse()? }),
            None => Ok(OtherPath { from: None, to: text.parse()? }),
        }
    }
}

impl fmt::Display for OtherPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.from {
            Some(from) => write!(f, "{from},{}", self.to),
            None => self.to.fmt(f),
        }
    }
}
