//! Hosts behind one uplink that are slow together.
//!
//! Their tests with each other don't cross the uplink: if these are fast, the uplink is slow; if they are as slow, the
//! hosts are. Without enough such tests, the cause stays undecided.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use vtax_model::foreign::ForeignText;
use vtax_stats::{Centre, Confidence, median};

use super::{MeshDirection, MeshVerdict, SlowDirection};
use crate::{aim::Share, name::FleetName, sample::EndId};

/// With fewer hosts behind it, the hosts are named instead of the uplink.
const FEWEST_HOSTS: usize = 3;
/// With fewer tests behind it, the cause stays undecided.
const FEWEST_TESTS: usize = 3;

/// An uplink whose hosts are slow together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SlowUplink {
    pub uplink: ForeignText,
    /// Direction of its hosts' data.
    pub direction: MeshDirection,
    /// Median share by which its hosts are slower.
    pub slower: f64,
    pub hosts: usize,
    pub cause: UplinkCause,
}

/// Cause of slowness that hosts behind an uplink share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum UplinkCause {
    /// The uplink: its hosts are fast with each other.
    Uplink,
    /// The uplink or the hosts behind it.
    Undecided,
}

/// A finding, and the ends whose slowness it explains.
pub(super) struct FoundUplink {
    pub(super) finding: SlowUplink,
    ends: BTreeSet<EndId>,
}

impl FoundUplink {
    pub(super) fn explains(&self, end: EndId, direction: MeshDirection) -> bool {
        self.finding.direction == direction && self.ends.contains(&end)
    }
}

/// The uplinks most of whose ends are slow in a direction.
pub(super) fn found(verdict: &MeshVerdict<'_>, slow: &[(EndId, SlowDirection)]) -> Vec<FoundUplink> {
    let mut behind: BTreeMap<&FleetName, BTreeSet<EndId>> = BTreeMap::new();
    for (position, end) in verdict.header.ends.iter().enumerate() {
        end.nic.uplink.iter().for_each(|uplink| _ = behind.entry(uplink).or_default().insert(EndId(position)));
    }
    let mut found = Vec::new();
    for (uplink, ends) in behind {
        for direction in MeshDirection::BOTH {
            let falls: Vec<f64> = slow
                .iter()
                .filter(|(end, slow)| slow.direction == direction && ends.contains(end))
                .map(|(_, slow)| slow.figure.slower)
                .collect();
            let together = falls.len() >= FEWEST_HOSTS && 2 * falls.len() > ends.len();
            if !together || 2 * ends.len() >= verdict.header.ends.len() {
                continue;
            }
            let (uplink, slower, hosts) = (uplink.as_str().into(), median(&falls), falls.len());
            if let Some(cause) = cause(verdict, &ends, slower) {
                let finding = SlowUplink { uplink, direction, slower, hosts, cause };
                found.push(FoundUplink { finding, ends: ends.clone() });
            }
        }
    }
    found
}

/// Returns the cause, or `None` if the hosts themselves are slow.
fn cause(verdict: &MeshVerdict<'_>, ends: &BTreeSet<EndId>, slower: f64) -> Option<UplinkCause> {
    let mut inside = Vec::new();
    for rail in &verdict.rails {
        let within = verdict
            .samples
            .iter()
            .filter(|sample| [sample.pair.from, sample.pair.to].iter().all(|end| ends.contains(end)));
        let of_rail = within.filter(|sample| rail.expected(sample).is_some());
        inside.extend(of_rail.filter_map(|sample| Some(rail.log_speed(sample)? - rail.overall)));
    }
    let half = Share::of_share(slower).log() / 2.0;
    match Centre::of(&inside, Confidence::P95) {
        Ok(Centre { low, .. }) if inside.len() >= FEWEST_TESTS && low > -half => Some(UplinkCause::Uplink),
        Ok(Centre { high, .. }) if inside.len() >= FEWEST_TESTS && high < -half => None,
        _ => Some(UplinkCause::Undecided),
    }
}
