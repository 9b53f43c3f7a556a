//! Tests on links of MTU 1500, in their own network namespaces. They require root.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    thread,
    time::Duration,
};

use vtax_engine::{Cancel, EngineError, Initiator, Responder};
use vtax_model::{
    measurement::{EndReport, PacketCounts},
    options::{Engine, Segments, Sending, TestOptions},
    station::{EndSetup, Station},
    units::{BitRate, ByteSize, Span},
    workload::{Direction, TestSpec, Transport, Warmup, Workload},
};
use vtax_sys::{
    ethtool::Ethtool,
    netlink::{IfName, LinkChange, LinkKind, NewLink, Rtnl},
    netns::NetNs,
    token::Token,
};

/// Runs a UDP test in a namespace whose loopback carries 1500 bytes.
fn over_ethernet(workload: Workload) -> Result<EndReport, EngineError> {
    ethernet().run(|| run(Transport::Udp, workload)).unwrap()
}

fn ethernet() -> NetNs {
    let namespace = NetNs::scratch().unwrap();
    let change = LinkChange { up: Some(true), mtu: Some(1500), ..LinkChange::default() };
    let loopback: IfName = "lo".parse().unwrap();
    Rtnl::open_in(&namespace).unwrap().set_link(&loopback, &change).unwrap();
    namespace
}

fn spec(transport: Transport, workload: Workload) -> TestSpec {
    TestSpec {
        transport,
        workload,
        streams: 1,
        warmup: Warmup::For(Span::from_millis(10)),
        duration: Span::from_millis(50),
        slices: None,
        options: TestOptions::default(),
    }
}

fn run(transport: Transport, workload: Workload) -> Result<EndReport, EngineError> {
    run_spec(&spec(transport, workload))
}

