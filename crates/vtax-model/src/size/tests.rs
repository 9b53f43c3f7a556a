//! Sizes of synthetic machines, whose costs are known.

use std::{collections::BTreeMap, time::Duration};

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::*;
use crate::{
    cell::MigrationCell,
    units::{BitRate, ByteSize, Span},
};

/// Costs of a synthetic machine.
#[derive(Clone, Copy)]
struct Machine {
    fixed: f64,
    ns_per_message: f64,
    ns_per_byte: f64,
    /// Relative standard deviation of a sample at one core.
    noise: f64,
    /// Power of the cost with which its standard deviation grows.
    growth: f64,
}

const BRIDGE: Machine = Machine { fixed: 0.08, ns_per_message: 900.0, ns_per_byte: 0.3, noise: 0.03, growth: 1.0 };

struct Lab(Xoshiro256PlusPlus);

impl Lab {
    fn seeded(seed: u64) -> Lab {
        Lab(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Irwin & Hall: the sum of twelve uniform numbers is nearly normal.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.0.random::<f64>()).sum::<f64>() - 6.0
    }

    fn cores(&mut self, machine: Machine, load: &ServiceLoad) -> f64 {
        let cost = machine.cost(load);
        (cost + machine.noise * cost.powf(machine.growth) * self.normal()).max(0.0)
    }

    fn measure(&mut self, machine: Machine, target: &SizeTarget, each: usize) -> Vec<CostPoint> {
        let planned = plan_rates(target).expect("a target");
        let rates = planned.iter().flat_map(|rate| vec![rate.load; each]);
        rates.map(|load| point(load, self.cores(machine, &load))).collect()
    }
}

impl Machine {
    fn cost(self, load: &ServiceLoad) -> f64 {
        let messages = load.packets_per_s + load.ios_per_s;
        self.fixed + (self.ns_per_message * messages + self.ns_per_byte * load.bytes_per_s) / 1e9
    }
}

fn point(load: ServiceLoad, cores: f64) -> CostPoint {
    CostPoint { load, method: "bridge".into(), cores, run: "t7".into() }
}

fn network() -> SizeTarget {
    SizeTarget { net: BitRate::new(10_000_000_000), packets: "1.5M".parse().ok(), ..SizeTarget::default() }
}

fn vnet(packets: f64, bytes: f64) -> ServiceLoad {
    ServiceLoad::of(SizedService::Vnet, packets, bytes)
}

fn facts(costs: Vec<CostPoint>) -> SizeFacts {
    SizeFacts {
        domain: "primary".parse().expect("a name"),
        threads_per_core: 2,
        clock_ghz: Some(2.5),
        costs,
        proof: BTreeMap::new(),
        migrations: Vec::new(),
        memory: MemoryFacts::default(),
    }
}

fn told(target: &SizeTarget, costs: Vec<CostPoint>) -> String {
    SizeProposal::of(target, &facts(costs)).expect_err("no size").to_string()
}

#[test]
fn intervals_cover_the_cost_at_the_target() {
    for (growth, noise, each) in [(0.0, 0.05, 2), (0.5, 0.05, 2), (1.0, 0.03, 2), (1.0, 0.1, 4), (1.0, 0.05, 8)] {
        let machine = Machine { noise, growth, ..BRIDGE };
        let mut lab = Lab::seeded(41);
        let load = network().loads().expect("a target")[0];
        let covered = (0..1_000).filter(|_| {
            let need = ServiceNeed::of(&load, &lab.measure(machine, &network(), each)).expect("a cost");
            (need.cores.low..=need.cores.high).contains(&lab.cores(machine, &load))
        });
        let covered = covered.count();
        assert!(covered >= 930, "noise {noise}, growth {growth}, {each} samples: {covered} of 1000");
    }
}

