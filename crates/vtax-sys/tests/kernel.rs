//! Tests with the running kernel, in namespaces that end with the test. Requires root.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use vtax_sys::SysError;
use vtax_sys::netlink::{IfName, Link, LinkChange, LinkKind, NewLink, NewRoute, NextHop, Rtnl, probe_kind};
use vtax_sys::netns::{NetNs, NsId, Outlive};
use vtax_sys::process::{Pid, ProcessId, Signal};
use vtax_sys::{sock, sysctl};

const PATIENCE: Duration = Duration::from_secs(300);

fn name(text: &str) -> IfName {
    text.parse().unwrap()
}

fn scratch() -> NetNs {
    NetNs::scratch().expect("these tests need root")
}

fn veth<'a>(peer: &str, peer_ns: Option<&'a NetNs>) -> LinkKind<'a> {
    LinkKind::Veth { peer: name(peer), peer_ns, peer_mtu: None }
}

fn up() -> LinkChange<'static> {
    LinkChange { up: Some(true), ..LinkChange::default() }
}

fn link(rtnl: &mut Rtnl, link: &str) -> Link {
    rtnl.existing_link(&name(link)).unwrap()
}

/// Sets a link up and adds an address.
fn configure(ns: &NetNs, device: &str, address: &str) {
    let mut rtnl = Rtnl::open_in(ns).unwrap();
    rtnl.set_link(&name(device), &up()).unwrap();
    let index = link(&mut rtnl, device).index;
    rtnl.add_address(index, address.parse().unwrap()).unwrap();
}

/// Returns two namespaces, with `w0` in the first connected to `w1` in the second.
fn wired() -> (NetNs, NetNs) {
    let (left, right) = (scratch(), scratch());
    let mut rtnl = Rtnl::open_in(&left).unwrap();
    let wire = NewLink::new(name("w0"), veth("w1", Some(&right)));
    rtnl.create_link(&wire).unwrap();
    (left, right)
}

fn udp(ns: &NetNs, address: &str) -> UdpSocket {
    let socket = ns.run(|| UdpSocket::bind(address)).unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn exchange(left: &UdpSocket, right: &UdpSocket) {
    let mut buffer = [0; 16];
    left.send_to(b"ping", right.local_addr().unwrap()).unwrap();
    let (length, from) = right.recv_from(&mut buffer).unwrap();
    assert_eq!((&buffer[..length], from), (&b"ping"[..], left.local_addr().unwrap()));
    right.send_to(b"pong", from).unwrap();
    let (length, _) = left.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"pong");
}

#[test]
fn an_address_is_assigned_and_released() {
    const GONE: i32 = 99;
    let ns = scratch();
    let mut rtnl = Rtnl::open_in(&ns).unwrap();
    rtnl.set_link(&name("lo"), &up()).unwrap();
    let lo = link(&mut rtnl, "lo").index;
    let has = |rtnl: &mut Rtnl, net| rtnl.addresses().unwrap().iter().any(|own| own.net == net);
    for net in ["192.0.2.1/30", "2001:db8::1/64"].map(|net| net.parse().unwrap()) {
        rtnl.add_address(lo, net).unwrap();
        assert!(has(&mut rtnl, net), "{net}");
        rtnl.delete_address(lo, net).unwrap();
        assert!(!has(&mut rtnl, net), "{net}");
        assert_eq!(rtnl.delete_address(lo, net).unwrap_err().errno(), Some(GONE), "{net}");
    }
}

#[test]
fn datagrams_cross_a_wire_between_two_namespaces() {
    let (left, right) = wired();
    configure(&left, "w0", "192.0.2.1/30");
    configure(&right, "w1", "192.0.2.2/30");
    exchange(&udp(&left, "192.0.2.1:0"), &udp(&right, "192.0.2.2:0"));

    let mut rtnl = Rtnl::open_in(&right).unwrap();
    let index = link(&mut rtnl, "w1").index;
    let nets: Vec<_> = rtnl.addresses().unwrap();
    let own = nets.iter().find(|address| address.link == index && address.net.addr().is_ipv4());
    assert_eq!(own.unwrap().net, "192.0.2.2/30".parse().unwrap());
}

