use std::collections::BTreeMap;

use super::*;
use crate::{
    aim::Detection,
    pair_test::PairTestKind,
    report::MeshReport,
    sample::DirectedPair,
    simulated::{SimulatedFleet, named},
};

/// A fleet as others have measured it: some tests are disturbed, some paths are slow.
fn usual(noise: f64) -> SimulatedFleet {
    SimulatedFleet { noise, disturbed: 0.05, bad_paths: 0.02, ..SimulatedFleet::default() }
}

/// The same without slow paths, which would be findings too.
fn usual_paths(noise: f64) -> SimulatedFleet {
    SimulatedFleet { bad_paths: 0.0, ..usual(noise) }
}

/// `count` slow ends, alternately in one direction, in the other and in both.
fn planted(count: usize, hosts: usize, fall: f64) -> BTreeMap<(EndId, MeshDirection), f64> {
    let ways: [&[MeshDirection]; 3] = [&[MeshDirection::Sends], &[MeshDirection::Receives], &MeshDirection::BOTH];
    let slow = |nth: usize| {
        let end = EndId(nth * hosts / count);
        ways[nth % 3].iter().map(move |way| ((end, *way), fall))
    };
    (0..count).flat_map(slow).collect()
}

fn share(percent: f64) -> f64 {
    -(-percent / 100.0_f64).ln_1p()
}

type NamedEnds = BTreeSet<(String, MeshDirection)>;

fn named_hosts(findings: &[MeshFinding]) -> NamedEnds {
    let of = |finding: &MeshFinding| match finding {
        MeshFinding::Host(host) => host.slow.iter().map(|slow| (host.end.to_string(), slow.direction)).collect(),
        _ => Vec::new(),
    };
    findings.iter().flat_map(of).collect()
}

fn truth(fleet: &SimulatedFleet) -> NamedEnds {
    fleet.slow.keys().map(|(end, direction)| (format!("gpu{:03}", end.0), *direction)).collect()
}

/// Findings of meshes of 100 hosts: injected directions, those of them named and suspected, and false ones.
#[derive(Debug, Default)]
struct Tally {
    planted: usize,
    found: usize,
    wrong: usize,
    wrong_meshes: usize,
    wrong_suspects: usize,
    suspects: usize,
}

fn tally(fleet: &SimulatedFleet, hosts: usize, rounds: u32, meshes: u64) -> Tally {
    let mut tally = Tally::default();
    let (ends, truth) = (named(hosts, None), truth(fleet));
    for seed in 0..meshes {
        let (header, samples) = fleet.measured(&ends, Some(rounds), seed);
        let verdict = MeshVerdict::of(&header, &samples);
        let named = named_hosts(&verdict.findings());
        let is_planted = |own: &&EndStanding| fleet.slow.contains_key(&(own.end, own.direction));
        tally.planted += truth.len();
        tally.found += named.intersection(&truth).count();
        let wrong = named.difference(&truth).count();
        tally.wrong += wrong;
        tally.wrong_meshes += usize::from(wrong > 0);
        let suspects: Vec<&EndStanding> = verdict.rails.iter().flat_map(RailFit::suspects).collect();
        tally.suspects += suspects.iter().filter(|own| is_planted(own)).count();
        tally.wrong_suspects += suspects.iter().filter(|own| !is_planted(own)).count();
    }
    tally
}

/// Asserts that the share of injected slow directions found is at least this, with 99 % confidence.
fn assert_power(tally: &Tally, least: f64) {
    let (found, planted) = (tally.found as f64, tally.planted as f64);
    let error = 2.33 * (least * (1.0 - least) / planted).sqrt();
    assert!(found / planted > least - error, "{} of {}: less than {least}", tally.found, tally.planted);
}

/// A hundred hosts; benches/mesh.rs has 1,000 and 10,000.
#[test]
fn slow_hosts_are_found_as_often_as_promised() {
    for (rounds, noise) in [(12, 0.03), (16, 0.05), (24, 0.05), (24, 0.03)] {
        let Detection { slowness, probability } = Detection::of(100, rounds, Share::TENTH, Some(noise));
        let slow = planted(4, 100, slowness.log());
        let tally = tally(&SimulatedFleet { slow, ..usual(noise) }, 100, rounds, 40);
        println!("{rounds} rounds, {noise}, {slowness}: {tally:?}");
        assert_power(&tally, probability);
    }
}

