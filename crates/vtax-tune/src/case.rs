//! The input of rules: a host and the user's goal.

use std::{collections::BTreeSet, fmt, net::SocketAddr, time::Duration};

use serde::{Deserialize, Serialize};
use vtax_host::inspect::{HostFacts, HostGuest, HostInterrupt, HostLink, InterruptCpus};
use vtax_model::endpoint::Control;

use crate::{observed::Observation, path::TuningPath};

/// A host and its user's goal.
#[derive(Debug, Clone, Copy)]
pub struct TuningCase<'a> {
    /// Settings and hardware, as read from the host's files and drivers.
    pub host: &'a HostFacts,
    /// Counters of the host over an observation period.
    pub observed: Option<&'a Observation>,
    /// The user's goal.
    pub goal: TuningGoal,
    /// Round trip of the relevant path.
    pub rtt: Option<&'a PathRtt>,
    /// The relevant path. None if everything is relevant.
    pub path: Option<&'a TuningPath>,
}

/// The round trip of a path, with its source. Findings computed from it report the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRtt {
    /// Time from request to response.
    pub time: Duration,
    /// Origin of the measurement.
    pub source: RttSource,
}

/// Source of a round trip.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RttSource {
    /// Given by the user.
    Given,
    /// Median time of several TCP connections to this address.
    Connections(SocketAddr),
    /// Median time of vtax's one-byte requests to this endpoint.
    Requests(Control),
}

impl fmt::Display for PathRtt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({})", self.time, self.source)
    }
}

impl fmt::Display for RttSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RttSource::Given => f.write_str("given by --rtt"),
            RttSource::Connections(to) => write!(f, "median of TCP connections to {to}"),
            RttSource::Requests(to) => write!(f, "median of 1-byte requests to {to}"),
        }
    }
}

/// Optimization goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, strum::Display, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum TuningGoal {
    /// Round trips.
    Latency,
    /// Bandwidth.
    Throughput,
    /// Both. Settings that help one and harm the other are left unchanged.
    #[default]
    Both,
}

impl TuningGoal {
    pub(crate) fn is_latency(self) -> bool {
        self == TuningGoal::Latency
    }

    pub(crate) fn is_throughput(self) -> bool {
        self == TuningGoal::Throughput
    }

    /// Returns true if a rule for `self` is useful for the goal `asked`.
    pub(crate) fn serves(self, asked: TuningGoal) -> bool {
        self == TuningGoal::Both || asked == TuningGoal::Both || self == asked
    }
}

/// Returns true if two links belong to one device: same PCI address, or the same interrupts without one.
fn is_of_same_device(one: &HostLink, other: &HostLink) -> bool {
    let (Some(device), Some(other)) = (&one.device, &other.device) else { return false };
    match (&device.pci, &other.pci) {
        (Some(address), Some(other)) => address == other,
        (None, None) => !device.interrupts.is_empty() && device.interrupts == other.interrupts,
        _ => false,
    }
}

impl<'a> TuningCase<'a> {
    /// Returns the relevant links with a device that are up. A representor is included only if the device's own port
    /// isn't, because its packets also pass through that port.
    pub(crate) fn ports(&self) -> impl Iterator<Item = &'a HostLink> {
        let all = self.with_devices();
        let is_behind = |link: &HostLink| {
            link.is_representor() && all.iter().any(|other| !other.is_representor() && is_of_same_device(other, link))
        };
        all.iter().copied().filter(|link| !is_behind(link)).collect::<Vec<_>>().into_iter()
    }

    /// Returns one of these links per device. Ports of one device share its interrupts.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &'a HostLink> {
        let mut devices: Vec<&HostLink> = Vec::new();
        for link in self.ports() {
            if !devices.iter().any(|other| is_of_same_device(other, link)) {
                devices.push(link);
            }
        }
        devices.into_iter()
    }

    fn with_devices(&self) -> Vec<&'a HostLink> {
        let path = self.path;
        self.host.ports().filter(|link| path.is_none_or(|path| path.has_link(link))).collect()
    }

    /// Returns the interrupts of a link's device with a settable affinity.
    pub(crate) fn movable_interrupts(&self, link: &'a HostLink) -> Vec<&'a HostInterrupt> {
        self.host.interrupts_of(link).filter(|interrupt| interrupt.is_managed != Some(true)).collect()
    }

    /// Returns the CPUs that handle an interrupt, during the observation period if there was one.
    pub(crate) fn handlers(&self, interrupt: &HostInterrupt) -> InterruptCpus {
        interrupt.cpus(self.observed.and_then(|observed| observed.before.interrupts.get(&interrupt.number)))
    }

    /// Returns the bridge of which a link is a port, directly or through a bond or a VLAN above it.
    pub(crate) fn bridge_above(&self, link: &HostLink) -> Option<&'a HostLink> {
        let links = &self.host.links;
        let is_above =
            |upper: &&HostLink| link.master.as_ref() == Some(&upper.name) || upper.lower.contains(&link.name);
        let mut next: Vec<&HostLink> = links.iter().filter(is_above).collect();
        let mut seen: BTreeSet<u32> = BTreeSet::new();
        while let Some(upper) = next.pop() {
            if upper.is_bridge {
                return Some(upper);
            }
            if seen.insert(upper.index) {
                let is_above =
                    |above: &&HostLink| upper.master.as_ref() == Some(&above.name) || above.lower.contains(&upper.name);
                next.extend(links.iter().filter(is_above));
            }
        }
        None
    }

    /// Returns the file that sets a network setting at boot, if any.
    pub(crate) fn owner_of(&self, setting: &str) -> Option<String> {
        let source = self.host.owners.source_of(setting)?;
        Some(format!("{}:{} sets {}", source.file, source.line, source.value))
    }

    /// Returns all relevant links that are up, except the loopback.
    pub(crate) fn links(&self) -> impl Iterator<Item = &'a HostLink> {
        let path = self.path;
        let on = self.host.links.iter().filter(|link| link.is_up && link.name != "lo");
        on.filter(move |link| path.is_none_or(|path| path.has_link(link)))
    }

    /// Returns the relevant guests.
    pub(crate) fn guests(&self) -> impl Iterator<Item = &'a HostGuest> {
        let path = self.path;
        self.host.guests.iter().filter(move |guest| path.is_none_or(|path| path.has_guest(guest)))
    }
}
