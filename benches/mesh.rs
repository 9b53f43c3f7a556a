//! Detection rate and false alarms in simulated meshes of 1,000 and 10,000 hosts.
//!
//! `cargo bench --package vtax-fleet --bench mesh`; no privileges required. 20 of 1,000 hosts are slow in one or both
//! directions, 5 % of the tests are disturbed and 2 % of the paths are slow. The targets: 19 of 20 slow directions are
//! found where the plan promises to find them, and at most one fast host in 1,000 is named.

#[path = "../crates/vtax-fleet/src/simulated.rs"]
#[allow(dead_code, reason = "the unit tests use more of it")]
mod simulated;

/// Names that the simulation, which is also part of the crate's unit tests, imports from the crate's modules.
mod campaign {
    pub(crate) use vtax_fleet::{Campaign, MeshEvent, PairTester, TestOutcome};
}
mod header {
    pub(crate) use vtax_fleet::MeshHeader;
}
mod hosts {
    pub(crate) use vtax_fleet::{FleetNic, MeshEnd};
}
mod pair_test {
    pub(crate) use vtax_fleet::{PairTest, PairTestKind};
}
mod sample {
    pub(crate) use vtax_fleet::{DirectedPair, EndId, MeshSample};
}
mod schedule {
    pub(crate) use vtax_fleet::{MeshPlan, UplinkLimits};
}
mod verdict {
    pub(crate) use vtax_fleet::MeshDirection;
}

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use simulated::{SimulatedFleet, named};
use vtax_fleet::{Detection, EndId, MeshDirection, MeshFinding, MeshVerdict, Share};

/// Noise, slowness in percent, and rounds.
const TABLE: [(f64, f64, [u32; 4]); 3] =
    [(0.03, 10.0, [8, 12, 16, 24]), (0.05, 10.0, [8, 12, 16, 24]), (0.03, 5.0, [8, 12, 16, 24])];
const MESHES: u64 = 4;

struct Counted {
    planted: usize,
    found: usize,
    wrong: usize,
}

fn fleet(hosts: usize, noise: f64, percent: f64) -> SimulatedFleet {
    let ways: [&[MeshDirection]; 3] = [&[MeshDirection::Sends], &[MeshDirection::Receives], &MeshDirection::BOTH];
    let (count, fall) = (hosts / 50, -(-percent / 100.0_f64).ln_1p());
    let slow = |nth: usize| ways[nth % 3].iter().map(move |way| ((EndId(nth * hosts / count), *way), fall));
    let slow: BTreeMap<_, _> = (0..count).flat_map(slow).collect();
    SimulatedFleet {
        show: Some(percent / 100.0),
        noise,
        disturbed: 0.05,
        bad_paths: 0.02,
        slow,
        ..SimulatedFleet::default()
    }
}

fn measured(hosts: usize, fleet: &SimulatedFleet, rounds: u32, meshes: u64) -> Counted {
    let ends = named(hosts, None);
    let truth: BTreeSet<(String, MeshDirection)> =
        fleet.slow.keys().map(|(end, way)| (ends[end.0].name.to_string(), *way)).collect();
    let mut counted = Counted { planted: 0, found: 0, wrong: 0 };
    for seed in 0..meshes {
        let (header, samples) = fleet.measured(&ends, Some(rounds), seed);
        let mut named = BTreeSet::new();
        for finding in MeshVerdict::of(&header, &samples).findings() {
            if let MeshFinding::Host(host) = finding {
                named.extend(host.slow.iter().map(|slow| (host.end.to_string(), slow.direction)));
            }
        }
        counted.planted += truth.len();
        counted.found += truth.intersection(&named).count();
        counted.wrong += named.difference(&truth).count();
    }
    counted
}

fn row(hosts: usize, noise: f64, percent: f64, rounds: u32, meshes: u64) -> bool {
    let began = Instant::now();
    let Counted { planted, found, wrong } = measured(hosts, &fleet(hosts, noise, percent), rounds, meshes);
    let show = Share::try_from(percent / 100.0).expect("a share");
    let promised = Detection::of(hosts, rounds, show, Some(noise)).slowness == show;
    let wrong_each = wrong as f64 / meshes as f64;
    println!(
        "{hosts} hosts, noise {noise}, {percent} % slow, {rounds} rounds: {found} of {planted} found{}, {wrong_each} fast \
         hosts named, {:.1} s",
        if promised { " (promised)" } else { "" },
        began.elapsed().as_secs_f64() / meshes as f64,
    );
    (!promised || 20 * found >= 19 * planted) && wrong_each <= hosts as f64 / 1000.0
}

fn main() {
    let of_thousand = TABLE.iter().flat_map(|(noise, percent, rounds)| {
        rounds.iter().map(move |rounds| row(1000, *noise, *percent, *rounds, MESHES))
    });
    let mut reached: Vec<bool> = of_thousand.collect();
    reached.push(row(10_000, 0.03, 10.0, 24, 1));
    assert!(reached.into_iter().all(|reached| reached), "a target was missed");
}
