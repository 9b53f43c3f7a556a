//! Rate limits of links, in namespaces that end with the test. Requires root.

use std::net::UdpSocket;
use std::time::Duration;

use vtax_model::units::{BitRate, ByteSize};
use vtax_sys::netlink::{IfIndex, IfName, LinkChange, LinkKind, NewLink, QdiscStats, Rtnl, Tbf, probe_tbf};
use vtax_sys::netns::NetNs;

use port::silent;

#[path = "../../../tests/port.rs"]
#[allow(dead_code, reason = "the tests of switches use the rest of it")]
mod port;

fn name(text: &str) -> IfName {
    text.parse().unwrap()
}

/// Sets a link up and adds an address.
fn configure(ns: &NetNs, device: &str, address: &str) -> (Rtnl, IfIndex) {
    let mut rtnl = Rtnl::open_in(ns).unwrap();
    rtnl.set_link(&name(device), &LinkChange { up: Some(true), ..LinkChange::default() }).unwrap();
    let index = rtnl.existing_link(&name(device)).unwrap().index;
    rtnl.add_address(index, address.parse().unwrap()).unwrap();
    (rtnl, index)
}

fn tbf(bits: u64, burst: u64, queue: u64) -> Tbf {
    Tbf { rate: BitRate::new(bits).unwrap(), burst: ByteSize(burst), queue: ByteSize(queue) }
}

fn udp(ns: &NetNs, address: &str) -> UdpSocket {
    let socket = ns.run(|| UdpSocket::bind(address)).unwrap().unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket
}

#[test]
fn a_rate_is_set_read_back_and_changed() {
    let ns = NetNs::scratch().expect("these tests need root");
    let mut rtnl = Rtnl::open_in(&ns).unwrap();
    let lo = IfIndex(1);
    assert_ne!(rtnl.root_qdisc(lo).unwrap().map(|qdisc| qdisc.kind).as_deref(), Some("tbf"));
    // The second rate doesn't fit a 32-bit field for bytes per second.
    for asked in [tbf(100_000_000, 100_000, 65_536), tbf(100_000_000_000, 25_000_000, 1_000_000), tbf(8_000, 70_000, 1)]
    {
        rtnl.set_tbf(lo, &asked).unwrap();
        let found = rtnl.root_qdisc(lo).unwrap().unwrap();
        assert_eq!(found.kind, "tbf");
        assert!(found.tbf.is_some_and(|found| found.is(&asked)), "{asked:?} reads back as {:?}", found.tbf);
    }
    assert!(rtnl.set_tbf(lo, &tbf(1_000_000, 0, 0)).is_err());
    assert_eq!(rtnl.root_qdisc(IfIndex(99)).unwrap(), None);
    probe_tbf().unwrap();
}

/// All packets are sent in one burst. The burst and the queue take the first ones, and the others are dropped.
#[test]
fn every_packet_arrives_or_is_counted_as_dropped() {
    const SENT: u64 = 500;
    const PAYLOAD: u64 = 1000;
    let (left, right) = (silent(), silent());
    let kind = LinkKind::Veth { peer: name("w1"), peer_ns: Some(&right), peer_mtu: None };
    Rtnl::open_in(&left).unwrap().create_link(&NewLink::new(name("w0"), kind)).unwrap();
    let (mut rtnl, wire) = configure(&left, "w0", "192.0.2.1/30");
    configure(&right, "w1", "192.0.2.2/30");
    let (sender, receiver) = (udp(&left, "192.0.2.1:0"), udp(&right, "192.0.2.2:0"));
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    // The neighbour's address is resolved before anything is counted.
    sender.send(b"x").unwrap();
    receiver.recv(&mut [0]).unwrap();
    rtnl.set_tbf(wire, &tbf(10_000_000, 5_000, 20_000)).unwrap();

    for _ in 0..SENT {
        sender.send(&[0; PAYLOAD as usize]).unwrap();
    }
    let mut buffer = [0; 2000];
    let mut received = 0;
    while received < SENT && receiver.recv(&mut buffer).is_ok() {
        received += 1;
    }
    let QdiscStats { packets, bytes, drops, overlimits } = rtnl.root_qdisc(wire).unwrap().unwrap().stats;
    assert_eq!(SENT - received, u64::from(drops));
    assert!(drops > 0 && received > 20 && overlimits > 0, "{received} arrived, {drops} dropped");
    // 8 bytes of UDP header, 20 of IP and 14 of Ethernet, and an ARP request or two.
    assert!((received..received + 3).contains(&packets), "{packets} of {received}");
    assert!((received * (PAYLOAD + 42)..received * (PAYLOAD + 42) + 200).contains(&bytes), "{bytes}");
}
