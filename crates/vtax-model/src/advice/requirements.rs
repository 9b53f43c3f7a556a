//! Requirements on the I/O of guests.

mod conflict;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use strum::{Display, EnumString, IntoStaticStr, VariantArray};
use toml::Spanned;

pub use conflict::RequirementsError;

use super::figure::{FigureRole, FigureTarget};
use crate::{
    located::{FileError, Source},
    method::Isolation,
    options::RequestRate,
    units::{BitRate, Span},
};

/// Name of a requirement: an option of the command line, and a key of a file.
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
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
#[expect(missing_docs, reason = "as of `RequirementOptions`")]
pub enum Requirement {
    Guests,
    P50,
    P99,
    P999,
    Bandwidth,
    Iops,
    HostCpuAtMost,
    Migrate,
    Isolation,
    Device,
    Availability,
    Hotplug,
    Vlan,
    RateLimit,
}

/// Migration that guests require.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display, EnumString, VariantArray)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum RequiredMigration {
    /// To another host, while they run.
    Live,
    /// None.
    No,
}

/// Availability that guests require.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display, EnumString, VariantArray)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum RequiredAvailability {
    /// No other single domain or program may permanently interrupt their network.
    Failover,
    /// None.
    No,
}

/// Type of device that guests require.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display, EnumString, VariantArray,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum RequiredDevice {
    /// A NIC.
    Net,
    Disk,
    Console,
    /// Any other PCI device, such as a host bus adapter of a tape drive.
    Pci,
}

/// Requirements as the user writes them. Anything absent is not required.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RequirementOptions {
    /// Number of guests that are busy at the same time; one by default.
    pub guests: Option<u32>,
    /// Longest median of the round trips, or of a disk's response times.
    pub p50: Option<Span>,
    /// Longest 99th percentile.
    pub p99: Option<Span>,
    /// Longest 99.9th percentile.
    pub p999: Option<Span>,
    /// Lowest bandwidth of each guest.
    pub bandwidth: Option<BitRate>,
    /// Lowest IOPS of each guest's disks.
    pub iops: Option<RequestRate>,
    /// Maximum host CPU time of all guests together, in cores.
    pub host_cpu_at_most: Option<f64>,
    pub migrate: Option<RequiredMigration>,
    /// Least exclusive part of the system or of the hardware.
    pub isolation: Option<Isolation>,
    /// Types of devices; a NIC by default.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub device: Vec<RequiredDevice>,
    pub availability: Option<RequiredAvailability>,
    /// Adding and removing devices while the guests run.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hotplug: bool,
    /// Restriction of guests to VLANs, from outside.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub vlan: bool,
    /// Limit of each guest's rate, from outside.
    pub rate_limit: Option<BitRate>,
}

/// Requirements that do not contradict each other.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Requirements(RequirementOptions);

impl Requirements {
    /// Checks the options.
    pub fn new(options: RequirementOptions) -> Result<Requirements, RequirementsError> {
        conflict::find(&options).map_or(Ok(Requirements(options)), Err)
    }

    /// Reads a TOML file, whose keys are those of [`RequirementOptions`].
    pub fn parse(source: Source<'_>) -> Result<Requirements, FileError> {
        let options: RequirementOptions = source.parse()?;
        let keys: BTreeMap<String, Spanned<toml::Value>> = source.parse()?;
        let at = |key: Requirement| keys.get(<&str>::from(key)).map_or(0..0, Spanned::span);
        Requirements::new(options).map_err(|error| source.refuse(&at(error.key()), error))
    }

    /// Options as given.
    pub fn options(&self) -> &RequirementOptions {
        &self.0
    }

    /// Number of guests that are busy at the same time.
    pub fn guests(&self) -> u32 {
        self.0.guests.unwrap_or(1)
    }

    pub fn devices(&self) -> Vec<RequiredDevice> {
        match (self.0.device.as_slice(), self.0.iops) {
            ([], Some(_)) => vec![RequiredDevice::Disk],
            ([], None) => vec![RequiredDevice::Net],
            (devices, _) => devices.to_vec(),
        }
    }

    /// Device whose times and bandwidth are required: the NIC, unless only a disk is required.
    pub fn measured_device(&self) -> RequiredDevice {
        let devices = self.devices();
        let is_disk = devices.contains(&RequiredDevice::Disk) && !devices.contains(&RequiredDevice::Net);
        if is_disk { RequiredDevice::Disk } else { RequiredDevice::Net }
    }

    /// Device at which a quantity is measured.
    pub fn device_of(&self, role: FigureRole) -> RequiredDevice {
        if role == FigureRole::Iops { RequiredDevice::Disk } else { self.measured_device() }
    }

    /// Returns the targets of figures, in the order of tables.
    pub fn targets(&self) -> Vec<FigureTarget> {
        let micros = |span: Option<Span>| span.map(|span| span.0.as_secs_f64() * 1e6);
        let required = [
            (FigureRole::P50, micros(self.0.p50)),
            (FigureRole::P99, micros(self.0.p99)),
            (FigureRole::P999, micros(self.0.p999)),
            (FigureRole::Bandwidth, self.0.bandwidth.map(|rate| rate.bits() as f64 / 1e6)),
            (FigureRole::Iops, self.0.iops.map(|rate| f64::from(rate.get()))),
            (FigureRole::HostCpu, self.0.host_cpu_at_most),
        ];
        let target = |(role, at): (FigureRole, Option<f64>)| Some(FigureTarget { role, at: at? });
        required.into_iter().filter_map(target).collect()
    }
}

impl FigureRole {
    /// Returns the requirement that the figure is compared with.
    pub fn requirement(self) -> Requirement {
        match self {
            FigureRole::P50 => Requirement::P50,
            FigureRole::P99 => Requirement::P99,
            FigureRole::P999 => Requirement::P999,
            FigureRole::Bandwidth => Requirement::Bandwidth,
            FigureRole::Iops => Requirement::Iops,
            FigureRole::HostCpu => Requirement::HostCpuAtMost,
        }
    }
}

#[cfg(test)]
mod tests;
