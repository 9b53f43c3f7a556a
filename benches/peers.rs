//! Our engine beside sockperf and iperf3, over one wire, interleaved in one run: each round takes
//! every contestant once, in random order, and the ratio is of rounds, not of means.
//!
//! `cargo bench --bench peers`, as root. All ends are pinned: the side that sends or asks to the
//! first CPU that we may use, the other to the second.

use std::{
    error::Error,
    net::IpAddr,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;
use vtax_agent::{
    link::AgentLink,
    locate,
    measure::{Order, measure},
};
use vtax_engine::EndSetup;
use vtax_lab::{Endpoint, Facts, Lab, Lifetime, Need, World, plan};
use vtax_model::{
    located::Source,
    run::Figures,
    stats::{Confidence, Pair, PairedTax},
    topology::Topology,
    units::{ByteSize, Span},
    workload::{TestSpec, Transport, Workload},
};

type Outcome<T> = Result<T, Box<dyn Error>>;

const ROUNDS: usize = 13;
const SECONDS: u64 = 1;
/// iperf3 leaves out whole seconds; TCP's congestion control needs that long to find its rate.
const WARMUP: u64 = 1;
/// sockperf's least message.
const RR_BYTES: u64 = 14;

const LAB: &str = r#"
lab = { name = "bench-peers" }
host = [{ name = "sut" }, { name = "peer" }]
wire = [{ name = "w0", ends = ["sut", "peer"] }]
"#;

fn main() -> Outcome<()> {
    let world = World::enter(Need::Ephemeral)?;
    let topology = Topology::parse(Source { name: "bench", text: LAB })?;
    let lab = Lab::up(&world, plan(&topology, &Facts::gather(&world)?)?, Lifetime::Ephemeral)?;
    let outcome = Ring::new(&lab).and_then(|ring| ring.fight());
    lab.down()?;
    outcome
}

/// The wire, what stands ready at its ends, and the CPUs of the two sides.
struct Ring<'lab> {
    lab: &'lab Lab,
    sut: &'lab Endpoint,
    peer: &'lab Endpoint,
    ours: [AgentLink; 2],
    cpus: [u32; 2],
}

