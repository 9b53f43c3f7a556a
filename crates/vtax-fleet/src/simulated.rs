//! A fleet with known slow hosts, for tests of the statistics.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use vtax_model::units::Span;

use crate::{
    campaign::{Campaign, MeshEvent, PairTester, TestOutcome},
    header::MeshHeader,
    hosts::{FleetNic, MeshEnd},
    pair_test::{PairTest, PairTestKind},
    sample::{DirectedPair, EndId, MeshSample},
    schedule::{MeshPlan, UplinkLimits},
    verdict::MeshDirection,
};

/// Source ports of a test.
const PORTS: usize = 4;

/// A fleet and its faults.
#[derive(Debug, Clone, Default)]
pub(crate) struct SimulatedFleet {
    /// Slowness that its meshes look for; 10 % if absent.
    pub(crate) show: Option<f64>,
    /// Standard deviation of the logarithm of a test.
    pub(crate) noise: f64,
    /// Share of tests that are slowed down by something else, by 10 to 50 %.
    pub(crate) disturbed: f64,
    /// Share of pairs whose path is slow, by 30 %.
    pub(crate) bad_paths: f64,
    /// Slowness of ends, as a fall of the logarithm.
    pub(crate) slow: BTreeMap<(EndId, MeshDirection), f64>,
    /// Slowness of uplinks in the direction from and to their hosts.
    pub(crate) slow_uplinks: BTreeMap<(String, MeshDirection), f64>,
    /// Fall of the rate of one of the four paths of a pair.
    pub(crate) slow_path_of: BTreeMap<DirectedPair, f64>,
    /// Ends with a multiple of the noise.
    pub(crate) unstable: BTreeMap<EndId, f64>,
    /// Waves (of both directions) in which an end doesn't answer: from, to.
    pub(crate) dead: BTreeMap<EndId, (u32, u32)>,
}

/// The tests of such a fleet.
pub(crate) struct SimulatedTests<'a> {
    pub(crate) fleet: &'a SimulatedFleet,
    pub(crate) ends: &'a [MeshEnd],
    pub(crate) draws: Xoshiro256PlusPlus,
    seed: u64,
    /// Calls so far; two for each wave.
    pub(crate) calls: u32,
    /// Calls that took longer because an end didn't answer.
    pub(crate) late: u32,
}

pub(crate) fn named(count: usize, per_uplink: Option<usize>) -> Vec<MeshEnd> {
    let end = |host: usize| {
        let uplink = per_uplink.map(|hosts| format!("leaf{}", host / hosts).parse().expect("a name"));
        let nic = FleetNic { uplink, ..FleetNic::default() };
        MeshEnd {
            name: format!("gpu{host:03}").into(),
            host,
            control: "local".parse().expect("a control"),
            nic,
            rack: None,
        }
    };
    (0..count).map(end).collect()
}

pub(crate) fn header(ends: &[MeshEnd], plan: &MeshPlan, show: f64, seed: u64) -> MeshHeader {
    MeshHeader {
        schema: MeshHeader::SCHEMA.into(),
        test: PairTest { kind: PairTestKind::TcpStream, duration: Span::from_millis(1000), ports: PORTS as u32 },
        ends: ends.to_vec(),
        limits: UplinkLimits::new(),
        excluded: Vec::new(),
        rounds: plan.per_rail,
        all_rounds: plan.all_rounds,
        waves: None,
        show,
        seed,
    }
}

impl SimulatedFleet {
    pub(crate) fn measured(&self, ends: &[MeshEnd], rounds: Option<u32>, seed: u64) -> (MeshHeader, Vec<MeshSample>) {
        let plan = MeshPlan::new(ends, rounds, seed);
        let header = header(ends, &plan, self.show.unwrap_or(0.1), seed);
        let samples = self.run(&header, Vec::new()).1;
        (header, samples)
    }

