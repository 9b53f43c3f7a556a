//! Waves of a pool of agents, each in a separate namespace behind one bridge. Requires root.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use vtax_model::{
    options::TestOptions,
    station::{EndSetup, Station},
    units::{ByteSize, Span},
    workload::{Direction, TestSpec, Transport, Warmup, Workload},
};
use vtax_sys::{
    netlink::{IfName, LinkChange, LinkKind, NewLink, Rtnl},
    netns::{NetNs, Outlive},
};
use vtax_wire::{
    measure::SampleOrder,
    pool::{AgentDial, AgentId, AgentPool, PairFailure, PairId, PairSample, Wave, WavePair},
};

const SOON: Duration = Duration::from_secs(300);
const HOSTS: u32 = 8;
/// Time to notice that a peer is silent, and to give up, on a busy machine. It is far less than a test's own limit.
const STOPPED_MOST: Duration = Duration::from_secs(18);

type Results = Vec<(PairId, Result<PairSample, PairFailure>)>;

/// Eight hosts, each a namespace, and a bridge in another one.
struct Hosts {
    pool: AgentPool,
    _namespaces: Vec<NetNs>,
}

fn name(text: &str) -> IfName {
    text.parse().expect("a name")
}

fn up() -> LinkChange<'static> {
    LinkChange { up: Some(true), ..LinkChange::default() }
}

fn address(host: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1 + host as u8))
}

fn agent_in(namespace: &NetNs) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vtax-agent"));
    command.arg("--stdio").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    namespace.spawn(command, Outlive::No).expect("an agent")
}

impl Hosts {
    fn new() -> Hosts {
        let hub = NetNs::scratch().expect("these tests need root");
        let mut ports = Rtnl::open_in(&hub).expect("opened");
        let bridge = name("br0");
        ports.create_link(&NewLink::new(bridge.clone(), LinkKind::Bridge)).expect("made");
        ports.set_link(&bridge, &up()).expect("up");
        let master = Some(Some(ports.existing_link(&bridge).expect("there").index));
        let mut namespaces = Vec::new();
        for host in 0..HOSTS {
            let namespace = NetNs::scratch().expect("made");
            let (port, nic) = (name(&format!("port{host}")), name("nic"));
            let kind = LinkKind::Veth { peer: nic.clone(), peer_ns: Some(&namespace), peer_mtu: None };
            ports.create_link(&NewLink::new(port.clone(), kind)).expect("made");
            ports.set_link(&port, &LinkChange { master, ..up() }).expect("a port");
            let mut inside = Rtnl::open_in(&namespace).expect("opened");
            inside.set_link(&nic, &up()).expect("up");
            let index = inside.existing_link(&nic).expect("there").index;
            inside.add_address(index, format!("{}/24", address(host)).parse().expect("a net")).expect("added");
            namespaces.push(namespace);
        }
        let dial =
            |(host, namespace): (usize, &NetNs)| AgentDial::child(format!("host {host}"), agent_in(namespace), SOON);
        let (pool, failures) = AgentPool::connect(namespaces.iter().enumerate().map(dial).collect());
        assert!(failures.is_empty(), "{failures:?}");
        namespaces.push(hub);
        Hosts { pool, _namespaces: namespaces }
    }

    fn signal(&self, host: u32, signal: Signal) {
        let link = self.pool.agent(AgentId(host)).expect("connected");
        let id = link.process_id().expect("a child").try_into().expect("small");
        kill_process(Pid::from_raw(id).expect("not 0"), signal).expect("ours");
    }

    /// A wave in the midst of which a host's agent gets a signal.
    fn wave_with(&mut self, round: u32, host: u32, signal: Signal) -> Results {
        let link = self.pool.agent(AgentId(host)).expect("connected");
        let id = Pid::from_raw(link.process_id().expect("a child").try_into().expect("small")).expect("not 0");
        thread::scope(|scope| {
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(700));
                kill_process(id, signal).expect("ours");
            });
            self.pool.take_wave(&wave(round, spec(Workload::Rr { request: ByteSize(1), response: ByteSize(1) }, 1_500)))
        })
    }
}

fn spec(workload: Workload, millis: u64) -> TestSpec {
    TestSpec {
        transport: Transport::Tcp,
        workload,
        streams: 1,
        warmup: Warmup::For(Span::from_millis(20)),
        duration: Span::from_millis(millis),
        slices: None,
        options: TestOptions::default(),
    }
}

/// Returns the pairs of a round, of which each host is in one: the circle method.
fn pairs(round: u32) -> Vec<[u32; 2]> {
    let others = HOSTS - 1;
    let at = |place: u32| (round + place) % others;
    let around = (1..HOSTS / 2).map(|place| [at(place), at(others - place)]);
    std::iter::once([others, at(0)]).chain(around).collect()
}

fn number([one, other]: [u32; 2]) -> PairId {
    PairId(u64::from(one.min(other) * HOSTS + one.max(other)))
}

