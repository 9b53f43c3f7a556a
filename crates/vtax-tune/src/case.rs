//! What is asked about a host.

use std::{collections::BTreeSet, fmt, net::SocketAddr, time::Duration};

use serde::{Deserialize, Serialize};
use vtax_host::inspect::{HostFacts, HostGuest, HostInterrupt, HostLink, InterruptCpus};
use vtax_model::endpoint::Control;

use crate::{observed::Observation, path::TuningPath};

/// A host, and what its user wants of it.
#[derive(Debug, Clone, Copy)]
pub struct TuningCase<'a> {
    /// Settings and hardware, as read from the host's files and drivers.
    pub host: &'a HostFacts,
    /// What its counters did while they were watched.
    pub observed: Option<&'a Observation>,
    /// What its user wants.
    pub goal: TuningGoal,
    /// The round trip of the path that matters.
    pub rtt: Option<&'a PathRtt>,
    /// What lies on the path that matters. None if everything does.
    pub path: Option<&'a TuningPath>,
}

/// The round trip of a path, and who measured it. Findings that are computed from it say so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRtt {
    /// From a request to its answer.
    pub time: Duration,
    /// Who measured it, and how.
    pub source: RttSource,
}

/// Who measured a round trip, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RttSource {
    /// The user says it.
    Given,
    /// The median of the times that some TCP connections took to this address.
    Connections(SocketAddr),
    /// The median of vtax's requests of one byte to this end.
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
            RttSource::Connections(to) => write!(f, "the median of TCP connections to {to}"),
            RttSource::Requests(to) => write!(f, "the median of 1-byte requests to {to}"),
        }
    }
}

/// What is to become better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, strum::Display, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum TuningGoal {
    /// Round trips.
    Latency,
    /// Bandwidth.
    Throughput,
    /// Both. What helps one and harms the other is left alone.
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

    /// Whether a rule for `self` is of use to somebody who wants `asked`.
    pub(crate) fn serves(self, asked: TuningGoal) -> bool {
        self == TuningGoal::Both || asked == TuningGoal::Both || self == asked
    }
}

/// By its address on the PCI bus; a device elsewhere, by its interrupts.
fn is_of_same_device(one: &HostLink, other: &HostLink) -> bool {
    let (Some(device), Some(other)) = (&one.device, &other.device) else { return false };
    match (&device.pci, &other.pci) {
        (Some(address), Some(other)) => address == other,
        (None, None) => !device.interrupts.is_empty() && device.interrupts == other.interrupts,
        _ => false,
    }
}

impl<'a> TuningCase<'a> {
    /// The links with a device that are switched on and that matter. A representor is one only if the device's own port
    /// isn't: its packets are those of that port.
    pub(crate) fn ports(&self) -> impl Iterator<Item = &'a HostLink> {
        let all = self.with_devices();
        let is_behind = |link: &HostLink| {
            link.is_representor() && all.iter().any(|other| !other.is_representor() && is_of_same_device(other, link))
        };
        all.iter().copied().filter(|link| !is_behind(link)).collect::<Vec<_>>().into_iter()
    }

    /// One of these links for each device. Ports of one device share its interrupts.
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

    /// The interrupts of a link's device whose CPUs can be chosen.
    pub(crate) fn movable_interrupts(&self, link: &'a HostLink) -> Vec<&'a HostInterrupt> {
        self.host.interrupts_of(link).filter(|interrupt| interrupt.is_managed != Some(true)).collect()
    }

    /// The CPUs that handle an interrupt: while the host was watched, if it was.
    pub(crate) fn handlers(&self, interrupt: &HostInterrupt) -> InterruptCpus {
        interrupt.cpus(self.observed.and_then(|observed| observed.before.interrupts.get(&interrupt.number)))
    }

    /// The bridge that a link is a port of: itself, or by a bond or a VLAN above it.
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

    /// The file that gives a network setting its value when the machine is started.
    pub(crate) fn owner_of(&self, setting: &str) -> Option<String> {
        let source = self.host.owners.source_of(setting)?;
        Some(format!("{}:{} sets {}", source.file, source.line, source.value))
    }

    /// All links that are switched on and that matter, but not the loopback.
    pub(crate) fn links(&self) -> impl Iterator<Item = &'a HostLink> {
        let path = self.path;
        let on = self.host.links.iter().filter(|link| link.is_up && link.name != "lo");
        on.filter(move |link| path.is_none_or(|path| path.has_link(link)))
    }

    /// The guests that matter.
    pub(crate) fn guests(&self) -> impl Iterator<Item = &'a HostGuest> {
        let path = self.path;
        self.host.guests.iter().filter(move |guest| path.is_none_or(|path| path.has_guest(guest)))
    }
}
