use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::hosts::FleetNic;

fn name(text: &str) -> FleetName {
    text.parse().expect("a name")
}

fn end(host: usize, rail: Option<&str>, uplink: Option<String>) -> MeshEnd {
    let nic = FleetNic { rail: rail.map(name), uplink: uplink.as_deref().map(name), ..FleetNic::default() };
    let control = "local".parse().expect("a control");
    MeshEnd { name: format!("h{host}").into(), host, control, nic, rack: None }
}

fn plain(count: usize) -> Vec<MeshEnd> {
    (0..count).map(|host| end(host, None, None)).collect()
}

fn sorted([one, other]: EndPair) -> EndPair {
    [one.min(other), one.max(other)]
}

/// No host, and so none of its NICs, occurs twice in a wave.
fn is_disjoint(pairs: &[EndPair], ends: &[MeshEnd]) -> bool {
    let mut hosts = HashSet::new();
    pairs.iter().flatten().all(|end| hosts.insert(ends[end.0].host))
}

#[test]
fn each_pair_of_up_to_300_hosts_is_measured_once_and_no_host_twice_in_a_round() {
    for count in 2..=300 {
        let ends = plain(count);
        let plan = MeshPlan::new(&ends, None, count as u64);
        assert_eq!(plan.rounds.len(), if count % 2 == 0 { count - 1 } else { count }, "{count}");
        let mut seen = HashSet::new();
        for MeshRound { pairs } in &plan.rounds {
            assert!(is_disjoint(pairs, &ends) && pairs.len() == count / 2, "{count}");
            assert!(pairs.iter().all(|pair| seen.insert(sorted(*pair))), "{count}: a pair twice");
        }
        assert_eq!(seen.len(), count * (count - 1) / 2, "{count}");
    }
}

#[test]
fn a_single_host_has_no_rounds() {
    assert!(MeshPlan::new(&plain(1), None, 1).rounds.is_empty());
    assert!(MeshPlan::new(&[], None, 1).rounds.is_empty());
}

#[test]
fn a_few_rounds_pair_hosts_with_others_from_the_whole_list() {
    let ends = plain(1000);
    let plan = MeshPlan::new(&ends, Some(24), 7);
    assert_eq!((plan.rounds.len(), plan.per_rail, plan.all_rounds), (24, 24, 999));
    let far = plan.rounds.iter().flat_map(|round| &round.pairs).filter(|[one, other]| one.0.abs_diff(other.0) > 100);
    // Of two random hosts, 81 % are more than 100 apart.
    assert!((9_000..10_500).contains(&far.count()));
}

#[test]
fn nics_are_measured_with_those_of_their_rail_and_not_within_a_host() {
    let rails = [Some("r0"), Some("r1")];
    let ends: Vec<MeshEnd> = (0..9).flat_map(|host| rails.map(|rail| end(host, rail, None))).collect();
    let plan = MeshPlan::new(&ends, None, 1);
    let pairs: BTreeSet<EndPair> =
        plan.rounds.iter().flat_map(|round| &round.pairs).map(|pair| sorted(*pair)).collect();
    assert_eq!(pairs.len(), 2 * 36);
    assert!(pairs.iter().all(|pair| ends[pair[0].0].nic.rail == ends[pair[1].0].nic.rail));
    // Two NICs of each host in one rail: all pairs but the nine within hosts.
    let ends: Vec<MeshEnd> = (0..18).map(|position| end(position / 2, None, None)).collect();
    let plan = MeshPlan::new(&ends, None, 1);
    let count: usize = plan.rounds.iter().map(|round| round.pairs.len()).sum();
    assert_eq!(count, 18 * 17 / 2 - 9);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn waves_keep_hosts_nics_and_uplinks_apart(
        hosts in 2..120usize, nics in 1..3usize, racks in 1..8usize, limit in 1..6u32, seed in any::<u64>()
    ) {
        let uplink = |host: usize| Some(format!("leaf{}", host % racks));
        let ends: Vec<MeshEnd> = (0..hosts * nics).map(|position| end(position / nics, None, uplink(position / nics))).collect();
        let limits: UplinkLimits = (0..racks).map(|rack| (name(&format!("leaf{rack}")), limit)).collect();
        let plan = MeshPlan::new(&ends, Some(5), seed);
        for MeshRound { pairs } in &plan.rounds {
            let waves = pack_waves(pairs, &ends, &limits);
            let mut packed: Vec<EndPair> = waves.concat();
            for wave in &waves {
                prop_assert!(is_disjoint(wave, &ends));
                for rack in limits.keys() {
                    let crosses = |pair: &&EndPair| {
                        let [one, other] = pair.map(|end| ends[end.0].nic.uplink.as_ref());
                        one != other && (one == Some(rack) || other == Some(rack))
                    };
                    prop_assert!(wave.iter().filter(crosses).count() <= limit as usize);
                }
            }
            packed.sort_unstable();
            let mut all = pairs.clone();
            all.sort_unstable();
            prop_assert_eq!(packed, all);
        }
    }
}