#[test]
fn the_way_of_a_packet_is_looked_up() {
    let (left, _right) = wired();
    configure(&left, "w0", "192.0.2.1/30");
    configure(&left, "w0", "2001:db8::1/64");
    let mut rtnl = Rtnl::open_in(&left).unwrap();
    let w0 = link(&mut rtnl, "w0").index;
    let lo = link(&mut rtnl, "lo").index;
    let ip = |text: &str| text.parse::<std::net::IpAddr>().unwrap();
    let mut ask = |from: &str, to: &str| {
        let found = rtnl.route_to(from.parse().ok(), ip(to), None).unwrap()?;
        Some((found.link.unwrap(), found.source))
    };
    for (from, own, other, nowhere) in [
        ("192.0.2.1", "192.0.2.1", "192.0.2.2", "198.51.100.1"),
        ("2001:db8::1", "2001:db8::1", "2001:db8::2", "2001:db8:1::1"),
    ] {
        assert_eq!(ask(from, other), Some((w0, Some(ip(from)))));
        assert_eq!(ask("", other), Some((w0, Some(ip(from)))), "the kernel chooses the source");
        // The kernel adds the local route of an IPv6 address later, in a work item (addrconf_dad_work).
        let begun = Instant::now();
        while ask("", own).map(|(link, _)| link) != Some(lo) && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(ask("", own).map(|(link, _)| link), Some(lo));
        assert_eq!(ask(from, nowhere), None);
    }
    assert_eq!(ask("203.0.113.7", "192.0.2.2"), None, "not an address of ours");
}

#[test]
fn the_way_of_a_packet_is_that_of_the_link_to_which_its_sender_is_bound() {
    let (left, _right) = wired();
    configure(&left, "w0", "192.0.2.1/30");
    let mut rtnl = Rtnl::open_in(&left).unwrap();
    let (w0, lo) = (link(&mut rtnl, "w0").index, link(&mut rtnl, "lo").index);
    let to = "192.0.2.2".parse().unwrap();
    let mut ask = |bound| rtnl.route_to(None, to, Some(bound)).ok().flatten().and_then(|route| route.link);
    assert_eq!(ask(w0), Some(w0));
    assert_ne!(ask(lo), Some(w0));
}

#[test]
fn an_ipv6_address_is_usable_immediately() {
    let (left, right) = wired();
    configure(&left, "w0", "2001:db8::1/64");
    configure(&right, "w1", "2001:db8::2/64");
    exchange(&udp(&left, "[2001:db8::1]:0"), &udp(&right, "[2001:db8::2]:0"));
}

#[test]
fn a_datagram_beyond_the_mtu_is_refused_and_not_fragmented() {
    let (left, right) = wired();
    configure(&left, "w0", "192.0.2.1/30");
    configure(&right, "w1", "192.0.2.2/30");
    let socket = udp(&left, "192.0.2.1:0");
    socket.connect("192.0.2.2:9").unwrap();
    sock::set_dont_fragment(&socket).unwrap();
    assert_eq!(sock::path_mtu(&socket).unwrap(), 1500);
    // 20 bytes of IP header and 8 of UDP.
    socket.send(&[0; 1472]).unwrap();
    let error = socket.send(&[0; 1473]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE), "{error}");
}

#[test]
fn links_of_each_kind_are_created_and_read_back() {
    let ns = scratch();
    let mut rtnl = Rtnl::open_in(&ns).unwrap();
    rtnl.create_link(&NewLink::new(name("v0"), veth("v1", None))).unwrap();
    let parent = link(&mut rtnl, "v0").index;
    rtnl.create_link(&NewLink::new(name("br"), LinkKind::Bridge)).unwrap();
    let macvlan = NewLink {
        mtu: Some(1400),
        mac: Some("02:00:00:00:00:07".parse().unwrap()),
        ..NewLink::new(name("mv"), LinkKind::Macvlan { parent })
    };
    rtnl.create_link(&macvlan).unwrap();
    rtnl.create_link(&NewLink::new(name("vx"), vxlan(Some(parent)))).unwrap();

    let found = link(&mut rtnl, "mv");
    assert_eq!((found.kind.as_deref(), found.mtu), (Some("macvlan"), 1400));
    assert_eq!((found.parent, found.parent_elsewhere), (Some(parent), false));
    assert_eq!(found.mac, macvlan.mac);
    let found = link(&mut rtnl, "vx");
    assert_eq!((found.kind.as_deref(), found.mtu), (Some("vxlan"), 1450));
    assert_eq!(link(&mut rtnl, "br").kind.as_deref(), Some("bridge"));
    let names: Vec<_> = rtnl.links().unwrap().into_iter().map(|link| link.name.to_string()).collect();
    assert!(["lo", "v0", "v1", "br", "mv", "vx"].iter().all(|n| names.contains(&n.to_string())), "{names:?}");
}