/// The promise is at most one mesh in 20, whatever the noise and the number of rounds.
#[test]
fn fast_hosts_are_named_in_at_most_one_of_20_meshes() {
    const MESHES: u64 = 80;
    for (hosts, rounds, noise) in [(100, 8, 0.03), (100, 16, 0.05), (24, 23, 0.03), (6, 5, 0.01)] {
        let tally = tally(&usual(noise), hosts, rounds, MESHES);
        println!("{hosts} hosts, {rounds} rounds, {noise}: {tally:?}");
        // Two standard errors above the promise.
        let expected = MESHES as f64 / 20.0;
        assert!((tally.wrong_meshes as f64) < expected + 2.0 * expected.sqrt(), "{tally:?}");
    }
}

/// The 95 % interval of a slow direction covers the true value in at least 90 % of meshes in which 5 % of the tests are
/// disturbed.
#[test]
fn intervals_cover_the_true_value() {
    const MESHES: u64 = 60;
    let slow = BTreeMap::from([((EndId(17), MeshDirection::Receives), share(46.0))]);
    let fleet = SimulatedFleet { slow, ..usual_paths(0.03) };
    let covers = |seed: &u64| {
        let (header, samples) = fleet.measured(&named(50, None), Some(24), *seed);
        let findings = MeshVerdict::of(&header, &samples).findings();
        let Some(MeshFinding::Host(host)) = findings.first() else { panic!("{findings:#?}") };
        let Slowness { low, high, .. } = host.slow[0].figure;
        (low..=high).contains(&0.46)
    };
    let covering = (0..MESHES).filter(covers).count();
    assert!(covering >= 50, "{covering} of {MESHES}");
}

/// A slow host makes neither its partners nor its other direction slow.
#[test]
fn a_direction_is_named_with_its_figure_and_no_other() {
    let slow = BTreeMap::from([((EndId(17), MeshDirection::Receives), share(46.0))]);
    let fleet = SimulatedFleet { slow, ..usual_paths(0.03) };
    let (header, samples) = fleet.measured(&named(100, None), Some(24), 5);
    let findings = MeshVerdict::of(&header, &samples).findings();
    let [MeshFinding::Host(SlowHost { end, slow })] = &findings[..] else { panic!("{findings:#?}") };
    let [SlowDirection { direction: MeshDirection::Receives, figure, again: Again::Slow(again), .. }] = &slow[..]
    else {
        panic!("{slow:#?}")
    };
    assert_eq!(*end, "gpu017");
    assert!((0.44..0.48).contains(&figure.slower), "{figure:?}");
    assert_eq!((figure.slow_partners, figure.partners), (24, 24));
    assert!((0.43..0.49).contains(&again.slower) && again.partners == 12, "{again:?}");
}

#[test]
fn hosts_of_a_slow_uplink_are_reported_as_the_uplink() {
    let slow_uplinks = BTreeMap::from([(("leaf2".to_owned(), MeshDirection::Sends), share(30.0))]);
    let fleet = SimulatedFleet { slow_uplinks, ..usual_paths(0.03) };
    let ends = named(80, Some(16));
    let of = |rounds| {
        let (header, samples) = fleet.measured(&ends, Some(rounds), 9);
        MeshVerdict::of(&header, &samples).findings()
    };
    let findings = of(40);
    let [MeshFinding::Uplink(uplink)] = &findings[..] else { panic!("{findings:#?}") };
    assert_eq!((uplink.uplink.to_string().as_str(), uplink.cause), ("leaf2", UplinkCause::Uplink));
    assert_eq!((uplink.direction, uplink.hosts), (MeshDirection::Sends, 16));
    assert!((0.27..0.33).contains(&uplink.slower));
}

#[test]
fn hosts_behind_an_uplink_that_are_slow_with_each_other_too_are_named() {
    let slow = (32..48).map(|host| ((EndId(host), MeshDirection::Sends), share(30.0))).collect();
    let fleet = SimulatedFleet { slow, ..usual_paths(0.03) };
    let (header, samples) = fleet.measured(&named(80, Some(16)), Some(40), 9);
    let findings = MeshVerdict::of(&header, &samples).findings();
    assert_eq!(named_hosts(&findings), truth(&fleet), "{findings:#?}");
}

#[test]
fn without_tests_behind_an_uplink_it_is_undecided() {
    let slow_uplinks = BTreeMap::from([(("leaf2".to_owned(), MeshDirection::Receives), share(30.0))]);
    let fleet = SimulatedFleet { slow_uplinks, ..usual_paths(0.03) };
    let ends = named(80, Some(4));
    let (header, mut samples) = fleet.measured(&ends, Some(40), 9);
    let uplink = |end: EndId| &header.ends[end.0].nic.uplink;
    samples.retain(|sample| uplink(sample.pair.from) != uplink(sample.pair.to));
    let findings = MeshVerdict::of(&header, &samples).findings();
    let [MeshFinding::Uplink(uplink)] = &findings[..] else { panic!("{findings:#?}") };
    assert_eq!((uplink.cause, uplink.hosts), (UplinkCause::Undecided, 4));
}

