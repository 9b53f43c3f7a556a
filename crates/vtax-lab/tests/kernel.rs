//! Labs on the running kernel. These tests require root and fail without it.
//!
//! Each uses its own names and only inspects objects with them, so that they can run simultaneously, and alongside
//! other labs of this machine.

#[path = "shared/build.rs"]
mod build;
#[path = "shared/run_directory.rs"]
mod run_directory;
#[path = "shared/traces.rs"]
mod traces;

use std::{
    io::{self, BufRead, BufReader},
    net::{SocketAddr, UdpSocket},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use build::try_up;
use run_directory::in_run_directory;
use traces::{assert_nothing_left, processes};
use vtax_lab::{
    Facts, Lab, LabEndpoint, LabError, LabState, Lifetime, LiveHolding, Plan, PlanError, World, availability, clean,
    list, plan, step::LabStep,
};
use vtax_model::{
    foreign::ForeignText,
    located::Source,
    method::IoMethod,
    topology::{Name, Shape, Topology},
    units::{ByteSize, Mtu},
};
use vtax_step::SetSysctl;
use vtax_sys::{
    netns::{NetNs, Outlive},
    sock::set_dont_fragment,
};

/// Set for the process that is going to be killed: the name of its lab.
const ACTOR: &str = "VTAX_TEST_ACTOR";
const PATIENCE: Duration = Duration::from_secs(300);

const ZONE_METHODS: [IoMethod; 7] = [
    IoMethod::SharedIp,
    IoMethod::Veth,
    IoMethod::Bridge,
    IoMethod::Macvlan,
    IoMethod::Ipvlan,
    IoMethod::Vxlan,
    IoMethod::Exclusive,
];

fn world() -> World {
    World::enter(Lifetime::Kept).expect("these tests need root")
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn mtu(bytes: i64) -> Mtu {
    Mtu::try_from(bytes).expect("a usual MTU")
}

/// Two hosts with a wire, and further parts for the test.
fn topology(lab: &str, more: &str) -> Topology {
    let text = format!(
        r#"
[lab]
name = "{lab}"
[[host]]
name = "sut"
[[host]]
name = "peer"
[[wire]]
name = "w0"
ends = ["sut", "peer"]
{more}"#
    );
    Topology::parse(Source { name: "lab.toml", text: &text }).expect("a good file")
}

fn zone(name: &str, host: &str, method: IoMethod) -> String {
    format!("[[zone]]\nname = \"{name}\"\nhost = \"{host}\"\nmethod = \"{method}\"\n")
}

fn up(world: &World, topology: &Topology, lifetime: Lifetime) -> Lab {
    try_up(world, topology, || Facts::gather(world).expect("facts"), lifetime).expect("a lab")
}

fn pin(lab: &str, namespace: &Name) -> PathBuf {
    in_run_directory("labs").join(lab).join("netns").join(namespace.as_str())
}

fn socket(lab: &str, of: &LabEndpoint, to: &LabEndpoint) -> UdpSocket {
    let namespace = NetNs::open(&pin(lab, &of.namespace)).expect("a namespace");
    let bound = namespace.run(|| UdpSocket::bind(SocketAddr::new(of.address, 7777)));
    let socket = bound.expect("inside").expect("its own address");
    socket.connect(SocketAddr::new(to.address, 7777)).expect("a route");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    set_dont_fragment(&socket).expect("an option");
    socket
}

/// A datagram that fills the MTU crosses in both directions unfragmented, and one byte more
/// is refused.
fn assert_full_packets_cross(lab: &str, from: &LabEndpoint, to: &LabEndpoint, mtu: Mtu, what: &str) {
    let (a, b) = (socket(lab, from, to), socket(lab, to, from));
    let full = usize::try_from(mtu.udp_payload().0).expect("small");
    for (sender, receiver) in [(&a, &b), (&b, &a)] {
        let sent: Vec<u8> = (0..full).map(|i| i as u8).collect();
        sender.send(&sent).unwrap_or_else(|error| panic!("{what}: {full} bytes: {error}"));
        let mut received = vec![0; full + 1];
        let length = receiver.recv(&mut received).unwrap_or_else(|error| panic!("{what}: nothing arrived: {error}"));
        assert!(received[..length] == sent, "{what}: {length} bytes arrived of {full}");
        let error = sender.send(&vec![0; full + 1]).expect_err("more than the MTU");
        assert_eq!(error.raw_os_error(), Some(90), "{what}: EMSGSIZE is expected, not {error}");
    }
}

fn can(world: &World, method: IoMethod) -> bool {
    let answers = availability(&Facts::gather(world).expect("facts"));
    answers.contains(&(method, Ok(())))
}

#[test]
fn full_packets_cross_by_every_method_at_every_mtu() {
    let world = world();
    for method in ZONE_METHODS.into_iter().filter(|method| can(&world, *method)) {
        for both in [false, true] {
            let lab_name = format!("full-{method}-{both}");
            let far = if both { zone("db", "peer", method) } else { String::new() };
            let lab = up(&world, &topology(&lab_name, &(zone("web", "sut", method) + &far)), Lifetime::Ephemeral);
            let web = lab.blueprint().zone(&name("web")).expect("the zone");
            let peer = match both {
                true => lab.blueprint().zone(&name("db")),
                false => lab.blueprint().host(&name("peer"), &name("w0")),
            };
            let peer = peer.expect("the other end");
            for wire in [1500, 9000, 1500].map(mtu) {
                lab.set_mtu(wire).expect("every link takes it");
                let what = format!("{method}, both sides: {both}, mtu {wire}");
                let inner = lab.blueprint().path_mtu(web, peer, wire);
                assert_full_packets_cross(&lab_name, web, peer, inner, &what);
                let hops = lab.path(web, peer).expect("a path");
                assert!(hops.len() >= 2, "{what}: {hops:?}");
                let overhead = |kind: &str| if kind == "vxlan" { 50 } else { 0 };
                assert!(hops.iter().all(|hop| hop.mtu == wire.get() - overhead(hop.kind.raw())), "{what}: {hops:?}");
            }
            lab.down().expect("all goes");
            assert_nothing_left(&lab_name);
        }
    }
}

/// Sends more packets in a burst than a slow wire's queue holds, and counts those that arrive.
fn flood(lab: &str, from: &LabEndpoint, to: &LabEndpoint, packets: u64) -> u64 {
    let (sender, receiver) = (socket(lab, from, to), socket(lab, to, from));
    // This way, neighbours are known, and neighbour requests don't wait in the counted queue.
    sender.send(b"x").expect("it is sent");
    receiver.recv(&mut [0]).expect("it arrives");
    for _ in 0..packets {
        sender.send(&[0; 1000]).expect("a dropped packet is not an error for UDP");
    }
    receiver.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    let arrived = (0..packets).take_while(|_| receiver.recv(&mut [0; 1000]).is_ok());
    arrived.count() as u64
}

#[test]
fn drops_of_a_slow_wire_are_counted_exactly() {
    let world = world();
    for (method, far) in [(IoMethod::Bridge, 0), (IoMethod::Exclusive, 1)] {
        let lab_name = format!("slow-{method}");
        let mut topology = topology(&lab_name, &zone("web", "sut", method));
        topology.wires[0].shape =
            Some(Shape { rate: "10 Mbit/s".parse().expect("a rate"), queue: Some(ByteSize(20_000)) });
        let lab = up(&world, &topology, Lifetime::Ephemeral);
        let web = lab.blueprint().zone(&name("web")).expect("the zone");
        let peer = lab.blueprint().host(&name("peer"), &name("w0")).expect("the host");
        let ends = if far == 0 { [web, peer] } else { [peer, web] };
        let received = flood(&lab_name, ends[0], ends[1], 400);
        let stats = lab.qdisc_drops(ends[0].wire_end()).expect("it counts");
        assert_eq!(400 - received, u64::from(stats.drops), "{method}: {stats:?}");
        assert!(received > 15 && stats.drops > 0 && stats.overlimits > 0, "{method}: {received} {stats:?}");
        assert!(stats.packets > received && stats.packets < received + 10, "{method}: {received} {stats:?}");
        assert_eq!(lab.qdisc_drops(ends[1].wire_end()).expect("it counts").drops, 0);
        lab.down().expect("all goes");
        assert_nothing_left(&lab_name);
    }
}

#[test]
fn a_limit_follows_the_mtu() {
    let world = world();
    let mut topology = topology("limited", &zone("web", "sut", IoMethod::Vxlan));
    topology.wires[0].shape = Some(Shape { rate: "10 Mbit/s".parse().expect("a rate"), queue: None });
    let lab = up(&world, &topology, Lifetime::Ephemeral);
    let web = lab.blueprint().zone(&name("web")).expect("the zone");
    let peer = lab.blueprint().host(&name("peer"), &name("w0")).expect("the host");
    for wire in [1500, 9000, 68 + 50, 1500].map(mtu) {
        lab.set_mtu(wire).expect("every link takes it");
        let inner = lab.blueprint().path_mtu(web, peer, wire);
        assert_full_packets_cross("limited", web, peer, inner, &format!("mtu {wire}"));
    }
    let hops = lab.path(web, peer).expect("a path");
    let on_wire: Vec<_> = hops.iter().filter(|hop| hop.link == "wire0").collect();
    assert!(on_wire.len() == 2 && on_wire.iter().all(|hop| hop.qdisc == "tbf"), "{hops:?}");
    let error = lab.qdisc_drops(&web.stack[0]).expect_err("nothing is counted there").to_string();
    assert!(error.contains("link web/eth0 has no queue that counts"), "{error}");
    lab.down().expect("all goes");
    assert_nothing_left("limited");
}

#[test]
fn hops_are_described_from_inside_their_namespaces() {
    let world = world();
    let lab = up(&world, &topology("described", &zone("web", "sut", IoMethod::Bridge)), Lifetime::Ephemeral);
    let web = lab.blueprint().zone(&name("web")).expect("the zone");
    let peer = lab.blueprint().host(&name("peer"), &name("w0")).expect("the host");
    for hop in lab.path(web, peer).expect("a path") {
        assert_eq!(hop.nic.driver.as_ref().map(ForeignText::raw), Some(hop.kind.raw()), "{hop:?}");
        assert!(hop.nic.offloads.contains_key(&"tx-tcp-segmentation".into()), "{hop:?}");
        assert!(hop.nic.bus.is_none() && hop.nic.irqs.is_empty(), "{hop:?}");
    }
    lab.down().expect("all goes");
    assert_nothing_left("described");
}

#[test]
fn a_method_that_the_kernel_lacks_is_refused_before_the_first_step() {
    let world = world();
    let facts = Facts::gather(&world).expect("facts");
    for (method, answer) in availability(&facts) {
        if let (true, Err(unsupported)) = (ZONE_METHODS.contains(&method), answer) {
            let refused = plan(&topology("lacking", &zone("web", "sut", method)), &facts).expect_err("unsupported");
            assert_eq!(refused, PlanError::Unsupported { kind: "zone", name: name("web"), method, unsupported });
        }
    }
    assert_nothing_left("lacking");
}

#[test]
fn zones_of_one_host_meet_in_its_switch_or_in_one_outside() {
    let world = world();
    let inside = zone("a", "sut", IoMethod::Bridge) + &zone("b", "sut", IoMethod::Bridge);
    let outside = "[[host]]\nname = \"sw\"\nswitch = true\n\
        [[wire]]\nname = \"w1\"\nends = [\"sut\", \"sw\"]\n[[wire]]\nname = \"w2\"\nends = [\"sw\", \"sut\"]\n"
        .to_owned()
        + &(zone("a", "sut", IoMethod::Exclusive) + "wire = \"w1\"\n")
        + &(zone("b", "sut", IoMethod::Exclusive) + "wire = \"w2\"\n");
    for (lab_name, zones, hops) in [("meet-inside", inside, 5), ("meet-outside", outside, 5)] {
        let lab = up(&world, &topology(lab_name, &zones), Lifetime::Ephemeral);
        let [a, b] = ["a", "b"].map(|zone| lab.blueprint().zone(&name(zone)).expect("the zone"));
        assert_full_packets_cross(lab_name, a, b, mtu(1500), lab_name);
        assert_eq!(lab.path(a, b).expect("a path").len(), hops);
        lab.down().expect("all goes");
        assert_nothing_left(lab_name);
    }
}

/// Every method that this kernel has, each on a dedicated wire, at both sides.
fn all_methods(world: &World, lab: &str) -> Topology {
    let mut text = String::new();
    for (index, method) in ZONE_METHODS.into_iter().filter(|method| can(world, *method)).enumerate() {
        text += &format!("[[wire]]\nname = \"m{index}\"\nends = [\"sut\", \"peer\"]\nrate = \"1 Gbit/s\"\n");
        for host in ["sut", "peer"] {
            text += &(zone(&format!("{host}-{index}"), host, method) + &format!("wire = \"m{index}\"\n"));
        }
    }
    topology(lab, &text)
}

#[test]
fn a_failure_at_any_step_leaves_nothing() {
    let world = world();
    let topology = all_methods(&world, "failing");
    let facts = Facts::gather(&world).expect("facts");
    let good = plan(&topology, &facts).expect("a possible lab");
    let wrong = SetSysctl { namespace: name("sut"), key: "net.no_such".into(), value: "1".into() };
    for at in 2..good.steps.len() {
        let mut steps = good.steps.clone();
        steps.insert(at, LabStep::SetSysctl(wrong.clone()));
        let error = build(&world, &good, steps);
        assert!(
            error.contains(&format!("lab `failing` could not be built: {}", "sysctl of sut: net.no_such = 1")),
            "{error}"
        );
        assert_nothing_left("failing");
    }
    let mut steps = good.steps.clone();
    steps.push(LabStep::CreateNamespace { namespace: name("sut") });
    assert!(build(&world, &good, steps).contains("namespace sut"));
    assert_nothing_left("failing");
}

fn build(world: &World, good: &Plan, steps: Vec<LabStep>) -> String {
    loop {
        let plan = Plan { blueprint: good.blueprint.clone(), steps: steps.clone() };
        match Lab::up(world, plan, Lifetime::Ephemeral) {
            // A lab of another test has the range for a moment.
            Err(LabError::RangeTaken { .. }) => thread::sleep(Duration::from_millis(20)),
            built => return built.expect_err("a step fails").to_string(),
        }
    }
}

#[test]
fn a_lab_that_is_stopped_while_it_is_built_takes_no_further_step() {
    let world = world();
    let zones: String = (0..200).map(|number| zone(&format!("z{number}"), "sut", IoMethod::Veth)).collect();
    let many = topology("stopped", &zones);
    let building = thread::spawn({
        let (world, many) = (world.clone(), many.clone());
        move || try_up(&world, &many, || Facts::gather(&world).expect("facts"), Lifetime::Ephemeral)
    });
    let deadline = Instant::now() + Duration::from_secs(300);
    while !pin("stopped", &name("sut")).exists() {
        assert!(Instant::now() < deadline && !building.is_finished(), "no namespace has been made");
        thread::sleep(Duration::from_millis(1));
    }
    LiveHolding::stop_building(&world, &many.name).expect("it has no guests");
    let error = building.join().expect("no panic").expect_err("it isn't built to its end").to_string();
    assert!(error.contains("`stopped` was not built: interrupted by the user"), "{error}");
    assert_nothing_left("stopped");
    let error = Lab::up(&world, plan(&many, &Facts::gather(&world).expect("facts")).expect("a plan"), Lifetime::Kept);
    assert!(
        error.is_err_and(|error| error.to_string().contains("interrupted by the user")),
        "nothing is built any more"
    );
    assert_nothing_left("stopped");
}

#[test]
fn a_name_and_a_range_that_are_taken_are_refused() {
    let world = world();
    let lab = up(&world, &topology("taken", ""), Lifetime::Ephemeral);
    let facts = Facts::gather(&world).expect("facts");
    assert_eq!(plan(&topology("taken", ""), &facts).unwrap_err(), PlanError::NameTaken { lab: name("taken") });
    let mut other = topology("other", "");
    other.addresses = Some(lab.blueprint().addresses);
    let error = plan(&other, &facts).unwrap_err();
    assert!(matches!(&error, PlanError::RangeInUse { by, .. } if by.contains("taken")), "{error}");
    // A plan created before the other lab was up is refused as well.
    let mut stale = facts.clone();
    (stale.in_use, stale.labs) = (Vec::new(), Vec::new());
    let late = Lab::up(&world, plan(&other, &stale).expect("nothing is known"), Lifetime::Ephemeral).unwrap_err();
    assert!(matches!(&late, LabError::RangeTaken { by, .. } if by.as_str() == "taken"), "{late}");
    let same = Plan { blueprint: lab.blueprint().clone(), steps: Vec::new() };
    let again = Lab::up(&world, same, Lifetime::Ephemeral).unwrap_err();
    assert!(again.to_string().contains("the name `taken` is taken: alive"), "{again}");
    assert_nothing_left("other");
    lab.down().expect("all goes");
    assert_nothing_left("taken");
}

#[test]
fn a_kept_lab_stays_until_it_is_taken_down() {
    let world = world();
    let mut lab = up(&world, &topology("kept", &zone("web", "sut", IoMethod::Bridge)), Lifetime::Kept);
    let state = |wanted: &str| {
        let labs = list(&world).expect("a list");
        labs.into_iter().find(|lab| lab.name.as_str() == wanted).map(|lab| lab.state)
    };
    assert_eq!(state("kept"), Some(LabState::Alive), "its maker still answers for it");
    lab.keep().expect("the disk has room");
    drop(lab);
    assert_eq!(state("kept"), Some(LabState::Kept));
    let report = clean(&world, Some(&name("kept"))).expect("a report");
    assert!(report.removed.is_empty() && report.failures.is_empty());
    let lab = Lab::open(&world, &name("kept")).expect("it is up");
    let web = lab.blueprint().zone(&name("web")).expect("the zone");
    let mut cat = Command::new("cat");
    cat.arg("/proc/self/net/dev").stdout(Stdio::piped());
    let seen = lab.spawn(web, cat).expect("a program").wait_with_output().expect("its end").stdout;
    assert!(String::from_utf8_lossy(&seen).contains("eth0:"));
    lab.down().expect("all goes");
    assert_eq!(state("kept"), None);
    assert_nothing_left("kept");
}

#[test]
fn a_dropped_lab_is_taken_down_with_its_processes() {
    let world = world();
    let lab = up(&world, &topology("dropped", &zone("web", "sut", IoMethod::Veth)), Lifetime::Ephemeral);
    let web = lab.blueprint().zone(&name("web")).expect("the zone");
    let mut child = lab.spawn(web, daemon()).expect("a shell");
    wait_for("its child", || processes("dropped").len() == 2);
    drop(lab);
    child.wait().expect("it was killed");
    assert_nothing_left("dropped");
}

/// A shell with a child that doesn't exit with the process that started the shell.
fn daemon() -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "sleep 60 & exec sleep 61"]);
    shell
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "{what} took too long");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_strangers_process_is_named_and_not_ended() {
    let world = world();
    let lab = up(&world, &topology("strange", ""), Lifetime::Ephemeral);
    let host = NetNs::open(&pin("strange", &name("sut"))).expect("a namespace");
    let mut sleep = Command::new("sleep");
    sleep.arg("60");
    let mut stranger = Reaped(host.spawn(sleep, Outlive::No).expect("a program"));
    drop(host);
    let error = lab.down().expect_err("it is in the way").to_string();
    assert!(error.contains(&format!("`sut` is still used by process {} (sleep)", stranger.0.id())), "{error}");
    assert!(stranger.0.try_wait().expect("it is ours").is_none(), "it lives");
    assert!(!pin("strange", &name("peer")).exists(), "all else is gone");
    drop(stranger);
    assert_eq!(clean(&world, Some(&name("strange"))).expect("a report").removed, [name("strange")]);
    assert_nothing_left("strange");
}