fn vxlan(parent: Option<vtax_sys::netlink::IfIndex>) -> LinkKind<'static> {
    LinkKind::Vxlan {
        vni: 7,
        local: "192.0.2.1".parse().unwrap(),
        remote: "192.0.2.2".parse().unwrap(),
        port: 4789,
        parent,
        learning: false,
    }
}

#[test]
fn a_vxlan_carries_datagrams_over_the_wire() {
    let (left, right) = wired();
    for (ns, wire, ends, inner) in [
        (&left, "w0", ["192.0.2.1", "192.0.2.2"], "198.51.100.1/24"),
        (&right, "w1", ["192.0.2.2", "192.0.2.1"], "198.51.100.2/24"),
    ] {
        configure(ns, wire, &format!("{}/30", ends[0]));
        let mut rtnl = Rtnl::open_in(ns).unwrap();
        let [local, remote] = ends.map(|end| end.parse().unwrap());
        let parent = Some(link(&mut rtnl, wire).index);
        let kind = LinkKind::Vxlan { vni: 7, local, remote, port: 4789, parent, learning: true };
        rtnl.create_link(&NewLink::new(name("vx"), kind)).unwrap();
        configure(ns, "vx", inner);
    }
    exchange(&udp(&left, "198.51.100.1:0"), &udp(&right, "198.51.100.2:0"));
}

#[test]
fn a_link_is_created_in_another_namespace_on_a_parent_in_this_one() {
    let (host, zone) = (scratch(), scratch());
    let mut rtnl = Rtnl::open_in(&host).unwrap();
    rtnl.create_link(&NewLink::new(name("v0"), veth("v1", None))).unwrap();
    let parent = link(&mut rtnl, "v0").index;
    let kind = LinkKind::Macvlan { parent };
    let into_ns = Some(&zone);
    rtnl.create_link(&NewLink { into_ns, ..NewLink::new(name("mv"), kind) }).unwrap();

    assert_eq!(rtnl.link(&name("mv")).unwrap(), None);
    let found = link(&mut Rtnl::open_in(&zone).unwrap(), "mv");
    assert_eq!((found.parent, found.parent_elsewhere), (Some(parent), true));
}

#[test]
fn all_changes_of_one_request_are_made() {
    let (ns, other) = (scratch(), scratch());
    let mut rtnl = Rtnl::open_in(&ns).unwrap();
    rtnl.create_link(&NewLink::new(name("br"), LinkKind::Bridge)).unwrap();
    let bridge = link(&mut rtnl, "br").index;
    rtnl.create_link(&NewLink::new(name("v0"), veth("v1", None))).unwrap();
    let change = LinkChange {
        up: Some(true),
        mtu: Some(9000),
        master: Some(Some(bridge)),
        alias: Some("vtax:lab1".into()),
        rename: Some(name("port")),
        ..LinkChange::default()
    };
    rtnl.set_link(&name("v0"), &change).unwrap();
    let port = link(&mut rtnl, "port");
    assert_eq!((port.up, port.mtu, port.master), (true, 9000, Some(bridge)));
    assert_eq!(port.alias.as_deref(), Some("vtax:lab1"));

    let moved = LinkChange { master: Some(None), ..LinkChange::default() };
    rtnl.set_link(port.index, &moved).unwrap();
    assert_eq!(link(&mut rtnl, "port").master, None);
    let moved = LinkChange { into_ns: Some(&other), ..up() };
    rtnl.set_link(port.index, &moved).unwrap();
    assert_eq!(rtnl.link(&name("port")).unwrap(), None);
    assert!(link(&mut Rtnl::open_in(&other).unwrap(), "port").up);
}

