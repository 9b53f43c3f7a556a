use std::collections::BTreeMap;

use super::*;
use crate::{
    schedule::{MeshPlan, UplinkLimits},
    simulated::{SimulatedFleet, header, named},
    verdict::{MeshDirection, MeshFinding},
};

/// Waves that a call takes if an end doesn't answer in time.
const LATE: u32 = 3;

fn calm(dead: BTreeMap<EndId, (u32, u32)>) -> SimulatedFleet {
    SimulatedFleet { noise: 0.02, dead, ..SimulatedFleet::default() }
}

fn measured(samples: &[MeshSample]) -> BTreeSet<DirectedPair> {
    samples.iter().filter(|sample| sample.failure.is_none()).map(|sample| sample.pair).collect()
}

#[test]
fn each_pair_is_measured_in_both_directions() {
    for count in [3, 4, 9, 24] {
        let ends = named(count, None);
        let (_, samples) = calm(BTreeMap::new()).measured(&ends, None, 1);
        assert_eq!(measured(&samples).len(), count * (count - 1), "{count}");
        assert!(samples.iter().all(|sample| sample.stage == MeshStage::Rounds), "there are no suspects");
    }
}

#[test]
fn a_host_that_dies_does_not_end_the_mesh_and_its_pairs_are_stored_as_missed() {
    let ends = named(24, None);
    let dead = BTreeMap::from([(EndId(5), (4, u32::MAX))]);
    let (_, samples) = calm(dead).measured(&ends, None, 1);
    let without: BTreeSet<DirectedPair> = measured(&samples);
    let of_dead = |pair: &&DirectedPair| pair.from == EndId(5) || pair.to == EndId(5);
    assert_eq!(without.iter().filter(|pair| !of_dead(pair)).count(), 23 * 22);
    assert_eq!(without.iter().filter(of_dead).count(), 2 * 4, "four rounds before it died");
    let missed = samples.iter().filter(|sample| sample.stage == MeshStage::Missed);
    assert_eq!(missed.filter(|sample| sample.lost == [EndId(5)]).count(), 19);
}

#[test]
fn a_host_that_comes_back_is_measured_with_all_others() {
    let ends = named(24, None);
    let dead = BTreeMap::from([(EndId(5), (4, 9)), (EndId(6), (2, 3))]);
    let (_, samples) = calm(dead).measured(&ends, None, 1);
    assert_eq!(measured(&samples).len(), 24 * 23);
}

/// The bound is the time without deaths; 2 % of the hosts die.
#[test]
fn dead_hosts_hardly_delay_the_others() {
    let ends = named(100, None);
    for seed in 0..10 {
        let dead = BTreeMap::from([(EndId(seed), (10, u32::MAX)), (EndId(50 + seed), (40, u32::MAX))]);
        let fleet = calm(dead);
        let plan = MeshPlan::new(&ends, None, seed as u64);
        let header = header(&ends, &plan, 0.1, seed as u64);
        let (tests, samples) = fleet.run(&header, Vec::new());
        let bound = 2 * plan.rounds.len() as u32;
        let makespan = tests.calls + (LATE - 1) * tests.late;
        assert!(f64::from(makespan) <= 1.1 * f64::from(bound), "{makespan} for {bound}");
        let left = 100 * 99 - measured(&samples).len();
        assert!(left <= 2 * (89 + 59), "{left} tests are missing");
    }
}

/// The error stands for a user who stops the mesh.
#[test]
fn a_store_error_ends_the_mesh() {
    let (ends, fleet) = (named(6, None), calm(BTreeMap::new()));
    let plan = MeshPlan::new(&ends, None, 1);
    let header = header(&ends, &plan, 0.1, 1);
    assert_eq!(stopped(&fleet, &header, Vec::new(), 7).len(), 7);
}

/// Returns the stored samples of a mesh that was stopped while it stored one more than `most` new ones.
fn stopped(fleet: &SimulatedFleet, header: &MeshHeader, mut stored: Vec<MeshSample>, most: usize) -> Vec<MeshSample> {
    let (earlier, before) = (stored.clone(), stored.len());
    let mut events = |event: MeshEvent<'_>| {
        let MeshEvent::Sample(sample) = event else { return Ok(()) };
        if stored.len() - before == most {
            return Err("full");
        }
        stored.push(sample.clone());
        Ok(())
    };
    let mut tests = fleet.tests(header);
    let ended = Campaign { header, tester: &mut tests, events: &mut events }.run(earlier);
    assert!(ended.is_err() || stored.len() - before <= most);
    stored
}

/// However often it is stopped, each pair is measured once, and the slow host is named as without a stop.
#[test]
fn a_mesh_is_continued_where_it_was_stopped() {
    let (ends, slow) = (named(12, None), BTreeMap::from([((EndId(4), MeshDirection::Sends), 0.4)]));
    let fleet = SimulatedFleet { slow, ..calm(BTreeMap::new()) };
    let header = header(&ends, &MeshPlan::new(&ends, None, 1), 0.1, 1);
    let (_, whole) = fleet.run(&header, Vec::new());
    for most in [1, 5, 50, 131, 140] {
        let mut samples = Vec::new();
        loop {
            let longer = stopped(&fleet, &header, samples.clone(), most);
            if longer.len() == samples.len() {
                break;
            }
            samples = longer;
        }
        let places = |samples: &[MeshSample]| {
            samples.iter().map(|sample| (sample.stage, sample.wave, sample.pair)).collect::<Vec<_>>()
        };
        assert_eq!(places(&samples), places(&whole), "stopped after each {most}");
        let findings = MeshVerdict::of(&header, &samples).findings();
        assert!(matches!(&findings[..], [MeshFinding::Host(host)] if host.end.raw() == "gpu004"), "{findings:?}");
    }
}

/// A host that was dead when the mesh was stopped is measured with all others.
#[test]
fn a_mesh_is_continued_with_hosts_that_are_back() {
    let ends = named(10, None);
    let header = header(&ends, &MeshPlan::new(&ends, None, 1), 0.1, 1);
    let dead = calm(BTreeMap::from([(EndId(5), (2, u32::MAX))]));
    let samples = stopped(&dead, &header, Vec::new(), 60);
    let (_, samples) = calm(BTreeMap::new()).run(&header, samples);
    assert_eq!(measured(&samples).len(), 10 * 9);
}

#[test]
fn uplinks_carry_no_more_tests_than_allowed() {
    let ends = named(16, Some(8));
    let limits: UplinkLimits =
        [("leaf0", 2), ("leaf1", 3)].map(|(name, most)| (name.parse().expect("a name"), most)).into();
    let plan = MeshPlan::new(&ends, None, 1);
    let header = MeshHeader { limits, ..header(&ends, &plan, 0.1, 1) };
    let (_, samples) = calm(BTreeMap::new()).run(&header, Vec::new());
    let mut crossing: BTreeMap<u32, BTreeSet<EndId>> = BTreeMap::new();
    for sample in samples.iter().filter(|sample| (sample.pair.from.0 < 8) != (sample.pair.to.0 < 8)) {
        crossing.entry(sample.wave).or_default().extend([sample.pair.from, sample.pair.to]);
    }
    assert!(crossing.values().all(|ends| ends.len() <= 4), "two tests have four ends");
    assert_eq!(measured(&samples).len(), 16 * 15);
}
