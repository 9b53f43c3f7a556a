//! Name of a libvirt domain.

use std::{fmt, str::FromStr};

use serde_with::{DeserializeFromStr, SerializeDisplay};
use vtax_model::foreign::ForeignText;

/// libvirt stores a domain in a file of this name.
const LONGEST: usize = 255;

/// Name of a libvirt domain, written as `libvirt:web`.
#[derive(Debug, Clone, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub struct LibvirtName(String);

/// Text that is not the name of a libvirt domain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a libvirt domain; use libvirt:NAME, with a NAME that virsh list --all shows")]
pub struct BadLibvirtName(ForeignText);

impl LibvirtName {
    /// Returns the name as libvirt uses it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for LibvirtName {
    type Err = BadLibvirtName;

    fn from_str(text: &str) -> Result<LibvirtName, BadLibvirtName> {
        let is_name = |name: &&str| (1..=LONGEST).contains(&name.len()) && !name.contains(char::is_control);
        let name = text.strip_prefix("libvirt:").filter(is_name);
        name.map(|name| LibvirtName(name.to_owned())).ok_or_else(|| BadLibvirtName(text.into()))
    }
}

impl fmt::Display for LibvirtName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "libvirt:{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_is_written_with_its_kind() {
        assert_eq!("libvirt:a b".parse(), Ok(LibvirtName("a b".to_owned())));
        let long = format!("libvirt:{}", "a".repeat(256));
        for wrong in ["web", "libvirt:", "ssh:web", "libvirt:we\nb", "libvirt:we\0b", &long] {
            let told = wrong.parse::<LibvirtName>().expect_err(wrong).to_string();
            assert!(told.contains("use libvirt:NAME"), "{told}");
        }
    }

    proptest! {
        #[test]
        fn a_name_is_read_back_as_written(text in "libvirt:.*") {
            if let Ok(name) = text.parse::<LibvirtName>() {
                prop_assert_eq!(name.to_string(), text);
            }
        }
    }
}
