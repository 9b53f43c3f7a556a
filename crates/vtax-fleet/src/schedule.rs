//! Rounds of disjoint pairs, and the waves of a round, which share no NIC and respect the limits of uplinks.
//!
//! The circle method of tournaments (Kirkman, 1847): n - 1 rounds for an even number, n for an odd one, with one end
//! idle in each; each pair once. Ends are shuffled first: neighbours in the host list are often neighbours in a rack,
//! and a few rounds of the unshuffled circle would only measure racks with their neighbours.

use std::collections::{BTreeMap, HashMap, HashSet};

use rand::{SeedableRng, seq::SliceRandom};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::{hosts::MeshEnd, name::FleetName, sample::EndId};

/// Tests that may cross an uplink at the same time.
pub type UplinkLimits = BTreeMap<FleetName, u32>;

/// Two ends that are measured with each other, in both directions.
pub(crate) type EndPair = [EndId; 2];

/// Pairs that have no end in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeshRound {
    pub pairs: Vec<[EndId; 2]>,
}

/// The rounds of a mesh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeshPlan {
    pub rounds: Vec<MeshRound>,
    /// Rounds planned for each rail.
    pub per_rail: u32,
    /// Rounds in which each pair of the largest rail is measured.
    pub all_rounds: u32,
}

impl MeshPlan {
    /// Plans up to `most` rounds of each rail, or all.
    pub fn new(ends: &[MeshEnd], most: Option<u32>, seed: u64) -> MeshPlan {
        let mut rails: BTreeMap<Option<&FleetName>, Vec<EndId>> = BTreeMap::new();
        for (position, end) in ends.iter().enumerate() {
            rails.entry(end.nic.rail.as_ref()).or_default().push(EndId(position));
        }
        let mut plan = MeshPlan { rounds: Vec::new(), per_rail: 0, all_rounds: 0 };
        for mut of_rail in rails.into_values() {
            of_rail.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
            let all = circle_rounds(of_rail.len());
            let rounds = most.unwrap_or(all).min(all);
            plan.all_rounds = plan.all_rounds.max(all);
            plan.per_rail = plan.per_rail.max(rounds);
            plan.rounds.extend((0..rounds).map(|round| of_circle(&of_rail, round, ends)));
        }
        plan.rounds.retain(|round| !round.pairs.is_empty());
        plan
    }

    /// Returns the number of waves if no host dies.
    pub fn waves(&self, ends: &[MeshEnd], limits: &UplinkLimits) -> usize {
        self.rounds.iter().map(|round| pack_waves(&round.pairs, ends, limits).len()).sum()
    }
}

/// Returns the number of rounds in which each pair of `ends` is measured once.
pub(crate) fn circle_rounds(ends: usize) -> u32 {
    match ends {
        0 | 1 => 0,
        ends => (ends + ends % 2 - 1) as u32,
    }
}

/// A round of the circle. Pairs of two NICs of one host are omitted: a test within a host doesn't measure the network.
fn of_circle(ends: &[EndId], round: u32, all: &[MeshEnd]) -> MeshRound {
    let pairs = circle_pairs(ends.len(), round as usize).map(|pair| pair.map(|position| ends[position]));
    let is_of_one_host = |[one, other]: &EndPair| all[one.0].host == all[other.0].host;
    MeshRound { pairs: pairs.filter(|pair| !is_of_one_host(pair)).collect() }
}

/// The pairs of a round: each end moves by one place, except one that stays.
fn circle_pairs(count: usize, round: usize) -> impl Iterator<Item = [usize; 2]> {
    let places = count + count % 2;
    let moving = places.saturating_sub(1).max(1);
    let of = move |k: usize| match k {
        0 => [round % moving, moving],
        k => [(round + k) % moving, (round + moving - k) % moving],
    };
    (0..places / 2).map(of).filter(move |pair| pair.iter().all(|place| *place < count))
}

/// Distributes pairs over waves in which no host is in two tests and no uplink has more tests than its limit. Each pair
/// goes to the first wave with room for it.
pub(crate) fn pack_waves(pairs: &[[EndId; 2]], ends: &[MeshEnd], limits: &UplinkLimits) -> Vec<Vec<[EndId; 2]>> {
    let mut waves: Vec<(Vec<EndPair>, Tokens<'_>)> = Vec::new();
    for pair in pairs {
        let free = waves.iter_mut().find_map(|(wave, tokens)| tokens.take(*pair, ends, limits).then_some(wave));
        match free {
            Some(wave) => wave.push(*pair),
            None => {
                let mut tokens = Tokens::default();
                // The first pair of a wave always has room, because limits are at least 1.
                tokens.take(*pair, ends, limits);
                waves.push((vec![*pair], tokens));
            }
        }
    }
    waves.into_iter().map(|(wave, _)| wave).collect()
}

/// Hosts and uplinks in use by the tests of one wave.
#[derive(Default)]
struct Tokens<'a> {
    hosts: HashSet<usize>,
    crossing: HashMap<&'a FleetName, u32>,
}

impl<'a> Tokens<'a> {
    /// Takes the tokens of a pair if all are free.
    fn take(&mut self, pair: EndPair, ends: &'a [MeshEnd], limits: &UplinkLimits) -> bool {
        let [one, other] = pair.map(|end| &ends[end.0]);
        let uplinks = match one.nic.uplink == other.nic.uplink {
            true => [None, None],
            false => [one.nic.uplink.as_ref(), other.nic.uplink.as_ref()],
        };
        let has_room = |uplink: &&FleetName| {
            limits.get(*uplink).is_none_or(|limit| self.crossing.get(*uplink).copied().unwrap_or(0) < *limit)
        };
        let hosts = [one.host, other.host];
        let free = hosts.iter().all(|host| !self.hosts.contains(host)) && uplinks.iter().flatten().all(has_room);
        if free {
            self.hosts.extend(hosts);
            uplinks.into_iter().flatten().for_each(|uplink| *self.crossing.entry(uplink).or_default() += 1);
        }
        free
    }
}

#[cfg(test)]
mod tests;
