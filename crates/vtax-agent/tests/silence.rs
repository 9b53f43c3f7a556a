//! Outages that are planted, and found from outside: by the silence of a responder, and by its clock.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use vtax_model::{
    measurement::{EchoWatch, EndReport, Silence},
    options::{ArrivalProcess, Arrivals, RequestRate, TestOptions},
    station::{EndSetup, Station},
    suspension::{ClockExchange, suspension},
    units::{ByteSize, Span},
    workload::{TestSpec, Transport, Warmup, Workload},
};
use vtax_sys::{
    clock::now_ns,
    netlink::{LinkChange, Rtnl},
    netns::NetNs,
};
use vtax_wire::{
    link::AgentLink,
    measure::{SampleOrder, measure},
};

const SOON: Duration = Duration::from_secs(300);
const OUTAGE: Duration = Duration::from_millis(500);
/// The silence is as long as the outage, and two requests longer at most. A third millisecond is for the machine.
const MOST_EXCESS: Duration = Duration::from_millis(3);
/// On a busy machine, any single attempt may be disturbed.
const ATTEMPTS: usize = 10;

fn agent(name: &str) -> AgentLink {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vtax-agent"));
    command.arg("--stdio");
    AgentLink::spawn(name, command, SOON).expect("an agent")
}

/// A request each millisecond, and patience for a silence of a minute.
fn order(millis: u64) -> SampleOrder {
    let arrivals = RequestRate::new(1_000).map(|per_second| Arrivals { per_second, process: ArrivalProcess::Fixed });
    let options = TestOptions { arrivals, outage: Some(Span::from_millis(60_000)), ..TestOptions::default() };
    let spec = TestSpec {
        transport: Transport::Udp,
        workload: Workload::Rr { request: ByteSize(64), response: ByteSize(64) },
        streams: 1,
        warmup: Warmup::For(Span::from_millis(20)),
        duration: Span::from_millis(millis),
        slices: None,
        options,
    };
    let loopback = Station::Ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let setup = EndSetup::new(loopback.clone());
    SampleOrder { spec, initiator: setup.clone(), responder: setup, target: loopback.into(), turns: None }
}

/// Stops the responder's process for that long, and returns when, by the monotonic clock.
fn stop(responder: &AgentLink, outage: Duration) -> [u64; 2] {
    let raw = responder.process_id().expect("a child").try_into().expect("small");
    let pid = Pid::from_raw(raw).expect("not 0");
    kill_process(pid, Signal::STOP).expect("ours");
    let stopped = now_ns();
    thread::sleep(outage);
    let resumed = now_ns();
    kill_process(pid, Signal::CONT).expect("ours");
    [stopped, resumed]
}

/// A sample during which the responder is stopped once.
fn stopped_sample(responder: &AgentLink, initiator: &AgentLink) -> ([u64; 2], EndReport) {
    thread::scope(|scope| {
        let sample = scope.spawn(|| measure(initiator, responder, &order(1_500)).expect("a sample"));
        thread::sleep(Duration::from_millis(500));
        let stopped = stop(responder, OUTAGE);
        (stopped, sample.join().expect("no panic").0)
    })
}

/// Returns true if the longest silence is the outage, as exactly as it can be found.
fn is_found(silence: &Silence, [stopped, resumed]: [u64; 2]) -> bool {
    let excess = silence.length().checked_sub(Duration::from_nanos(resumed - stopped));
    let contains = silence.from_ns <= stopped + 1_000_000 && silence.to_ns >= resumed;
    contains && excess.is_some_and(|excess| excess <= MOST_EXCESS)
}

#[test]
fn a_stopped_responder_is_silent_for_as_long() {
    let (initiator, responder) = (agent("peer"), agent("stopped"));
    let attempts = std::iter::repeat_with(|| {
        let (stopped, report) = stopped_sample(&responder, &initiator);
        let silence = report.silences[0];
        assert!(silence.from_ns <= stopped[0] + 1_000_000 && silence.to_ns >= stopped[1], "{silence:?} {stopped:?}");
        // Most of them waited in the socket of the responder. Those for which its buffer had no room belong to the outage.
        assert!(silence.lost <= report.lost && !silence.unended, "{silence:?} of {}", report.lost);
        assert!(silence.next_due_ns <= silence.from_ns + 10_000_000, "the first of those that waited: {silence:?}");
        assert!(report.silences.len() > 1 && report.silences.is_sorted_by(|a, b| a.length() >= b.length()));
        println!("outage {:?} ns, silence {:?}", stopped[1] - stopped[0], silence.length());
        is_found(&silence, stopped) && silence.lost == report.lost
    });
    assert!(attempts.take(ATTEMPTS).any(|found| found));
}