    /// Measures a mesh, or continues it.
    pub(crate) fn run<'a>(
        &'a self,
        header: &'a MeshHeader,
        stored: Vec<MeshSample>,
    ) -> (SimulatedTests<'a>, Vec<MeshSample>) {
        let mut tests = self.tests(header);
        let mut ignore = |_: MeshEvent<'_>| Ok::<(), std::convert::Infallible>(());
        let Ok(samples) = Campaign { header, tester: &mut tests, events: &mut ignore }.run(stored);
        (tests, samples)
    }

    pub(crate) fn tests<'a>(&'a self, header: &'a MeshHeader) -> SimulatedTests<'a> {
        let draws = Xoshiro256PlusPlus::seed_from_u64(header.seed ^ 0x5eed);
        SimulatedTests { fleet: self, ends: &header.ends, draws, seed: header.seed, calls: 0, late: 0 }
    }
}

impl SimulatedTests<'_> {
    fn normal(&mut self) -> f64 {
        // Box & Muller (1958).
        let [one, other]: [f64; 2] = [1.0 - self.draws.random::<f64>(), self.draws.random()];
        (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * other).cos()
    }

    fn is_dead(&self, end: EndId) -> bool {
        let wave = self.calls / 2;
        self.fleet.dead.get(&end).is_some_and(|(from, to)| (*from..*to).contains(&wave))
    }

    fn rates(&mut self, pair: DirectedPair) -> Vec<f64> {
        let fleet = self.fleet;
        let fall = |end: EndId, direction: MeshDirection| {
            let own = fleet.slow.get(&(end, direction)).copied().unwrap_or_default();
            let uplink = self.ends[end.0].nic.uplink.as_ref().map(ToString::to_string);
            let crosses = self.ends[pair.from.0].nic.uplink != self.ends[pair.to.0].nic.uplink;
            let of_uplink = uplink.filter(|_| crosses).and_then(|uplink| fleet.slow_uplinks.get(&(uplink, direction)));
            own + of_uplink.copied().unwrap_or_default()
        };
        let mut log = 1e11_f64.ln() - fall(pair.from, MeshDirection::Sends) - fall(pair.to, MeshDirection::Receives);
        if bad_path(pair, self.seed) < fleet.bad_paths {
            log += 0.7_f64.ln();
        }
        if self.draws.random::<f64>() < fleet.disturbed {
            log += (1.0 - self.draws.random_range(0.1..0.5_f64)).ln();
        }
        let unstable = [pair.from, pair.to].into_iter().filter_map(|end| fleet.unstable.get(&end)).copied();
        let noise = fleet.noise * unstable.fold(1.0, f64::max);
        log += noise * self.normal();
        let slow_path = fleet.slow_path_of.get(&pair).copied();
        let mut rates = Vec::new();
        for _ in 0..PORTS {
            let is_slow = self.draws.random_range(0..4) == 0;
            let fall = slow_path.filter(|_| is_slow).unwrap_or_default();
            rates.push((log - fall + 0.2 * fleet.noise * self.normal()).exp());
        }
        rates
    }
}

/// A number between 0 and 1 that belongs to a pair of a fleet.
fn bad_path(pair: DirectedPair, seed: u64) -> f64 {
    let of_pair = seed ^ ((pair.from.0 as u64) << 32 | pair.to.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Xoshiro256PlusPlus::seed_from_u64(of_pair).random()
}

impl PairTester for SimulatedTests<'_> {
    fn take(&mut self, wave: &[DirectedPair]) -> Vec<TestOutcome> {
        let outcome = |tests: &mut Self, pair: DirectedPair| {
            let lost: Vec<EndId> = [pair.from, pair.to].into_iter().filter(|end| tests.is_dead(*end)).collect();
            match lost.is_empty() {
                true => TestOutcome::Measured(tests.rates(pair)),
                false => TestOutcome::Failed { why: "connection lost".into(), lost },
            }
        };
        let outcomes: Vec<TestOutcome> = wave.iter().map(|pair| outcome(self, *pair)).collect();
        self.calls += 1;
        self.late += u32::from(outcomes.iter().any(|outcome| matches!(outcome, TestOutcome::Failed { .. })));
        outcomes
    }

    fn reached_again(&mut self, lost: &[EndId]) -> Vec<EndId> {
        lost.iter().copied().filter(|end| !self.is_dead(*end)).collect()
    }
}
