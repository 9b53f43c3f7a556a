//! Two meshes of a fleet: which hosts have become slower or faster.
//!
//! The figures of a host are relative to its fleet, so a change of the whole fleet does not show in them; it is
//! reported separately. A host has changed if the difference between its two figures is too far from those of the other
//! hosts. The interval of a difference is recovered from the intervals of both figures: Zou & Donner, "Construction of
//! confidence limits about effect measures" (Statistics in Medicine 27, 2008).

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use vtax_model::foreign::ForeignText;
use vtax_stats::{Centre, Confidence, OutlierTest, RobustScale, error_of_median};

use crate::{
    aim::{FALSE_ALARMS, Share},
    header::MeshHeader,
    pair_test::PairTestKind,
    sample::MeshSample,
    verdict::{EndStanding, MeshDirection, MeshVerdict, RailFit},
};

/// Two meshes that measured different things.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("the meshes have different tests: {before} and {after}; compare meshes of the same test")]
#[diagnostic(code("not-comparable"))]
pub struct NotComparable {
    before: PairTestKind,
    after: PairTestKind,
}

/// Comparison of two meshes: `vtax.mesh-comparison/v1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeshComparison {
    schema: &'static str,
    pub(crate) test: PairTestKind,
    /// Ends that have figures in both meshes.
    pub(crate) ends: usize,
    /// Change of the whole fleet: the median over its ends.
    pub(crate) fleet: Option<SpeedChange>,
    /// Ends that have changed compared with the fleet, the slowest first.
    pub(crate) changed: Vec<ChangedEnd>,
    /// Ends that have figures in one mesh only.
    pub(crate) only_before: Vec<ForeignText>,
    pub(crate) only_after: Vec<ForeignText>,
}

/// Share by which a speed has fallen, and its 95 % interval; below zero if it has risen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct SpeedChange {
    pub slower: f64,
    pub low: f64,
    pub high: f64,
}

/// A change of an end in a direction, compared with the fleet's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ChangedEnd {
    pub end: ForeignText,
    pub direction: MeshDirection,
    #[serde(flatten)]
    pub change: SpeedChange,
}

/// A direction of an end by its name.
type Direction = (ForeignText, MeshDirection);

/// The figure of an end in both meshes.
struct Compared<'a> {
    before: &'a EndStanding,
    after: &'a EndStanding,
    /// Change of its level, with that of the fleet.
    level: f64,
    /// Standard error of the difference that the noise of both meshes explains.
    error: f64,
}

impl MeshComparison {
    /// Schema of the JSON.
    const SCHEMA: &'static str = "vtax.mesh-comparison/v1";

    /// Compares the ends of two meshes by their names.
    pub fn of(
        before: (&MeshHeader, &[MeshSample]),
        after: (&MeshHeader, &[MeshSample]),
    ) -> Result<MeshComparison, NotComparable> {
        let [test, other] = [before.0.test.kind, after.0.test.kind];
        if test != other {
            return Err(NotComparable { before: test, after: other });
        }
        let verdicts = [before, after].map(|(header, samples)| MeshVerdict::of(header, samples));
        let [before, after] = verdicts.each_ref().map(figures);
        let names = |figures: &BTreeMap<Direction, (&RailFit, &EndStanding)>| {
            figures.keys().map(|(end, _)| end.clone()).collect::<BTreeSet<ForeignText>>()
        };
        let (names_before, names_after) = (names(&before), names(&after));
        let compared: BTreeMap<&Direction, Compared<'_>> = before
            .iter()
            .filter_map(|(direction, figure)| Some((direction, Compared::of(*figure, *after.get(direction)?))))
            .collect();
        let levels: Vec<f64> = compared.values().map(|compared| compared.level).collect();
        Ok(MeshComparison {
            schema: MeshComparison::SCHEMA,
            test,
            ends: names_before.intersection(&names_after).count(),
            fleet: Centre::of(&levels, Confidence::P95).ok().map(SpeedChange::of),
            changed: changed(&compared, verdicts[0].least().max(verdicts[1].least())),
            only_before: names_before.difference(&names_after).cloned().collect(),
            only_after: names_after.difference(&names_before).cloned().collect(),
        })
    }

    /// Returns true if no end has become slower.
    pub fn is_clean(&self) -> bool {
        self.changed.iter().all(|changed| changed.change.slower < 0.0)
    }
}

fn figures<'a>(verdict: &'a MeshVerdict<'_>) -> BTreeMap<Direction, (&'a RailFit, &'a EndStanding)> {
    let of_rail = verdict.rails.iter().flat_map(|rail| rail.standings.values().map(move |standing| (rail, standing)));
    of_rail
        .map(|(rail, standing)| ((verdict.header.name(standing.end).clone(), standing.direction), (rail, standing)))
        .collect()
}