fn run_spec(spec: &TestSpec) -> Result<EndReport, EngineError> {
    let setup = EndSetup::new(Station::Ip(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    let (token, cancel) = (Token::random(), Cancel::new());
    let responder = Responder::bind(spec, &setup, token).unwrap();
    let target = responder.target();
    thread::scope(|scope| {
        let served = scope.spawn(|| responder.serve(&cancel));
        let connected = Initiator::connect(spec, &setup, &target, token, &cancel);
        let initiated = connected.and_then(|end| {
            end.run(vtax_model::station::Schedule::default(), None, &cancel).map_err(|failed| failed.error)
        });
        if initiated.is_err() {
            cancel.cancel();
        }
        let served = served.join().unwrap();
        assert_eq!(served.is_ok(), initiated.is_ok());
        initiated
    })
}

fn stream(message: u64) -> Workload {
    Workload::Stream { message: ByteSize(message), direction: Direction::Forward }
}

#[test]
fn a_datagram_that_fills_the_mtu_is_sent() {
    let report = over_ethernet(stream(1472)).unwrap();
    assert!(report.bytes > 0);
}

#[test]
fn a_datagram_that_would_be_fragmented_is_refused_with_the_mtu() {
    let stream = stream(1473);
    let rr = Workload::Rr { request: ByteSize(1), response: ByteSize(1473) };
    for (workload, named) in [(stream, "message"), (rr, "response")] {
        match over_ethernet(workload).unwrap_err() {
            EngineError::Oversize { what, size, mtu, most, .. } => {
                assert_eq!((what, size, mtu, most), (named, ByteSize(1473), 1500, ByteSize(1472)));
            }
            other => panic!("{other}"),
        }
    }
}

/// Runs both ends of a test with a wire of MTU 1500 between their namespaces.
fn over_a_wire(spec: &TestSpec) -> [EndReport; 2] {
    Wire::new().run(spec)
}

/// Two namespaces, for the initiator and the responder, with a wire between them.
struct Wire {
    namespaces: [NetNs; 2],
    setups: [EndSetup; 2],
}

impl Wire {
    fn new() -> Wire {
        let [left, right] = [(); 2].map(|()| NetNs::scratch().unwrap());
        let kind = LinkKind::Veth { peer: "w1".parse().unwrap(), peer_ns: Some(&right), peer_mtu: None };
        Rtnl::open_in(&left).unwrap().create_link(&NewLink::new("w0".parse().unwrap(), kind)).unwrap();
        let setups = [(&left, "w0", 1), (&right, "w1", 2)].map(|(namespace, device, host)| {
            let (mut rtnl, device) = (Rtnl::open_in(namespace).unwrap(), device.parse().unwrap());
            rtnl.set_link(&device, &LinkChange { up: Some(true), ..LinkChange::default() }).unwrap();
            let index = rtnl.existing_link(&device).unwrap().index;
            rtnl.add_address(index, format!("192.0.2.{host}/30").parse().unwrap()).unwrap();
            EndSetup::new(Station::Ip(IpAddr::V4(Ipv4Addr::new(192, 0, 2, host))))
        });
        Wire { namespaces: [left, right], setups }
    }

    fn run(&self, spec: &TestSpec) -> [EndReport; 2] {
        let ([left, right], [own, other]) = (&self.namespaces, &self.setups);
        let (token, cancel) = (Token::random(), Cancel::new());
        let responder = right.run(|| Responder::bind(spec, other, token)).unwrap().unwrap();
        let target = responder.target();
        thread::scope(|scope| {
            let served = scope.spawn(|| right.run(|| responder.serve(&cancel)).unwrap());
            let initiate = || {
                Initiator::connect(spec, own, &target, token, &cancel).unwrap().run(
                    vtax_model::station::Schedule::default(),
                    None,
                    &cancel,
                )
            };
            let initiated = left.run(initiate).unwrap();
            [initiated, served.join().unwrap()].map(|outcome| outcome.unwrap_or_else(|failed| panic!("{failed}")))
        })
    }

    /// Disables the offloads that combine several packets into one.
    fn cut_everything(&self) {
        for (namespace, device) in self.devices() {
            let link = namespace.run(|| Ethtool::open(&device.parse().unwrap())).unwrap().unwrap();
            for feature in ["tx-tcp-segmentation", "tx-udp-segmentation", "tx-generic-segmentation", "rx-gro"] {
                link.set_feature(feature, false).unwrap();
                assert_eq!(link.feature(feature).unwrap(), Some(false), "{feature}");
            }
        }
    }

    /// Bytes and packets that each end has sent, as the devices count them: with the Ethernet header.
    fn sent(&self) -> [[u64; 2]; 2] {
        self.devices().map(|(namespace, device)| {
            let table = namespace.run(|| fs::read_to_string("/proc/thread-self/net/dev")).unwrap().unwrap();
            let line = table.lines().find_map(|line| line.trim().strip_prefix(&format!("{device}:"))).unwrap();
            let numbers: Vec<u64> = line.split_whitespace().map(|number| number.parse().unwrap()).collect();
            [numbers[8], numbers[9]]
        })
    }

    fn devices(&self) -> [(&NetNs, &'static str); 2] {
        let [left, right] = &self.namespaces;
        [(left, "w0"), (right, "w1")]
    }
}

fn across(transport: Transport, workload: Workload, options: TestOptions) -> TestSpec {
    let (warmup, duration) = (Warmup::For(Span::from_millis(30)), Span::from_millis(200));
    TestSpec { transport, workload, streams: 1, warmup, duration, slices: None, options }
}

/// Many datagrams cross the wire as one packet, and each arrives.
#[test]
fn segments_that_fill_the_mtu_cross_a_wire() {
    for (gso, gro) in [(Some(Segments::MOST), true), (Some(Segments::MOST), false), (None, true)] {
        let options = TestOptions { gso, gro, bitrate: BitRate::new(400_000_000), ..TestOptions::default() };
        let [sender, receiver] = over_a_wire(&across(Transport::Udp, stream(1472), options));
        assert!(receiver.bytes.is_multiple_of(1472) && receiver.bytes > 0);
        let missing = sender.whole_flow - receiver.whole_flow;
        assert!(missing <= sender.whole_flow / 10, "{missing} of {} ({options:?})", sender.whole_flow);
        assert_eq!((receiver.lost <= missing, receiver.reordered), (true, 0), "{options:?}");
    }
}

/// A virtual wire has no network card that could read the sender's pages, so the kernel copies them and reports that.
#[test]
fn zero_copy_sends_on_a_virtual_wire_are_copied() {
    let options = TestOptions { sending: Sending::ZeroCopy, ..TestOptions::default() };
    let [sender, receiver] = over_a_wire(&across(Transport::Tcp, stream(64 << 10), options));
    assert!(sender.zerocopy_sends > 0 && receiver.bytes > 0);
    assert!(sender.zerocopy_copied > sender.zerocopy_sends / 2, "{sender:?}");
}

const ATTEMPTS: usize = 10;

#[test]
fn a_wire_has_stages() {
    let options = TestOptions { stages: true, ..TestOptions::default() };
    for transport in [Transport::Tcp, Transport::Udp] {
        let rr = Workload::Rr { request: ByteSize(8), response: ByteSize(8) };
        let spec = TestSpec { warmup: Warmup::For(Span::from_millis(300)), ..across(transport, rr, options) };
        // The kernel enables receive timestamping in the background, which on a busy machine may take longer than that.
        let attempts = std::iter::repeat_with(|| over_a_wire(&spec).map(|end| (end.stages.unwrap(), end.transactions)));
        let stamped = attempts
            .take(ATTEMPTS)
            .find(|[(there, transactions), (back, _)]| there.without < *transactions && back.turnaround.is_some());
        let [(there, transactions), (back, _)] = stamped.unwrap_or_else(|| panic!("{transport}: no time was stamped"));
        let told = transactions - there.without;
        for stage in [there.send_to_qdisc, there.qdisc_to_driver, there.away, there.stack_to_receive] {
            assert_eq!(stage.unwrap().count(), told);
        }
        assert!(back.turnaround.unwrap().count() > 0);
    }
}

/// A namespace that contains only its loopback.
fn alone() -> (NetNs, IfName) {
    let namespace = NetNs::scratch().unwrap();
    let loopback: IfName = "lo".parse().unwrap();
    let up = LinkChange { up: Some(true), ..LinkChange::default() };
    Rtnl::open_in(&namespace).unwrap().set_link(&loopback, &up).unwrap();
    (namespace, loopback)
}

/// The end that closes first keeps the port for a minute, so it must not be the end that needs a new port for
/// each connection. A namespace has its own limit for such ports (`net.ipv4.tcp_max_tw_buckets`), which no
/// other test has filled.
#[test]
fn closed_connections_linger_at_the_responder() {
    for workload in [Workload::Crr { request: ByteSize(1), response: ByteSize(1) }, Workload::Cc] {
        let (namespace, _) = alone();
        let (initiator, lingering) = namespace.run(|| (run(Transport::Tcp, workload).unwrap(), time_wait())).unwrap();
        let mut of_port = std::collections::BTreeMap::<u16, u64>::new();
        lingering.iter().for_each(|port| *of_port.entry(*port).or_default() += 1);
        let (total, responder) = (lingering.len() as u64, of_port.values().copied().max().unwrap_or_default());
        assert!(responder >= initiator.transactions / 2, "{responder} of {}", initiator.transactions);
        // One of them may belong to the connection on which the ends agreed on the window.
        assert!(
            total - responder <= 1 + responder / 20,
            "{} at the initiator, {responder} at the responder",
            total - responder
        );
    }
}

/// The local ports of connections in TIME_WAIT, proc(5). It reads the thread's namespace; `/proc/net` shows
/// the process's.
fn time_wait() -> Vec<u16> {
    let table = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    let lines = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let lingering = lines.filter(|fields| fields[3] == "06");
    lingering.map(|fields| u16::from_str_radix(fields[1].rsplit(':').next().unwrap(), 16).unwrap()).collect()
}

/// Ten ports are not enough for forty simultaneous connections.
#[test]
fn exhausted_ports_are_named_with_the_remedy() {
    let crr = Workload::Crr { request: ByteSize(1), response: ByteSize(1) };
    for engine in [Engine::Blocking, Engine::IoUring] {
        let (namespace, _) = alone();
        let error = namespace.run(|| {
            std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40009").unwrap();
            run_test(engine, Transport::Tcp, crr, 40, |_| {})
        });
        let error = error.unwrap().unwrap_err();
        assert!(matches!(error, EngineError::PortsExhausted { .. }), "{engine}: {error}");
        assert!(error.to_string().contains("ip_local_port_range") && error.to_string().contains("TIME_WAIT"));
    }
}

/// The link goes down in the middle of each test: both ends notice, and neither hangs.
#[test]
fn a_network_failure_is_noticed() {
    let rr = Workload::Rr { request: ByteSize(8), response: ByteSize(8) };
    for (transport, workload) in [(Transport::Tcp, rr), (Transport::Udp, rr), (Transport::Udp, stream(1000))] {
        let (namespace, loopback) = alone();
        let error = namespace.run(|| {
            run_test(Engine::Blocking, transport, workload, 2, |_| {
                thread::sleep(std::time::Duration::from_millis(400));
                let down = LinkChange { up: Some(false), ..LinkChange::default() };
                Rtnl::open().unwrap().set_link(&loopback, &down).unwrap();
            })
        });
        let error = error.unwrap().unwrap_err();
        let noticed = matches!(
            error,
            EngineError::PeerSilent { .. } | EngineError::Unreachable { .. } | EngineError::PeerGone { .. }
        );
        assert!(noticed, "{transport}: {error}");
    }
}

/// This must also work if only a later call learns the result of a send.
#[test]
fn a_path_that_becomes_too_narrow_is_named() {
    let rr = Workload::Rr { request: ByteSize(1450), response: ByteSize(1) };
    for (engine, workload) in [(Engine::Blocking, rr), (Engine::IoUring, rr), (Engine::IoUring, stream(1450))] {
        let (namespace, loopback) = alone();
        let error = namespace.run(|| {
            run_test(engine, Transport::Udp, workload, 1, |_| {
                thread::sleep(std::time::Duration::from_millis(400));
                let narrow = LinkChange { mtu: Some(1400), ..LinkChange::default() };
                Rtnl::open().unwrap().set_link(&loopback, &narrow).unwrap();
            })
        });
        match error.unwrap().unwrap_err() {
            EngineError::Oversize { size, mtu, .. } => assert_eq!((size, mtu), (ByteSize(1450), 1400)),
            other => panic!("{engine}: {other}"),
        }
    }
}

/// Runs a long test of several flows, and `meanwhile` at the same time. Both ends must fail.
fn run_test(
    engine: Engine,
    transport: Transport,
    workload: Workload,
    streams: u32,
    meanwhile: impl FnOnce(&Cancel) + Send,
) -> Result<EndReport, EngineError> {
    let spec = TestSpec {
        slices: None,
        transport,
        workload,
        streams,
        warmup: Warmup::For(Span::from_millis(10)),
        // Long enough to end in time only if the failure is noticed.
        duration: Span::from_millis(600_000),
        options: TestOptions { engine, ..TestOptions::default() },
    };
    let setup = EndSetup::new(Station::Ip(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    let (token, cancel) = (Token::random(), Cancel::new());
    let responder = Responder::bind(&spec, &setup, token).unwrap();
    let target = responder.target();
    thread::scope(|scope| {
        let served = scope.spawn(|| responder.serve(&cancel));
        let connected = Initiator::connect(&spec, &setup, &target, token, &cancel).unwrap();
        scope.spawn(|| meanwhile(&cancel));
        let initiated = connected.run(vtax_model::station::Schedule::default(), None, &cancel);
        assert!(served.join().unwrap().is_err());
        initiated.map_err(|failed| failed.error)
    })
}

fn echo(size: u64) -> Workload {
    Workload::Rr { request: ByteSize(size), response: ByteSize(size) }
}

/// Echo requests like those of `ping`, on each engine, with one flow and with several, of one byte and of a
/// whole packet.
#[test]
fn the_kernel_answers_echo_requests() {
    let run = || {
        fs::write("/proc/sys/net/ipv4/ping_group_range", "0 0").unwrap();
        for engine in Engine::ALL {
            for (size, streams) in [(1, 1), (56, 3), (1472, 1)] {
                let options = TestOptions { engine, ..TestOptions::default() };
                let spec = TestSpec { streams, options, ..spec(Transport::Icmp, echo(size)) };
                let report = run_spec(&spec).unwrap_or_else(|error| panic!("{engine} {size} {streams}: {error}"));
                let rtt = report.rtt.as_ref().expect("transactions have times");
                assert!(report.transactions > 100 && report.lost == 0, "{engine}: {}", report.transactions);
                assert_eq!((rtt.count(), report.bytes), (report.transactions, report.transactions * 2 * size));
            }
        }
    };
    ethernet().run(run).unwrap();
}

#[test]
fn missing_permission_for_icmp_sockets_is_reported_with_a_remedy() {
    let refused = ethernet().run(|| run(Transport::Icmp, echo(1))).unwrap().unwrap_err();
    assert!(refused.to_string().contains("net.ipv4.ping_group_range"), "{refused}");
}

#[test]
fn an_echo_that_would_be_fragmented_is_refused_with_the_mtu() {
    let run = || {
        fs::write("/proc/sys/net/ipv4/ping_group_range", "0 0").unwrap();
        run(Transport::Icmp, echo(1473))
    };
    let refused = ethernet().run(run).unwrap().unwrap_err();
    assert!(matches!(refused, EngineError::Oversize { mtu: 1500, most: ByteSize(1472), .. }), "{refused}");
}

/// The other end's kernel stops answering. Lost requests are counted, and then the peer counts as silent.
#[test]
fn echoes_that_are_not_answered_are_lost() {
    let run = || {
        fs::write("/proc/sys/net/ipv4/ping_group_range", "0 0").unwrap();
        let spec = TestSpec { duration: Span::from_millis(400), ..spec(Transport::Icmp, echo(8)) };
        thread::scope(|scope| {
            let here = NetNs::current().unwrap();
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(150));
                here.run(|| fs::write("/proc/sys/net/ipv4/icmp_echo_ignore_all", "1").unwrap()).unwrap();
                thread::sleep(Duration::from_millis(900));
                here.run(|| fs::write("/proc/sys/net/ipv4/icmp_echo_ignore_all", "0").unwrap()).unwrap();
            });
            run_spec(&spec)
        })
    };
    let report = ethernet().run(run).unwrap().unwrap();
    assert!(report.lost > 0 && report.transactions > 100, "{} of {}", report.lost, report.transactions);
    assert!(report.seconds > 0.35, "the wait for what was lost counts: {}", report.seconds);
}

fn counted(transport: Transport, workload: Workload) -> TestSpec {
    let bitrate = matches!(workload, Workload::Stream { .. }).then(|| BitRate::new(100_000_000)).flatten();
    let options = TestOptions { bitrate, ..TestOptions::default() };
    TestSpec { warmup: Warmup::NONE, duration: Span::from_millis(2_000), ..across(transport, workload, options) }
}

/// Both ends' counts of what they sent match those of their devices.
#[test]
fn packets_match_the_counts_of_the_devices() {
    const ETHERNET: u64 = 14;
    let wire = Wire::new();
    wire.cut_everything();
    let rr = Workload::Rr { request: ByteSize(100), response: ByteSize(1_000) };
    let tests =
        [(Transport::Tcp, rr), (Transport::Tcp, stream(8_000)), (Transport::Udp, rr), (Transport::Udp, stream(1_472))];
    for (transport, workload) in tests {
        let before = wire.sent();
        let reports = wire.run(&counted(transport, workload));
        for ((report, before), now) in reports.iter().zip(before).zip(wire.sent()) {
            let sent = report.wire.unwrap().sent;
            let told = [sent.bytes.unwrap() + ETHERNET * sent.packets, sent.packets];
            let device = [now[0] - before[0], now[1] - before[1]];
            // ARP, and the messages that keep a sender over UDP informed.
            let few = if device[1] < 1_000 { [4_000, 40] } else { [0, 0] };
            // A stream crosses the wire, and is acknowledged, until the sockets are empty, after the ends have counted:
            // 100 of its 2,000 ms if the machine does not run an end. Headers of 40 instead of 52 bytes are 18 % of an
            // acknowledgment.
            let share = if matches!(workload, Workload::Stream { .. }) { 17 } else { 100 };
            for ((told, device), few) in told.into_iter().zip(device).zip(few) {
                assert!(
                    told.abs_diff(device) <= device / share + few,
                    "{transport} {workload:?}: {told}, {device}: {sent:?}"
                );
            }
        }
    }
}

/// An unsplit segment, as on a virtual wire, counts as the packets that it stands for.
#[test]
fn a_large_segment_counts_as_its_packets() {
    let wire = Wire::new();
    let before = wire.sent();
    let [sender, receiver] = wire.run(&across(Transport::Tcp, stream(64 << 10), TestOptions::default()));
    let crossed = wire.sent()[0][1] - before[0][1];
    let of_an_ethernet = |counts: PacketCounts| counts.bytes.unwrap() as f64 / counts.packets as f64;
    let (sent, received) = (sender.wire.unwrap().sent, receiver.wire.unwrap().received);
    assert!(sent.packets > 2 * crossed, "{sent:?} in {crossed}");
    for counts in [sent, received] {
        let size = of_an_ethernet(counts);
        assert!((1_400.0..=1_500.0).contains(&size), "{size} bytes a packet");
    }
}
