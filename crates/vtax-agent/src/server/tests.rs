use std::{
    io::{Cursor, sink},
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr},
    os::unix::net::UnixStream,
    path::Path,
    sync::mpsc::Sender,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use proptest::prelude::*;
use vtax_engine::{Cancel, EndSetup, EngineError, Token};
use vtax_model::{
    measurement::EndReport,
    units::{ByteSize, Span},
    workload::{MESSAGE_MOST, TestSpec, Transport, Workload},
};

use super::*;
use crate::{
    frame::{MAGIC, REPLY_MOST, encode, parse, read_frame},
    link::{AgentError, AgentLink},
    protocol::{Answer, Fault, FaultKind, Outcome, Reply, Request, SessionId},
};

const SOON: Duration = Duration::from_secs(5);
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// What a fake session does depends on the size of its requests.
struct Fake {
    /// Told of each session that saw its cancel.
    cancelled: Sender<()>,
}

const REPORTS: u64 = 1;
const WAITS: u64 = 2;
const PANICS: u64 = 3;

impl Fake {
    fn run(&self, spec: &TestSpec, cancel: &Cancel) -> Result<EndReport, EngineError> {
        match spec.workload {
            Workload::Rr { request: ByteSize(WAITS), .. } => self.wait(cancel),
            Workload::Rr { request: ByteSize(PANICS), .. } => panic!("on purpose"),
            _ => Ok(EndReport { transactions: 42, ..EndReport::default() }),
        }
    }

    fn wait(&self, cancel: &Cancel) -> Result<EndReport, EngineError> {
        while !cancel.is_cancelled() {
            thread::sleep(Duration::from_millis(1));
        }
        let _ = self.cancelled.send(());
        Err(EngineError::Cancelled)
    }
}

struct FakeBound {
    fake: Fake,
    spec: TestSpec,
}

impl Bound for FakeBound {
    fn port(&self) -> u16 {
        4242
    }

    fn serve(self, cancel: &Cancel) -> Result<EndReport, EngineError> {
        self.fake.run(&self.spec, cancel)
    }
}

impl Engine for Fake {
    type Bound = FakeBound;

    fn prepare(&self, _: &Path, _: ByteSize, cancel: &Cancel) -> Result<(), EngineError> {
        self.wait(cancel).map(drop)
    }

    fn bind(&self, spec: &TestSpec, setup: &EndSetup, _: Token) -> Result<FakeBound, EngineError> {
        match spec.workload {
            Workload::File { .. } if setup.directory.is_none() => Err(EngineError::NoDirectory),
            _ => Ok(FakeBound { fake: Fake { cancelled: self.cancelled.clone() }, spec: *spec }),
        }
    }

    fn initiate(
        &self,
        spec: &TestSpec,
        _: &EndSetup,
        _: SocketAddr,
        _: Token,
        cancel: &Cancel,
    ) -> Result<EndReport, EngineError> {
        self.run(spec, cancel)
    }
}

/// An agent on a thread, and a connection to it.
struct Stage {
    stream: UnixStream,
    agent: JoinHandle<Result<(), ServeError>>,
    cancelled: mpsc::Receiver<()>,
}

fn stage() -> Stage {
    let (stream, theirs) = UnixStream::pair().expect("a pair");
    let (told, cancelled) = mpsc::channel();
    let reader = theirs.try_clone().expect("cloned");
    let agent = thread::spawn(move || serve(reader, theirs, Fake { cancelled: told }));
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

    fn end(self) -> Result<(), ServeError> {
        self.stream.shutdown(Shutdown::Write).expect("shut");
        self.agent.join().expect("no panic")
    }
}

fn rr(does: u64) -> TestSpec {
    TestSpec {
        transport: Transport::Tcp,
        workload: Workload::Rr { request: ByteSize(does), response: ByteSize(1) },
        streams: 1,
        warmup: Span::from_millis(0),
        duration: Span::from_millis(100),
    }
}

fn setup() -> EndSetup {
    EndSetup { address: LOOPBACK, cpus: vec![], directory: None }
}

