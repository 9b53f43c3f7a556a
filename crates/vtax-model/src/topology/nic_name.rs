//! Names of NIC ports in files and on the command line.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use serde_with::DeserializeFromStr;

/// A port of a NIC, as named by its user: by its PCI address (`0000:3b:00.0`), its link (`eno1`), its hardware address,
/// or its name in `vtax io list`. It is resolved on the machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, DeserializeFromStr)]
pub struct NicName(String);

/// Invalid name of a NIC.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum BadNicName {
    #[error("invalid NIC `{0}`: use its PCI address, link, MAC address or name in `vtax io list`")]
    #[diagnostic(code("bad-nic-name"))]
    Name(String),
    #[error("invalid cable `{0}`: use the NICs at its two ends, e.g. eno1,eno2")]
    #[diagnostic(code("bad-cable"))]
    Cable(String),
}

impl NicName {
    const LONGEST: usize = 96;

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NicName {
    type Err = BadNicName;

    fn from_str(text: &str) -> Result<Self, BadNicName> {
        let good = |c: char| c.is_ascii_graphic() && c != ',';
        match (1..=NicName::LONGEST).contains(&text.len()) && text.chars().all(good) {
            true => Ok(NicName(text.to_owned())),
            false => Err(BadNicName::Name(text.to_owned())),
        }
    }
}

impl fmt::Display for NicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The two NICs that a cable joins back to back, written `eno1,eno2`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cable(pub [NicName; 2]);

impl FromStr for Cable {
    type Err = BadNicName;

    fn from_str(text: &str) -> Result<Self, BadNicName> {
        let ends: Vec<NicName> = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
        let ends = <[NicName; 2]>::try_from(ends).ok().filter(|[one, other]| one != other);
        ends.map(Cable).ok_or_else(|| BadNicName::Cable(text.to_owned()))
    }
}

impl fmt::Display for Cable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cable([one, other]) = self;
        write!(f, "{one},{other}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_cable_has_two_ends() {
        let cable: Cable = "eno1,0000:3b:00.1".parse().expect("two NICs");
        assert_eq!(cable.to_string(), "eno1,0000:3b:00.1");
        for bad in ["eno1", "eno1,eno2,eno3", "eno1,eno1", "eno1,", "a b,c"] {
            let error = bad.parse::<Cable>().expect_err(bad).to_string();
            assert!(error.contains('`'), "{error}");
        }
    }

    proptest! {
        #[test]
        fn parsed_names_are_written_unchanged(text in "\\PC{0,100}") {
            if let Ok(name) = text.parse::<NicName>() {
                prop_assert_eq!(name.to_string(), text);
            }
        }
    }
}