#[test]
fn a_planted_cost_of_30_percent_is_seen() {
    let load = network().loads().expect("a target")[0];
    let planted = Machine { ns_per_message: BRIDGE.ns_per_message * 1.3, ..BRIDGE };
    let mut lab = Lab::seeded(42);
    let seen = (0..200).filter(|_| {
        let need = ServiceNeed::of(&load, &lab.measure(planted, &network(), 3)).expect("a cost");
        let per_packet = need.terms.ns_per_packet.expect("packets have a cost");
        need.cores.low > BRIDGE.cost(&load) && per_packet > 1.15 * BRIDGE.ns_per_message
    });
    let seen = seen.count();
    assert!(seen >= 195, "{seen} of 200");
}

/// Whatever the interval says, the cores must suffice for the true cost.
#[test]
fn the_proposed_cores_suffice() {
    let target = network();
    let load = target.loads().expect("a target")[0];
    let mut lab = Lab::seeded(43);
    for _ in 0..200 {
        let proposal = SizeProposal::of(&target, &facts(lab.measure(BRIDGE, &target, 3))).expect("a size");
        let utilization = BRIDGE.cost(&load) / f64::from(proposal.cores);
        assert!(utilization <= DEFAULT_KNEE && proposal.cores <= 5, "{proposal:?}");
        assert_eq!(proposal.threads, 2 * proposal.cores);
    }
}

/// The cost of a request at 300 per second is twice that at 3,839.
#[test]
fn a_low_rate_is_not_evidence() {
    let cost = |rate: f64| rate * (70e-6 + 73e-6 * (-rate / 900.0).exp());
    let measured = |rates: &[f64]| {
        let point = |rate: &f64| point(vnet(*rate, *rate * 100.0), cost(*rate));
        rates.iter().chain(rates).map(point).collect::<Vec<_>>()
    };
    let load = vnet(3839.0, 383_900.0);
    let far = ServiceNeed::of(&load, &measured(&[100.0, 200.0, 300.0]));
    assert!(matches!(far, Err(SizeError::BeyondMeasured { times, .. }) if times > 12.0), "{far:?}");
    let few = ServiceNeed::of(&load, &measured(&[100.0, 300.0, 3000.0, 3800.0]));
    assert!(matches!(few, Err(SizeError::TooFewRates { given: 2, .. })), "{few:?}");
    // Nor is a rate that is much higher.
    let high = ServiceNeed::of(&load, &measured(&[1000.0, 1500.0, 2000.0, 40_000.0]));
    assert!(matches!(high, Err(SizeError::BeyondMeasured { .. })), "{high:?}");
    // The low rates don't count if there are enough others.
    let near = ServiceNeed::of(&load, &measured(&[100.0, 300.0, 2000.0, 3000.0, 4000.0])).expect("a cost");
    assert!((near.cores.estimate / cost(3839.0) - 1.0).abs() < 0.1, "{near:?}");
    assert_eq!((near.points, near.rates, near.one_message_size), (6, 3, true));
}

#[test]
fn a_target_beyond_the_measurements_is_marked_and_then_refused() {
    let measured = Lab::seeded(44).measure(BRIDGE, &network(), 3);
    let need = |times: f64| ServiceNeed::of(&network().loads().expect("a target")[0].times(times), &measured);
    assert_eq!(need(1.1).expect("measured").extrapolated, None);
    let extrapolated = need(1.5).expect("near").extrapolated.expect("beyond");
    assert!((extrapolated - 1.5 / 1.1).abs() < 0.01, "{extrapolated}");
    assert!(matches!(need(1.7), Err(SizeError::BeyondMeasured { .. })));
    let width = |times: f64| {
        let CoreRange { estimate, low, high } = need(times).expect("near").cores;
        (high - low) / estimate
    };
    assert!(width(1.6) > width(1.0));
}

#[test]
fn one_packet_size_does_not_separate_packets_from_bytes() {
    let shares = [0.5, 0.8, 1.1, 0.5, 0.8, 1.1];
    let at = |size: f64| {
        shares.map(|share| vnet(1.5e6 * share, 1.5e6 * share * size)).map(|load| point(load, BRIDGE.cost(&load)))
    };
    // All packets have the target's size: a line is enough.
    let own = SizeProposal::of(&network(), &facts(at(833.0).to_vec())).expect("a size");
    assert!(own.services[0].one_message_size && own.services[0].terms.ns_per_byte.is_none());
    let other = told(&network(), at(1000.0).to_vec());
    assert!(
        other.contains("of about 1000 bytes")
            && other.contains("e.g. 128 bytes: repeat `vtax size` with e.g. --measure --to ldm:mars"),
        "{other}"
    );
}