/// A process that is ended with the test.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

/// Not a separate test: started and killed by [`clean_removes_the_remains_of_a_killed_process`].
#[test]
#[ignore = "it is started by another test"]
fn actor() {
    let Ok(lab_name) = std::env::var(ACTOR) else { return };
    let world = world();
    let zones = zone("web", "sut", IoMethod::Bridge) + "count = 30\n";
    let lab = up(&world, &topology(&lab_name, &zones), Lifetime::Ephemeral);
    let web = lab.blueprint().zone(&name("web-1")).expect("the zone");
    let mut child = lab.spawn(web, daemon()).expect("a shell");
    println!("up");
    child.wait().expect("its end, if nobody kills this process");
}

fn start_actor(lab: &str) -> Reaped {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "actor", "--ignored", "--nocapture"]).env(ACTOR, lab);
    Reaped(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("this test again"))
}

#[test]
fn clean_removes_the_remains_of_a_killed_process() {
    let world = world();
    let other = up(&world, &topology("bystander", &zone("web", "sut", IoMethod::Bridge)), Lifetime::Ephemeral);
    for moment in 0..12 {
        let lab = format!("killed-{moment}");
        let mut actor = start_actor(&lab);
        let journal = in_run_directory(&format!("journals/{lab}.journal"));
        wait_for("the journal", || journal.exists());
        if moment == 11 {
            let output = BufReader::new(actor.0.stdout.take().expect("it is piped"));
            assert!(output.lines().map_while(Result::ok).any(|line| line.ends_with("up")));
            wait_for("the daemon", || processes(&lab).len() == 2);
        }
        thread::sleep(Duration::from_millis(moment * 3));
        actor.0.kill().expect("it is ours");
        actor.0.wait().expect("it is ours");
        let report = clean(&world, Some(&name(&lab))).expect("a report");
        assert!(report.failures.is_empty(), "{:?}", report.failures);
        assert_eq!(report.removed, [name(&lab)], "moment {moment}");
        assert_nothing_left(&lab);
    }
    let all = clean(&world, Some(&name("bystander"))).expect("a report");
    assert_eq!((all.removed.len(), all.left.len()), (0, 1));
    let (web, peer) = (name("web"), name("peer"));
    let web = other.blueprint().zone(&web).expect("the zone");
    let peer = other.blueprint().host(&peer, &name("w0")).expect("the host");
    assert_full_packets_cross("bystander", web, peer, mtu(1500), "the other lab");
    other.down().expect("all goes");
    assert_nothing_left("bystander");
}

