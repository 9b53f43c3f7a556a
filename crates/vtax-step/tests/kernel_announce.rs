//! Announcements with the running kernel: the switches of two hosts, each in a separate namespace, connected by a wire.
//! The test emulates the guests. Requires root and `/dev/net/tun`. VLANs are tested in the emulated server.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use vtax_model::{guest::Mac, vf::Vlan};
use vtax_step::{Announcement, NetStack, PortVlanSet};
use vtax_sys::netlink::{FdbOrigin, IfIndex, LinkChange, LinkKind, MacAddr, NewLink, Rtnl};
use vtax_sys::netns::NetNs;

use port::{Port, silent};

#[path = "../../../tests/port.rs"]
#[allow(dead_code, reason = "the test of VLANs uses more of it")]
mod port;

const PEER: MacAddr = MacAddr([2, 0, 0x5e, 0x10, 0, 9]);
const MTU: u32 = 1500;

/// Host with a switch, an uplink, and a port for a guest.
struct Host {
    stack: NetStack,
    uplink: IfIndex,
    guest: Port,
}

/// Makes a link a port of the switch.
fn join(rtnl: &mut Rtnl, link: &str, bridge: IfIndex) -> IfIndex {
    let change = LinkChange { up: Some(true), master: Some(Some(bridge)), ..LinkChange::default() };
    rtnl.set_link(&link.parse().expect("a name"), &change).expect("it is a link");
    rtnl.existing_link(&link.parse().expect("a name")).expect("it exists").index
}

fn host(ns: NetNs, uplink: &str) -> Host {
    let mut rtnl = Rtnl::open_in(&ns).expect("a connection");
    rtnl.create_link(&NewLink::new("vsw0".parse().expect("a name"), LinkKind::Bridge)).expect("a bridge");
    let up = LinkChange { up: Some(true), ..LinkChange::default() };
    rtnl.set_link(&"vsw0".parse().expect("a name"), &up).expect("it goes up");
    let bridge = rtnl.existing_link(&"vsw0".parse().expect("a name")).expect("it exists").index;
    let uplink = join(&mut rtnl, uplink, bridge);
    let guest = Port::of(&ns, bridge, "guest", MTU);
    Host { stack: NetStack::open(None, Arc::new(ns)).expect("a stack"), uplink, guest }
}

/// Returns two hosts whose uplinks are connected, and another port of the source's switch.
fn hosts() -> (Host, Host, Port) {
    let (source, target) = (silent(), silent());
    let kind = LinkKind::Veth { peer: "wire".parse().expect("a name"), peer_ns: Some(&target), peer_mtu: None };
    let wire = NewLink::new("wire".parse().expect("a name"), kind);
    Rtnl::open_in(&source).and_then(|mut rtnl| rtnl.create_link(&wire)).expect("a wire");
    let (mut source, target) = (host(source, "wire"), host(target, "wire"));
    let bridge = source.stack.existing("vsw0").expect("it exists").index;
    let peer = Port::of(source.stack.namespace(), bridge, "peer", MTU);
    (source, target, peer)
}

fn macs() -> [Mac; 2] {
    ["02:00:5e:10:00:01", "02:00:5e:10:00:02"].map(|text| text.parse().expect("an address"))
}

fn octets(mac: Mac) -> MacAddr {
    MacAddr(mac.octets())
}

/// Timeout of a wait. It only ends a hang, and is not a measure of speed.
const HANGS: Duration = Duration::from_secs(120);

/// Returns the ports behind which a switch has an address.
fn places(host: &mut Host, mac: Mac) -> Vec<IfIndex> {
    let entries = host.stack.forwarding("vsw0").expect("a table").into_iter();
    entries.filter(|entry| entry.mac == octets(mac)).map(|entry| entry.port).collect()
}

/// Waits until a switch has an address behind a port. The kernel may take a moment to forward a frame, so `again`
/// repeats the action that should move the address.
fn wait_for(host: &mut Host, mac: Mac, port: IfIndex, mut again: impl FnMut()) {
    let begun = Instant::now();
    while places(host, mac) != [port] {
        assert!(begun.elapsed() < HANGS, "{mac} stays behind {:?}, and not {port:?}", places(host, mac));
        thread::sleep(Duration::from_millis(5));
        again();
    }
}

fn announcement(target: &mut Host, vlans: Option<&PortVlanSet>) -> Announcement {
    target.stack.announce("guest", Some("wire"), &macs(), vlans).expect("it is prepared")
}

#[test]
fn moved_addresses_are_reached_immediately_and_not_before() {
    let (mut source, mut target, peer) = hosts();
    for mac in macs() {
        source.guest.broadcast(octets(mac), None, "here");
    }
    peer.expect(&["here", "here"]);
    let mut announcement = announcement(&mut target, None);
    for mac in macs() {
        assert_eq!(places(&mut source, mac), [source.guest.index], "still at the source");
        let uplink = target.uplink;
        wait_for(&mut target, mac, uplink, || {});
        peer.send(octets(mac), PEER, None, b"too early");
    }
    source.guest.expect(&["too early", "too early"]);
    target.guest.expect(&["here", "here"]);

    announcement.make(Duration::ZERO, &mut target.stack).expect("it is announced");
    let (uplink, guest) = (source.uplink, target.guest.index);
    for mac in macs() {
        wait_for(&mut target, mac, guest, || {});
        wait_for(&mut source, mac, uplink, || {});
        peer.send(octets(mac), PEER, None, b"after it");
    }
    target.guest.expect(&["after it", "after it"]);
    source.guest.expect(&[]);
}