#[test]
fn nothing_comes_out_of_nothing() {
    let measured = Lab::seeded(45).measure(BRIDGE, &network(), 3);
    for costs in [vec![], measured[..3].to_vec(), measured[..6].to_vec(), vec![measured[0].clone(); 12]] {
        let told = told(&network(), costs);
        assert!(told.contains("repeat `vtax size` with e.g. --measure --to ldm:mars"), "{told}");
    }
    let with = |change: fn(&mut CostPoint)| {
        let mut costs = measured.clone();
        change(&mut costs[4]);
        told(&network(), costs)
    };
    assert!(with(|point| point.cores = f64::NAN).starts_with("measurement 5 of vnet"));
    assert!(with(|point| point.load.packets_per_s = -1.0).starts_with("measurement 5 of vnet"));
    assert!(with(|point| point.method = "macvtap".into()).contains("bridge and macvtap"));
    let level = |packets: f64| [0.75, 0.9, 1.1, 1.25].map(|share| point(vnet(packets, 1.25e9 * share), share));
    assert!(told(&network(), level(1.05e6).to_vec()).starts_with("the packets per second of vnet were the same"));
    assert!(told(&network(), level(0.0).to_vec()).starts_with("measurement 1 of vnet"));
    let idle = measured.iter().map(|point| CostPoint { load: point.load.times(0.0), ..point.clone() });
    assert!(told(&network(), idle.collect()).contains("repeat `vtax size` with e.g. --measure --to ldm:mars"));
    let falling = measured.iter().map(|point| CostPoint { cores: 9.0 - 4.0 * point.cores, ..point.clone() });
    assert!(told(&network(), falling.collect()).contains("falls as its packets increase"));
}

#[test]
fn contradictory_targets_are_refused() {
    let target = network();
    let guests = |guests, vcpus| Some(GuestTotals { guests, vcpus, memory: ByteSize(1 << 30) });
    for (target, beginning) in [
        (SizeTarget::default(), "nothing to size"),
        (SizeTarget { net: None, ..target }, "1.5M packets/s without a bit rate"),
        (
            SizeTarget { packets: "50M".parse().ok(), ..target },
            "50M packets/s in 10 Gbit/s are 25.0 bytes each, less than",
        ),
        (SizeTarget { packets: "1k".parse().ok(), ..target }, "1k packets/s in 10 Gbit/s are 1250000 bytes each, more"),
        (SizeTarget { block: Some(ByteSize(4096)), ..target }, "--block 4 KiB without an I/O rate"),
        (SizeTarget { block: Some(ByteSize(0)), ios: "1k".parse().ok(), ..target }, "--block cannot be 0"),
        (SizeTarget { block: Some(ByteSize(1 << 40)), ios: "1k".parse().ok(), ..target }, "invalid I/O size 1024 GiB"),
        (SizeTarget { p99: Some(Span(Duration::ZERO)), ..target }, "--p99 cannot be 0"),
        (SizeTarget { guests: guests(0, 4), ..target }, "the number of guests cannot be 0"),
        (SizeTarget { guests: guests(4, 2), ..target }, "4 guests cannot have 2 virtual CPUs"),
    ] {
        let told = told(&target, Vec::new());
        assert!(told.starts_with(beginning), "{told}");
    }
    let measured = Lab::seeded(46).measure(BRIDGE, &target, 3);
    let absurd = SizeFacts { threads_per_core: 0, ..facts(measured) };
    assert!(matches!(SizeProposal::of(&target, &absurd), Err(SizeError::Machine(0, _))));
}

