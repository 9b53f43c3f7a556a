mod fake;
mod programs;

use std::{
    io::{Cursor, sink},
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr},
    os::unix::net::UnixStream,
    path::Path,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use proptest::prelude::*;
use vtax_engine::{Cancel, EngineError, Failed};
use vtax_model::{
    measurement::{
        EchoWatch, EndReport, Interval, IntervalRtt, PacketCounts, QuotaStops, Stages, ThreadCpu, WireCounts,
    },
    options::{self, INTERVALS_MOST, THREADS_MOST, TestOptions},
    station::{EndSetup, Schedule, Station, Target},
    units::{ByteSize, Span},
    workload::{Direction, MESSAGE_MOST, TestSpec, Transport, Warmup, Workload},
};
use vtax_stats::histogram::Histogram;
use vtax_sys::token::Token;
use vtax_wire::{
    frame::{MAGIC, REPLY_MOST, encode, parse, read_frame},
    link::{AgentError, AgentLink, PendingReply},
    protocol::{Answer, CallOutcome, Fault, FaultKind, Reply, Request, SessionId},
};

use super::{panics::tests::alone, *};

use fake::{Fake, PANICS, REPORTS, WAITS};

const SOON: Duration = Duration::from_secs(300);
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// An agent on a thread, and a connection to it.
struct Stage {
    stream: UnixStream,
    agent: JoinHandle<Result<Parting, ServeError>>,
    cancelled: mpsc::Receiver<()>,
}

fn stage() -> Stage {
    stage_of(AgentRights::Visitor)
}

fn stage_of(standing: AgentRights) -> Stage {
    let (stream, theirs) = UnixStream::pair().expect("a pair");
    let (told, cancelled) = mpsc::channel();
    let reader = theirs.try_clone().expect("cloned");
    let agent = thread::spawn(move || serve(reader, theirs, Fake { cancelled: told }, standing));
    Stage { stream, agent, cancelled }
}

impl Stage {
    fn link(&self) -> AgentLink {
        let reader = self.stream.try_clone().expect("cloned");
        let writer = self.stream.try_clone().expect("cloned");
        AgentLink::from_streams("the stage", reader, writer, SOON).expect("greeted")
    }

    fn say(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("written");
    }

    fn greet(&mut self) {
        let hello = encode(&Greeting::ours(), HELLO_MOST).expect("small");
        self.say(&[&MAGIC[..], &hello].concat());
        frame::read_magic(&mut BufReader::with_capacity(1, &self.stream)).expect("magic").expect("some");
        read_frame(&mut self.stream, HELLO_MOST).expect("whole").expect("a hello");
    }

    fn answer(&mut self) -> Answer {
        let body = read_frame(&mut self.stream, REPLY_MOST).expect("whole").expect("an answer");
        parse(&body).expect("of the protocol")
    }

    fn end(self) -> Result<Parting, ServeError> {
        self.stream.shutdown(Shutdown::Write).expect("shut");
        self.agent.join().expect("no panic")
    }
}

fn rr(does: u64) -> TestSpec {
    TestSpec {
        transport: Transport::Tcp,
        workload: Workload::Rr { request: ByteSize(does), response: ByteSize(1) },
        streams: 1,
        warmup: Warmup::NONE,
        duration: Span::from_millis(100),
        slices: None,
        options: TestOptions::default(),
    }
}

fn setup() -> EndSetup {
    EndSetup::new(Station::Ip(LOOPBACK))
}

fn target() -> Target {
    Target::Ip(SocketAddr::new(LOOPBACK, 4242))
}

fn connect(session: u64, spec: TestSpec) -> Request {
    let token = Token::random();
    Request::Connect { session: SessionId(session), spec, setup: setup(), target: target(), token }
}

fn run(session: u64) -> Request {
    Request::Start { session: SessionId(session), schedule: Schedule::default() }
}

fn at(moment: u64) -> Schedule {
    Schedule { at: Some(moment), ..Schedule::default() }
}

fn listen(session: u64, spec: TestSpec) -> Request {
    Request::Listen { session: SessionId(session), spec, setup: setup(), token: Token::random() }
}

fn ask(link: &AgentLink, request: Request) -> Result<Reply, AgentError> {
    link.call(request).expect("sent").wait(SOON)
}