#[test]
fn a_route_is_added_and_listed() {
    let (left, _right) = wired();
    configure(&left, "w0", "192.0.2.1/30");
    let mut rtnl = Rtnl::open_in(&left).unwrap();
    let via = "192.0.2.2".parse().unwrap();
    let dest = "198.51.100.0/24".parse().unwrap();
    let source = Some("192.0.2.1".parse().unwrap());
    rtnl.add_route(&NewRoute { dest, next_hop: NextHop::Via(via), source, congestion: None }).unwrap();
    let index = link(&mut rtnl, "w0").index;
    let direct = "203.0.113.0/24".parse().unwrap();
    let next_hop = NextHop::Link(index);
    rtnl.add_route(&NewRoute { dest: direct, next_hop, source: None, congestion: None }).unwrap();

    let routes = rtnl.routes().unwrap();
    let find = |wanted| routes.iter().find(|route| route.dest == wanted).unwrap();
    assert_eq!((find(dest).via, find(dest).source), (Some(via), source));
    assert_eq!((find(direct).via, find(direct).link), (None, Some(index)));
    // The network of the wire itself is also there.
    assert_eq!(find("192.0.2.0/30".parse().unwrap()).table, 254);
}

#[test]
fn connections_on_a_route_have_its_congestion_control() {
    let (left, right) = wired();
    configure(&left, "w0", "192.0.2.1/30");
    configure(&right, "w1", "192.0.2.2/30");
    let mut rtnl = Rtnl::open_in(&left).unwrap();
    let next_hop = NextHop::Link(link(&mut rtnl, "w0").index);
    let to_peer = |name: &str| NewRoute {
        dest: "192.0.2.2/32".parse().unwrap(),
        next_hop,
        source: None,
        congestion: Some(name.parse().unwrap()),
    };
    rtnl.add_route(&to_peer("no-such")).unwrap_err();
    rtnl.add_route(&to_peer("reno")).unwrap();
    let listener = right.run(|| std::net::TcpListener::bind("192.0.2.2:5000")).unwrap().unwrap();
    let stream = left.run(|| std::net::TcpStream::connect("192.0.2.2:5000")).unwrap().unwrap();
    let congestion = |socket: &dyn std::os::fd::AsFd| rustix::net::sockopt::tcp_congestion(socket).unwrap();
    assert_eq!(congestion(&stream), "reno");
    drop(listener);
}

#[test]
fn the_link_of_the_default_route_is_reported() {
    let (left, _right) = wired();
    configure(&left, "w0", "192.0.2.1/30");
    let mut rtnl = Rtnl::open_in(&left).unwrap();
    assert_eq!(rtnl.default_route_links().unwrap().len(), 0);
    let next_hop = NextHop::Via("192.0.2.2".parse().unwrap());
    let dest = "0.0.0.0/0".parse().unwrap();
    rtnl.add_route(&NewRoute { dest, next_hop, source: None, congestion: None }).unwrap();
    let index = link(&mut rtnl, "w0").index;
    assert_eq!(rtnl.default_route_links().unwrap(), [index].into());
}

#[test]
fn a_name_that_is_taken_is_refused_by_name() {
    let ns = scratch();
    let mut rtnl = Rtnl::open_in(&ns).unwrap();
    let bridge = NewLink::new(name("br7"), LinkKind::Bridge);
    rtnl.create_link(&bridge).unwrap();
    let error = rtnl.create_link(&bridge).unwrap_err();
    assert_eq!(error.errno(), Some(libc::EEXIST));
    assert!(error.to_string().contains("create bridge br7"), "{error}");
}

#[test]
fn the_kernels_own_words_reach_the_user() {
    let ns = scratch();
    let mut rtnl = Rtnl::open_in(&ns).unwrap();
    rtnl.create_link(&NewLink::new(name("br7"), LinkKind::Bridge)).unwrap();
    let change = LinkChange { mtu: Some(70_000), ..LinkChange::default() };
    let error = rtnl.set_link(&name("br7"), &change).unwrap_err();
    assert!(matches!(&error, SysError::Os { detail: Some(_), .. }), "{error:?}");
    assert!(error.to_string().contains("mtu"), "{error}");
    // The connection still works: its sequence numbers match.
    assert_eq!(link(&mut rtnl, "br7").mtu, 1500);
}