fn initiate(session: u64, spec: TestSpec) -> Request {
    let target = SocketAddr::new(LOOPBACK, 1);
    Request::Initiate { session: SessionId(session), spec, setup: setup(), target, token: Token::random() }
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

#[test]
fn a_stranger_is_refused() {
    let mut stage = stage();
    stage.say(b"GET / HTTP/1.1\r\n\r\n");
    let refused = stage.end().expect_err("a stranger").to_string();
    assert!(refused.contains("GET / HTTP"), "{refused}");
}

#[test]
fn nobody_there_is_an_error() {
    assert!(matches!(stage().end(), Err(ServeError::Nobody)));
}

#[test]
fn a_coordinator_of_another_version_is_told_ours_and_refused() {
    let mut stage = stage();
    let theirs = Greeting { protocol: 99, version: "99.0.0".into() };
    stage.say(&[&MAGIC[..], &encode(&theirs, HELLO_MOST).expect("small")].concat());
    frame::read_magic(&mut BufReader::with_capacity(1, &stage.stream)).expect("magic").expect("some");
    let hello = read_frame(&mut stage.stream, HELLO_MOST).expect("whole").expect("a hello");
    assert_eq!(parse::<Greeting>(&hello).expect("a greeting"), Greeting::ours());
    let refused = stage.end().expect_err("another version").to_string();
    assert!(refused.contains("99.0.0") && refused.contains(crate::protocol::VERSION), "{refused}");
}

#[test]
fn sessions_run_side_by_side() {
    let stage = stage();
    let link = stage.link();
    let waiting = link.call(initiate(1, rr(WAITS))).expect("sent");
    let Reply::Report(report) = ask(&link, initiate(2, rr(REPORTS))).expect("done") else {
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
    assert_eq!(listening, Reply::Listening { port: 4242 });
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
fn a_responder_that_cant_be_bound_says_why() {
    let stage = stage();
    let file = TestSpec { workload: Workload::File { size: ByteSize(1) }, ..rr(1) };
    let fault = fault(&stage.link(), listen(1, file));
    assert_eq!(fault.kind, FaultKind::Engine);
    assert!(fault.message.contains("needs a directory"), "{fault}");
}

#[test]
fn a_panic_is_an_answer_and_not_the_end() {
    let stage = stage();
    let link = stage.link();
    let panicked = fault(&link, initiate(1, rr(PANICS)));
    assert_eq!(panicked.kind, FaultKind::Panicked);
    assert!(panicked.message.contains("on purpose"), "{panicked}");
    assert!(matches!(ask(&link, initiate(2, rr(REPORTS))), Ok(Reply::Report(_))));
}

#[test]
fn hostile_orders_are_refused() {
    let stage = stage();
    let link = stage.link();
    let huge = Workload::Stream { message: ByteSize(MESSAGE_MOST.0 + 1) };
    let century = Span(Duration::from_secs(100 * 365 * 24 * 3600));
    for spec in [
        TestSpec { streams: u32::MAX, ..rr(1) },
        TestSpec { workload: huge, ..rr(1) },
        TestSpec { duration: century, ..rr(1) },
    ] {
        assert_eq!(fault(&link, listen(1, spec)).kind, FaultKind::Refused, "{spec:?}");
    }
    let half = TestSpec { streams: crate::limits::FLOWS_MOST / 2, ..rr(WAITS) };
    let waiting = [1, 2].map(|session| link.call(initiate(session, half)).expect("sent"));
    assert_eq!(fault(&link, initiate(9999, rr(REPORTS))).kind, FaultKind::Refused);
    let endless = Request::Prepare { session: SessionId(9999), directory: "/".into(), size: ByteSize(u64::MAX) };
    assert_eq!(fault(&link, endless).kind, FaultKind::Refused);
    ask(&link, Request::CancelAll).expect("done");
    for session in waiting {
        assert!(session.wait(SOON).expect_err("cancelled").is_cancelled());
    }
    assert!(ask(&link, initiate(9999, rr(REPORTS))).is_ok());
}

#[test]
fn an_unread_request_is_answered_if_it_has_an_id() {
    let mut stage = stage();
    stage.greet();
    stage.say(&encode(&serde_json::json!({ "id": 7, "request": { "dance": {} } }), REQUEST_MOST).expect("small"));
    let Answer { id, outcome: Outcome::Failed(fault) } = stage.answer() else {
        panic!("an unknown request was done");
    };
    assert_eq!((id, fault.kind), (CallId(7), FaultKind::BadRequest));
    assert!(fault.message.contains("dance"), "{fault}");
    stage.say(&encode(&"no call at all", REQUEST_MOST).expect("small"));
    assert!(matches!(stage.end(), Err(ServeError::Stream(FrameError::Malformed(_)))));
}

#[test]
fn the_end_of_the_stream_cancels_everything() {
    let mut stage = stage();
    stage.greet();
    for session in [1, 2] {
        let call = Call { id: CallId(session), request: initiate(session, rr(WAITS)) };
        stage.say(&encode(&call, REQUEST_MOST).expect("small"));
    }
    let Stage { stream, agent, cancelled } = stage;
    let start = Instant::now();
    drop(stream);
    agent.join().expect("no panic").expect("a clean end");
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
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
    assert_eq!(facts.kernel, link.hello().kernel);
    assert_eq!(link.hello().pid, std::process::id());
}

proptest! {
    #[test]
    fn no_bytes_make_an_agent_panic(bytes: Vec<u8>, greeted: bool) {
        let hello = [&MAGIC[..], &encode(&Greeting::ours(), HELLO_MOST).expect("small")].concat();
        let stream = if greeted { [hello, bytes].concat() } else { bytes };
        let _ = serve(Cursor::new(stream), sink(), Fake { cancelled: mpsc::channel().0 });
    }

    #[test]
    fn no_json_makes_an_agent_panic(text in r#"\{"id":[0-9]{1,3},"request":[\[\]{}"a-z0-9:,]{0,40}\}"#) {
        let hello = [&MAGIC[..], &encode(&Greeting::ours(), HELLO_MOST).expect("small")].concat();
        let length = u32::try_from(text.len()).expect("short").to_le_bytes();
        let stream = [&hello[..], &length, text.as_bytes()].concat();
        let _ = serve(Cursor::new(stream), sink(), Fake { cancelled: mpsc::channel().0 });
    }

    #[test]
    fn a_call_survives_the_stream(session: u64, streams: u32, cpus: Vec<u32>, size: u64, millis: u64) {
        let spec = TestSpec {
            workload: Workload::Stream { message: ByteSize(size) },
            duration: Span::from_millis(millis),
            streams,
            ..rr(1)
        };
        let setup = EndSetup { address: LOOPBACK, cpus, directory: Some("/var/tmp".into()) };
        let request = Request::Listen { session: SessionId(session), spec, setup, token: Token::random() };
        let frame = encode(&Call { id: CallId(session), request }, REQUEST_MOST).expect("fits");
        let call: Call = parse(&frame[4..]).expect("of the protocol");
        prop_assert_eq!(encode(&call, REQUEST_MOST).expect("fits"), frame);
    }
}