fn fault(link: &AgentLink, request: Request) -> Fault {
    match ask(link, request) {
        Err(AgentError::Refused { fault, .. }) => fault,
        other => panic!("no fault: {other:?}"),
    }
}

/// Connects and starts an initiator.
fn initiate(link: &AgentLink, session: u64, spec: TestSpec) -> PendingReply<'_> {
    assert_eq!(ask(link, connect(session, spec)).expect("connected"), Reply::Connected);
    link.call(run(session)).expect("sent")
}

#[test]
fn a_stranger_is_refused() {
    let mut stage = stage();
    stage.say(b"GET / HTTP/1.1\r\n\r\n");
    let refused = stage.end().expect_err("a stranger").to_string();
    assert!(refused.contains("GET / HTTP"), "{refused}");
}

#[test]
fn a_missing_peer_is_an_error() {
    assert!(matches!(stage().end(), Err(ServeError::Nobody)));
}

#[test]
fn a_coordinator_of_another_version_receives_ours_and_is_refused() {
    let mut stage = stage();
    let theirs = Greeting { protocol: 99, version: "99.0.0".into() };
    stage.say(&[&MAGIC[..], &encode(&theirs, HELLO_MOST).expect("small")].concat());
    frame::read_magic(&mut BufReader::with_capacity(1, &stage.stream)).expect("magic").expect("some");
    let hello = read_frame(&mut stage.stream, HELLO_MOST).expect("whole").expect("a hello");
    assert_eq!(parse::<Greeting>(&hello).expect("a greeting"), Greeting::ours());
    let refused = stage.end().expect_err("another version").to_string();
    assert!(refused.contains("99.0.0") && refused.contains(vtax_wire::protocol::VERSION), "{refused}");
}

#[test]
fn sessions_run_side_by_side() {
    let stage = stage();
    let link = stage.link();
    let waiting = initiate(&link, 1, rr(WAITS));
    let Reply::Report(report) = initiate(&link, 2, rr(REPORTS)).wait(SOON).expect("done") else {
        panic!("no report");
    };
    assert_eq!(report.transactions, 42);
    link.ping(SOON).expect("alive");
    ask(&link, Request::Cancel { session: SessionId(1) }).expect("done");
    assert!(waiting.wait(SOON).expect_err("cancelled").is_cancelled());
    let prepare = Request::Prepare { session: SessionId(3), directory: "/".into(), size: ByteSize(1) };
    let waiting = link.call(prepare).expect("sent");
    ask(&link, Request::CancelAll).expect("done");
    assert!(waiting.wait(SOON).expect_err("cancelled").is_cancelled());
}

#[test]
fn a_responder_reports_before_or_after_it_is_asked() {
    let stage = stage();
    let link = stage.link();
    let listening = ask(&link, listen(1, rr(REPORTS))).expect("bound");
    assert_eq!(listening, Reply::Listening { target: target() });
    thread::sleep(Duration::from_millis(20));
    assert!(matches!(ask(&link, Request::Finish { session: SessionId(1) }), Ok(Reply::Report(_))));
    let gone = fault(&link, Request::Finish { session: SessionId(1) });
    assert_eq!(gone.kind, FaultKind::Session);

    ask(&link, listen(2, rr(WAITS))).expect("bound");
    let waiting = link.call(Request::Finish { session: SessionId(2) }).expect("sent");
    let twice = fault(&link, Request::Finish { session: SessionId(2) });
    assert_eq!(twice.kind, FaultKind::Session);
    let taken = fault(&link, listen(2, rr(REPORTS)));
    assert_eq!(taken.kind, FaultKind::Session);
    ask(&link, Request::CancelAll).expect("done");
    assert!(waiting.wait(SOON).expect_err("cancelled").is_cancelled());
}

#[test]
fn a_responder_that_cant_be_bound_reports_the_reason() {
    let stage = stage();
    let file = TestSpec { workload: Workload::File { size: ByteSize(1) }, ..rr(1) };
    let fault = fault(&stage.link(), listen(1, file));
    assert_eq!(fault.kind, FaultKind::Engine);
    assert!(fault.message.raw().contains("requires a directory"), "{fault}");
}