fn wave(round: u32, spec: TestSpec) -> Wave {
    let pair = |ends: [u32; 2]| {
        let [initiator, responder] = ends.map(|host| EndSetup::new(Station::Ip(address(host))));
        let order = SampleOrder { spec, target: responder.station.clone().into(), initiator, responder, turns: None };
        WavePair { id: number(ends), initiator: AgentId(ends[0]), responder: AgentId(ends[1]), order }
    };
    Wave::new(pairs(round).into_iter().map(pair).collect()).expect("disjoint")
}

fn short_stream() -> TestSpec {
    spec(Workload::Stream { message: ByteSize(16 << 10), direction: Direction::Forward }, 100)
}

/// Splits the results of a round into those of a host's pair and all others.
fn without(host: u32, round: u32, results: Results) -> (PairFailure, Results) {
    let of_host = pairs(round).into_iter().find(|pair| pair.contains(&host)).expect("it is in a pair");
    let (its, others): (Results, Results) = results.into_iter().partition(|(id, _)| *id == number(of_host));
    let (_, failed) = its.into_iter().next().expect("a result");
    (failed.expect_err("its pair fails"), others)
}

fn all_succeed(results: &Results) {
    assert!(results.iter().all(|(_, result)| result.is_ok()), "{results:?}");
}

#[test]
fn each_pair_is_measured_once_and_no_host_twice_at_a_time() {
    let mut hosts = Hosts::new();
    let mut measured = BTreeSet::new();
    let mut before: Vec<(PairId, PairSample)> = Vec::new();
    for round in 0..HOSTS - 1 {
        let results = hosts.pool.take_wave(&wave(round, short_stream()));
        all_succeed(&results);
        let taken: Vec<_> = results.into_iter().filter_map(|(id, result)| Some((id, result.ok()?))).collect();
        assert_eq!(taken.len(), HOSTS as usize / 2);
        for (id, sample) in &taken {
            assert!(sample.responder.bytes > 0 && measured.insert(*id), "{id}: {sample:?}");
            let together = taken.iter().all(|(_, other)| sample.times.surely_overlaps(&other.times));
            assert!(together, "{taken:?}");
            assert!(
                before.iter().all(|(_, earlier)| !sample.times.may_overlap(&earlier.times)),
                "{before:?} {taken:?}"
            );
        }
        before = taken;
    }
    assert_eq!(measured.len() as u32, HOSTS * (HOSTS - 1) / 2);
    assert!(hosts.pool.deaths().is_empty());
}

#[test]
fn an_agent_that_is_killed_fails_its_pairs_and_is_named() {
    let mut hosts = Hosts::new();
    let results = hosts.wave_with(0, 3, Signal::KILL);
    let (failure, others) = without(3, 0, results);
    assert_eq!(failure.lost(), [AgentId(3)], "{failure:?}");
    assert!(failure.to_string().contains("the agent of host 3"), "{failure}");
    all_succeed(&others);
    let deaths: Vec<AgentId> = hosts.pool.deaths().into_iter().map(|(id, _)| id).collect();
    assert_eq!(deaths, [AgentId(3)]);
    for round in 1..HOSTS - 1 {
        let (failure, others) = without(3, round, hosts.pool.take_wave(&wave(round, short_stream())));
        assert_eq!(failure.lost(), [AgentId(3)], "{failure:?}");
        assert_eq!(others.len(), 3);
        all_succeed(&others);
    }
}

/// It may continue at any time. Until it has reported that it has stopped measuring, it isn't measured.
#[test]
fn an_agent_that_is_stopped_has_a_deadline_and_proves_that_it_has_ended() {
    let mut hosts = Hosts::new();
    let begun = Instant::now();
    let (failure, others) = without(5, 0, hosts.wave_with(0, 5, Signal::STOP));
    assert!(begun.elapsed() < STOPPED_MOST, "{:?}", begun.elapsed());
    assert_eq!(failure.not_stopped(), [AgentId(5)], "{failure:?}");
    assert!(failure.lost().is_empty() && failure.to_string().contains("host 5"), "{failure}");
    all_succeed(&others);
    let (failure, others) = without(5, 1, hosts.pool.take_wave(&wave(1, short_stream())));
    assert!(matches!(failure, PairFailure::NotStopped { agent: AgentId(5), .. }), "{failure:?}");
    all_succeed(&others);
    hosts.signal(5, Signal::CONT);
    let until = Instant::now() + SOON;
    let measured = std::iter::repeat_with(|| {
        thread::sleep(Duration::from_millis(50));
        hosts.pool.take_wave(&wave(2, short_stream()))
    });
    let all = measured.take_while(|_| Instant::now() < until).find(|results| results.iter().all(|(_, r)| r.is_ok()));
    assert!(all.is_some(), "host 5 is never measured again");
}

/// It was stopped before the wave, which the others don't wait for.
#[test]
fn an_agent_that_does_not_get_ready_is_omitted() {
    let mut hosts = Hosts::new();
    all_succeed(&hosts.pool.take_wave(&wave(0, short_stream())));
    hosts.signal(2, Signal::STOP);
    let (failure, others) = without(2, 1, hosts.pool.take_wave(&wave(1, short_stream())));
    assert!(failure.to_string().contains("host 2"), "{failure}");
    assert_eq!(others.len(), 3);
    all_succeed(&others);
}
