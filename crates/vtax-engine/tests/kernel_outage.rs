//! An outage of the network between two hosts, each in a separate namespace, with a switch in a third one. Requires
//! root.

use std::{
    net::{IpAddr, Ipv4Addr},
    thread,
    time::Duration,
};

use vtax_engine::{Cancel, Initiator, Responder};
use vtax_model::{
    measurement::{EndReport, Silence},
    options::{ArrivalProcess, Arrivals, Engine, RequestRate, TestOptions},
    station::{EndSetup, Schedule, Station},
    units::{ByteSize, Span},
    workload::{TestSpec, Transport, Warmup, Workload},
};
use vtax_sys::{
    clock::now_ns,
    netlink::{IfIndex, LinkChange, LinkKind, NewLink, Rtnl},
    netns::NetNs,
    token::Token,
};

const OUTAGE: Duration = Duration::from_millis(500);
/// Two requests, and a millisecond for the machine.
const MOST_EXCESS: Duration = Duration::from_millis(3);
/// On a busy machine, any single attempt may be disturbed.
const ATTEMPTS: usize = 10;

/// Two hosts on a switch.
struct Network {
    hosts: [(NetNs, EndSetup); 2],
    switch: Switch,
}

struct Switch {
    rtnl: Rtnl,
    bridge: IfIndex,
}

impl Network {
    fn new() -> Network {
        let [left, right, between] = [(); 3].map(|()| NetNs::scratch().expect("these tests need root"));
        let mut switch = Rtnl::open_in(&between).unwrap();
        switch.create_link(&NewLink::new("vsw0".parse().unwrap(), LinkKind::Bridge)).unwrap();
        switch.set_link(&"vsw0".parse().unwrap(), &up()).unwrap();
        let bridge = switch.existing_link(&"vsw0".parse().unwrap()).unwrap().index;
        let hosts = [(left, "port1", 1), (right, "port2", 2)].map(|(namespace, port, host)| {
            let mut rtnl = Rtnl::open_in(&namespace).unwrap();
            let kind = LinkKind::Veth { peer: port.parse().unwrap(), peer_ns: Some(&between), peer_mtu: None };
            rtnl.create_link(&NewLink::new("nic".parse().unwrap(), kind)).unwrap();
            switch.set_link(&port.parse().unwrap(), &LinkChange { master: Some(Some(bridge)), ..up() }).unwrap();
            rtnl.set_link(&"nic".parse().unwrap(), &up()).unwrap();
            let index = rtnl.existing_link(&"nic".parse().unwrap()).unwrap().index;
            rtnl.add_address(index, format!("192.0.2.{host}/30").parse().unwrap()).unwrap();
            (namespace, EndSetup::new(Station::Ip(IpAddr::V4(Ipv4Addr::new(192, 0, 2, host)))))
        });
        Network { hosts, switch: Switch { rtnl: switch, bridge } }
    }

    fn run(&mut self, spec: &TestSpec, meanwhile: impl FnOnce(&mut Switch) -> [u64; 4]) -> (EndReport, [u64; 4]) {
        let (token, cancel) = (Token::random(), Cancel::new());
        let [own, other] = [0, 1].map(|host| self.hosts[host].1.clone());
        let responder = self.hosts[1].0.run(|| Responder::bind(spec, &other, token)).unwrap().unwrap();
        let target = responder.target();
        thread::scope(|scope| {
            let served = scope.spawn(|| self.hosts[1].0.run(|| responder.serve(&cancel)).unwrap());
            let initiator = self.hosts[0].0.run(|| Initiator::connect(spec, &own, &target, token, &cancel));
            let initiator = initiator.unwrap().unwrap();
            let asked = scope.spawn(|| initiator.run(Schedule::default(), None, &cancel));
            let times = meanwhile(&mut self.switch);
            let report = asked.join().unwrap().unwrap_or_else(|failed| panic!("{failed}"));
            served.join().unwrap().unwrap_or_else(|failed| panic!("{failed}"));
            (report, times)
        })
    }
}

