//! The slow hosts, directions, uplinks and paths among the samples of a mesh.
//!
//! Each rail is fitted separately by median polish: rows are senders, columns receivers, values logarithms of rates.
//! The figure of an end in a direction is the median over its partners of the part that their effects don't explain. It
//! is a suspect if it is far below the other ends' figures, in units of their scale, and by at least half of the
//! slowness that the mesh looks for. Suspects are named once they were slow again with cleared partners.

mod again;
mod fit;
mod pairs;
mod unstable;
mod uplinks;

use std::collections::BTreeSet;

use serde::Serialize;
use vtax_model::foreign::ForeignText;
use vtax_stats::{Centre, Confidence};

use crate::{
    aim::Share,
    campaign::StagedPairs,
    header::MeshHeader,
    sample::{EndId, MeshSample, MeshStage},
};
pub(crate) use again::Again;
pub use fit::MeshDirection;
pub(crate) use fit::{EndStanding, RailFit};
pub(crate) use pairs::SlowPair;
pub(crate) use unstable::Unstable;
pub(crate) use uplinks::{SlowUplink, UplinkCause};

/// The fit of each rail, from which all findings are derived.
#[derive(Debug, Clone)]
pub struct MeshVerdict<'a> {
    pub(crate) header: &'a MeshHeader,
    pub(crate) samples: &'a [MeshSample],
    pub(crate) rails: Vec<RailFit>,
}

/// Something that is slower than the fleet.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum MeshFinding {
    /// A host, or one NIC of it.
    Host(SlowHost),
    Uplink(SlowUplink),
    Pair(SlowPair),
    Unstable(Unstable),
}

/// A host that is slow in one direction or both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SlowHost {
    pub end: ForeignText,
    pub slow: Vec<SlowDirection>,
}

/// A direction in which an end is slow.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SlowDirection {
    pub direction: MeshDirection,
    /// Its slowness over all rounds.
    pub figure: Slowness,
    /// Distance from the fleet's centre, in units of the fleet's scale.
    pub score: f64,
    /// Result of measuring it again with cleared partners.
    pub again: Again,
}

/// Share by which a rate is lower than the fleet's, and its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Slowness {
    pub slower: f64,
    pub low: f64,
    pub high: f64,
    /// Partners with which it was slow.
    pub slow_partners: usize,
    /// All partners.
    pub partners: usize,
}

impl Slowness {
    /// Computes the slowness from the unexplained part for each partner.
    pub(crate) fn of(values: &[f64], confidence: Confidence) -> Option<Slowness> {
        let Centre { value, low, high } = Centre::of(values, confidence).ok()?;
        let share = |log: f64| Share::of_log(-log).get();
        let slow_partners = values.iter().filter(|own| **own < value / 2.0).count();
        Some(Slowness {
            slower: share(value),
            low: share(high),
            high: share(low),
            slow_partners,
            partners: values.len(),
        })
    }
}

impl<'a> MeshVerdict<'a> {
    /// Judges all samples of a mesh.
    pub fn of(header: &'a MeshHeader, samples: &'a [MeshSample]) -> MeshVerdict<'a> {
        MeshVerdict { header, samples, rails: RailFit::of_rails(header, samples) }
    }

    /// Returns the rounds in which suspects are measured with cleared ends, and doubtful pairs separately.
    pub(crate) fn measured_again(&self, lost: &BTreeSet<EndId>) -> Vec<StagedPairs> {
        let mut rounds: Vec<StagedPairs> = self.rails.iter().flat_map(|rail| again::rounds(rail, lost)).collect();
        rounds.extend(pairs::rounds(self, lost));
        rounds
    }

    /// Returns the smallest slowness that is named, as a fall of the logarithm.
    pub(crate) fn least(&self) -> f64 {
        self.rails.iter().map(|rail| rail.least).fold(0.0, f64::max)
    }

    /// Returns everything that is slow, the slowest hosts first.
    pub fn findings(&self) -> Vec<MeshFinding> {
        let mut hosts: Vec<(EndId, SlowDirection)> = self.rails.iter().flat_map(|rail| self.slow_ends(rail)).collect();
        let uplinks = uplinks::found(self, &hosts);
        hosts.retain(|(end, slow)| !uplinks.iter().any(|uplink| uplink.explains(*end, slow.direction)));
        let slow: BTreeSet<EndId> = hosts.iter().map(|(end, _)| *end).collect();
        let of_uplinks = uplinks.into_iter().map(|uplink| MeshFinding::Uplink(uplink.finding));
        let hosts = self.by_host(hosts).into_iter().map(MeshFinding::Host);
        let pairs = pairs::found(self).into_iter().map(MeshFinding::Pair);
        let unstable = unstable::found(self, &slow).into_iter().map(MeshFinding::Unstable);
        hosts.chain(of_uplinks).chain(pairs).chain(unstable).collect()
    }

    /// The suspects that weren't cleared when measured again.
    fn slow_ends(&self, rail: &RailFit) -> Vec<(EndId, SlowDirection)> {
        let suspects = rail.suspects();
        let judged = suspects.iter().filter_map(|standing| {
            let again = Again::of(rail, standing, self.samples, suspects.len());
            let figure = Slowness::of(&standing.values, Confidence::P95)?;
            let slow = SlowDirection { direction: standing.direction, figure, score: standing.score, again };
            slow.again.is_slow().then_some((standing.end, slow))
        });
        judged.collect()
    }

    fn by_host(&self, slow: Vec<(EndId, SlowDirection)>) -> Vec<SlowHost> {
        let ends: BTreeSet<EndId> = slow.iter().map(|(end, _)| *end).collect();
        let host = |end: EndId| SlowHost {
            end: self.header.name(end).clone(),
            slow: slow.iter().filter(|(own, _)| *own == end).map(|(_, slow)| slow.clone()).collect(),
        };
        let mut hosts: Vec<SlowHost> = ends.into_iter().map(host).collect();
        hosts.sort_by(|one, other| other.slowest().total_cmp(&one.slowest()));
        hosts
    }

    /// Returns the names of suspects that were fast when measured again.
    pub(crate) fn cleared(&self) -> Vec<ForeignText> {
        let mut cleared = BTreeSet::new();
        for rail in &self.rails {
            let suspects = rail.suspects();
            let of_rail = suspects.iter().filter(|own| !Again::of(rail, own, self.samples, suspects.len()).is_slow());
            cleared.extend(of_rail.map(|standing| standing.end));
        }
        cleared.into_iter().map(|end| self.header.name(end).clone()).collect()
    }
}

impl SlowHost {
    fn slowest(&self) -> f64 {
        self.slow.iter().map(|slow| slow.figure.slower).fold(0.0, f64::max)
    }
}

impl MeshStage {
    /// Returns true for samples of the rounds, which cover all ends.
    pub(crate) fn is_of_rounds(self) -> bool {
        matches!(self, MeshStage::Rounds | MeshStage::Missed)
    }
}

#[cfg(test)]
mod tests;
