use std::{collections::BTreeMap, time::Duration};

use super::*;
use crate::{
    aim::MeshAim,
    schedule::UplinkLimits,
    simulated::{SimulatedFleet, header, named},
};

/// A fleet with one finding of each kind.
fn report() -> MeshReport {
    let slow = |end: usize, direction, share: f64| ((EndId(end), direction), -(-share).ln_1p());
    let fleet = SimulatedFleet {
        noise: 0.03,
        bad_paths: 0.001,
        slow: BTreeMap::from([
            slow(44, MeshDirection::Receives, 0.46),
            slow(7, MeshDirection::Sends, 0.2),
            slow(7, MeshDirection::Receives, 0.2),
        ]),
        slow_uplinks: BTreeMap::from([(("leaf2".to_owned(), MeshDirection::Sends), 0.3)]),
        unstable: BTreeMap::from([(EndId(60), 8.0)]),
        dead: BTreeMap::from([(EndId(12), (9, u32::MAX))]),
        ..SimulatedFleet::default()
    };
    let (mut header, samples) = fleet.measured(&named(80, Some(10)), Some(24), 9);
    header.excluded = vec![HostExclusion { host: "n2".into(), why: "state DOWN*\u{1b}[2J".into() }];
    MeshReport::of(&header, &samples)
}

#[test]
fn the_summary_names_slow_hosts_with_their_certainty() {
    insta::assert_snapshot!(report().summary());
}

#[test]
fn json_has_every_finding() {
    let report = MeshReport { figures: Vec::new(), ..report() };
    insta::assert_snapshot!(serde_json::to_string_pretty(&report).expect("JSON"));
}

#[test]
fn tables_and_metrics_have_a_line_for_each_end_and_direction() {
    let report = report();
    let report = MeshReport { figures: report.figures[..3].to_vec(), ..report };
    insta::assert_snapshot!(report.csv());
    insta::assert_snapshot!(report.open_metrics());
}

#[test]
fn a_fleet_without_slow_hosts_is_reported_as_such() {
    let fleet = SimulatedFleet { noise: 0.03, ..SimulatedFleet::default() };
    let (header, samples) = fleet.measured(&named(24, None), None, 1);
    let report = MeshReport::of(&header, &samples);
    assert!(report.is_clean());
    insta::assert_snapshot!(report.summary());
    let nothing = MeshReport::of(&header, &[]);
    insta::assert_snapshot!(nothing.summary());
}

#[test]
fn a_stopped_mesh_does_not_claim_that_nothing_is_slow() {
    let fleet = SimulatedFleet { noise: 0.03, ..SimulatedFleet::default() };
    let (header, mut samples) = fleet.measured(&named(24, None), None, 1);
    let header = MeshHeader { waves: Some(23), ..header };
    assert!(MeshReport::of(&header, &samples).is_clean());
    samples.retain(|sample| sample.stage == MeshStage::Rounds && sample.wave < 9);
    let report = MeshReport::of(&header, &samples);
    assert!(!report.is_clean());
    let summary = report.summary();
    assert!(summary.contains("stopped after 9 of 23 waves") && summary.contains("is slow so far"), "{summary}");
}

#[test]
fn a_plan_shows_its_duration_and_detection_limit() {
    let wave = Duration::from_millis(2800);
    let told = |hosts: usize, aim: MeshAim, limits: UplinkLimits| {
        let ends = named(hosts, Some(8));
        let plan = aim.plan(&ends, &limits, 7);
        let detects = Detection::of(hosts, plan.per_rail, aim.show, None);
        MeshSchedule::of(&MeshHeader { limits, ..header(&ends, &plan, 0.1, 7) }, detects).summary()
    };
    let aim = MeshAim { show: Share::TENTH, only_as_needed: false, budget: None, wave };
    let limits = UplinkLimits::from([("leaf0".parse().expect("a name"), 1)]);
    insta::assert_snapshot!([told(5, aim, limits), told(1000, aim, UplinkLimits::new())].join("\n"));
}