#[test]
fn a_panic_is_an_answer_and_not_the_end() {
    alone("server::tests::a_panic_is_an_answer_and_not_the_end", || {
        let stage = stage();
        let link = stage.link();
        ask(&link, connect(1, rr(PANICS))).expect("connected");
        let panicked = fault(&link, run(1));
        assert_eq!(panicked.kind, FaultKind::Panicked);
        assert!(panicked.message.raw().contains("on purpose"), "{panicked}");
        assert_eq!(miette::Diagnostic::code(&panicked).map(|code| code.to_string()), Some("defect".to_owned()));
        assert!(matches!(initiate(&link, 2, rr(REPORTS)).wait(SOON), Ok(Reply::Report(_))));
    });
}

#[test]
fn an_initiator_starts_once_on_request() {
    let stage = stage();
    let link = stage.link();
    assert_eq!(fault(&link, run(1)).kind, FaultKind::Session);
    ask(&link, connect(1, rr(REPORTS))).expect("connected");
    let start = Request::Start { session: SessionId(1), schedule: at(777) };
    let Reply::Report(report) = ask(&link, start).expect("done") else { panic!("no report") };
    assert_eq!(report.started_ns, 777);
    assert_eq!(fault(&link, run(1)).kind, FaultKind::Session);
    let _waiting = initiate(&link, 2, rr(WAITS));
    assert_eq!(fault(&link, run(2)).kind, FaultKind::Session);
    ask(&link, listen(3, rr(WAITS))).expect("bound");
    assert_eq!(fault(&link, run(3)).kind, FaultKind::Session);
}