#[test]
fn an_announcement_is_repeated_on_the_callers_request() {
    let (mut source, mut target, _peer) = hosts();
    let [mac, _] = macs();
    let mut announcement = announcement(&mut target, None);
    let times = [0, 49, 50, 300, 1_000, 2_000].map(Duration::from_millis);
    let next = times.map(|running| announcement.make(running, &mut target.stack).expect("it is made"));
    assert_eq!(
        next.map(|next| next.map(|next| next.as_millis())),
        [Some(50), Some(50), Some(200), Some(450), None, None]
    );
    // One of the guest's last frames arrives late, and moves the address back to the source; a repetition corrects
    // that.
    let mut repeated = self::announcement(&mut target, None);
    repeated.make(Duration::ZERO, &mut target.stack).expect("it is made");
    let uplink = target.uplink;
    wait_for(&mut target, mac, uplink, || source.guest.broadcast(octets(mac), None, "late"));
    repeated.make(Duration::from_millis(50), &mut target.stack).expect("it is made");
    let (uplink, guest) = (source.uplink, target.guest.index);
    wait_for(&mut source, mac, uplink, || {});
    wait_for(&mut target, mac, guest, || {});
}

#[test]
fn tagged_vlans_are_announced_too() {
    let (mut source, mut target, peer) = hosts();
    let vlan = |number: i64| Vlan::try_from(number).expect("a VLAN");
    let vlans = PortVlanSet { pvid: vlan(1), vids: [7, 9].map(vlan).into() };
    announcement(&mut target, Some(&vlans)).make(Duration::ZERO, &mut target.stack).expect("it is made");
    // These switches don't filter, so a frame of each VLAN reaches every port.
    let mut tags = peer.announced(3 * macs().len());
    tags.sort();
    let expected = [None, Some(7), Some(9)].into_iter().flat_map(|tag| macs().map(|mac| (octets(mac), tag)));
    let mut expected: Vec<_> = expected.collect();
    expected.sort();
    assert_eq!(tags, expected);
    let [mac, _] = macs();
    let (uplink, guest) = (source.uplink, target.guest.index);
    wait_for(&mut source, mac, uplink, || {});
    wait_for(&mut target, mac, guest, || {});
}

#[test]
fn the_source_forgets_addresses_that_have_moved() {
    let (mut source, mut target, _peer) = hosts();
    let [first, second] = macs();
    source.guest.broadcast(octets(first), None, "here");
    source.guest.broadcast(octets(second), None, "here");
    source.guest.broadcast(PEER, None, "another address stays");
    let removed = source.stack.withdraw("guest", &[first]).expect("it is withdrawn");
    assert_eq!(
        removed.iter().map(|entry| (entry.port, entry.mac)).collect::<Vec<_>>(),
        [(source.guest.index, octets(first))]
    );
    assert_eq!((places(&mut source, first), places(&mut source, second)), (vec![], vec![source.guest.index]));
    let entries = source.stack.forwarding("vsw0").expect("a table");
    assert!(entries.iter().any(|entry| entry.mac == PEER && entry.origin == FdbOrigin::Dynamic));
    assert!(entries.iter().any(|entry| entry.origin == FdbOrigin::Own), "the switch's own addresses");

    // The announced address is now behind another port, and stays there.
    announcement(&mut target, None).make(Duration::ZERO, &mut target.stack).expect("it is made");
    let uplink = source.uplink;
    macs().into_iter().for_each(|mac| wait_for(&mut source, mac, uplink, || {}));
    assert_eq!(source.stack.withdraw("guest", &macs()).expect("nothing is left"), []);
    assert_eq!(places(&mut source, second), [uplink]);
    assert_eq!(source.stack.withdraw("no-such-port", &macs()).expect("it is gone"), []);
}

#[test]
fn a_port_that_cannot_forward_is_named() {
    let (_source, mut target, _peer) = hosts();
    let mut announcement = announcement(&mut target, None);
    let down = LinkChange { up: Some(false), ..LinkChange::default() };
    target.stack.change("guest", &down).expect("it goes down");
    let error = announcement.make(Duration::ZERO, &mut target.stack).expect_err("it is down").to_string();
    assert!(error.contains("guest") && error.contains("carrier"), "{error}");
    target.stack.change("wire", &down).expect("it goes down");
    target.stack.change("guest", &LinkChange { up: Some(true), ..down }).expect("it goes up");
    let error = announcement.make(Duration::from_millis(50), &mut target.stack).expect_err("it is down").to_string();
    assert!(error.contains("wire") && error.contains("Network is down"), "{error}");
}
