//! What is asked about a host.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use vtax_host::inspect::{HostFacts, HostLink};

use crate::observed::Observation;

/// A host, and what its user wants of it.
#[derive(Debug, Clone, Copy)]
pub struct TuningCase<'a> {
    /// The host.
    pub host: &'a HostFacts,
    /// What its counters did while they were watched.
    pub observed: Option<&'a Observation>,
    /// What its user wants.
    pub goal: TuningGoal,
    /// The round trip of the path that matters, as it was measured.
    pub rtt: Option<Duration>,
    /// The only link that matters. None if all do.
    pub link: Option<&'a str>,
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
        let only = self.link;
        self.host.ports().filter(move |link| only.is_none_or(|only| link.name == only))
    }

    /// The file that gives a network setting its value when the machine is started.
    pub(crate) fn owner_of(&self, setting: &str) -> Option<String> {
        let source = self.host.owners.source_of(setting)?;
        Some(format!("{}:{} sets {}", source.file, source.line, source.value))
    }

    /// All links that are switched on and that matter, but not the loopback.
    pub(crate) fn links(&self) -> impl Iterator<Item = &'a HostLink> {
        let only = self.link;
        let on = self.host.links.iter().filter(|link| link.is_up && link.name != "lo");
        on.filter(move |link| only.is_none_or(|only| link.name == only))
    }
}