impl<'a> Compared<'a> {
    fn of(
        (rail_before, before): (&RailFit, &'a EndStanding),
        (rail_after, after): (&RailFit, &'a EndStanding),
    ) -> Compared<'a> {
        let error = |rail: &RailFit, standing: &EndStanding| error_of_median(rail.noise, standing.values.len() as u32);
        Compared {
            before,
            after,
            level: rail_after.overall + after.effect - rail_before.overall - before.effect,
            error: error(rail_before, before).hypot(error(rail_after, after)),
        }
    }

    fn difference(&self) -> f64 {
        self.after.effect - self.before.effect
    }

    /// None if one of the figures has a single partner.
    fn change(&self) -> Option<SpeedChange> {
        let [before, after] = [self.before, self.after].map(|standing| Centre::of(&standing.values, Confidence::P95));
        let (before, after) = (before.ok()?, after.ok()?);
        let value = after.value - before.value;
        let low = value - (after.value - after.low).hypot(before.high - before.value);
        let high = value + (after.high - after.value).hypot(before.value - before.low);
        Some(SpeedChange::of(Centre { value, low, high }))
    }
}

/// The ends whose difference is unlike those of the others, in either direction.
fn changed(compared: &BTreeMap<&Direction, Compared<'_>>, least: f64) -> Vec<ChangedEnd> {
    let mut changed = Vec::new();
    for direction in MeshDirection::BOTH {
        let of_direction: Vec<(&ForeignText, &Compared<'_>)> = { compared.iter() }
            .filter(|((_, own), _)| *own == direction)
            .map(|((end, _), compared)| (end, compared))
            .collect();
        let differences: Vec<f64> = of_direction.iter().map(|(_, compared)| compared.difference()).collect();
        let Some(scale) = RobustScale::of(&differences) else { continue };
        // Two directions, and ends may be slower or faster.
        let test = OutlierTest::new(differences.len(), 4 * differences.len(), FALSE_ALARMS);
        for ((end, compared), difference) in of_direction.into_iter().zip(differences) {
            let score = scale.at_least(compared.error).score(difference);
            if score.abs() > test.threshold()
                && (difference - scale.centre).abs() >= least
                && let Some(change) = compared.change()
            {
                changed.push(ChangedEnd { end: end.clone(), direction, change });
            }
        }
    }
    changed.sort_by(|one, other| other.change.slower.total_cmp(&one.change.slower));
    changed
}

impl SpeedChange {
    /// Returns the change of a logarithm of speeds as a share.
    fn of(Centre { value, low, high }: Centre) -> SpeedChange {
        let slower = |log: f64| Share::of_log(-log).get();
        SpeedChange { slower: slower(value), low: slower(high), high: slower(low) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        sample::EndId,
        simulated::{SimulatedFleet, named},
    };

    type Slow = BTreeMap<(EndId, MeshDirection), f64>;

    fn mesh(hosts: usize, slow: Slow, seed: u64) -> (MeshHeader, Vec<MeshSample>) {
        let fleet = SimulatedFleet { noise: 0.03, disturbed: 0.05, slow, ..SimulatedFleet::default() };
        fleet.measured(&named(hosts, None), Some(24), seed)
    }

    fn compared(before: &(MeshHeader, Vec<MeshSample>), after: &(MeshHeader, Vec<MeshSample>)) -> MeshComparison {
        MeshComparison::of((&before.0, &before.1), (&after.0, &after.1)).expect("of the same test")
    }

    fn fall(end: usize, direction: MeshDirection, percent: f64) -> ((EndId, MeshDirection), f64) {
        ((EndId(end), direction), -(-percent / 100.0).ln_1p())
    }

    #[test]
    fn only_changed_hosts_are_named() {
        let always = fall(5, MeshDirection::Sends, 40.0);
        let before = mesh(60, Slow::from([always, fall(7, MeshDirection::Receives, 20.0)]), 1);
        let after = mesh(60, Slow::from([always, fall(44, MeshDirection::Sends, 20.0)]), 2);
        let found = compared(&before, &after);
        let [slower, faster] = &found.changed[..] else { panic!("{found:#?}") };
        assert_eq!((slower.end.raw(), slower.direction), ("gpu044", MeshDirection::Sends));
        assert!(slower.change.low < 0.2 && 0.2 < slower.change.high, "{slower:?}");
        assert_eq!((faster.end.raw(), faster.direction), ("gpu007", MeshDirection::Receives));
        assert!(faster.change.low < -0.25 && -0.25 < faster.change.high, "{faster:?}");
        assert!(!found.is_clean());
    }

    /// All ends slower: the fleet is, and no end of it.
    #[test]
    fn a_change_of_the_fleet_does_not_name_its_hosts() {
        let before = mesh(40, Slow::new(), 1);
        let mut after = mesh(40, Slow::new(), 2);
        after.1.iter_mut().flat_map(|sample| &mut sample.values).for_each(|value| *value *= 0.9);
        let found = compared(&before, &after);
        let fleet = found.fleet.expect("a change");
        assert!(fleet.low < 0.1 && 0.1 < fleet.high && fleet.high - fleet.low < 0.02, "{fleet:?}");
        assert!(found.changed.is_empty() && found.is_clean(), "{found:#?}");
    }

    #[test]
    fn alike_meshes_name_a_host_as_seldom_as_promised() {
        let named = (0..40).filter(|seed| {
            !compared(&mesh(30, Slow::new(), *seed), &mesh(30, Slow::new(), seed + 100)).changed.is_empty()
        });
        // 2 are expected; more than 6 of 40 have a probability of 0.3 %.
        assert!(named.count() <= 6);
    }

    #[test]
    fn ends_of_one_mesh_are_listed_and_other_tests_refused() {
        let (before, mut after) = (mesh(12, Slow::new(), 1), mesh(14, Slow::new(), 2));
        let found = compared(&before, &after);
        assert_eq!((found.ends, found.only_before.len()), (12, 0));
        assert_eq!(found.only_after.iter().map(|end| end.raw()).collect::<Vec<_>>(), ["gpu012", "gpu013"]);
        after.0.test.kind = PairTestKind::UdpRr;
        let refused = MeshComparison::of((&before.0, &before.1), (&after.0, &after.1)).expect_err("another test");
        assert!(refused.to_string().contains("tcp-stream and udp-rr"), "{refused}");
    }
}