#[test]
fn missing_links_differ_from_errors() {
    let ns = scratch();
    let mut rtnl = Rtnl::open_in(&ns).unwrap();
    assert_eq!(rtnl.link(&name("none")).unwrap(), None);
    let error = rtnl.existing_link(&name("none")).unwrap_err();
    assert!(matches!(error, SysError::NoSuchLink { .. }), "{error}");
    assert_eq!(rtnl.delete_link(&name("none")).unwrap_err().errno(), Some(libc::ENODEV));
}

/// The list has about 100 KiB, of which the kernel sends at most 32 at a time. It isn't longer, because removing the
/// links holds the lock for which all rtnetlink requests wait.
#[test]
fn a_list_of_many_links_is_complete() {
    let ns = scratch();
    let mut rtnl = Rtnl::open_in(&ns).unwrap();
    for number in 0..60 {
        rtnl.create_link(&NewLink::new(name(&format!("br{number}")), LinkKind::Bridge)).unwrap();
    }
    let links = rtnl.links().unwrap();
    let bridges = links.iter().filter(|link| link.kind.as_deref() == Some("bridge"));
    assert_eq!(bridges.count(), 60);
}

#[test]
fn every_kind_gets_a_typed_answer() {
    probe_kind("veth").unwrap();
    for kind in ["bridge", "macvlan", "ipvlan", "vxlan", "dummy", "no_such_kind"] {
        match probe_kind(kind) {
            Ok(()) => assert_ne!(kind, "no_such_kind"),
            Err(SysError::NoSuchKind { kind: named }) => assert_eq!(named, kind),
            Err(other) => panic!("{kind}: {other}"),
        }
    }
}

#[test]
fn making_a_kind_agrees_with_probing_it() {
    let ns = scratch();
    let mut rtnl = Rtnl::open_in(&ns).unwrap();
    rtnl.create_link(&NewLink::new(name("v0"), veth("v1", None))).unwrap();
    let parent = link(&mut rtnl, "v0").index;
    for kind in [LinkKind::Ipvlan { parent }, LinkKind::Dummy] {
        let probed = probe_kind(kind.name()).is_ok();
        let made = rtnl.create_link(&NewLink::new(name("x"), kind));
        assert_eq!(made.is_ok(), probed, "{made:?}");
        if probed {
            rtnl.delete_link(&name("x")).unwrap();
        } else {
            assert!(matches!(made, Err(SysError::NoSuchKind { .. })), "{made:?}");
        }
    }
}

#[test]
fn work_inside_leaves_the_caller_where_it_was() {
    let before = NetNs::current().unwrap().id();
    let ns = scratch();
    let inside = ns.run(|| NetNs::current().unwrap().id()).unwrap();
    assert_eq!(inside, ns.id());
    assert_ne!(inside, before);
    assert_eq!(NetNs::current().unwrap().id(), before);
}

#[test]
fn a_panic_inside_reaches_the_caller() {
    let ns = scratch();
    let panic = std::panic::catch_unwind(|| ns.run(|| panic!("deliberate"))).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"deliberate"));
}

#[test]
fn a_pinned_namespace_lasts_until_it_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("zone");
    let (made, ()) = NetNs::create_at(&path, || Ok(())).unwrap();
    let id = made.id();
    assert!(!link(&mut Rtnl::open_in(&made).unwrap(), "lo").up);
    drop(made);
    assert_eq!(NetNs::open(&path).unwrap().id(), id);

    let taken = NetNs::create_at(&path, || Ok(())).unwrap_err();
    assert_eq!(taken.errno(), Some(libc::EEXIST));
    assert!(taken.to_string().contains("zone"), "{taken}");
    assert_eq!(NetNs::open(&path).unwrap().id(), id);

    let stranger: NsId = "1:2".parse().unwrap();
    let wrong = NetNs::remove_at(&path, Some(stranger)).unwrap_err();
    assert!(matches!(wrong, SysError::WrongNamespace { .. }), "{wrong}");
    assert_eq!(NetNs::open(&path).unwrap().id(), id);

    assert!(NetNs::remove_at(&path, Some(id)).unwrap());
    assert!(!path.exists());
    assert!(!NetNs::remove_at(&path, Some(id)).unwrap());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(path.to_str().unwrap()));
}

