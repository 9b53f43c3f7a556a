//! Networks of containers as methods of labs, on the running kernel. These tests require root and fail without it.

#[path = "shared/build.rs"]
mod build;
#[path = "shared/run_directory.rs"]
mod run_directory;
#[path = "shared/traces.rs"]
mod traces;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use build::try_up;
use run_directory::in_run_directory;
use traces::{assert_nothing_left, processes};
use vtax_lab::{Facts, Lab, LabEndpoint, Lifetime, RelayProcess, World, availability, clean};
use vtax_model::{
    located::Source,
    method::{IoMethod, Reached},
    station::Station,
    topology::{Name, Topology},
    units::Mtu,
};
use vtax_sys::{netns::NetNs, process::Signal};

/// Set for the process that is going to be killed: its lab, and the method of its zone.
const ACTOR: &str = "VTAX_TEST_ACTOR";
const PATIENCE: Duration = Duration::from_secs(60);

const METHODS: [IoMethod; 5] =
    [IoMethod::Nat, IoMethod::Published, IoMethod::PublishedProxy, IoMethod::Pasta, IoMethod::Slirp4netns];

fn world() -> World {
    World::enter(Lifetime::Kept).expect("these tests need root")
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

/// Returns the methods whose programs are installed. `scripts/setup.sh test` installs those of all except the proxy.
fn methods(world: &World) -> Vec<IoMethod> {
    let facts = Facts::gather(world).expect("facts");
    let answers = availability(&facts);
    let found: Vec<IoMethod> = METHODS.into_iter().filter(|method| answers.contains(&(*method, Ok(())))).collect();
    let others = METHODS.into_iter().filter(|method| *method != IoMethod::PublishedProxy);
    for method in others {
        let answer = answers.iter().find(|(of, _)| *of == method);
        assert!(found.contains(&method), "{method} is unavailable: {answer:?}");
    }
    found
}

fn up(world: &World, lab: &str, method: IoMethod, family: &str) -> Lab {
    let text = format!(
        r#"
[lab]
name = "{lab}"
family = "{family}"
[[host]]
name = "sut"
[[host]]
name = "peer"
[[wire]]
name = "w0"
ends = ["sut", "peer"]
[[zone]]
name = "web"
host = "sut"
method = "{method}"
"#
    );
    let topology = Topology::parse(Source { name: "lab.toml", text: &text }).expect("a good file");
    try_up(world, &topology, || Facts::gather(world).expect("facts"), Lifetime::Ephemeral).expect("a lab")
}

/// The zone, its host and the other host.
fn ends(lab: &Lab) -> [LabEndpoint; 3] {
    let host = |host: &str| lab.blueprint().host(&name(host), &name("w0")).expect("a host").clone();
    [lab.blueprint().zone(&name("web")).expect("the zone").clone(), host("sut"), host("peer")]
}

/// Runs a closure where the endpoint's processes live.
fn at<T: Send>(lab: &Lab, end: &LabEndpoint, work: impl FnOnce() -> T + Send) -> T {
    let namespace = NetNs::open(&lab.namespace_path(end)).expect("a namespace");
    namespace.run(work).expect("inside")
}

/// Opens a connection from one end to a listener at the other, and exchanges datagrams. Returns the addresses from
/// which they seem to come, over TCP and over UDP.
fn seen(lab: &Lab, from: &LabEndpoint, to: &LabEndpoint, listen: u16, reached: SocketAddr) -> [SocketAddr; 2] {
    let own = SocketAddr::new(to.address, listen);
    let (listener, datagrams) =
        at(lab, to, || (TcpListener::bind(own).expect("a free port"), UdpSocket::bind(own).expect("a free port")));
    datagrams.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let any = SocketAddr::new(from.address, 0);
    let (mut connection, asking) = at(lab, from, || {
        let connection = TcpStream::connect_timeout(&reached, PATIENCE).expect("a connection");
        (connection, UdpSocket::bind(any).expect("its own address"))
    });
    connection.write_all(b"over TCP").expect("sent");
    let (mut accepted, peer) = listener.accept().expect("a connection");
    let mut text = [0; 8];
    accepted.read_exact(&mut text).expect("received");
    assert_eq!(&text, b"over TCP");
    asking.connect(reached).expect("a route");
    asking.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    asking.send(b"over UDP").expect("sent");
    let (length, asker) = datagrams.recv_from(&mut text).expect("a datagram");
    datagrams.send_to(&text[..length], asker).expect("sent back");
    assert_eq!(asking.recv(&mut text).expect("an answer"), length);
    assert_eq!(&text, b"over UDP");
    [peer, asker]
}

#[test]
fn the_peer_sees_the_host_and_reaches_the_zone_by_published_ports_only() {
    let world = world();
    for method in methods(&world) {
        let lab_name = format!("net-{method}");
        let lab = up(&world, &lab_name, method, "ipv4");
        let [web, sut, peer] = ends(&lab);
        for bytes in [1500, 9000, 1500] {
            lab.set_mtu(Mtu::try_from(bytes).expect("a usual MTU")).expect("every link takes it");
            let outward = seen(&lab, &web, &peer, 7777, SocketAddr::new(peer.address, 7777));
            assert_eq!(outward.map(|seen| seen.ip()), [sut.address; 2], "{method}: not the address of the host");
        }
        let direct = SocketAddr::new(web.address, 8080);
        let refused = at(&lab, &peer, || TcpStream::connect_timeout(&direct, Duration::from_millis(300)));
        assert!(refused.is_err(), "{method}: the zone is reached by its own address");
        assert_eq!(web.published.is_some(), method.reached() == Reached::ByPublishedPorts);
        for nth in 0..web.published.as_ref().map_or(0, |ports| ports.count) {
            let (reach, listen) = web.published.as_ref().and_then(|ports| ports.nth(nth)).expect("a port");
            assert_eq!(reach.station, Station::Ip(sut.address));
            let reached = SocketAddr::new(sut.address, reach.port.expect("another one"));
            let inward = seen(&lab, &peer, &web, listen, reached);
            let is_peer = inward.map(|seen| seen.ip() == peer.address);
            assert_eq!(is_peer, [method == IoMethod::Published; 2], "{method}: {inward:?}");
        }
        lab.down().expect("all goes");
        assert_nothing_left(&lab_name);
    }
}

#[test]
fn over_ipv6_it_is_the_same() {
    let world = world();
    for method in methods(&world).into_iter().filter(|method| *method != IoMethod::Slirp4netns) {
        let lab_name = format!("net6-{method}");
        let lab = up(&world, &lab_name, method, "ipv6");
        let [web, sut, peer] = ends(&lab);
        let outward = seen(&lab, &web, &peer, 7777, SocketAddr::new(peer.address, 7777));
        assert_eq!(outward.map(|seen| seen.ip()), [sut.address; 2], "{method}: not the address of the host");
        if let Some((reach, listen)) = web.published.as_ref().and_then(|ports| ports.nth(1)) {
            let reached = SocketAddr::new(sut.address, reach.port.expect("another one"));
            let inward = seen(&lab, &peer, &web, listen, reached);
            assert_eq!(inward.map(|seen| seen.ip() == peer.address), [method == IoMethod::Published; 2], "{method}");
        }
        lab.down().expect("all goes");
        assert_nothing_left(&lab_name);
    }
}

#[test]
fn the_rules_are_in_the_host_s_namespace_and_in_no_other() {
    let world = world();
    let own = NetNs::current().expect("this namespace").id();
    let lab = up(&world, "net-rules", IoMethod::Published, "ipv4");
    let [_, sut, peer] = ends(&lab);
    let rules = |end: &LabEndpoint| {
        let mut nft = Command::new("nft");
        nft.args(["list", "ruleset"]).stdout(Stdio::piped());
        let listed = lab.spawn(end, nft).expect("nft").wait_with_output().expect("its end");
        String::from_utf8(listed.stdout).expect("text")
    };
    let of_host = rules(&sut);
    for part in ["table ip vtax-net-rules-web", "masquerade", "dnat to"] {
        assert!(of_host.contains(part), "{of_host}");
    }
    assert_eq!(rules(&peer), "");
    let here = Command::new("nft").args(["list", "ruleset"]).output().expect("nft");
    assert!(!String::from_utf8_lossy(&here.stdout).contains("net-rules"), "in namespace {own}");
    lab.down().expect("all goes");
    assert_nothing_left("net-rules");
}

#[test]
fn a_program_that_was_killed_is_known_to_have_ended() {
    let world = world();
    for method in methods(&world) {
        let lab_name = format!("net-dead-{method}");
        let lab = up(&world, &lab_name, method, "ipv4");
        let [web, ..] = ends(&lab);
        let relays = lab.relays(&web.name);
        let wanted = match method {
            IoMethod::Nat | IoMethod::Published => 0,
            IoMethod::PublishedProxy => 4,
            _ => 1,
        };
        assert_eq!(relays.len(), wanted, "{method}: {relays:?}");
        for RelayProcess { process, .. } in &relays {
            assert!(process.signal(Signal::KILL).expect("it is ours") && process.wait_end(PATIENCE).expect("known"));
        }
        lab.down().expect("all goes");
        assert_nothing_left(&lab_name);
    }
}

/// Not a separate test: started and killed by [`clean_removes_the_remains_of_a_killed_process`].
#[test]
#[ignore = "it is started by another test"]
fn actor() {
    let Ok(lab) = std::env::var(ACTOR) else { return };
    let (lab_name, method) = lab.split_once(' ').expect("a lab and a method");
    let _lab = up(&world(), lab_name, method.parse().expect("a method"), "ipv4");
    println!("up");
    std::thread::sleep(PATIENCE);
}

/// A process that is ended with the test.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

fn start_actor(lab: &str, method: IoMethod) -> Reaped {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "actor", "--ignored", "--nocapture"]).env(ACTOR, format!("{lab} {method}"));
    Reaped(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("this test again"))
}