#[test]
fn a_link_that_was_changed_behind_our_back_is_named() {
    let world = world();
    let lab = up(&world, &topology("changed", &zone("web", "sut", IoMethod::Macvlan)), Lifetime::Ephemeral);
    let namespace = NetNs::open(&pin("changed", &name("sut"))).expect("a namespace");
    let mut rtnl = vtax_sys::netlink::Rtnl::open_in(&namespace).expect("a connection");
    let wire: vtax_sys::netlink::IfName = "wire0".parse().expect("a name");
    let down = vtax_sys::netlink::LinkChange { up: Some(false), ..Default::default() };
    rtnl.set_link(&wire, &down).expect("it takes it");
    let error = lab.set_mtu(mtu(9000)).expect_err("the wire is down").to_string();
    assert!(error.contains("link sut/wire0 is down"), "{error}");
    lab.down().expect("all goes");
    assert_nothing_left("changed");
}

#[test]
fn a_hundred_zones_are_built_and_removed() {
    let world = world();
    let topology = topology("hundred", &(zone("web", "sut", IoMethod::Bridge) + "count = 100\n"));
    let begun = Instant::now();
    let lab = up(&world, &topology, Lifetime::Ephemeral);
    let built = begun.elapsed();
    let [first, last] = ["web-1", "web-100"].map(|zone| lab.blueprint().zone(&name(zone)).expect("the zone"));
    assert_full_packets_cross("hundred", first, last, mtu(1500), "100 zones");
    let begun = Instant::now();
    lab.down().expect("all goes");
    println!("100 zones: up {built:?}, down {:?}", begun.elapsed());
    assert_nothing_left("hundred");
}

