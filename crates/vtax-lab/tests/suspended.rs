//! A guest that is suspended for a known time, observed from outside. This test has the requirements of `guest_labs`.

#[path = "../../vtax-guest/tests/shared/agent.rs"]
mod agent;
#[path = "shared/build.rs"]
mod build;
#[path = "shared/run_directory.rs"]
mod run_directory;

use std::{
    net::{IpAddr, Ipv4Addr},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use agent::agent;
use build::try_up;
use run_directory::in_run_directory;
use vtax_guest::qmp::Monitor;
use vtax_lab::{Facts, GuestNeeds, Lab, Lifetime, World};
use vtax_model::{
    located::Source,
    measurement::{EchoWatch, Silence},
    station::Station,
    suspension::{ClockExchange, Suspension, suspension},
    topology::Topology,
    units::{Mtu, Span},
};
use vtax_sys::{clock::now_ns, netns::NetNs};
use vtax_wire::{link::AgentLink, protocol::LinkSetup};

/// A guest under TCG on a machine that is busy with other tests.
const BOOT: Duration = Duration::from_secs(600);
const SOON: Duration = Duration::from_secs(60);

const PLANTED: Duration = Duration::from_millis(500);
/// Both ways find the planted time within this much.
const CLOSE: Duration = Duration::from_millis(3);
/// On a busy machine, a guest under TCG answers late in any single attempt.
const ATTEMPTS: usize = 10;

const LAB: &str = r#"
[lab]
name = "suspended"
[[host]]
name = "sut"
[[host]]
name = "peer"
[[wire]]
name = "w0"
ends = ["sut", "peer"]
[[guest]]
name = "web"
host = "sut"
method = "paravirtual"
backend = "userspace"
memory = "192 MiB"
"#;

fn up(world: &World) -> Lab {
    let topology = Topology::parse(Source { name: "lab.toml", text: LAB }).expect("a good file");
    let needs = GuestNeeds::new(&agent(), None).of_lab(&topology);
    let facts = || Facts::gather(world).expect("facts").with_guests(world, &needs);
    try_up(world, &topology, facts, Lifetime::Ephemeral).expect("a lab")
}

/// The agent at the other end of the guest's wire.
fn peer() -> AgentLink {
    let namespace = NetNs::open(&in_run_directory("labs/suspended/netns/peer")).expect("the host's namespace");
    let mut command = Command::new(agent());
    command.arg("--stdio");
    namespace.place(&mut command).expect("it starts there");
    AgentLink::spawn("peer", command, SOON).expect("an agent")
}

/// Results of both methods, and the bounds of the guest's suspension.
#[derive(Debug)]
struct Found {
    suspension: Suspension,
    silence: Silence,
    least: Duration,
    most: Duration,
}

impl Found {
    fn is_exact(&self) -> bool {
        let by_clock = Duration::from_nanos(self.suspension.length_ns.max(0).cast_unsigned());
        let is_close = |found: Duration| found + CLOSE >= self.least && found <= self.most + CLOSE;
        is_close(by_clock) && is_close(self.silence.length())
    }
}

/// Reads the guest's clock repeatedly.
fn read_clock(guest: &AgentLink, ended: &AtomicBool) -> Vec<ClockExchange> {
    let mut exchanges = Vec::new();
    while !ended.load(Ordering::SeqCst) {
        exchanges.push(guest.exchange(SOON).expect("it answers"));
        thread::sleep(Duration::from_millis(10));
    }
    exchanges
}

/// Suspends the guest once, while its clock is read all the time and its address is watched.
fn suspend(guest: &AgentLink, watcher: &AgentLink, monitor: &mut Monitor, watch: &EchoWatch) -> Found {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let clock = scope.spawn(|| read_clock(guest, &ended));
        let watching = watcher.watch(watch).expect("it begins");
        thread::sleep(Duration::from_millis(500));
        let asked = now_ns();
        monitor.pause().expect("QEMU stops it");
        let stopped = now_ns();
        thread::sleep(PLANTED);
        let wanted = now_ns();
        monitor.resume().expect("QEMU lets it run");
        let resumed = now_ns();
        thread::sleep(Duration::from_millis(500));
        ended.store(true, Ordering::SeqCst);
        let report = watching.stop(SOON).expect("a report");
        let exchanges = clock.join().expect("no panic");
        let suspension = suspension(&exchanges, &(asked..=resumed)).expect("it was read before and afterwards");
        let (least, most) = (Duration::from_nanos(wanted - stopped), Duration::from_nanos(resumed - asked));
        Found { suspension, silence: report.silences[0], least, most }
    })
}

#[test]
fn a_suspended_guest_is_seen_by_its_clock_and_by_its_silence() {
    let world = World::enter(Lifetime::Kept).expect("these tests need root");
    let lab = up(&world);
    let [planned] = lab.guests() else { panic!("one guest") };
    let mut qemu = lab.guest(&planned.name).expect("it was started");
    qemu.wait_agent(BOOT).expect("the agent opens its port");
    let guest = AgentLink::connect_unix("web", &qemu.launch().agent_socket(), BOOT).expect("an agent");
    let (mac, mtu) = (planned.mac.to_string(), Mtu::try_from(1500).expect("a usual MTU"));
    guest.attach(&LinkSetup { mac, mtu, addresses: vec![planned.address] }).expect("the agent sets it up");
    let mut monitor = qemu.monitor(SOON).expect("its monitor answers");
    let watcher = peer();
    let (every, most) = (Span::from_millis(1), Span::from_millis(600_000));
    let target = planned.address.addr();
    let watch = EchoWatch { station: Station::Ip(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), target, every, most };
    let attempts = std::iter::repeat_with(|| {
        let found = suspend(&guest, &watcher, &mut monitor, &watch);
        println!("{found:?}");
        // The silence contains the suspension, and the clock's interval does, too, however busy the machine is.
        assert!(found.silence.length() >= found.least, "{found:?}");
        let slack = i64::try_from(found.suspension.uncertainty_ns + 1_000_000).expect("short");
        let [least, most] = [found.least, found.most].map(|time| i64::try_from(time.as_nanos()).expect("short"));
        assert!((least - slack..=most + slack).contains(&found.suspension.length_ns), "{found:?}");
        found.is_exact()
    });
    assert!(attempts.take(ATTEMPTS).any(|exact| exact));
    drop((monitor, watcher, guest));
    lab.down().expect("all goes");
}