impl<'lab> Ring<'lab> {
    fn new(lab: &'lab Lab) -> Outcome<Ring<'lab>> {
        let end = |host: &str| -> Outcome<&Endpoint> {
            lab.host_endpoint(&host.parse()?, &"w0".parse()?).ok_or_else(|| format!("no host {host}").into())
        };
        let (sut, peer) = (end("sut")?, end("peer")?);
        let mut cpus = vtax_sys::cpu::allowed_cpus()?.iter().collect::<Vec<u32>>().into_iter();
        let cpus = [cpus.next().ok_or("no CPU")?, cpus.next().ok_or("this needs two CPUs")?];
        Ok(Ring { lab, sut, peer, ours: [agent(lab, sut)?, agent(lab, peer)?], cpus })
    }

    /// All contests, or those whose names have the word that was given after `--`.
    fn fight(&self) -> Outcome<()> {
        println!("{ROUNDS} rounds of {SECONDS} s; ratios of ours to theirs with 95 % intervals\n");
        for transport in [Transport::Tcp, Transport::Udp] {
            let name = format!("{transport} RR {RR_BYTES} B: RTT, sockperf's doubled");
            let server = || self.sockperf_server(transport);
            self.contest(&name, "us", server, || self.our_rtt(transport), || self.sockperf_rtt(transport))?;
        }
        for message in [128 << 10, 1 << 20] {
            let name = format!("TCP stream {}: goodput", ByteSize(message));
            let ours = || self.our_goodput(Transport::Tcp, message);
            self.contest(&name, "Mb/s", || self.iperf3_server(), ours, || self.iperf3_tcp(message))?;
        }
        for message in [64, 1472] {
            let name = format!("UDP stream {message} B: goodput");
            let ours = || self.our_goodput(Transport::Udp, message);
            self.contest(&name, "Mb/s", || self.iperf3_server(), ours, || self.iperf3_udp(message))?;
        }
        Ok(())
    }

    fn contest(
        &self,
        name: &str,
        unit: &str,
        server: impl Fn() -> Outcome<Server>,
        ours: impl Fn() -> Outcome<f64>,
        theirs: impl Fn() -> Outcome<f64>,
    ) -> Outcome<()> {
        // cargo itself says `--bench` to every benchmark.
        let word = std::env::args().skip(1).find(|word| word != "--bench").unwrap_or_default();
        if !name.contains(&word) {
            return Ok(());
        }
        let server = server()?;
        let rounds = self.rounds(ours, theirs)?;
        drop(server);
        report(name, unit, &rounds)
    }

    /// Pairs of (theirs, ours), each round in the order that a coin gives.
    fn rounds(&self, ours: impl Fn() -> Outcome<f64>, theirs: impl Fn() -> Outcome<f64>) -> Outcome<Vec<Pair>> {
        let mut pairs = Vec::new();
        for _ in 0..ROUNDS {
            pairs.push(match coin()? {
                true => {
                    let cell = ours()?;
                    Pair { baseline: theirs()?, cell }
                }
                false => {
                    let baseline = theirs()?;
                    Pair { baseline, cell: ours()? }
                }
            });
        }
        Ok(pairs)
    }

    fn our_rtt(&self, transport: Transport) -> Outcome<f64> {
        let size = ByteSize(RR_BYTES);
        Ok(self.sample(transport, Workload::Rr { request: size, response: size })?.rtt_us())
    }

    fn our_goodput(&self, transport: Transport, message: u64) -> Outcome<f64> {
        Ok(self.sample(transport, Workload::Stream { message: ByteSize(message) })?.goodput_mbps())
    }

    fn sample(&self, transport: Transport, workload: Workload) -> Outcome<Figures> {
        let (warmup, duration) = (Span::from_millis(WARMUP * 1000), Span::from_millis(SECONDS * 1000));
        let spec = TestSpec { transport, workload, streams: 1, warmup, duration };
        let setup = |endpoint: &Endpoint, cpu| EndSetup {
            address: IpAddr::V4(endpoint.address),
            cpus: vec![cpu],
            directory: None,
        };
        let order = Order {
            spec,
            initiator: setup(self.sut, self.cpus[0]),
            responder: setup(self.peer, self.cpus[1]),
            target: IpAddr::V4(self.peer.address),
        };
        let (sent, received) = measure(&self.ours[0], &self.ours[1], &order)?;
        Ok(Figures::join(workload.kind(), true, &sent, &received))
    }

    fn sockperf_server(&self, transport: Transport) -> Outcome<Server> {
        let mut command = pinned(self.cpus[1], "sockperf");
        command.args(["server", "-i", &self.peer.address.to_string(), "-p", "11111"]);
        command.args(sockperf_flag(transport));
        self.serve(command)
    }

    fn sockperf_rtt(&self, transport: Transport) -> Outcome<f64> {
        let mut command = pinned(self.cpus[0], "sockperf");
        command.args(["ping-pong", "-i", &self.peer.address.to_string(), "-p", "11111"]);
        command.args(["-t", &SECONDS.to_string(), "-m", &RR_BYTES.to_string()]);
        command.args(sockperf_flag(transport));
        let text = self.output(command)?;
        let half = text.split("avg-latency=").nth(1).and_then(|rest| rest.split([' ', '(']).next());
        Ok(half.ok_or_else(|| format!("sockperf said: {text}"))?.parse::<f64>()? * 2.0)
    }

    fn iperf3_server(&self) -> Outcome<Server> {
        let mut command = pinned(self.cpus[1], "iperf3");
        command.args(["-s", "-B", &self.peer.address.to_string()]);
        self.serve(command)
    }

    fn iperf3_tcp(&self, message: u64) -> Outcome<f64> {
        let result = self.iperf3(&["-l", &message.to_string(), "-O", &WARMUP.to_string()])?;
        mbps(&result["end"]["sum_received"]["bits_per_second"])
    }

    /// What arrived: sent less lost. Without `-O`, with which iperf3 counts the datagrams that it
    /// leaves out as lost, more than it sent; a UDP stream has no slow start to leave out.
    fn iperf3_udp(&self, message: u64) -> Outcome<f64> {
        let result = self.iperf3(&["-u", "-b", "0", "-l", &message.to_string()])?;
        let sum = &result["end"]["sum"];
        let lost = sum["lost_percent"].as_f64().ok_or("iperf3 tells no loss")?;
        Ok(mbps(&sum["bits_per_second"])? * (1.0 - lost / 100.0))
    }

    fn iperf3(&self, arguments: &[&str]) -> Outcome<Value> {
        let mut command = pinned(self.cpus[0], "iperf3");
        command.args(["-c", &self.peer.address.to_string(), "-J", "-t", &SECONDS.to_string()]);
        command.args(arguments);
        Ok(serde_json::from_str(&self.output(command)?)?)
    }

    fn serve(&self, mut command: Command) -> Outcome<Server> {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let server = Server(self.lab.spawn(self.peer, command)?);
        // Neither tool says when it listens.
        thread::sleep(Duration::from_millis(500));
        Ok(server)
    }

    fn output(&self, mut command: Command) -> Outcome<String> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = self.lab.spawn(self.sut, command)?.wait_with_output()?;
        let text = String::from_utf8(output.stdout)?;
        match output.status.success() {
            true => Ok(text),
            false => Err(format!("{text}{}", String::from_utf8_lossy(&output.stderr)).into()),
        }
    }
}

fn agent(lab: &Lab, endpoint: &Endpoint) -> Outcome<AgentLink> {
    let mut command = Command::new(locate::agent_program(None)?);
    command.arg("--stdio").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = lab.spawn(endpoint, command)?;
    Ok(AgentLink::from_child(endpoint.name.as_str(), child, Duration::from_secs(10))?)
}

fn pinned(cpu: u32, program: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu.to_string(), program]);
    command
}

fn sockperf_flag(transport: Transport) -> Option<&'static str> {
    (transport == Transport::Tcp).then_some("--tcp")
}

fn mbps(bits_per_second: &Value) -> Outcome<f64> {
    Ok(bits_per_second.as_f64().ok_or("iperf3 tells no rate")? / 1e6)
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
        "{what}: ours {:.1} {unit}, theirs {:.1} {unit}, ratio {:.3} [{:.3}, {:.3}], p {:.4}",
        mean(|pair| pair.cell),
        mean(|pair| pair.baseline),
        tax.ratio,
        tax.low,
        tax.high,
        tax.p.get()
    );
    Ok(())
}

/// A server of ours, ended with the value.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself, which the contest has noticed then.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
