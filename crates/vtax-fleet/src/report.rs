//! A verdict as data, and as text.

mod matrix;
mod metrics;
mod rows;
mod schedule;
mod table;
mod text;
mod words;

use std::collections::{BTreeMap, BTreeSet};

pub use matrix::{MatrixCell, MatrixPart, MeshMatrix};
pub use rows::FigureRow;
pub use schedule::MeshSchedule;
use serde::Serialize;
use vtax_model::foreign::ForeignText;
use vtax_stats::{Confidence, median};

use crate::{
    aim::{Detection, Share},
    header::MeshHeader,
    hosts::HostExclusion,
    pair_test::PairTestKind,
    sample::{EndId, MeshSample, MeshStage},
    verdict::{MeshDirection, MeshFinding, MeshVerdict, Slowness},
};

/// Report of a mesh: `vtax.mesh/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeshReport {
    schema: &'static str,
    test: PairTestKind,
    /// Unit of all values.
    unit: &'static str,
    /// NICs that were to be measured, one of each host in most fleets.
    ends: usize,
    #[serde(skip)]
    noun: &'static str,
    /// Rounds planned for each rail, and the rounds of all pairs.
    rounds: u32,
    all_rounds: u32,
    /// Waves of these rounds: measured and planned.
    waves: u32,
    planned_waves: Option<u32>,
    /// Slowness that the mesh detects at the measured noise.
    detects: DetectionRecord,
    /// Standard deviation of the tests of two ends, as a share of their value.
    noise: Option<f64>,
    /// Value of two usual ends in the unit of the test.
    usual: Option<f64>,
    findings: Vec<MeshFinding>,
    /// Suspects that were as fast as the others when they were measured again.
    cleared: Vec<ForeignText>,
    /// Ends that no longer answered.
    lost: Vec<LostEnd>,
    /// Pairs with no figure for a direction.
    missed: Vec<[ForeignText; 2]>,
    /// Hosts that were not measured.
    excluded: Vec<HostExclusion>,
    /// All ends in each direction.
    figures: Vec<EndFigure>,
}

/// Slowness that is detected with a given probability.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct DetectionRecord {
    slowness: f64,
    probability: f64,
}

impl From<Detection> for DetectionRecord {
    fn from(Detection { slowness, probability }: Detection) -> DetectionRecord {
        DetectionRecord { slowness: slowness.get(), probability }
    }
}

impl From<DetectionRecord> for Detection {
    fn from(DetectionRecord { slowness, probability }: DetectionRecord) -> Detection {
        Detection { slowness: Share::of_share(slowness), probability }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct LostEnd {
    end: ForeignText,
    /// Number of the wave in which it did not answer, from 1.
    since_wave: u32,
}

/// The figure of an end in a direction.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct EndFigure {
    end: ForeignText,
    direction: MeshDirection,
    /// Median over partners.
    value: f64,
    /// Slowness compared with the fleet; below zero if it is faster. None with a single partner.
    #[serde(flatten)]
    figure: Option<Slowness>,
    score: f64,
    suspect: bool,
}

impl MeshReport {
    /// Schema of the JSON.
    const SCHEMA: &'static str = "vtax.mesh/v1";

    /// Creates the report of all samples of a mesh.
    pub fn of(header: &MeshHeader, samples: &[MeshSample]) -> MeshReport {
        let (verdict, test) = (MeshVerdict::of(header, samples), header.test.kind);
        let middle = |figures: Vec<f64>| (!figures.is_empty()).then(|| median(&figures));
        let noise = middle(verdict.rails.iter().map(|rail| rail.noise).collect());
        let show = Share::try_from(header.show).unwrap_or(Share::TENTH);
        MeshReport {
            schema: MeshReport::SCHEMA,
            test,
            unit: test.unit(),
            ends: header.ends.len(),
            noun: text::noun(header.ends.iter().map(|end| &end.name)),
            rounds: header.rounds,
            all_rounds: header.all_rounds,
            waves: samples.iter().filter(|it| it.stage == MeshStage::Rounds).map(|it| it.wave + 1).max().unwrap_or(0),
            planned_waves: header.waves,
            detects: Detection::of(header.ends.len(), header.rounds, show, noise).into(),
            noise,
            usual: middle(verdict.rails.iter().map(|rail| test.value(rail.overall)).collect()),
            findings: verdict.findings(),
            cleared: verdict.cleared(),
            lost: lost(header, samples),
            missed: missed(header, samples),
            excluded: header.excluded.clone(),
            figures: figures(&verdict),
        }
    }

    /// Returns true if everything was measured and nothing is slow.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.lost.is_empty() && self.stopped().is_none()
    }

    /// Returns the number of planned waves if the mesh was stopped before the last one. The last wave of a mesh that
    /// has lost hosts may be empty.
    fn stopped(&self) -> Option<u32> {
        self.planned_waves.filter(|planned| self.waves < *planned && self.lost.is_empty())
    }
}

/// The ends that did not answer and were not measured later.
fn lost(header: &MeshHeader, samples: &[MeshSample]) -> Vec<LostEnd> {
    let mut since: BTreeMap<EndId, u32> = BTreeMap::new();
    for sample in samples {
        match sample.failure {
            None => [sample.pair.from, sample.pair.to].iter().for_each(|end| _ = since.remove(end)),
            Some(_) => sample.lost.iter().for_each(|end| _ = since.entry(*end).or_insert(sample.wave + 1)),
        }
    }
    since.into_iter().map(|(end, since_wave)| LostEnd { end: header.name(end).clone(), since_wave }).collect()
}

/// The pairs that failed in a direction and didn't succeed later.
fn missed(header: &MeshHeader, samples: &[MeshSample]) -> Vec<[ForeignText; 2]> {
    let of_rounds = || samples.iter().filter(|sample| sample.stage.is_of_rounds());
    let measured: BTreeSet<_> =
        of_rounds().filter(|sample| sample.failure.is_none()).map(|sample| sample.pair).collect();
    let failed = of_rounds().filter(|sample| sample.failure.is_some() && !measured.contains(&sample.pair));
    let pairs: BTreeSet<[EndId; 2]> =
        failed.map(|sample| [sample.pair.from.min(sample.pair.to), sample.pair.from.max(sample.pair.to)]).collect();
    pairs.into_iter().map(|pair| pair.map(|end| header.name(end).clone())).collect()
}

fn figures(verdict: &MeshVerdict<'_>) -> Vec<EndFigure> {
    let of_rail = verdict.rails.iter().flat_map(|rail| rail.standings.values().map(move |standing| (rail, standing)));
    let figure = of_rail.map(|(rail, standing)| EndFigure {
        end: verdict.header.name(standing.end).clone(),
        direction: standing.direction,
        value: rail.kind.value(rail.overall + standing.effect),
        figure: Slowness::of(&standing.values, Confidence::P95),
        score: standing.score,
        suspect: standing.is_suspect,
    });
    figure.collect()
}

#[cfg(test)]
mod tests;