/// The session's thread waits for an order that never comes.
#[test]
fn an_initiator_that_isnt_started_can_be_cancelled() {
    let stage = stage();
    let link = stage.link();
    ask(&link, connect(1, rr(REPORTS))).expect("connected");
    ask(&link, Request::Cancel { session: SessionId(1) }).expect("done");
    let end = Instant::now() + SOON;
    // The id is free again as soon as the thread has ended.
    while ask(&link, connect(1, rr(REPORTS))).is_err() {
        assert!(Instant::now() < end, "the session is still there");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_fault_includes_the_partial_report() {
    let stage = stage();
    let link = stage.link();
    let waiting = initiate(&link, 1, rr(WAITS));
    ask(&link, Request::CancelAll).expect("done");
    let Err(AgentError::Refused { fault, .. }) = waiting.wait(SOON) else { panic!("not cancelled") };
    assert_eq!((fault.kind, fault.partial.map(|seen| seen.transactions)), (FaultKind::Cancelled, Some(42)));
}

/// Nobody knows beforehand how long a migration takes, so the end of a watch is not a failure.
#[test]
fn a_watch_that_is_stopped_has_a_report() {
    let stage = stage();
    let link = stage.link();
    let (every, most) = (Span::from_millis(1), Span::from_millis(600_000));
    let watch = EchoWatch { station: Station::Ip(LOOPBACK), target: LOOPBACK, every, most };
    let report = link.watch(&watch).expect("begun").stop(SOON).expect("a report");
    assert_eq!(report.transactions, 7);
    drop(link.watch(&watch).expect("begun"));
    for _ in 0..2 {
        stage.cancelled.recv_timeout(SOON).expect("both have ended");
    }
    let century = EchoWatch { most: Span(Duration::from_secs(100 * 365 * 24 * 3600)), ..watch };
    assert_eq!(fault(&link, Request::Watch { session: SessionId(1), watch: century }).kind, FaultKind::Refused);
}

#[test]
fn hostile_orders_are_refused() {
    let stage = stage();
    let link = stage.link();
    let huge = Workload::Stream { message: ByteSize(MESSAGE_MOST.0 + 1), direction: Direction::Forward };
    let century = Span(Duration::from_secs(100 * 365 * 24 * 3600));
    for spec in [
        TestSpec { streams: u32::MAX, ..rr(1) },
        TestSpec { workload: huge, ..rr(1) },
        TestSpec { duration: century, ..rr(1) },
    ] {
        assert_eq!(fault(&link, listen(1, spec)).kind, FaultKind::Refused, "{spec:?}");
    }
    let options = TestOptions { engine: options::Engine::Epoll, ..TestOptions::default() };
    let half = TestSpec { streams: options::FLOWS_MOST, options, ..rr(WAITS) };
    let waiting = [1, 2].map(|session| initiate(&link, session, half));
    assert_eq!(fault(&link, connect(9999, rr(REPORTS))).kind, FaultKind::Refused);
    let endless = Request::Prepare { session: SessionId(9999), directory: "/".into(), size: ByteSize(u64::MAX) };
    assert_eq!(fault(&link, endless).kind, FaultKind::Refused);
    ask(&link, Request::CancelAll).expect("done");
    for session in waiting {
        assert!(session.wait(SOON).expect_err("cancelled").is_cancelled());
    }
    assert!(initiate(&link, 9999, rr(REPORTS)).wait(SOON).is_ok());
}

#[test]
fn an_unread_request_is_answered_if_it_has_an_id() {
    let mut stage = stage();
    stage.greet();
    stage.say(&encode(&serde_json::json!({ "id": 7, "request": { "dance": {} } }), REQUEST_MOST).expect("small"));
    let Answer { id, outcome: CallOutcome::Failed(fault) } = stage.answer() else {
        panic!("an unknown request was done");
    };
    assert_eq!((id, fault.kind), (CallId(7), FaultKind::BadRequest));
    assert!(fault.message.raw().contains("dance"), "{fault}");
    stage.say(&encode(&"no call at all", REQUEST_MOST).expect("small"));
    assert!(matches!(stage.end(), Err(ServeError::Stream(FrameError::Malformed(_)))));
}

#[test]
fn the_end_of_the_stream_cancels_everything() {
    let mut stage = stage();
    stage.greet();
    for session in [1, 2] {
        let call = Call { id: CallId(session), request: listen(session, rr(WAITS)) };
        stage.say(&encode(&call, REQUEST_MOST).expect("small"));
        stage.answer();
    }
    let Stage { stream, agent, cancelled } = stage;
    drop(stream);
    agent.join().expect("no panic").expect("a clean end");
    assert_eq!(cancelled.try_iter().count(), 2);
}

#[test]
fn a_cut_inside_a_frame_is_an_error() {
    let mut stage = stage();
    stage.greet();
    stage.say(&[100, 0, 0, 0, b'{']);
    assert!(matches!(stage.end(), Err(ServeError::Stream(FrameError::Truncated { .. }))));
}

#[test]
fn shutdown_is_answered_and_then_done() {
    let stage = stage();
    let link = stage.link();
    assert_eq!(ask(&link, Request::Shutdown).expect("done"), Reply::Done);
    stage.agent.join().expect("no panic").expect("a clean end");
}

#[test]
fn an_agent_describes_where_it_runs() {
    let stage = stage();
    let link = stage.link();
    let facts = link.describe(SOON).expect("described");
    assert_eq!(facts.environment.kernel, link.hello().kernel);
    assert_eq!(link.hello().pid, std::process::id());
    let hops = link.route(None, LOOPBACK, None, SOON).expect("asked");
    assert!(hops.len() <= 1 && hops.iter().all(|hop| hop.link == "lo"), "{hops:?}");
}

#[test]
fn an_agent_of_this_machine_has_its_clock() {
    let stage = stage();
    let link = stage.link();
    let offset = link.clock_offset(SOON).expect("asked");
    let ours = vtax_sys::clock::now_ns();
    let off = Duration::from_nanos(offset.theirs(ours).abs_diff(ours));
    assert!(off <= offset.uncertainty() && offset.uncertainty() < SOON, "{offset:?}");
}

/// A histogram in which every counter has a large value.
fn full() -> Histogram {
    let mut full = Histogram::new();
    let steps = std::iter::successors(Some(1_u64), |ns| Some(ns + (ns >> 11).max(1)));
    steps.take_while(|ns| *ns < 60_000_000_000).for_each(|ns| full.record(ns));
    for _ in 0..39 {
        full.merge(&full.clone());
    }
    full
}

/// Figures whose text is as long as possible.
fn largest_report() -> EndReport {
    let rtt = IntervalRtt { p50: u64::MAX, p90: u64::MAX, p99: u64::MAX, max: u64::MAX };
    let long = -1.234_567_890_123_456_7e-300;
    let interval = Interval {
        at: long,
        seconds: long,
        transactions: u64::MAX,
        bytes: u64::MAX,
        rtt_ns: Some(rtt),
        lost: u64::MAX,
        retransmits: u64::MAX,
        cwnd: Some(long),
        cpu: long,
    };
    let full = || Some(full());
    let stages = Stages {
        send_to_qdisc: full(),
        qdisc_to_driver: full(),
        driver_to_wire: full(),
        away: full(),
        wire_to_stack: full(),
        stack_to_receive: full(),
        turnaround: full(),
        without: u64::MAX,
    };
    let packets = PacketCounts { packets: u64::MAX, with_payload: Some(u64::MAX), bytes: Some(u64::MAX) };
    EndReport {
        wire: Some(WireCounts { sent: packets, received: packets }),
        rtt: full(),
        rtt_from_send: full(),
        threads: vec![
            ThreadCpu { user: long, system: long, waiting: long, cpu: Some(u32::MAX), cycles: Some(u64::MAX) };
            2 * THREADS_MOST as usize
        ],
        series: vec![interval; usize::try_from(INTERVALS_MOST).expect("small")],
        stages: Some(stages),
        throttling: Some(QuotaStops { periods: u64::MAX, throttled: u64::MAX, stopped_ns: u64::MAX }),
        ..EndReport::default()
    }
}

#[test]
fn the_largest_report_fits_a_frame() {
    let report = largest_report();
    let counted = report.rtt.as_ref().expect("full").to_base64().len();
    assert!(counted > 200_000, "{counted} characters of a full histogram");
    let outcome = CallOutcome::Done(Reply::Report(Box::new(report)));
    encode(&Answer { id: CallId(u64::MAX), outcome }, REPLY_MOST).expect("it fits");
}

proptest! {
    #[test]
    fn no_bytes_make_an_agent_panic(bytes: Vec<u8>, greeted: bool) {
        let hello = [&MAGIC[..], &encode(&Greeting::ours(), HELLO_MOST).expect("small")].concat();
        let stream = if greeted { [hello, bytes].concat() } else { bytes };
        let _ = serve(Cursor::new(stream), sink(), Fake { cancelled: mpsc::channel().0 }, AgentRights::Visitor);
    }

    #[test]
    fn no_json_makes_an_agent_panic(text in r#"\{"id":[0-9]{1,3},"request":[\[\]{}"a-z0-9:,]{0,40}\}"#) {
        let hello = [&MAGIC[..], &encode(&Greeting::ours(), HELLO_MOST).expect("small")].concat();
        let length = u32::try_from(text.len()).expect("short").to_le_bytes();
        let stream = [&hello[..], &length, text.as_bytes()].concat();
        let _ = serve(Cursor::new(stream), sink(), Fake { cancelled: mpsc::channel().0 }, AgentRights::Visitor);
    }

    #[test]
    fn a_call_survives_the_stream(session: u64, streams: u32, cpus: Vec<u32>, size: u64, millis in 0u64..3_155_760_000_000) {
        let spec = TestSpec {
            workload: Workload::Stream { message: ByteSize(size), direction: Direction::Forward },
            duration: Span::from_millis(millis),
            streams,
            ..rr(1)
        };
        let (session, token) = (SessionId(session), Token::random());
        let setup = EndSetup { cpus, directory: Some("/var/tmp".into()), ..setup() };
        let target = Target::Vsock { cid: streams, port: streams };
        let requests = [
            Request::Listen { session, spec, setup: setup.clone(), token },
            Request::Connect { session, spec, setup, target, token },
            Request::Start { session, schedule: at(millis) },
        ];
        for request in requests {
            let frame = encode(&Call { id: CallId(millis), request }, REQUEST_MOST).expect("fits");
            let call: Call = parse(&frame[4..]).expect("of the protocol");
            prop_assert_eq!(encode(&call, REQUEST_MOST).expect("fits"), frame);
        }
    }
}

#[test]
fn only_the_first_process_switches_the_machine_off() {
    let guest = stage_of(AgentRights::Guest);
    let link = guest.link();
    assert_eq!(fault(&link, Request::PowerOff).kind, FaultKind::Refused);
    drop(link);
    let init = stage_of(AgentRights::Init);
    assert_eq!(ask(&init.link(), Request::PowerOff).expect("answered"), Reply::Done);
    assert_eq!(init.agent.join().expect("no panic").expect("a clean end"), Parting::PowerOff);
}
