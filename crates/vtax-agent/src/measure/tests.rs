use std::{
    io::{BufReader, Write},
    net::Ipv4Addr,
    os::unix::net::UnixStream,
    thread,
};

use vtax_model::{measurement::FileReport, units::Span, workload::Transport};

use super::*;
use crate::{
    frame::{HELLO_MOST, MAGIC, REPLY_MOST, REQUEST_MOST, encode, parse, read_frame, read_magic},
    protocol::{Answer, Call, CallId, Fault, FaultKind, Greeting, Hello, Outcome, Reply},
};

const SOON: Duration = Duration::from_secs(5);

/// What a played agent says when its session is to report.
#[derive(Clone)]
enum Script {
    Reports(Box<EndReport>),
    Fails(&'static str),
    /// Until it is cancelled.
    Waits,
    /// Even then.
    Hangs,
}

fn player(name: &str, script: Script) -> AgentLink {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    thread::spawn(move || play(theirs, &script));
    let reader = ours.try_clone().expect("cloned");
    AgentLink::from_streams(name, reader, ours, SOON).expect("greeted")
}

fn play(mut stream: UnixStream, script: &Script) {
    read_magic(&mut BufReader::with_capacity(1, &stream)).expect("magic").expect("some");
    read_frame(&mut stream, HELLO_MOST).expect("whole").expect("a greeting");
    let hello = Hello { greeting: Greeting::ours(), pid: 1, hostname: "h".into(), kernel: "k".into() };
    let hello = encode(&hello, HELLO_MOST).expect("small");
    stream.write_all(&[&MAGIC[..], &hello].concat()).expect("written");
    let mut waiting = None;
    while let Ok(Some(body)) = read_frame(&mut stream, REQUEST_MOST) {
        let Call { id, request } = parse(&body).expect("a call");
        for (id, outcome) in play_call(id, &request, script, &mut waiting) {
            let answer = encode(&Answer { id, outcome }, REPLY_MOST).expect("small");
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    }
}

fn play_call(id: CallId, request: &Request, script: &Script, waiting: &mut Option<CallId>) -> Vec<(CallId, Outcome)> {
    let failed = |kind, message: &str| Outcome::Failed(Fault { kind, message: message.into() });
    match (request, script) {
        (Request::Listen { .. }, _) => vec![(id, Outcome::Done(Reply::Listening { port: 1 }))],
        (Request::Initiate { .. } | Request::Finish { .. }, Script::Reports(report)) => {
            vec![(id, Outcome::Done(Reply::Report(report.clone())))]
        }
        (Request::Initiate { .. } | Request::Finish { .. }, Script::Fails(why)) => {
            vec![(id, failed(FaultKind::Engine, why))]
        }
        (Request::Initiate { .. } | Request::Finish { .. }, _) => {
            *waiting = Some(id);
            vec![]
        }
        (Request::Cancel { .. }, Script::Waits) => {
            waiting.take().map(|id| (id, failed(FaultKind::Cancelled, "the test was cancelled"))).into_iter().collect()
        }
        _ => vec![(id, Outcome::Done(Reply::Done))],
    }
}

fn order(workload: Workload) -> Order {
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let setup = EndSetup { address, cpus: vec![], directory: Some("/".into()) };
    let [warmup, duration] = [Span::from_millis(0), Span::from_millis(1)];
    let spec = TestSpec { transport: Transport::Tcp, workload, streams: 1, warmup, duration };
    Order { spec, initiator: setup.clone(), responder: setup, target: address }
}

fn rr() -> Order {
    order(Workload::Rr { request: ByteSize(1), response: ByteSize(1) })
}

fn failure(initiator: Script, responder: Script, order: &Order) -> MeasureError {
    let (initiator, responder) = (player("zone a", initiator), player("zone b", responder));
    measure(&initiator, &responder, order).expect_err("a failure")
}

fn of_file(checksum: u64) -> Script {
    let file = Some(FileReport { checksum, ..FileReport::default() });
    Script::Reports(Box::new(EndReport { file, ..EndReport::default() }))
}

#[test]
fn a_file_that_changed_on_its_way_is_no_sample() {
    let file = order(Workload::File { size: ByteSize(1) });
    let changed = failure(of_file(1), of_file(2), &file);
    assert!(matches!(changed, MeasureError::Checksum { sent: 1, received: 2, .. }), "{changed:?}");
    let missing = failure(of_file(1), Script::Reports(Box::default()), &file).to_string();
    assert!(missing.contains("zone b"), "{missing}");
}

#[test]
fn the_end_that_failed_is_blamed_and_the_other_cancelled() {
    let start = Instant::now();
    let failed = failure(Script::Fails("the disk is full"), Script::Waits, &rr());
    let MeasureError::End { end: End::Initiator, other: None, .. } = failed else { panic!("{failed:?}") };
    let failed = failure(Script::Waits, Script::Fails("the disk is full"), &rr());
    let MeasureError::End { end: End::Responder, other: None, .. } = failed else { panic!("{failed:?}") };
    assert!(!failed.is_cancelled() && failed.to_string().contains("the disk is full"), "{failed}");
    assert!(start.elapsed() < GIVE_UP, "{:?}", start.elapsed());
}

#[test]
fn both_failures_are_told() {
    let failed = failure(Script::Fails("the peer went away"), Script::Fails("the disk is full"), &rr()).to_string();
    assert!(failed.contains("the peer went away") && failed.contains("the disk is full"), "{failed}");
}

#[test]
fn an_end_that_doesnt_give_up_is_left_behind_and_named() {
    let failed = failure(Script::Fails("the disk is full"), Script::Hangs, &rr()).to_string();
    assert!(failed.contains("the disk is full") && failed.contains("zone b"), "{failed}");
}

#[test]
fn the_time_is_up_for_both_ends() {
    let (a, b) = (player("zone a", Script::Waits), player("zone b", Script::Reports(Box::default())));
    let party = |end, link, verb| Party { end, link, session: AgentLink::new_session(link), verb };
    let parties = [party(End::Initiator, &a, "initiate"), party(End::Responder, &b, "finish")];
    let sample = Sample { parties, deadline: Duration::from_millis(50) };
    let finish = |tag: usize| Request::Finish { session: sample.parties[tag].session };
    let late = sample.run([finish(0), finish(1)]).expect_err("late");
    let MeasureError::End { end: End::Initiator, error: AgentError::Deadline { .. }, other: None } = &late else {
        panic!("{late:?}");
    };
    assert!(late.to_string().contains("zone a") && late.to_string().contains("50ms"), "{late}");
}

#[test]
fn deadlines_follow_from_the_order() {
    let seconds = |order: &Order| deadline(&order.spec).as_secs();
    let mut thirty = rr();
    (thirty.spec.warmup, thirty.spec.duration) = (Span::from_millis(5_000), Span::from_millis(30_000));
    assert_eq!(seconds(&thirty), 35 + MARGIN.as_secs());
    let file = order(Workload::File { size: ByteSize(1_000_000_000) });
    assert_eq!(seconds(&file), 1000 + MARGIN.as_secs());
    let hostile = order(Workload::File { size: ByteSize(u64::MAX) });
    assert!(deadline(&hostile.spec) > Duration::from_secs(1 << 40));
}
