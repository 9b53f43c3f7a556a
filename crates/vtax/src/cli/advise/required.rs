//! The options that state requirements.

use clap::Args;

use vtax_model::{
    advice::{RequiredAvailability, RequiredDevice, RequiredMigration, RequirementOptions},
    method::Isolation,
    options::RequestRate,
    units::{BitRate, Span},
};

use crate::{
    one_of::{Choice, one_of},
    whole_number::whole,
};

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Requirements")]
pub(super) struct RequiredArgs {
    /// Number of guests or zones that are busy at the same time, e.g. 12 [default: 1]
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    guests: Option<u32>,
    /// Maximum median round trip, e.g. 80us; for disks, maximum median response time
    #[arg(long, value_name = "TIME")]
    p50: Option<Span>,
    /// Maximum 99th percentile, e.g. 150us
    #[arg(long, value_name = "TIME")]
    p99: Option<Span>,
    /// Maximum 99.9th percentile, e.g. 1ms
    #[arg(long, value_name = "TIME")]
    p999: Option<Span>,
    /// Minimum bandwidth of each guest, e.g. 2G
    #[arg(long, value_name = "RATE")]
    bandwidth: Option<BitRate>,
    /// Minimum IOPS of each guest's disk, e.g. 20k
    #[arg(long, value_name = "N")]
    iops: Option<RequestRate>,
    /// Maximum host CPU time of all guests together, in cores, e.g. 2.5
    #[arg(long, value_name = "CORES", value_parser = cores)]
    host_cpu_at_most: Option<f64>,
    /// Migration to another host
    #[arg(long, value_parser = one_of(&MIGRATIONS))]
    migrate: Option<RequiredMigration>,
    /// Part of the system or hardware exclusive to each guest
    #[arg(long, value_parser = one_of(&LEVELS))]
    isolation: Option<Isolation>,
    /// Types of devices, separated by commas [default: net; with --iops: disk]
    #[arg(long, value_delimiter = ',', value_parser = one_of(&DEVICES))]
    device: Vec<RequiredDevice>,
    /// Availability of the network
    #[arg(long, value_parser = one_of(&AVAILABILITIES))]
    availability: Option<RequiredAvailability>,
    /// Devices can be added and removed while a guest runs
    #[arg(long)]
    hotplug: bool,
    /// Guests can be restricted to VLANs from outside
    #[arg(long)]
    vlan: bool,
    /// Each guest's rate can be limited from outside, e.g. to 5G
    #[arg(long, value_name = "RATE")]
    rate_limit: Option<BitRate>,
}

const MIGRATIONS: [Choice<RequiredMigration>; 2] =
    [("live", "While guests run", RequiredMigration::Live), ("no", "Not required", RequiredMigration::No)];

const LEVELS: [Choice<Isolation>; 6] = [
    ("address", "Its address only", Isolation::Address),
    ("stack", "Its network stack", Isolation::Stack),
    ("kernel", "Its kernel", Isolation::Kernel),
    ("function", "A virtual function of a NIC", Isolation::Function),
    ("device", "A whole device", Isolation::Device),
    ("complex", "A PCI root complex", Isolation::RootComplex),
];

const DEVICES: [Choice<RequiredDevice>; 4] = [
    ("net", "A NIC", RequiredDevice::Net),
    ("disk", "A disk", RequiredDevice::Disk),
    ("console", "A console", RequiredDevice::Console),
    ("pci", "Any other PCI device, such as a host bus adapter", RequiredDevice::Pci),
];

const AVAILABILITIES: [Choice<RequiredAvailability>; 2] = [
    (
        "failover",
        "No single failure of another domain or program interrupts it permanently",
        RequiredAvailability::Failover,
    ),
    ("no", "Not required", RequiredAvailability::No),
];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("use a number of cores, e.g. 2.5")]
struct NotCores;

fn cores(text: &str) -> Result<f64, NotCores> {
    text.parse().map_err(|_| NotCores)
}

impl RequiredArgs {
    pub(super) fn options(&self) -> RequirementOptions {
        let RequiredArgs { guests, p50, p99, p999, bandwidth, iops, host_cpu_at_most, .. } = *self;
        let RequiredArgs { migrate, isolation, availability, hotplug, vlan, rate_limit, .. } = *self;
        RequirementOptions {
            guests,
            p50,
            p99,
            p999,
            bandwidth,
            iops,
            host_cpu_at_most,
            migrate,
            isolation,
            device: self.device.clone(),
            availability,
            hotplug,
            vlan,
            rate_limit,
        }
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray;

    use super::*;

    #[test]
    fn every_word_is_that_of_the_file() {
        assert!(MIGRATIONS.iter().all(|(word, _, of)| of.to_string() == *word));
        assert!(LEVELS.iter().all(|(word, _, of)| of.to_string() == *word));
        assert!(DEVICES.iter().all(|(word, _, of)| of.to_string() == *word));
        assert!(AVAILABILITIES.iter().all(|(word, _, of)| of.to_string() == *word));
        let counts = [RequiredMigration::VARIANTS.len(), RequiredAvailability::VARIANTS.len()];
        assert_eq!(counts, [MIGRATIONS.len(), AVAILABILITIES.len()]);
        assert_eq!([Isolation::VARIANTS.len(), RequiredDevice::VARIANTS.len()], [LEVELS.len(), DEVICES.len()]);
    }
}