#[test]
fn clean_removes_the_remains_of_a_killed_process() {
    let world = world();
    for method in methods(&world) {
        // The last one is killed when its lab is up.
        for moment in 0..8 {
            let lab = format!("net-kill-{method}-{moment}");
            let mut actor = start_actor(&lab, method);
            let journal = in_run_directory(&format!("journals/{lab}.journal"));
            let deadline = Instant::now() + PATIENCE;
            while !journal.exists() {
                assert!(Instant::now() < deadline, "{lab}: no journal");
                std::thread::sleep(Duration::from_millis(1));
            }
            if moment == 7 {
                let output = BufReader::new(actor.0.stdout.take().expect("it is piped"));
                assert!(output.lines().map_while(Result::ok).any(|line| line.ends_with("up")), "{lab}");
                let has_programs = !matches!(method, IoMethod::Nat | IoMethod::Published);
                assert_eq!(!processes(&lab).is_empty(), has_programs, "{lab}");
            }
            std::thread::sleep(Duration::from_millis(moment * 5));
            actor.0.kill().expect("it is ours");
            actor.0.wait().expect("it is ours");
            // A program that was just being started has the dead one's lock until it is executed: the lab counts as alive.
            let mut report = clean(&world, Some(&name(&lab))).expect("a report");
            while report.removed.is_empty() && report.failures.is_empty() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
                report = clean(&world, Some(&name(&lab))).expect("a report");
            }
            assert!(report.failures.is_empty(), "{lab}: {:?}", report.failures);
            assert_eq!(report.removed, [name(&lab)], "{lab}");
            assert_nothing_left(&lab);
        }
    }
}
