//! Multicast streams between hosts on a switch, each in a separate namespace. Requires root.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use vtax_engine::{Cancel, EngineError, Initiator, Responder};
use vtax_model::{
    measurement::EndReport,
    options::{Engine, SocketOptions, TestOptions},
    station::{EndSetup, Schedule, Station},
    units::{BitRate, ByteSize, Span},
    workload::{TestSpec, Transport, Warmup, Workload},
};
use vtax_sys::{
    netlink::{LinkChange, LinkKind, NewLink, Rtnl, Tbf},
    netns::NetNs,
    token::Token,
};

const MESSAGE: u64 = 1000;
/// Greetings that may be lost like datagrams of the stream: the end is repeated at most 50 times.
const GREETINGS: u64 = 60;

/// The sender, the receiver and an outsider on one switch.
struct Network {
    hosts: [NetNs; 3],
    between: NetNs,
    switch: Rtnl,
}

impl Network {
    fn new() -> Network {
        let between = NetNs::scratch().expect("these tests need root");
        let mut switch = Rtnl::open_in(&between).unwrap();
        switch.create_link(&NewLink::new("vsw0".parse().unwrap(), LinkKind::Bridge)).unwrap();
        switch.set_link(&"vsw0".parse().unwrap(), &up()).unwrap();
        let bridge = switch.existing_link(&"vsw0".parse().unwrap()).unwrap().index;
        let hosts = [1, 2, 3].map(|host| {
            let namespace = NetNs::scratch().unwrap();
            let (mut rtnl, port) = (Rtnl::open_in(&namespace).unwrap(), format!("port{host}").parse().unwrap());
            let kind = LinkKind::Veth { peer: port, peer_ns: Some(&between), peer_mtu: None };
            rtnl.create_link(&NewLink::new("nic".parse().unwrap(), kind)).unwrap();
            let port = format!("port{host}").parse().unwrap();
            switch.set_link(&port, &LinkChange { master: Some(Some(bridge)), ..up() }).unwrap();
            rtnl.set_link(&"nic".parse().unwrap(), &up()).unwrap();
            let index = rtnl.existing_link(&"nic".parse().unwrap()).unwrap().index;
            for address in [format!("192.0.2.{host}/24"), format!("2001:db8::{host}/64")] {
                rtnl.add_address(index, address.parse().unwrap()).unwrap();
            }
            namespace
        });
        Network { hosts, between, switch }
    }

    /// Runs a stream from the first host of these addresses to the second one, and `meanwhile` with the group's port.
    fn run(
        &self,
        spec: &TestSpec,
        addresses: [&str; 2],
        meanwhile: impl FnOnce(u16) + Send,
    ) -> [Result<EndReport, EngineError>; 2] {
        let [left, right, _] = &self.hosts;
        let [own, other] = addresses.map(|address| EndSetup::new(Station::Ip(address.parse().unwrap())));
        let (token, cancel) = (Token::random(), Cancel::new());
        let responder = right.run(|| Responder::bind(spec, &other, token)).unwrap().unwrap();
        let target = responder.target();
        let vtax_model::station::Target::Ip(address) = &target else { panic!("{target}") };
        thread::scope(|scope| {
            let served = scope.spawn(|| right.run(|| responder.serve(&cancel)).unwrap());
            scope.spawn(|| meanwhile(address.port()));
            let initiated = left.run(|| {
                let connected = Initiator::connect(spec, &own, &target, token, &cancel);
                connected.and_then(|end| end.run(Schedule::default(), None, &cancel).map_err(|failed| failed.error))
            });
            let initiated = initiated.unwrap();
            if initiated.is_err() {
                cancel.cancel();
            }
            [initiated, served.join().unwrap().map_err(|failed| failed.error)]
        })
    }

    fn stream(&self, spec: &TestSpec) -> [EndReport; 2] {
        self.run(spec, IPV4, |_| {}).map(|outcome| outcome.unwrap_or_else(|error| panic!("{error}")))
    }

    fn iproute(&self, words: &str) {
        let status = self.between.run(|| Command::new("sh").args(["-c", words]).status()).unwrap();
        assert!(status.is_ok_and(|status| status.success()), "{words}");
    }
}

const IPV4: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
const IPV6: [&str; 2] = ["2001:db8::1", "2001:db8::2"];

fn up() -> LinkChange<'static> {
    LinkChange { up: Some(true), ..LinkChange::default() }
}

fn spec(streams: u32, options: TestOptions) -> TestSpec {
    TestSpec {
        transport: Transport::Udp,
        workload: Workload::Multicast { message: ByteSize(MESSAGE) },
        streams,
        warmup: Warmup::For(Span::from_millis(20)),
        duration: Span::from_millis(200),
        slices: None,
        options,
    }
}