fn full_target() -> SizeTarget {
    SizeTarget {
        ios: "40k".parse().ok(),
        p99: Some(Span(Duration::from_micros(200))),
        consoles: 12,
        migrations: "2/day".parse().ok(),
        guests: Some(GuestTotals { guests: 12, vcpus: 24, memory: ByteSize(48 << 30) }),
        ..network()
    }
}

fn full_facts() -> SizeFacts {
    let disk = Machine { ns_per_message: 9_000.0, ns_per_byte: 0.5, ..BRIDGE };
    let mut lab = Lab::seeded(47);
    let costs = lab.measure(BRIDGE, &network(), 3).into_iter();
    let disks = lab.measure(disk, &SizeTarget { net: None, packets: None, consoles: 0, ..full_target() }, 3);
    let proof = [(0.6, 90), (0.7, 110), (0.78, 150), (0.85, 260), (0.95, 900)].iter().flat_map(|(utilization, p99)| {
        [0, 4].map(|more| KneePoint { utilization: *utilization, p99: Span(Duration::from_micros(p99 + more)) })
    });
    let guest = MigrationCell { memory: ByteSize(1 << 30), dirty_rate: Some(100) };
    let migrations = (0..10).flat_map(|round| {
        let migration =
            |cores, suspended_ms| MigrationPoint { cores, guest, round: ("t9".into(), round), suspended_ms };
        [migration(1, 366.0), migration(2, 90.0)]
    });
    SizeFacts {
        proof: [(SizedService::Vnet, proof.collect())].into(),
        migrations: migrations.collect(),
        ..facts(costs.chain(disks).collect())
    }
}

#[test]
fn a_proposal_has_all_parts() {
    let proposal = SizeProposal::of(&full_target(), &full_facts()).expect("a size");
    assert_eq!(proposal.knee.low, 0.78);
    assert_eq!(proposal.cores, (proposal.needs.high / 0.78).ceil() as u32);
    assert_eq!(proposal.cores_with_migration(), proposal.cores + 2);
    assert!(proposal.utilization().high <= 0.78);
    assert_eq!(
        proposal.services.iter().map(|need| need.target.service).collect::<Vec<_>>(),
        [SizedService::Vnet, SizedService::Vdisk]
    );
    let rules = proposal.rules.iter().map(|rule| (rule.figure, rule.low, rule.high)).collect::<Vec<_>>();
    assert_eq!(
        rules,
        [
            (ThumbFigure::NetworkCores, 4.0, 4.0),
            (ThumbFigure::DiskThreads, 3.0, 6.0),
            (ThumbFigure::DomainCores, 1.0, 2.0),
            (ThumbFigure::MigrationCores, 3.0, 3.0),
            (ThumbFigure::MemoryGb, 2.0, 4.0),
        ]
    );
    assert_eq!(proposal.memory.expect("guests are known").total, ByteSize(4 << 30));
    let notes = proposal.notes.join("; ");
    assert!(
        notes.contains("I/Os of 4 KiB assumed") && notes.contains("consoles") && !notes.contains("knee"),
        "{notes}"
    );
}

#[test]
fn a_proposal_survives_json() {
    let proposal = SizeProposal::of(&full_target(), &full_facts()).expect("a size");
    let text = serde_json::to_string(&proposal).expect("JSON");
    assert_eq!(serde_json::from_str::<SizeProposal>(&text).expect("its own text"), proposal);
    assert!(
        text.starts_with(
            r#"{"schema":"vtax.size/v1","domain":"primary","target":{"net":"10 Gbit/s","packets":1500000.0"#
        ),
        "{text}"
    );
}

#[test]
fn costs_are_missing_by_service() {
    let target = SizeTarget { ios: "40k".parse().ok(), ..network() };
    let told = told(&target, Lab::seeded(48).measure(BRIDGE, &network(), 3));
    assert_eq!(
        told,
        "the cost of vdisk has not been measured; to measure it, repeat `vtax size` with e.g. --measure --disk ldm:mars/data"
    );
    let consoles = SizeTarget { consoles: 4, ..SizeTarget::default() };
    assert!(self::told(&consoles, Vec::new()).starts_with("the cost of consoles is not known"));
}
