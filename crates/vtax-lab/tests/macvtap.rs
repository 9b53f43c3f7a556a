//! Guests on macvtaps, on the running kernel: these tests have the requirements of `guest_labs`, and need the machine's
//! own root, with a devtmpfs at `/dev`.

#[path = "../../vtax-guest/tests/shared/agent.rs"]
mod agent;
#[path = "shared/build.rs"]
mod build;
#[path = "shared/run_directory.rs"]
mod run_directory;

use std::{
    fs, io,
    net::{IpAddr, UdpSocket},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use agent::agent;
use build::try_up;
use run_directory::in_run_directory;
use vtax_lab::{Facts, GuestNeeds, Lab, Lifetime, PlannedGuest, World, list};
use vtax_model::{
    located::Source,
    topology::{Name, Topology},
    units::Mtu,
};
use vtax_sys::{netns::NetNs, sock::set_dont_fragment};
use vtax_wire::{link::AgentLink, protocol::LinkSetup};

/// A guest under TCG on a machine that is busy with other tests.
const BOOT: Duration = Duration::from_secs(600);
const END: Duration = Duration::from_secs(30);

const LAB: &str = r#"
[lab]
name = "macvtaps"
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
vnet = "macvtap"
vcpus = 2
queues = 2
cpus = [0]
io_cpus = [0]
memory = "192 MiB"
[[guest]]
name = "db"
host = "peer"
method = "paravirtual"
backend = "userspace"
vnet = "macvtap"
memory = "192 MiB"
"#;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn mtu(bytes: i64) -> Mtu {
    Mtu::try_from(bytes).expect("a usual MTU")
}

fn up(world: &World) -> Lab {
    let topology = Topology::parse(Source { name: "lab.toml", text: LAB }).expect("a good file");
    let needs = GuestNeeds::new(&agent(), None).of_lab(&topology);
    let facts = || Facts::gather(world).expect("facts").with_guests(world, &needs);
    try_up(world, &topology, facts, Lifetime::Ephemeral).expect("a lab")
}

/// Waits for a guest's agent and has it set up the NIC.
fn arrive(lab: &Lab, guest: &PlannedGuest) -> AgentLink {
    let mut qemu = lab.guest(&guest.name).expect("it was started");
    qemu.wait_agent(BOOT).expect("the agent opens its port");
    let link = AgentLink::connect_unix(guest.name.as_str(), &qemu.launch().agent_socket(), BOOT).expect("an agent");
    attach(&link, guest, 1500);
    link
}

fn attach(link: &AgentLink, guest: &PlannedGuest, bytes: i64) {
    let addresses = vec![guest.address];
    link.attach(&LinkSetup { mac: guest.mac.to_string(), mtu: mtu(bytes), addresses }).expect("the agent sets it up");
}

/// The queues that a guest's QEMU holds open, by their files.
fn open_queues(lab: &Lab, guest: &str) -> Vec<PathBuf> {
    let pid = lab.guest(&name(guest)).expect("it was started").process().pid;
    let files = fs::read_dir(format!("/proc/{pid}/fd")).expect("it is ours").flatten();
    let targets = files.filter_map(|file| fs::read_link(file.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("/dev/tap")).collect()
}

/// Returns true if a full packet from the host's own stack reaches the guest within a few seconds: its kernel answers
/// one for an unused port.
fn reaches(host: &str, guest: IpAddr, bytes: i64, seconds: u32) -> bool {
    let pin = in_run_directory("labs/macvtaps/netns").join(host);
    let socket = NetNs::open(&pin).and_then(|namespace| namespace.run(|| UdpSocket::bind("0.0.0.0:0")));
    let socket = socket.expect("the host's namespace").expect("a socket");
    set_dont_fragment(&socket).expect("IPv4");
    socket.connect((guest, 9)).expect("a route");
    socket.set_read_timeout(Some(Duration::from_secs(1))).expect("not zero");
    let datagram = vec![7; usize::try_from(bytes).expect("positive") - 28];
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    (0..seconds).any(|_| match socket.send(&datagram) {
        Ok(_) => socket.recv(&mut [0; 8]).is_err_and(refused),
        Err(error) => refused(error),
    })
}

#[test]
fn guests_on_macvtaps_are_reached_from_the_other_host_and_go_without_a_trace() {
    let world = World::enter(Lifetime::Kept).expect("these tests need root");
    let lab = up(&world);
    let [web, db] = lab.guests() else { panic!("two guests") };

    // Links of both hosts have the same names and would, if the kernel counted, have the same indices.
    let (of_web, of_db) = (open_queues(&lab, "web"), open_queues(&lab, "db"));
    assert_eq!((of_web.len(), of_db.len()), (2, 1), "{of_web:?} {of_db:?}");
    assert!(of_web[0] == of_web[1] && of_web[0] != of_db[0], "{of_web:?} {of_db:?}");
    let own = fs::read_dir("/proc/self/fd").expect("ours").flatten().filter_map(|file| fs::read_link(file.path()).ok());
    assert!(own.into_iter().all(|file| file != of_web[0] && file != of_db[0]), "a queue was left open here");

    let places = lab.guest(&web.name).expect("started").threads(END).expect("its monitor answers").places();
    assert!(places.len() > 3 && places.iter().all(|place| place.cpus == [0]), "{places:?}");

    let links = thread::scope(|scope| {
        let waiting = [web, db].map(|guest| scope.spawn(|| arrive(&lab, guest)));
        waiting.map(|guest| guest.join().expect("it comes up"))
    });
    for bytes in [1500, 9000] {
        lab.set_mtu(mtu(bytes)).expect("every link takes it");
        for (link, guest) in links.iter().zip([web, db]) {
            attach(link, guest, bytes);
        }
        let [from, to] = [web, db].map(|guest| lab.blueprint().guest(&guest.name).expect("a guest"));
        let hops = lab.path(from, to).expect("a path");
        assert_eq!(hops.iter().map(|hop| hop.kind.raw()).collect::<Vec<_>>(), ["macvtap", "veth", "veth", "macvtap"]);
        assert!(hops.iter().all(|hop| i64::from(hop.mtu) == bytes), "{hops:?}");
        assert!(reaches("peer", web.address.addr(), bytes, 20), "web at {bytes}");
        assert!(reaches("sut", db.address.addr(), bytes, 20), "db at {bytes}");
    }
    // The limit of the kernel's design described in the documentation.
    assert!(!reaches("sut", web.address.addr(), 100, 2), "a host doesn't reach its own guests on macvtaps");

    lab.down().expect("all goes");
    assert!(list(&world).expect("a list").iter().all(|lab| lab.name != name("macvtaps")));
    assert!(!in_run_directory("labs/macvtaps").exists());
    let deadline = Instant::now() + END;
    // The kernel removes a namespace's links a moment later.
    while of_web.iter().chain(&of_db).any(|file| file.exists()) {
        assert!(Instant::now() < deadline, "{of_web:?} or {of_db:?} is left");
        thread::sleep(Duration::from_millis(10));
    }
}
