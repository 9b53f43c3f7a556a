//! QEMU's names for a guest's machine type and CPU model.
//!
//! A guest that migrates must find the machine and CPU with which it was started. An alias such as `q35` means a
//! different machine in each version of QEMU, so the machine behind it is recorded.

use std::{collections::BTreeSet, fmt, str::FromStr};

use serde_with::{DeserializeFromStr, SerializeDisplay};

/// The alias of the machine that guests have.
pub(crate) const MACHINE_ALIAS: &str = "q35";

/// A versioned machine type, such as `pc-q35-10.0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
pub struct MachineType(String);

impl MachineType {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The machines in the output of `-machine help`, which has a heading.
    pub(crate) fn listed(help: &str) -> BTreeSet<MachineType> {
        help.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().next()?.parse().ok()).collect()
    }

    /// The machine behind an alias in such a list: `q35
    ///
    /// Standard PC (Q35 + ICH9, 2009) (alias of pc-q35-10.0)`.
    pub(crate) fn behind_alias(help: &str, alias: &str) -> Option<MachineType> {
        let line = help.lines().find(|line| line.split_ascii_whitespace().next() == Some(alias))?;
        let (_, behind) = line.split_once("(alias of ")?;
        behind.split_once(')')?.0.parse().ok()
    }
}

impl fmt::Display for MachineType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for MachineType {
    type Err = MachineNameError;

    fn from_str(text: &str) -> Result<MachineType, MachineNameError> {
        match is_name(text, "-._") {
            true => Ok(MachineType(text.to_owned())),
            false => Err(MachineNameError { kind: "machine" }),
        }
    }
}

/// A CPU model with its features, such as `Cascadelake-Server,-avx512f`.
#[derive(Debug, Clone, PartialEq, Eq, SerializeDisplay, DeserializeFromStr)]
pub struct CpuModel(String);

impl fmt::Display for CpuModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for CpuModel {
    type Err = MachineNameError;

    fn from_str(text: &str) -> Result<CpuModel, MachineNameError> {
        match is_name(text, "-._,+=") {
            true => Ok(CpuModel(text.to_owned())),
            false => Err(MachineNameError { kind: "CPU model" }),
        }
    }
}

/// The name becomes a part of a QEMU argument, in which a comma begins the next option.
fn is_name(text: &str, others: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || others.contains(letter))
}

/// A text that isn't a valid QEMU name. The error doesn't repeat the text, which may be long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, miette::Diagnostic, thiserror::Error)]
#[error("invalid {kind}: use the name that QEMU lists (qemu-system-x86_64 -machine help, -cpu help)")]
#[diagnostic(code("bad-machine-name"))]
pub struct MachineNameError {
    kind: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = "Supported machines are:\n\
        pc-q35-9.2           Standard PC (Q35 + ICH9, 2009)\n\
        q35                  Standard PC (Q35 + ICH9, 2009) (alias of pc-q35-10.0)\n\
        pc-q35-10.0          Standard PC (Q35 + ICH9, 2009)\n";

    #[test]
    fn the_machine_behind_an_alias_is_found_in_the_help() {
        let behind = |alias| MachineType::behind_alias(HELP, alias).map(|machine| machine.to_string());
        assert_eq!(behind("q35").as_deref(), Some("pc-q35-10.0"));
        assert_eq!((behind("pc-q35-9.2"), behind("microvm")), (None, None));
        assert!(MachineType::listed(HELP).contains(&"pc-q35-9.2".parse().expect("a machine")));
    }

    #[test]
    fn a_name_cannot_add_an_option() {
        for text in ["", "q35,accel=kvm", "-S", "q35 x", "q35\n"] {
            assert!(text.parse::<MachineType>().is_err(), "{text}");
        }
        assert!("max,-erms,+svm,model-id=x".parse::<CpuModel>().is_ok());
        assert!("max,model-id=a b".parse::<CpuModel>().is_err());
    }

    #[test]
    fn fuzz_machine_help() {
        vtax_fuzz::fuzz("machine-help", &[HELP], |bytes| {
            let help = std::str::from_utf8(bytes).ok()?;
            let machine = MachineType::behind_alias(help, MACHINE_ALIAS)?;
            assert_eq!(machine.to_string().parse(), Ok(machine.clone()));
            Some(())
        });
    }
}
