use std::{
    io::{BufReader, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::net::UnixStream,
    thread,
};

use vtax_model::{
    measurement::FileReport,
    options::TestOptions,
    station::{Station, Target},
    units::Span,
    workload::{Transport, Warmup, Workload},
};

use super::*;
use crate::{
    frame::{HELLO_MOST, MAGIC, REPLY_MOST, REQUEST_MOST, encode, parse, read_frame, read_magic},
    protocol::{Answer, Call, CallId, CallOutcome, Fault, FaultKind, Greeting, Hello, Reply},
};

const SOON: Duration = Duration::from_secs(300);

/// An agent played by the test.
#[derive(Clone)]
struct Role {
    script: Script,
    /// The boot id that it reports.
    boot_id: &'static str,
    /// Offset of its clock from ours in nanoseconds.
    ahead: u64,
}

/// Its answer when its session is asked to report.
#[derive(Clone)]
enum Script {
    Reports(Box<EndReport>),
    /// Reports when it was started.
    Starts,
    Fails(&'static str),
    /// Waits until it is cancelled.
    Waits,
    /// Continues even after it was cancelled.
    Hangs,
    /// Is cancelled, but succeeds nevertheless.
    Dawdles,
    /// Can't connect.
    Alone,
}

fn player(name: &str, script: Script) -> AgentLink {
    cast(name, Role { script, boot_id: "", ahead: 0 })
}

fn cast(name: &str, role: Role) -> AgentLink {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    thread::spawn(move || play(theirs, &role));
    let reader = ours.try_clone().expect("cloned");
    AgentLink::from_streams(name, reader, ours, SOON).expect("greeted")
}

fn play(mut stream: UnixStream, role: &Role) {
    read_magic(&mut BufReader::with_capacity(1, &stream)).expect("magic").expect("some");
    read_frame(&mut stream, HELLO_MOST).expect("whole").expect("a greeting");
    let greeting = Greeting::ours();
    let hello = Hello { greeting, pid: 1, hostname: "h".into(), kernel: "k".into(), boot_id: role.boot_id.into() };
    let hello = encode(&hello, HELLO_MOST).expect("small");
    stream.write_all(&[&MAGIC[..], &hello].concat()).expect("written");
    let mut waiting = None;
    while let Ok(Some(body)) = read_frame(&mut stream, REQUEST_MOST) {
        let Call { id, request } = parse(&body).expect("a call");
        for (id, outcome) in play_call(id, &request, role, &mut waiting) {
            let answer = encode(&Answer { id, outcome }, REPLY_MOST).expect("small");
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    }
}

fn play_call(id: CallId, request: &Request, role: &Role, waiting: &mut Option<CallId>) -> Vec<(CallId, CallOutcome)> {
    let done = |reply| vec![(id, CallOutcome::Done(reply))];
    let failed = |kind, why: &str| {
        let seen = EndReport { transactions: 7, ..EndReport::default() };
        CallOutcome::Failed(Fault { partial: Some(Box::new(seen)), ..Fault::new(kind, "code", why.to_string()) })
    };
    match (request, &role.script) {
        (Request::Listen { .. }, _) => done(Reply::Listening { target: Target::Ip(SocketAddr::new(address(), 1)) }),
        (Request::Clock, _) => done(Reply::Clock { now_ns: now_ns() + role.ahead }),
        (Request::Connect { .. }, Script::Alone) => vec![(id, failed(FaultKind::Engine, "nothing listens"))],
        (Request::Connect { target, .. }, _) => {
            assert_eq!(target.to_string(), "127.0.0.1:1", "the responder's port at the address of the order");
            done(Reply::Connected)
        }
        (Request::Start { schedule, .. }, Script::Starts) => {
            done(Reply::Report(Box::new(EndReport { started_ns: schedule.at.unwrap_or(0), ..EndReport::default() })))
        }
        (Request::Start { .. } | Request::Finish { .. }, Script::Reports(report)) => {
            done(Reply::Report(report.clone()))
        }
        (Request::Start { .. } | Request::Finish { .. }, Script::Fails(why)) => {
            vec![(id, failed(FaultKind::Engine, why))]
        }
        (Request::Start { .. } | Request::Finish { .. }, _) => {
            *waiting = Some(id);
            vec![]
        }
        (Request::Cancel { .. }, Script::Dawdles) => {
            let report = || CallOutcome::Done(Reply::Report(Box::default()));
            waiting.take().map(|id| (id, report())).into_iter().collect()
        }
        (Request::Cancel { .. }, Script::Waits) => {
            waiting.take().map(|id| (id, failed(FaultKind::Cancelled, "the test was cancelled"))).into_iter().collect()
        }
        _ => done(Reply::Done),
    }
}

fn own_clock() -> ClockOf {
    let mut clocks = Clocks::new();
    let id = clocks.of(&cast("here", Role { script: Script::Waits, boot_id: "here", ahead: 0 })).expect("asked");
    (id, Offset::NONE)
}

fn address() -> IpAddr {
    IpAddr::V4(Ipv4Addr::LOCALHOST)
}

fn order(workload: Workload) -> SampleOrder {
    let station = Station::Ip(address());
    let setup = EndSetup { directory: Some("/".into()), ..EndSetup::new(station.clone()) };
    let spec = TestSpec {
        transport: Transport::Tcp,
        workload,
        streams: 1,
        warmup: Warmup::NONE,
        duration: Span::from_millis(1),
        slices: None,
        options: TestOptions::default(),
    };
    SampleOrder { spec, initiator: setup.clone(), responder: setup, target: station.into(), turns: None }
}

fn rr() -> SampleOrder {
    order(Workload::Rr { request: ByteSize(1), response: ByteSize(1) })
}

fn failure(initiator: Script, responder: Script, order: &SampleOrder) -> MeasureError {
    let (initiator, responder) = (player("zone a", initiator), player("zone b", responder));
    measure(&initiator, &responder, order).expect_err("a failure")
}

fn of_file(checksum: u64) -> Script {
    let file = Some(FileReport { checksum, ..FileReport::default() });
    Script::Reports(Box::new(EndReport { file, ..EndReport::default() }))
}

#[test]
fn a_file_altered_in_transit_fails_the_sample() {
    let file = order(Workload::File { size: ByteSize(1) });
    let changed = failure(of_file(1), of_file(2), &file);
    assert!(matches!(*changed.cause, SampleFailure::Checksum { sent: 1, received: 2, .. }), "{changed:?}");
    let missing = failure(of_file(1), Script::Reports(Box::default()), &file).to_string();
    assert!(missing.contains("zone b"), "{missing}");
}

#[test]
fn the_end_that_failed_is_blamed_and_the_other_cancelled() {
    let failed = failure(Script::Fails("the disk is full"), Script::Waits, &rr());
    let SampleFailure::End { end: End::Initiator, other: None, .. } = *failed.cause else { panic!("{failed:?}") };
    let failed = failure(Script::Waits, Script::Fails("the disk is full"), &rr());
    let SampleFailure::End { end: End::Responder, other: None, .. } = *failed.cause else { panic!("{failed:?}") };
    assert!(!failed.is_cancelled() && failed.to_string().contains("the disk is full"), "{failed}");
}

#[test]
fn both_failures_are_reported() {
    let failed = failure(Script::Alone, Script::Fails("the disk is full"), &rr()).to_string();
    assert!(failed.contains("nothing listens") && failed.contains("the disk is full"), "{failed}");
}

#[test]
fn an_end_that_doesnt_stop_is_abandoned_and_named() {
    let failed = failure(Script::Fails("the disk is full"), Script::Hangs, &rr()).to_string();
    assert!(failed.contains("the disk is full") && failed.contains("zone b"), "{failed}");
}

#[test]
fn an_initiator_that_isnt_connected_ends_the_sample() {
    let failed = failure(Script::Alone, Script::Waits, &rr());
    let SampleFailure::End { end: End::Initiator, other: None, .. } = *failed.cause else { panic!("{failed:?}") };
    assert!(failed.to_string().contains("nothing listens"), "{failed}");
}

/// The other end is stopped, and its partial report isn't lost.
#[test]
fn partial_reports_of_both_ends_are_kept() {
    let failed = failure(Script::Fails("the disk is full"), Script::Waits, &rr());
    let [Partial { initiator: Some(initiator), responder: Some(responder) }] = &failed.partial[..] else {
        panic!("{failed:?}");
    };
    assert_eq!([initiator.transactions, responder.transactions], [7, 7]);
    let failed = failure(Script::Fails("the disk is full"), Script::Hangs, &rr());
    assert!(failed.partial[0].initiator.is_some() && failed.partial[0].responder.is_none(), "{failed:?}");
}

#[test]
fn the_time_is_up_for_both_ends() {
    for late in [Script::Waits, Script::Hangs, Script::Dawdles] {
        an_initiator_is_late(late);
    }
}

fn an_initiator_is_late(late: Script) {
    let (a, b) = (player("zone a", late), player("zone b", Script::Reports(Box::default())));
    let pairs = [AgentPair { initiator: &a, responder: &b, order: rr() }];
    let mut sample = Sample::of(&pairs);
    for end in [End::Initiator, End::Responder] {
        sample.ask(0, end, |party, _| Request::Finish { session: party.session });
    }
    let late = sample.settle(End::Initiator, Limit::of(Duration::from_millis(50))).expect_err("late");
    let SampleFailure::End { end: End::Initiator, error: AgentError::Deadline { .. }, other: None } = &*late.cause
    else {
        panic!("{late:?}");
    };
    assert!(late.to_string().contains("zone a") && late.to_string().contains("50 ms"), "{late}");
}

/// Two machines with unrelated clocks; one of them has two agents.
#[test]
fn pairs_start_simultaneously_by_their_own_clocks() {
    let hour = 3_600_000_000_000;
    let role = |boot_id, ahead| Role { script: Script::Starts, boot_id, ahead };
    let initiators = [("a", 0), ("b", hour), ("b", hour)].map(|(boot, ahead)| cast(boot, role(boot, ahead)));
    let responder = player("zone r", Script::Reports(Box::default()));
    let pairs = initiators.each_ref().map(|initiator| AgentPair { initiator, responder: &responder, order: rr() });
    let parallel = measure_all(&pairs).expect("a sample");
    let starts = parallel.reports.iter().map(|(initiator, _)| initiator.started_ns).collect::<Vec<_>>();
    assert_eq!(starts[1], starts[2], "one clock");
    let apart = starts[1].abs_diff(starts[0]).abs_diff(hour);
    assert!(apart <= parallel.skew.uncertainty.as_nanos() as u64, "{apart} ns, {:?}", parallel.skew);
    assert_eq!(parallel.skew.spread, Duration::ZERO);
    assert!(parallel.skew.uncertainty > Duration::ZERO);
}

/// Machines that were cloned while running have the same boot id, but different clocks.
#[test]
fn a_copied_machine_isnt_taken_for_its_original() {
    let role = |ahead| Role { script: Script::Starts, boot_id: "copied", ahead };
    let initiators = [cast("a", role(0)), cast("b", role(3_600_000_000_000))];
    let mut clocks = Clocks::new();
    let ids = initiators.each_ref().map(|link| clocks.of(link).expect("asked"));
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn a_single_pair_starts_immediately() {
    let (a, b) = (player("zone a", Script::Starts), player("zone b", Script::Reports(Box::default())));
    let pair = AgentPair { initiator: &a, responder: &b, order: rr() };
    let ParallelReports { reports, skew } = measure_all(&[pair]).expect("a sample");
    assert_eq!(reports[0].0.started_ns, 0, "no moment was named");
    assert_eq!(skew, Skew { spread: Duration::ZERO, uncertainty: Duration::ZERO });
}

#[test]
fn the_failed_pair_is_blamed_and_all_others_cancelled() {
    let good = [player("zone a", Script::Waits), player("zone b", Script::Waits)];
    let bad = [player("zone c", Script::Waits), player("zone d", Script::Fails("the disk is full"))];
    let pairs = [&good, &bad].map(|[initiator, responder]| AgentPair { initiator, responder, order: rr() });
    let failed = measure_all(&pairs).expect_err("a failure");
    assert_eq!((failed.pair, failed.partial.len()), (1, 2));
    assert!(failed.to_string().contains("zone d") && !failed.is_cancelled(), "{failed}");
    assert!(failed.partial[0].responder.is_some(), "the responder had been asked: {failed:?}");
}

#[test]
fn the_skew_is_between_the_first_and_the_last() {
    let clock = own_clock();
    let found = skew([(500, clock), (200, clock), (900, clock)].into_iter());
    assert_eq!(found, Skew { spread: Duration::from_nanos(700), uncertainty: Duration::ZERO });
}

#[test]
fn deadlines_follow_from_the_order() {
    let seconds = |order: &SampleOrder| deadline(&order.spec).as_secs();
    let mut thirty = rr();
    let most = Span::from_millis(5_000);
    (thirty.spec.warmup, thirty.spec.duration) = (Warmup::UntilSteady { most }, Span::from_millis(30_000));
    assert_eq!(seconds(&thirty), 35 + MARGIN.as_secs());
    thirty.spec.options.responder.stall = Some(Span::from_millis(2_000));
    assert_eq!(seconds(&thirty), 37 + MARGIN.as_secs());
    let file = order(Workload::File { size: ByteSize(1_000_000_000) });
    assert_eq!(seconds(&file), 1000 + MARGIN.as_secs());
    let hostile = order(Workload::File { size: ByteSize(u64::MAX) });
    assert!(deadline(&hostile.spec) > Duration::from_secs(1 << 40));
}