/// A stopped process is not a suspended machine: its clock continues. The silence is the same, but the clock shows no
/// suspension.
#[test]
fn the_clock_of_a_stopped_process_continues() {
    let (initiator, responder) = (agent("peer"), agent("stopped"));
    let read = || (0..16).map(|_| responder.exchange(SOON).expect("it lives")).collect::<Vec<ClockExchange>>();
    let mut exchanges = read();
    let ([stopped, resumed], report) = stopped_sample(&responder, &initiator);
    exchanges.extend(read());
    assert!(report.silences[0].length() >= OUTAGE);
    let found = suspension(&exchanges, &(stopped..=resumed)).expect("it was read before and after");
    println!("{found:?}");
    assert!(found.length_ns.unsigned_abs() <= found.uncertainty_ns, "{found:?}");
    assert!(Duration::from_nanos(found.uncertainty_ns) < Duration::from_millis(50), "{found:?}");
}

/// Silences found before the end of a sample are kept. So a sample may be longer than anybody can foresee.
#[test]
fn a_cancelled_sample_reports_its_silences() {
    let (initiator, responder) = (agent("peer"), agent("stopped"));
    let failed = thread::scope(|scope| {
        let sample = scope.spawn(|| measure(&initiator, &responder, &order(600_000)).expect_err("it is cancelled"));
        thread::sleep(Duration::from_millis(300));
        stop(&responder, OUTAGE);
        thread::sleep(Duration::from_millis(100));
        let asked = Instant::now();
        initiator.cancel_all().expect("sent").wait(SOON).expect("done");
        let failed = sample.join().expect("no panic");
        assert!(asked.elapsed() < SOON);
        failed
    });
    let seen = failed.partial[0].initiator.as_ref().expect("it had begun");
    assert!(seen.silences[0].length() >= OUTAGE, "{:?}", seen.silences);
}

/// The kernel answers echo requests for a loopback interface, until that is down.
#[test]
fn a_watched_address_that_is_unreachable_is_silent_for_as_long() {
    let namespace = NetNs::scratch().expect("this test needs root");
    let lo = "lo".parse().expect("a name");
    let mut rtnl = Rtnl::open_in(&namespace).expect("a connection");
    let mut set = |up| {
        let asked = now_ns();
        rtnl.set_link(&lo, &LinkChange { up: Some(up), ..LinkChange::default() }).expect("it is changed");
        [asked, now_ns()]
    };
    set(true);
    let mut command = Command::new(env!("CARGO_BIN_EXE_vtax-agent"));
    command.arg("--stdio");
    namespace.run(|| fs::write("/proc/sys/net/ipv4/ping_group_range", "0 0")).expect("it runs").expect("its setting");
    namespace.place(&mut command).expect("it starts there");
    let watcher = AgentLink::spawn("peer", command, SOON).expect("an agent");
    let station = Station::Ip(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let (every, most) = (Span::from_millis(1), Span::from_millis(600_000));
    let watch = EchoWatch { station, target: IpAddr::V4(Ipv4Addr::LOCALHOST), every, most };
    let attempts = std::iter::repeat_with(|| {
        let watching = watcher.watch(&watch).expect("it begins");
        thread::sleep(Duration::from_millis(300));
        let [asked, down] = set(false);
        thread::sleep(OUTAGE);
        let [back, up] = set(true);
        // Lost requests are known after 2 s.
        thread::sleep(Duration::from_millis(2_200));
        let report = watching.stop(SOON).expect("a report");
        let silence = report.silences[0];
        let (least, most) = (Duration::from_nanos(back - down), Duration::from_nanos(up - asked) + MOST_EXCESS);
        println!("outage {least:?}, {silence:?}, {} lost, {} answered", report.lost, report.transactions);
        assert!(silence.length() >= least && !silence.unended);
        assert!(
            report.transactions > 1_000 && report.rtt.as_ref().is_some_and(|rtt| rtt.count() == report.transactions)
        );
        silence.length() <= most && silence.lost == report.lost && silence.lost.abs_diff(500) <= 5
    });
    assert!(attempts.take(ATTEMPTS).any(|found| found));
}

#[test]
fn a_watch_that_cannot_begin_reports_the_reason() {
    let watcher = agent("peer");
    let station = Station::Ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let (every, most) = (Span::from_millis(1), Span::from_millis(1_000));
    let watch = EchoWatch { station, target: "::1".parse().expect("an address"), every, most };
    let refused = watcher.watch(&watch).expect("sent").stop(SOON).expect_err("two families").to_string();
    assert!(refused.contains("one is IPv4, the other IPv6"), "{refused}");
    let often = EchoWatch { every: Span(Duration::from_micros(9)), target: IpAddr::V4(Ipv4Addr::LOCALHOST), ..watch };
    let refused = watcher.watch(&often).expect("sent").stop(SOON).expect_err("too often").to_string();
    assert!(refused.contains("too short"), "{refused}");
}
