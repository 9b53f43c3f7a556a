//! What is asked about a host.

use std::{fmt, net::SocketAddr, time::Duration};

use serde::{Deserialize, Serialize};
use vtax_host::inspect::{HostFacts, HostGuest, HostLink};
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

impl<'a> TuningCase<'a> {
    /// The links with a device that are switched on and that matter.
    pub(crate) fn ports(&self) -> impl Iterator<Item = &'a HostLink> {
        let path = self.path;
        self.host.ports().filter(move |link| path.is_none_or(|path| path.has_link(link)))
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
