//! vtax's engines compared with each other, interleaved in one run: the effect of polling, many flows and segmentation,
//! as ratios of rounds.
//!
//! `cargo bench --bench engines [-- WORD]`, as root. The side that sends data or requests is pinned to the first
//! available CPU, the other side to the second; tests with two threads use both CPUs on each side.

use std::{
    error::Error,
    process::{Command, Stdio},
    time::Duration,
};

use vtax_guest::locate;
use vtax_lab::{Facts, Lab, LabEndpoint, Lifetime, World, plan};
use vtax_model::{
    located::Source,
    metric::Metric,
    options::{Engine, Segments, TestOptions},
    run::Figures,
    station::{EndSetup, Station},
    topology::Topology,
    units::{ByteSize, Span},
    workload::{Direction, TestSpec, Transport, Warmup, Workload},
};
use vtax_stats::{Confidence, Pair, PairedTax};
use vtax_wire::{
    link::AgentLink,
    measure::{SampleOrder, measure},
};

type Outcome<T> = Result<T, Box<dyn Error>>;

const ROUNDS: usize = 13;
const DURATION: Span = Span::from_millis(1000);

const LAB: &str = r#"
lab = { name = "bench-engines" }
host = [{ name = "sut" }, { name = "peer" }]
wire = [{ name = "w0", ends = ["sut", "peer"] }]
"#;

fn main() -> Outcome<()> {
    let world = World::enter(Lifetime::Ephemeral)?;
    let topology = Topology::parse(Source { name: "bench", text: LAB })?;
    let lab = Lab::up(&world, plan(&topology, &Facts::gather(&world)?)?, Lifetime::Ephemeral)?;
    let outcome = Ring::new(&lab).and_then(|ring| ring.fight());
    lab.down()?;
    outcome
}

/// A way to run a test.
#[derive(Clone, Copy)]
struct Way {
    transport: Transport,
    workload: Workload,
    streams: u32,
    options: TestOptions,
    /// True if each endpoint may use both CPUs.
    both_cpus: bool,
}

struct Ring<'lab> {
    sut: &'lab LabEndpoint,
    peer: &'lab LabEndpoint,
    agents: [AgentLink; 2],
    cpus: [u32; 2],
}

