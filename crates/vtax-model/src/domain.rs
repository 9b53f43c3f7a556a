//! Logical domains: their constraints, and the virtual switches and consoles that serve them.
//!
//! A [`Configuration`] is what the user has requested. It persists across reboots and can be saved under a name. It
//! doesn't describe the current resources of a domain: those are its bindings, which are lost at the next boot.
//!
//! Every change is a method of [`Configuration`] that either makes the whole change or returns a [`DomainError`].

mod configuration;
mod console;
mod dependencies;
mod device;
mod disk;
mod error;
mod list_change;
mod mac_addresses;
mod property;
mod rebuild;
mod settings;
mod sizing;
mod switch;
#[cfg(test)]
mod tests;
mod vnet;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
};

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

pub use self::{
    configuration::Configuration,
    console::{ConsoleService, PortRange, UserName, VirtualConsole},
    dependencies::{DependencyKind, DomainDependency},
    device::{DeviceKind, DeviceOwner, DomainDevice, FunctionChange, FunctionSettings, HostDevices, contains},
    disk::{
        DiskChange, DiskService, DiskSlice, VirtualDisk, Volume, VolumeChange, VolumeFormat, VolumeName, VolumeOption,
    },
    error::DomainError,
    list_change::ListChange,
    property::{Configured, Property, PropertyEffect, PropertyVerb, XML_ADDRESS, before_boot},
    settings::DomainSettings,
    sizing::{SizeChange, adjusted_memory},
    switch::{NewSwitch, Switch, SwitchChange},
    vnet::{AltMac, LinkProp, NewVnet, VirtualNic, VnetChange, VnetProtection, VnetVlans},
};
use crate::{guest::System, topology::Name, units::ByteSize};

/// The name of the domain that is the host itself.
pub const PRIMARY: &str = "primary";

/// A domain's constraints. They apply even while the domain has no resources.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Constraints {
    /// Its CPUs; absent if not set yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuDemand>,
    /// Its RAM; absent if not set yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
    /// Boot variables, by the names of [`Variable`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<Variable, String>,
    /// Its virtual NICs, in the order in which they were added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vnets: Vec<VirtualNic>,
    /// Its virtual disks, in the order in which they were added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disks: Vec<VirtualDisk>,
    /// PCI devices of the host assigned to it, in the order in which they were added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub io: Vec<DomainDevice>,
    /// Console service, group and log settings.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub console: VirtualConsole,
    /// Action for the domains that have it as a master, when it fails.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub failure_policy: FailurePolicy,
    /// The domains that it depends on, at most [`MOST_MASTERS`](crate::masters::MOST_MASTERS).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masters: Vec<Name>,
    /// True if it is bound and started when the host boots.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub autostart: bool,
}

impl Constraints {
    /// The number of its virtual CPUs, on a host with this many threads per core.
    pub fn vcpus(&self, threads_per_core: u32) -> u32 {
        match &self.cpus {
            Some(CpuDemand::Vcpus(count)) => *count,
            Some(cores) => cores.count().saturating_mul(threads_per_core),
            None => 0,
        }
    }

    /// Its boot source.
    pub fn system(&self) -> System {
        let path = |variable| self.variables.get(&variable).filter(|value| !value.is_empty()).map(PathBuf::from);
        match path(Variable::Image) {
            Some(image) => System::Disk { image },
            None => System::Own { kernel: path(Variable::Kernel) },
        }
    }

    pub fn vnet(&self, name: &Name) -> Option<&VirtualNic> {
        self.vnets.iter().find(|vnet| vnet.name == *name)
    }
}

/// CPU constraint of a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CpuDemand {
    /// Virtual CPUs, each on a hardware thread of the host.
    Vcpus(u32),
    /// Whole cores of the host, with all threads of each.
    Cores(u32),
    /// These whole cores of the host, by the IDs that `list-devices` shows.
    Cids(BTreeSet<u32>),
}

impl CpuDemand {
    /// Maximum number of virtual CPUs or cores.
    pub const MOST: u32 = 256;

    /// Returns the number of virtual CPUs or cores.
    pub fn count(&self) -> u32 {
        match self {
            CpuDemand::Vcpus(count) | CpuDemand::Cores(count) => *count,
            CpuDemand::Cids(ids) => u32::try_from(ids.len()).unwrap_or(u32::MAX),
        }
    }

    /// The verbs that change it, and the alternative that gives a domain CPUs of another kind.
    pub(crate) fn verbs(&self) -> (&'static str, &'static str) {
        match self {
            CpuDemand::Vcpus(_) => ("add-vcpu and remove-vcpu change", "set-core gives it whole cores"),
            CpuDemand::Cores(_) => (
                "add-core and remove-core change by a number",
                "set-core cid= names its cores, and set-vcpu gives it virtual CPUs",
            ),
            CpuDemand::Cids(_) => (
                "add-core cid= and remove-core cid= change",
                "set-core with a number gives it any cores, and set-vcpu virtual CPUs",
            ),
        }
    }
}

/// A variable with which the domain's firmware and kernel start.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Variable {
    /// The kernel that it boots, a bzImage; the host's kernel if neither this nor an image is set.
    Kernel,
    /// The disk image that it boots, qcow2 or raw.
    Image,
    /// Further parameters of the kernel.
    BootArgs,
}

/// Action for the domains that have this one as a master, when this one fails.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, Display, EnumString, IntoStaticStr, VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase", parse_err_ty = DomainError, parse_err_fn = unknown_policy)]
pub enum FailurePolicy {
    /// Nothing.
    #[default]
    Ignore,
    /// They get a non-maskable interrupt, at which their kernels panic.
    Panic,
    /// They are reset.
    Reset,
    /// They are stopped.
    Stop,
}

fn unknown_policy(text: &str) -> DomainError {
    DomainError::value("failure-policy", text, "ignore, panic, reset or stop")
}

/// State of a domain, from mere constraints to running, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Display, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum DomainState {
    /// It has only constraints.
    Inactive,
    /// Its resources are being bound.
    Binding,
    /// All its resources are bound, but it isn't running.
    Bound,
    /// It is running.
    Active,
    /// It holds resources of the host, but its record can't be read.
    Damaged,
}

impl DomainState {
    /// Returns true if it holds resources of the host.
    pub fn is_bound(self) -> bool {
        self != DomainState::Inactive
    }
}

impl fmt::Display for CpuDemand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CpuDemand::Vcpus(count) => write!(f, "{count} vCPUs"),
            CpuDemand::Cores(count) => write!(f, "{count} cores"),
            CpuDemand::Cids(ids) => {
                let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
                write!(f, "the cores {}", ids.join(","))
            }
        }
    }
}
