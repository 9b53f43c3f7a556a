//! The steps that a lab is built of, as data.
//!
//! Most steps create a part, and execute themselves ([`PartStep`]); `site` executes the others. Links created by a plan
//! are in namespaces created by the same plan. So undoing means removing the namespaces: the kernel removes their
//! contents. Guests are stopped first. Devices of the machine are returned in their previous state.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use vtax_model::{topology::Name, units::ByteSize};
use vtax_step::{
    AddAddress, AddRoute, AssignDevice, ConfigureVf, CreateLink, CreateVfs, EnableLink, LendVf, LimitRate, PartStep,
    ProbeVfs, SetSysctl, StartGuest, StartRelay, TakeNic, TranslateAddresses,
};

/// Step of a plan, as a lab's journal stores it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum LabStep {
    /// Makes a network namespace, pins it, and switches its `lo` on and IPv6 off.
    CreateNamespace {
        namespace: Name,
    },
    CreateLink(CreateLink),
    EnableLink(EnableLink),
    AddAddress(AddAddress),
    AddRoute(AddRoute),
    SetSysctl(SetSysctl),
    LimitRate(LimitRate),
    TranslateAddresses(TranslateAddresses),
    StartRelay(StartRelay),
    TakeNic(TakeNic),
    CreateVfs(CreateVfs),
    ProbeVfs(ProbeVfs),
    ConfigureVf(ConfigureVf),
    LendVf(LendVf),
    AssignDevice(AssignDevice),
    /// Creates a sparse file of this size, which must not exist yet.
    MakeFile {
        path: PathBuf,
        size: ByteSize,
    },
    StartGuest(StartGuest),
    /// Checks that every link of the lab has its mark and its MTU, and carries packets.
    Verify,
}

impl LabStep {
    /// Returns true if it changes a PCI device of the machine in a way that has to be undone.
    pub(crate) fn changes_device(&self) -> bool {
        matches!(self, LabStep::TakeNic(_) | LabStep::CreateVfs(_) | LabStep::LendVf(_) | LabStep::AssignDevice(_))
    }

    pub(crate) fn work(&self) -> LabWork<'_> {
        LabWork::Part(match self {
            LabStep::CreateNamespace { namespace } => return LabWork::Namespace(namespace),
            LabStep::MakeFile { path, size } => return LabWork::File(path, *size),
            LabStep::Verify => return LabWork::Verify,
            LabStep::CreateLink(step) => step,
            LabStep::EnableLink(step) => step,
            LabStep::AddAddress(step) => step,
            LabStep::AddRoute(step) => step,
            LabStep::SetSysctl(step) => step,
            LabStep::LimitRate(step) => step,
            LabStep::TranslateAddresses(step) => step,
            LabStep::StartRelay(step) => step,
            LabStep::TakeNic(step) => step,
            LabStep::CreateVfs(step) => step,
            LabStep::ProbeVfs(step) => step,
            LabStep::ConfigureVf(step) => step,
            LabStep::LendVf(step) => step,
            LabStep::AssignDevice(step) => step,
            LabStep::StartGuest(step) => step,
        })
    }
}

/// Work of a step: that of a part, or one of a lab alone.
pub(crate) enum LabWork<'a> {
    Part(&'a dyn PartStep),
    Namespace(&'a Name),
    File(&'a Path, ByteSize),
    Verify,
}

impl fmt::Display for LabStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.work() {
            LabWork::Part(part) => f.write_str(&part.in_full()),
            LabWork::Namespace(namespace) => write!(f, "namespace {namespace}"),
            LabWork::File(path, size) => write!(f, "file {} of {size}", path.display()),
            LabWork::Verify => f.write_str("verify that every link is marked, carries packets and has its mtu"),
        }
    }
}

#[cfg(test)]
mod tests;