#[test]
fn remains_of_an_interrupted_removal_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("zone");
    fs::write(&path, "").unwrap();
    assert!(NetNs::remove_at(&path, Some("1:2".parse().unwrap())).unwrap());
    assert!(!path.exists());
}

#[test]
fn nothing_is_left_where_a_namespace_could_not_be_pinned() {
    let error = NetNs::create_at("/no/such/directory/zone".as_ref(), || Ok(())).unwrap_err();
    assert_eq!(error.errno(), Some(libc::ENOENT));
}

/// A program with its own mounts has a copy of our pin. The copy must keep neither the namespace alive, nor the wire
/// that ends in it.
#[test]
fn a_copy_of_the_pin_elsewhere_is_removed_with_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("zone");
    let (zone, ()) = NetNs::create_at(&path, || Ok(())).unwrap();
    let host = scratch();
    let mut rtnl = Rtnl::open_in(&host).unwrap();
    rtnl.create_link(&NewLink::new(name("w0"), veth("w1", Some(&zone)))).unwrap();
    let id = zone.id();
    drop(zone);
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "cat"]).stdin(Stdio::piped());
    let mut copy = command.stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(copy.stdin.as_mut().unwrap(), b"x").unwrap();
    std::io::Read::read_exact(copy.stdout.as_mut().unwrap(), &mut [0]).unwrap();

    NetNs::remove_at(&path, Some(id)).unwrap();
    let gone = eventually(|| rtnl.link(&name("w0")).unwrap().is_none());
    drop(copy.stdin.take());
    copy.wait().unwrap();
    assert!(gone, "the copy keeps the namespace alive");
}

/// Waits for a condition: the kernel removes namespaces in the background, one after another.
fn eventually(condition: impl FnMut() -> bool) -> bool {
    let mut condition = condition;
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

#[test]
fn links_go_with_their_scratch_namespace() {
    let (left, right) = wired();
    drop(right);
    let mut rtnl = Rtnl::open_in(&left).unwrap();
    assert!(eventually(|| rtnl.link(&name("w0")).unwrap().is_none()));
}

#[test]
fn a_child_runs_inside_and_is_found_there() {
    let ns = scratch();
    let mut command = Command::new("readlink");
    command.arg("/proc/self/ns/net").stdout(Stdio::piped());
    let output = ns.spawn(command, Outlive::Yes).unwrap().wait_with_output().unwrap();
    let inside = ns.run(|| fs::read_link("/proc/thread-self/ns/net").unwrap()).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), inside.to_str().unwrap());

    let mut sleep = Command::new("sleep");
    sleep.arg("60");
    let mut child = ns.spawn(sleep, Outlive::Yes).unwrap();
    let id = ProcessId::of(Pid(child.id())).unwrap();
    assert_eq!(ns.processes().unwrap(), [id]);
    assert!(id.signal(Signal::KILL).unwrap());
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    assert!(ns.processes().unwrap().is_empty());
}

#[test]
fn a_child_that_must_not_outlive_us_ends_with_the_thread_that_started_it() {
    let ns = scratch();
    let start = || {
        let mut sleep = Command::new("sleep");
        sleep.arg("60");
        ns.spawn(sleep, Outlive::No).unwrap()
    };
    let mut child = std::thread::scope(|scope| scope.spawn(start).join()).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
}

#[test]
fn a_program_that_is_missing_is_named() {
    let error = scratch().spawn(Command::new("/no/such/program"), Outlive::Yes).unwrap_err();
    assert!(error.to_string().contains("/no/such/program"), "{error}");
}

#[test]
fn settings_belong_to_their_namespace() {
    let (one, other) = (scratch(), scratch());
    let key = "net.ipv4.ip_forward".parse().unwrap();
    let before = sysctl::write(&one, &key, "1").unwrap();
    assert_eq!(sysctl::read(&one, &key).unwrap(), "1");
    assert_eq!(sysctl::read(&other, &key).unwrap(), before);
    assert_eq!(sysctl::write(&one, &key, "0").unwrap(), "1");
    let error = sysctl::write(&one, &key, "many").unwrap_err();
    assert!(error.to_string().contains("net/ipv4/ip_forward"), "{error}");
}