impl Switch {
    /// Takes the responder's port out of the switch for that long. Returns the clock before and after each of the two
    /// changes.
    fn interrupt(&mut self, outage: Duration) -> [u64; 4] {
        let port = "port2".parse().unwrap();
        let mut moves = |master| {
            let before = now_ns();
            self.rtnl.set_link(&port, &LinkChange { master: Some(master), ..LinkChange::default() }).unwrap();
            [before, now_ns()]
        };
        let [asked, apart] = moves(None);
        thread::sleep(outage);
        let [back, joined] = moves(Some(self.bridge));
        [asked, apart, back, joined]
    }
}

fn up() -> LinkChange<'static> {
    LinkChange { up: Some(true), ..LinkChange::default() }
}

fn spec(engine: Engine, millis: u64) -> TestSpec {
    let arrivals = RequestRate::new(1_000).map(|per_second| Arrivals { per_second, process: ArrivalProcess::Fixed });
    TestSpec {
        transport: Transport::Udp,
        workload: Workload::Rr { request: ByteSize(64), response: ByteSize(64) },
        streams: 1,
        warmup: Warmup::For(Span::from_millis(20)),
        duration: Span::from_millis(millis),
        slices: None,
        options: TestOptions { engine, arrivals, outage: Some(Span::from_millis(30_000)), ..TestOptions::default() },
    }
}

/// Returns true if the silence is the interruption. An answer that crossed the switch before it may be read, or sent in
/// vain, after its beginning.
fn has_found(silence: &Silence, lost: u64, [asked, apart, back, joined]: [u64; 4]) -> bool {
    if silence.unended {
        println!("no answer until the end: an endpoint or the switch was not scheduled");
        return false;
    }
    assert!(silence.last_due_ns <= apart && silence.to_ns >= back, "{silence:?}");
    let (least, most) = (Duration::from_nanos(back - apart), Duration::from_nanos(joined - asked) + MOST_EXCESS);
    println!("outage {least:?}, silence {:?}, {} lost", silence.length(), silence.lost);
    // One request per millisecond; some may be in flight when the outage begins or ends.
    (least..=most).contains(&silence.length())
        && silence.lost.abs_diff(least.as_millis() as u64) <= 5
        && silence.lost == lost
}

#[test]
fn the_silence_lasts_as_long_as_the_interruption() {
    for engine in [Engine::Blocking, Engine::Epoll, Engine::IoUring] {
        let mut network = Network::new();
        let attempts = std::iter::repeat_with(|| {
            let (report, times) = network.run(&spec(engine, 1_500), |switch| {
                thread::sleep(Duration::from_millis(500));
                switch.interrupt(OUTAGE)
            });
            has_found(&report.silences[0], report.lost, times)
        });
        assert!(attempts.take(ATTEMPTS).any(|found| found), "{engine}");
    }
}

/// It lasts longer than the 2 s after which a peer without this option is dead, and longer than a request is waited
/// for. In the meantime nobody answers for the responder's address, so its own kernel refuses to send.
#[test]
fn a_long_outage_is_endured() {
    let outage = Duration::from_millis(4_500);
    let mut network = Network::new();
    let neighbours = "/proc/sys/net/ipv4/neigh/nic/";
    let short = [("base_reachable_time_ms", "50"), ("delay_first_probe_time", "0"), ("retrans_time_ms", "100")];
    for (namespace, _) in &network.hosts {
        let write = || short.iter().try_for_each(|(key, value)| std::fs::write(format!("{neighbours}{key}"), value));
        namespace.run(write).unwrap().unwrap();
    }
    let (report, times) = network.run(&spec(Engine::Blocking, 6_000), |switch| {
        thread::sleep(Duration::from_millis(500));
        switch.interrupt(outage)
    });
    let [_, apart, back, _] = times;
    let silence = report.silences[0];
    println!("outage {} ns: {silence:?}", back - apart);
    assert!(silence.from_ns <= apart && silence.to_ns >= back && !silence.unended, "{silence:?}");
    assert!(silence.lost >= 4_000 && silence.lost == report.lost, "{silence:?}, {} in all", report.lost);
}
