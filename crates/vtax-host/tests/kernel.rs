//! Tests with the running kernel, in a temporary namespace. They require root.

use std::{
    net::{IpAddr, UdpSocket},
    time::Duration,
};

use vtax_host::inspect::route_hops;
use vtax_sys::{
    netlink::{IfName, LinkChange, LinkKind, NewLink, Rtnl},
    netns::NetNs,
};

fn name(text: &str) -> IfName {
    text.parse().expect("a link's name")
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn the_outgoing_link_is_reported_with_the_links_below() {
    let ns = NetNs::scratch().expect("these tests need root");
    let mut rtnl = Rtnl::open_in(&ns).expect("a connection");
    let veth = LinkKind::Veth { peer: name("far"), peer_ns: None, peer_mtu: None };
    rtnl.create_link(&NewLink { mtu: Some(9000), ..NewLink::new(name("near"), veth) }).expect("a veth");
    let parent = rtnl.existing_link(&name("near")).expect("it was made").index;
    let macvlan = NewLink { mtu: Some(1400), ..NewLink::new(name("upper"), LinkKind::Macvlan { parent }) };
    rtnl.create_link(&macvlan).expect("a macvlan");
    for link in ["near", "far", "upper"] {
        let up = LinkChange { up: Some(true), ..LinkChange::default() };
        rtnl.set_link(&name(link), &up).expect("it takes it");
    }
    let upper = rtnl.existing_link(&name("upper")).expect("it was made").index;
    rtnl.add_address(upper, "192.0.2.1/24".parse().expect("an address")).expect("it takes it");

    let ask = |from: Option<&str>, to: &str| {
        let hops = ns.run(|| route_hops(from.map(ip), ip(to), None)).expect("inside");
        hops.into_iter().map(|hop| (hop.link, hop.kind, hop.mtu, hop.nic.driver)).collect::<Vec<_>>()
    };
    let hop = |link: &str, kind: &str, mtu| (link.into(), kind.into(), mtu, Some(kind.into()));
    let out = [hop("upper", "macvlan", 1400), hop("near", "veth", 9000)];
    assert_eq!(ask(Some("192.0.2.1"), "192.0.2.2"), out);
    assert_eq!(ask(None, "192.0.2.2"), out);
    assert_eq!(ask(Some("192.0.2.1"), "192.0.2.1")[0].0, "lo");
    assert_eq!(ask(Some("198.51.100.1"), "203.0.113.1"), []);
}

/// Linux uses the link whose route it prefers, not by the one with the source address. The reported link must be the
/// one whose own counters grow.
#[test]
fn of_two_links_on_one_network_the_used_one_is_reported() {
    let here = NetNs::scratch().expect("these tests need root");
    let there = NetNs::scratch().expect("another");
    wire(&here, &there, ["a0", "b0"], ["192.0.2.1/24", "192.0.2.9/24"]);
    wire(&here, &there, ["a1", "b1"], ["192.0.2.2/24", "192.0.2.10/24"]);

    let receiver = there.run(|| UdpSocket::bind("192.0.2.9:0")).expect("inside").expect("its address");
    receiver.set_read_timeout(Some(Duration::from_secs(300))).expect("it takes it");
    let to = receiver.local_addr().expect("it is bound");
    for from in ["192.0.2.1", "192.0.2.2"] {
        let told = here.run(|| route_hops(Some(ip(from)), to.ip(), None)).expect("inside");
        let before = ["a0", "a1"].map(|link| sent_bytes(&here, link));
        let sender = here.run(|| UdpSocket::bind((from, 0))).expect("inside").expect("its address");
        for _ in 0..100 {
            sender.send_to(&[0; 1000], to).expect("there is a way");
            receiver.recv_from(&mut [0; 1000]).expect("it arrives");
        }
        let sent = ["a0", "a1"].into_iter().zip(before).map(|(link, before)| (link, sent_bytes(&here, link) - before));
        let used: Vec<&str> = sent.filter(|(_, bytes)| *bytes >= 100_000).map(|(link, _)| link).collect();
        assert_eq!(told.iter().map(|hop| hop.link.raw()).collect::<Vec<_>>(), used, "from {from}");
        assert_eq!(used.len(), 1, "from {from}");
    }
}

/// Two connected links, the first one in `here`, each with its address.
fn wire(here: &NetNs, there: &NetNs, links: [&str; 2], addresses: [&str; 2]) {
    let mut rtnl = Rtnl::open_in(here).expect("a connection");
    let kind = LinkKind::Veth { peer: name(links[1]), peer_ns: Some(there), peer_mtu: None };
    rtnl.create_link(&NewLink::new(name(links[0]), kind)).expect("a veth");
    for ((ns, link), address) in [here, there].into_iter().zip(links).zip(addresses) {
        let mut rtnl = Rtnl::open_in(ns).expect("a connection");
        rtnl.set_link(&name(link), &LinkChange { up: Some(true), ..LinkChange::default() }).expect("it takes it");
        let index = rtnl.existing_link(&name(link)).expect("it was made").index;
        rtnl.add_address(index, address.parse().expect("an address")).expect("it takes it");
    }
}

fn sent_bytes(ns: &NetNs, link: &str) -> u64 {
    let table = ns.run(|| std::fs::read_to_string("/proc/thread-self/net/dev")).expect("inside").expect("it is there");
    let counters = table.lines().find_map(|line| line.trim().strip_prefix(link)?.strip_prefix(':'));
    // The first eight columns count received packets.
    counters.and_then(|counters| counters.split_whitespace().nth(8)?.parse().ok()).expect("a counter")
}