#[test]
fn one_of_four_slow_paths_of_a_pair_is_found_more_often_than_not() {
    let pair = DirectedPair { from: EndId(3), to: EndId(20) };
    let mut found = 0;
    for seed in 0..20 {
        let fleet = SimulatedFleet {
            noise: 0.03,
            slow_path_of: BTreeMap::from([(pair, share(60.0))]),
            ..SimulatedFleet::default()
        };
        let (header, samples) = fleet.measured(&named(24, None), None, seed);
        let findings = MeshVerdict::of(&header, &samples).findings();
        for finding in findings {
            let MeshFinding::Pair(SlowPair { from, to, slower, slow_ports, ports }) = finding else {
                panic!("{finding:?}")
            };
            assert_eq!((from.to_string().as_str(), to.to_string().as_str()), ("gpu003", "gpu020"));
            assert!((0.5..0.7).contains(&slower) && 2 * slow_ports < ports && ports == 24, "{slower} {slow_ports}");
            found += 1;
        }
    }
    assert!(found >= 10, "{found} of 20");
}

#[test]
fn a_pair_whose_whole_path_is_slow_is_named() {
    let fleet = SimulatedFleet { noise: 0.03, bad_paths: 0.002, ..SimulatedFleet::default() };
    let (header, samples) = fleet.measured(&named(48, None), None, 3);
    let findings = MeshVerdict::of(&header, &samples).findings();
    assert!((1..=5).contains(&findings.len()), "{findings:#?}");
    for finding in findings {
        let MeshFinding::Pair(SlowPair { slower, slow_ports, ports, .. }) = finding else { panic!("{finding:?}") };
        assert!((0.25..0.35).contains(&slower) && slow_ports == ports, "{slower} {slow_ports}");
    }
}

#[test]
fn a_host_that_varies_is_reported_as_unstable() {
    let fleet = SimulatedFleet { unstable: BTreeMap::from([(EndId(8), 8.0)]), ..usual_paths(0.03) };
    let (header, samples) = fleet.measured(&named(100, None), Some(24), 2);
    let findings = MeshVerdict::of(&header, &samples).findings();
    let unstable: Vec<&Unstable> = findings
        .iter()
        .filter_map(|finding| match finding {
            MeshFinding::Unstable(unstable) => Some(unstable),
            _ => None,
        })
        .collect();
    let [Unstable { end, spread, of_fleet, .. }] = unstable[..] else { panic!("{findings:#?}") };
    assert!(*end == "gpu008" && *spread > 4.0 * of_fleet, "{unstable:?}");
}

/// With six hosts, one at half the rate in one direction, as in the test on the real kernel.
#[test]
fn one_of_six_hosts_at_half_the_rate_is_named() {
    let slow = BTreeMap::from([((EndId(4), MeshDirection::Sends), share(50.0))]);
    let fleet = SimulatedFleet { noise: 0.005, slow, ..SimulatedFleet::default() };
    for seed in 0..20 {
        let (header, samples) = fleet.measured(&named(6, None), None, seed);
        let findings = MeshVerdict::of(&header, &samples).findings();
        assert_eq!(named_hosts(&findings), truth(&fleet), "{seed}: {findings:#?}");
        assert_eq!(findings.len(), 1, "{findings:#?}");
    }
}

/// Round trips as reciprocals of rates: the same hosts are slow.
#[test]
fn hosts_with_longer_round_trips_are_found() {
    let slow = BTreeMap::from([((EndId(3), MeshDirection::Receives), share(20.0))]);
    let fleet = SimulatedFleet { slow, ..usual_paths(0.03) };
    let (mut header, mut samples) = fleet.measured(&named(24, None), None, 9);
    header.test.kind = PairTestKind::TcpRr;
    samples.iter_mut().flat_map(|sample| &mut sample.values).for_each(|value| *value = 1.0 / *value);
    let findings = MeshVerdict::of(&header, &samples).findings();
    assert_eq!(named_hosts(&findings), truth(&fleet), "{findings:#?}");
    let summary = MeshReport::of(&header, &samples).summary();
    assert!(
        summary.contains("gpu003: round trips as responder 2") && summary.contains("normal as initiator"),
        "{summary}"
    );
}