fn at(bitrate: u64) -> TestOptions {
    TestOptions { bitrate: BitRate::new(bitrate), ..TestOptions::default() }
}

/// The receive buffer has space for everything, so nothing is lost however busy the machine is.
#[test]
fn a_slow_stream_arrives_completely_on_each_engine() {
    let network = Network::new();
    for (engine, addresses) in Engine::ALL.into_iter().flat_map(|engine| [(engine, IPV4), (engine, IPV6)]) {
        let spec = spec(2, TestOptions { engine, ..at(10_000_000) });
        let [sender, receiver] = network.run(&spec, addresses, |_| {}).map(|outcome| outcome.expect("a report"));
        assert_eq!((receiver.lost, receiver.reordered), (0, 0), "{engine}");
        assert_eq!(sender.whole_flow, receiver.whole_flow, "{engine}");
        assert!(receiver.bytes > 0 && receiver.bytes.is_multiple_of(MESSAGE), "{engine}: {receiver:?}");
    }
}

#[test]
fn datagrams_dropped_by_a_port_are_lost() {
    let mut network = Network::new();
    let port = network.switch.existing_link(&"port2".parse().unwrap()).unwrap().index;
    let rate = BitRate::new(2_000_000).unwrap();
    network.switch.set_tbf(port, &Tbf { rate, burst: ByteSize(10_000), queue: ByteSize(10_000) }).unwrap();
    let [sender, receiver] = network.stream(&spec(1, at(40_000_000)));
    let dropped = u64::from(network.switch.root_qdisc(port).unwrap().unwrap().stats.drops);
    let missing = sender.whole_flow - receiver.whole_flow;
    assert!((missing..=missing + GREETINGS).contains(&dropped), "{missing} missing, {dropped} dropped");
    let arrived = receiver.bytes / MESSAGE;
    assert!(receiver.lost > arrived && receiver.lost <= missing, "{} lost, {arrived} arrived", receiver.lost);
}

#[test]
fn datagrams_dropped_by_the_receivers_socket_are_lost() {
    let network = Network::new();
    let socket = SocketOptions { receive_buffer: Some(ByteSize(2_304)), ..SocketOptions::default() };
    let [sender, receiver] = network.stream(&spec(1, TestOptions { socket, ..TestOptions::default() }));
    let missing = sender.whole_flow - receiver.whole_flow;
    assert!(receiver.lost > 0 && missing > 0, "{receiver:?}");
    assert!((missing..=missing + GREETINGS).contains(&receiver.socket_drops), "{missing} missing, {receiver:?}");
}

/// Anybody may send to a group. Datagrams without the token are neither counted nor answered.
#[test]
fn an_outsider_in_the_group_gets_no_answer() {
    let network = Network::new();
    let over = AtomicBool::new(false);
    let disturb = |port| {
        network.hosts[2]
            .run(|| {
                let socket = UdpSocket::bind("192.0.2.3:0").unwrap();
                let group = SocketAddr::new("239.255.2.2".parse::<IpAddr>().unwrap(), port);
                let mut sent = 0_u64;
                while !over.load(Ordering::Relaxed) {
                    for length in [0, 8, 21, MESSAGE as usize, 1400] {
                        sent += u64::from(socket.send_to(&vec![6; length], group).is_ok());
                    }
                    thread::sleep(Duration::from_millis(1));
                }
                socket.set_nonblocking(true).unwrap();
                assert!(sent > 0 && socket.recv(&mut [0; 64]).is_err(), "an answer to a stranger");
            })
            .unwrap();
    };
    thread::scope(|scope| {
        let streamed = scope.spawn(|| {
            let outcomes = network.run(&spec(1, at(10_000_000)), IPV4, disturb);
            outcomes.map(|outcome| outcome.expect("a report"))
        });
        thread::sleep(Duration::from_millis(600));
        over.store(true, Ordering::Relaxed);
        let [sender, receiver] = streamed.join().unwrap();
        assert_eq!((sender.whole_flow, receiver.lost), (receiver.whole_flow, 0));
    });
}

#[test]
fn a_path_without_multicast_is_named() {
    let network = Network::new();
    network.iproute("bridge link set dev port2 mcast_flood off");
    let [initiated, _] = network.run(&spec(1, at(10_000_000)), IPV4, |_| {});
    let error = initiated.expect_err("nothing arrives");
    assert!(matches!(error, EngineError::GroupUnheard { .. }), "{error}");
    assert!(error.to_string().contains("239.255.2.2:") && error.to_string().contains("NAT"), "{error}");
}