#[test]
fn the_mtu_of_thirty_links_is_changed_as_often_as_wanted() {
    let world = world();
    let zones = zone("web", "sut", IoMethod::Bridge) + "count = 13\n";
    let lab = up(&world, &topology("quick", &zones), Lifetime::Ephemeral);
    let [first, last] = ["web-1", "web-13"].map(|zone| lab.blueprint().zone(&name(zone)).expect("the zone"));
    for wanted in [9000, 1500].repeat(5) {
        lab.set_mtu(mtu(wanted)).expect("every link takes it");
        assert_full_packets_cross("quick", first, last, mtu(wanted), "30 links");
    }
    lab.down().expect("all goes");
    assert_nothing_left("quick");
}

#[test]
fn a_program_that_is_missing_is_named() {
    let world = world();
    let lab = up(&world, &topology("missing", ""), Lifetime::Ephemeral);
    let host = lab.blueprint().host(&name("sut"), &name("w0")).expect("the host");
    let error = lab.spawn(host, Command::new("no-such-program")).expect_err("there is none").to_string();
    assert!(error.starts_with("sut: ") && error.contains("no-such-program"), "{error}");
    assert!(error.contains(&io::Error::from_raw_os_error(2).to_string()), "{error}");
    lab.down().expect("all goes");
    assert_nothing_left("missing");
}