impl<'lab> Ring<'lab> {
    fn new(lab: &'lab Lab) -> Outcome<Ring<'lab>> {
        let end = |host: &str| -> Outcome<&LabEndpoint> {
            lab.blueprint().host(&host.parse()?, &"w0".parse()?).ok_or_else(|| format!("no host {host}").into())
        };
        let (sut, peer) = (end("sut")?, end("peer")?);
        let mut cpus = vtax_sys::cpu::allowed_cpus()?.iter().collect::<Vec<u32>>().into_iter();
        let cpus = [cpus.next().ok_or("no CPU")?, cpus.next().ok_or("this needs two CPUs")?];
        Ok(Ring { sut, peer, agents: [agent(lab, sut)?, agent(lab, peer)?], cpus })
    }

    /// Runs all comparisons, or those whose names contain the word given after `--`.
    fn fight(&self) -> Outcome<()> {
        println!("{ROUNDS} rounds of {DURATION}; ratios of the first to the second with 95 % intervals\n");
        for transport in [Transport::Tcp, Transport::Udp] {
            for engine in [Engine::BusyPoll, Engine::Epoll, Engine::IoUring] {
                let name = format!("{transport} RR, {engine} to blocking");
                self.contest(&name, rr(transport, 1, engine), rr(transport, 1, Engine::Blocking))?;
            }
        }
        let flows = |flows| Way {
            options: TestOptions { threads: Some(2), ..rr(Transport::Tcp, flows, Engine::Epoll).options },
            both_cpus: true,
            ..rr(Transport::Tcp, flows, Engine::Epoll)
        };
        self.rates("TCP RR on 2 threads, 1,000 flows to 64: transactions/s", flows(1000), flows(64))?;
        self.rates("TCP RR on 2 threads, 10,000 flows to 64: transactions/s", flows(10_000), flows(64))?;
        let udp = |options| stream(Transport::Udp, 1472, options);
        let gso = TestOptions { gso: Some(Segments::MOST), ..TestOptions::default() };
        self.contest("UDP stream 1472 B, GSO to none", udp(gso), udp(TestOptions::default()))?;
        let both = TestOptions { gro: true, ..gso };
        self.contest("UDP stream 1472 B, GSO and GRO to none", udp(both), udp(TestOptions::default()))
    }

    fn contest(&self, name: &str, first: Way, second: Way) -> Outcome<()> {
        let metric = Metric::of(first.workload.kind());
        let unit = if metric == Metric::Goodput { "Mb/s" } else { "us" };
        self.fought(name, unit, first, second, |figures| metric.value(first.workload.kind(), figures))
    }

    fn rates(&self, name: &str, first: Way, second: Way) -> Outcome<()> {
        self.fought(name, "/s", first, second, Figures::rate)
    }

    fn fought(&self, name: &str, unit: &str, first: Way, second: Way, figure: impl Fn(&Figures) -> f64) -> Outcome<()> {
        // cargo passes `--bench` to every benchmark.
        let word = std::env::args().skip(1).find(|word| word != "--bench").unwrap_or_default();
        if !name.contains(&word) {
            return Ok(());
        }
        let mut pairs = Vec::new();
        for _ in 0..ROUNDS {
            pairs.push(match coin()? {
                true => {
                    let cell = figure(&self.sample(first)?);
                    Pair { baseline: figure(&self.sample(second)?), cell }
                }
                false => {
                    let baseline = figure(&self.sample(second)?);
                    Pair { baseline, cell: figure(&self.sample(first)?) }
                }
            });
        }
        report(name, unit, &pairs)
    }

    fn sample(&self, way: Way) -> Outcome<Figures> {
        let Way { transport, workload, streams, options, both_cpus } = way;
        let warmup = Warmup::For(Span::from_millis(200));
        let spec = TestSpec { transport, workload, streams, warmup, duration: DURATION, slices: None, options };
        let setup = |endpoint: &LabEndpoint, side: usize| EndSetup {
            cpus: if both_cpus { self.cpus.to_vec() } else { vec![self.cpus[side]] },
            ..EndSetup::new(Station::Ip(endpoint.address))
        };
        let (initiator, responder) = (setup(self.sut, 0), setup(self.peer, 1));
        let target = responder.station.clone();
        let [sut, peer] = &self.agents;
        let (sent, received) =
            measure(sut, peer, &SampleOrder { spec, initiator, responder, target: target.into(), turns: None })?;
        Ok(Figures::join(&spec, true, &sent, &received))
    }
}

fn rr(transport: Transport, streams: u32, engine: Engine) -> Way {
    let workload = Workload::Rr { request: ByteSize(1), response: ByteSize(1) };
    let options = TestOptions { engine, ..TestOptions::default() };
    Way { transport, workload, streams, options, both_cpus: false }
}

fn stream(transport: Transport, message: u64, options: TestOptions) -> Way {
    let workload = Workload::Stream { message: ByteSize(message), direction: Direction::Forward };
    Way { transport, workload, streams: 1, options, both_cpus: false }
}

fn agent(lab: &Lab, endpoint: &LabEndpoint) -> Outcome<AgentLink> {
    let mut command = Command::new(locate::agent_program(None)?);
    command.arg("--stdio").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = lab.spawn(endpoint, command)?;
    Ok(AgentLink::from_child(endpoint.name.as_str(), child, Duration::from_secs(10))?)
}

fn coin() -> Outcome<bool> {
    let mut byte = [0];
    rustix::rand::getrandom(&mut byte, rustix::rand::GetRandomFlags::empty())?;
    Ok(byte[0] & 1 == 1)
}

fn report(what: &str, unit: &str, rounds: &[Pair]) -> Outcome<()> {
    let mean = |value: fn(&Pair) -> f64| rounds.iter().map(value).sum::<f64>() / rounds.len() as f64;
    let tax = PairedTax::of(rounds, Confidence::P95)?;
    println!(
        "{what}: {:.1} {unit} to {:.1} {unit}, ratio {:.3} [{:.3}, {:.3}], p {:.4}",
        mean(|pair| pair.cell),
        mean(|pair| pair.baseline),
        tax.ratio,
        tax.low,
        tax.high,
        tax.p.get()
    );
    Ok(())
}
