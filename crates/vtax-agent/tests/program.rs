//! The agent program, as a process that measures over loopback.

use std::{
    fs,
    io::{BufReader, Read, Write},
    net::{IpAddr, Ipv4Addr},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use vtax_model::{
    options::{Engine, TestOptions},
    station::{EndSetup, Station},
    units::{ByteSize, Span},
    workload::{Direction, TestSpec, Transport, Warmup, Workload},
};
use vtax_sys::token::Token;
use vtax_wire::{
    frame::{self, HELLO_MOST, MAGIC, REPLY_MOST, REQUEST_MOST, encode, parse, read_frame},
    link::{AgentError, AgentLink},
    measure::{AgentPair, Partial, SampleFailure, SampleOrder, measure, measure_all},
    protocol::{
        Answer, Call, CallId, CallOutcome, FaultKind, Greeting, Hello, PROTOCOL, Reply, Request, SessionId, VERSION,
    },
};

const SOON: Duration = Duration::from_secs(300);
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Maximum memory of an agent, excluding its own code. The page cache decides how much of the code is resident, and a
/// build for tests has many times as much code.
const HELD_MOST_KB: u64 = 10 * 1024;
const IDLE_MOST_KB: u64 = 2 * 1024;

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vtax-agent"));
    command.arg("--stdio");
    command
}

fn agent(name: &str) -> AgentLink {
    AgentLink::spawn(name, program(), SOON).expect("an agent")
}

fn spec(workload: Workload, millis: u64) -> TestSpec {
    TestSpec {
        transport: Transport::Tcp,
        workload,
        streams: 1,
        warmup: Warmup::For(Span::from_millis(20)),
        duration: Span::from_millis(millis),
        slices: None,
        options: TestOptions::default(),
    }
}

fn rr(millis: u64) -> TestSpec {
    spec(Workload::Rr { request: ByteSize(1), response: ByteSize(1) }, millis)
}

fn setup() -> EndSetup {
    EndSetup::new(Station::Ip(LOOPBACK))
}

fn order(spec: TestSpec) -> SampleOrder {
    SampleOrder { spec, initiator: setup(), responder: setup(), target: Station::Ip(LOOPBACK).into(), turns: None }
}

/// Returns the maximum memory that a process ever had, excluding the pages of its own file, in kB.
fn held(pid: u32) -> u64 {
    memory(pid, "VmHWM:") - memory(pid, "RssFile:")
}

/// Returns a field of `/proc/PID/status` in kB.
fn memory(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("alive");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("in every status");
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse().expect("a number")
}

fn exists(pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}")).expect("proc is there")
}

#[test]
fn round_trips_are_measured() {
    let (initiator, responder) = (agent("zone a"), agent("zone b"));
    for transport in [Transport::Tcp, Transport::Udp] {
        let order = order(TestSpec { transport, ..rr(200) });
        let (asked, answered) = measure(&initiator, &responder, &order).expect("a sample");
        assert!(asked.transactions > 100, "{transport}: {}", asked.transactions);
        assert!(asked.rtt.is_some() && asked.seconds > 0.15, "{transport}: {} s", asked.seconds);
        assert!(!answered.threads.is_empty(), "{transport}: no CPU time from the responder");
    }
}

#[test]
fn bytes_are_counted_where_they_arrive() {
    let (initiator, responder) = (agent("zone a"), agent("zone b"));
    let message = |transport| ByteSize(if transport == Transport::Tcp { 1 << 20 } else { 1400 });
    for transport in [Transport::Tcp, Transport::Udp] {
        let workload = Workload::Stream { message: message(transport), direction: Direction::Forward };
        let order = order(TestSpec { transport, streams: 2, ..spec(workload, 200) });
        let (_, received) = measure(&initiator, &responder, &order).expect("a sample");
        assert!(received.bytes > 1 << 20, "{transport}: {}", received.bytes);
    }
    for (name, link) in [("initiator", &initiator), ("responder", &responder)] {
        let held = held(link.process_id().expect("a child"));
        println!("{name}: {held} kB");
        assert!(held < HELD_MOST_KB, "{name}: {held} kB");
    }
}

#[test]
fn a_file_arrives_as_it_was_sent() {
    let (from, to) = (tempfile::tempdir().expect("made"), tempfile::tempdir().expect("made"));
    let (initiator, responder) = (agent("zone a"), agent("zone b"));
    let mut order = order(spec(Workload::File { size: ByteSize(3 << 20) }, 0));
    order.initiator.directory = Some(from.path().into());
    order.responder.directory = Some(to.path().into());
    let sums = [(); 2].map(|()| {
        let (sent, received) = measure(&initiator, &responder, &order).expect("a sample");
        let [sent, received] = [sent, received].map(|report| report.file.expect("of a file").checksum);
        assert_eq!(sent, received);
        sent
    });
    assert_eq!(sums[0], sums[1], "the file is made once");
    order.responder.directory = Some(to.path().join("missing"));
    let error = measure(&initiator, &responder, &order).expect_err("no directory").to_string();
    assert!(error.contains("zone b") && error.contains("missing"), "{error}");
}

#[test]
fn two_samples_run_concurrently_on_the_same_agents() {
    let (initiator, responder) = (agent("zone a"), agent("zone b"));
    thread::scope(|scope| {
        let long = scope.spawn(|| measure(&initiator, &responder, &order(rr(20_000))));
        thread::sleep(Duration::from_millis(200));
        let (report, _) = measure(&initiator, &responder, &order(rr(100))).expect("a sample");
        assert!(report.transactions > 0);
        assert!(!long.is_finished(), "one waited for the other");
        initiator.cancel_all().expect("sent").wait(SOON).expect("done");
        long.join().expect("no panic").expect_err("cancelled");
    });
}

#[test]
fn one_agent_can_be_both_ends() {
    let both = agent("host");
    let (report, _) = measure(&both, &both, &order(rr(100))).expect("a sample");
    assert!(report.transactions > 0);
}

/// A timer wakes an endpoint up to 60 µs before a request is due. That was once included in the path's cost.
#[test]
fn waiting_for_exact_moments_is_not_a_cost_of_the_path() {
    for engine in [Engine::Blocking, Engine::Epoll, Engine::IoUring] {
        let options = TestOptions { engine, gap: Some(Span::from_millis(1)), ..TestOptions::default() };
        let both = agent("host");
        let (report, other) = measure(&both, &both, &order(TestSpec { options, ..rr(200) })).expect("a sample");
        let each = report.threads[0].waiting / report.transactions as f64;
        assert!((5e-6..=500e-6).contains(&each), "{engine}: {each}");
        assert!(other.threads[0].waiting == 0.0, "the other end waits for nothing but requests");
    }
}

/// The mean of the times and the inverse of the rate once differed: closing was in one and not in the other.
#[test]
fn a_connections_time_lasts_until_it_is_closed() {
    for workload in [Workload::Crr { request: ByteSize(1), response: ByteSize(1) }, Workload::Cc] {
        let both = agent("host");
        let (report, _) = measure(&both, &both, &order(spec(workload, 200))).expect("a sample");
        let times = report.rtt.as_ref().expect("times").mean_ns() * report.transactions as f64 / 1e9;
        assert!((0.9..1.02).contains(&(times / report.seconds)), "{times} s of {} s", report.seconds);
    }
}

/// At random addresses the round trips of two agents differ by 1 to 3 %: see `vtax_sys::layout`.
#[test]
fn all_agents_have_the_same_addresses() {
    let agents = [agent("zone a"), agent("zone b")];
    let [first, second] = agents.each_ref().map(|agent| {
        agent.ping(SOON).expect("it lives");
        let pid = agent.process_id().expect("a child");
        assert_eq!(fs::read_to_string(format!("/proc/{pid}/comm")).expect("its name"), "vtax-agent\n");
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("its memory");
        let address = |line: &str| line.split('-').next().map(str::to_owned);
        let of = |name| maps.lines().find(|line| line.ends_with(name)).and_then(address);
        ["vtax-agent", "[heap]", "[vdso]"].map(of)
    });
    assert_eq!(first, second);
    assert!(first.iter().all(Option::is_some), "{first:?}");
}

#[test]
fn a_killed_agent_is_named_immediately() {
    let (initiator, responder) = (agent("zone a"), agent("zone b"));
    let victim = responder.process_id().expect("a child");
    let order = order(rr(60_000));
    let failed = thread::scope(|scope| {
        let sample = scope.spawn(|| measure(&initiator, &responder, &order));
        thread::sleep(Duration::from_millis(300));
        let pid = Pid::from_raw(victim.try_into().expect("small")).expect("not 0");
        // The link reaps its child only after it is dead, so no other process can have the id.
        kill_process(pid, Signal::KILL).expect("ours");
        sample.join().expect("no panic").expect_err("an agent less")
    });
    assert!(failed.is_death(), "{failed:?}");
    let text = failed.to_string();
    assert!(text.contains("zone b") && text.contains("SIGKILL"), "{text}");
    initiator.ping(SOON).expect("the other lives");
    assert!(responder.ping(SOON).expect_err("dead").is_death());
}

#[test]
fn a_sample_can_be_cancelled_from_another_thread() {
    let both = agent("host");
    let failed = thread::scope(|scope| {
        let sample = scope.spawn(|| measure(&both, &both, &order(rr(60_000))));
        thread::sleep(Duration::from_millis(200));
        both.cancel_all().expect("sent").wait(SOON).expect("done");
        sample.join().expect("no panic").expect_err("cancelled")
    });
    assert!(matches!(*failed.cause, SampleFailure::End { .. }), "{failed:?}");
    assert!(measure(&both, &both, &order(rr(50))).is_ok());
}

#[test]
fn pairs_start_at_one_moment() {
    let agents = [agent("zone a"), agent("zone b"), agent("zone c"), agent("zone d")];
    let [a, b, c, d] = agents.each_ref();
    assert_eq!(a.hello().boot_id, b.hello().boot_id);
    let pairs = [(a, b), (c, d), (a, d)].map(|(initiator, responder)| AgentPair {
        initiator,
        responder,
        order: order(TestSpec { warmup: Warmup::NONE, ..rr(200) }),
    });
    // A busy machine occasionally wakes one of them late.
    let skews: Vec<_> = (0..10)
        .map(|_| {
            let parallel = measure_all(&pairs).expect("samples");
            assert_eq!(parallel.reports.len(), 3);
            for (asked, _) in &parallel.reports {
                assert!(asked.transactions > 0 && asked.started_ns > 0, "{}", asked.transactions);
            }
            assert_eq!(parallel.skew.uncertainty, Duration::ZERO, "all have one clock");
            parallel.skew.spread
        })
        .collect();
    assert!(skews.iter().any(|spread| *spread < Duration::from_millis(150)), "{skews:?}");
}

#[test]
fn the_partial_report_of_a_cancelled_sample_is_kept() {
    let both = agent("host");
    let failed = thread::scope(|scope| {
        let sample = scope.spawn(|| measure(&both, &both, &order(rr(8000))));
        thread::sleep(Duration::from_millis(500));
        both.cancel_all().expect("sent").wait(SOON).expect("done");
        sample.join().expect("no panic").expect_err("cancelled")
    });
    let [Partial { initiator: Some(seen), .. }] = &failed.partial[..] else { panic!("{failed:?}") };
    assert!(seen.transactions > 0, "{seen:?}");
}

/// Many flows need many file descriptors; the program has raised its limit.
#[test]
fn a_thousand_flows_run_on_one_agent() {
    let both = agent("host");
    let options = TestOptions { engine: Engine::Epoll, threads: Some(2), ..TestOptions::default() };
    let (report, _) = measure(&both, &both, &order(TestSpec { streams: 1000, options, ..rr(200) })).expect("a sample");
    assert!(report.transactions > 0, "{}", report.transactions);
}

#[test]
fn a_hostile_order_is_refused_by_name() {
    let (initiator, responder) = (agent("zone a"), agent("zone b"));
    let hostile = order(TestSpec { streams: u32::MAX, ..rr(50) });
    let refused = measure(&initiator, &responder, &hostile).expect_err("hostile");
    let SampleFailure::End { error: AgentError::Refused { fault, .. }, .. } = &*refused.cause else {
        panic!("{refused:?}");
    };
    assert_eq!(fault.kind, FaultKind::Refused);
    assert!(refused.to_string().contains("zone b"), "{refused}");
}

#[test]
fn an_idle_agent_is_small_and_leaves_with_its_link() {
    let idle = agent("zone a");
    let pid = idle.process_id().expect("a child");
    assert!(held(pid) < IDLE_MOST_KB, "{} kB", held(pid));
    let group = rustix::process::getpgid(Pid::from_raw(pid.try_into().expect("small"))).expect("alive");
    assert_eq!(group.as_raw_nonzero().get().unsigned_abs(), pid, "Ctrl-C in a terminal would kill it");
    println!("idle: {} kB", held(pid));
    drop(idle);
    assert!(!exists(pid), "a process or zombie is left");
}

/// A child to which the test itself writes.
struct Raw(Child);

impl Raw {
    fn start() -> Raw {
        let piped = program().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Raw(piped.expect("started"))
    }

    fn say(&mut self, bytes: &[u8]) {
        self.0.stdin.as_mut().expect("open").write_all(bytes).expect("written");
    }

    fn call(&mut self, id: u64, request: Request) {
        self.say(&encode(&Call { id: CallId(id), request }, REQUEST_MOST).expect("small"));
    }

    fn greet(&mut self) {
        self.say(&[&MAGIC[..], &encode(&Greeting::ours(), HELLO_MOST).expect("small")].concat());
    }

    /// Closes the child's input, and waits for its end.
    fn end(mut self) -> Output {
        drop(self.0.stdin.take());
        let start = Instant::now();
        while self.0.try_wait().expect("ours").is_none() {
            if start.elapsed() > SOON {
                self.0.kill().expect("ours");
                panic!("it outlives its stream");
            }
            thread::sleep(Duration::from_millis(2));
        }
        self.0.wait_with_output().expect("read")
    }
}

fn endless(session: u64) -> Request {
    let setup = setup();
    Request::Listen { session: SessionId(session), spec: rr(60_000), setup, token: Token::random() }
}

#[test]
fn a_coordinator_that_vanishes_takes_the_agent_along() {
    let mut raw = Raw::start();
    raw.greet();
    raw.call(1, endless(1));
    raw.call(2, endless(2));
    let output = raw.end();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn standard_output_has_only_frames() {
    let mut raw = Raw::start();
    raw.greet();
    raw.call(1, endless(1));
    raw.call(2, Request::Describe);
    raw.call(3, Request::Finish { session: SessionId(9) });
    let output = raw.end();
    let mut stream = BufReader::new(&output.stdout[..]);
    frame::read_magic(&mut stream).expect("magic").expect("some");
    let hello: Hello = parse(&read_frame(&mut stream, HELLO_MOST).expect("whole").expect("some")).expect("a hello");
    assert_eq!(hello.greeting.version, VERSION);
    let mut answers = Vec::new();
    while let Some(body) = read_frame(&mut stream, REPLY_MOST).expect("frames to the end") {
        answers.push(parse::<Answer>(&body).expect("an answer"));
    }
    let describes = |answer: &Answer| matches!(answer.outcome, CallOutcome::Done(Reply::Facts(_)));
    assert!(answers.iter().any(|answer| answer.id == CallId(2) && describes(answer)), "{answers:?}");
}

#[test]
fn an_unauthenticated_peer_is_refused_on_standard_error() {
    for words in [&b"help\n"[..], b"", b"VTAXCTL\n\xff\xff\xff\xff", b"VTAXCTL\n\x02\0\0\0{}"] {
        let mut raw = Raw::start();
        raw.say(words);
        let output = raw.end();
        assert_eq!(output.status.code(), Some(69), "{}", words.escape_ascii());
        assert!(output.stderr.starts_with(b"vtax-agent: "), "{}", output.stderr.escape_ascii());
        assert!(output.stdout.is_empty(), "{}", output.stdout.escape_ascii());
    }
}

/// An unauthenticated peer that doesn't even close the stream gets the same answer.
#[test]
fn a_stranger_who_waits_is_not_waited_for() {
    let mut raw = Raw::start();
    raw.say(b"hello?");
    let mut complaint = String::new();
    let mut stderr = raw.0.stderr.take().expect("piped");
    stderr.read_to_string(&mut complaint).expect("text");
    assert!(complaint.contains("hello?"), "{complaint}");
    assert_eq!(raw.end().status.code(), Some(69));
}

#[test]
fn the_command_line_is_explained() {
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_vtax-agent")).args(arguments).output();
        output.expect("started")
    };
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let version = run(&["--version"]);
    assert_eq!(text(&version.stdout), format!("vtax-agent {VERSION} (protocol {PROTOCOL})\n"));
    let carried = run(&["--stdio", "--carried"]);
    assert_eq!(carried.status.code(), Some(69), "a program that nobody has carried removes itself");
    assert!(text(&carried.stderr).contains("omit --carried"), "{}", text(&carried.stderr));
    assert!(fs::exists(env!("CARGO_BIN_EXE_vtax-agent")).expect("readable"));
    let help = run(&["--help"]);
    assert!(help.status.success());
    for option in ["--stdio", "--port", "--guest", "--modules", "--root"] {
        assert!(text(&help.stdout).contains(option), "{option}");
    }
    let wrong = [&[][..], &["--stdio", "more"], &["--carried"], &["serve"], &["x", "--port"]];
    let guests =
        [&["--guest", "--modules"][..], &["--guest", "--root", "tag", "--modules"], &["--guest", "--rot", "x"]];
    for wrong in wrong.into_iter().chain(guests) {
        let output = run(wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(output.stdout.is_empty() && text(&output.stderr).contains("Usage"), "{wrong:?}");
    }
}

/// It would mount file systems over those of this machine.
#[test]
fn a_process_among_others_isnt_the_first_of_a_guest() {
    for options in [&["--guest"][..], &["--guest", "--root", "tag"], &["--guest", "--root", "tag", "--modules", "list"]]
    {
        let output = Command::new(env!("CARGO_BIN_EXE_vtax-agent")).args(options).output().expect("started");
        assert_eq!(output.status.code(), Some(69), "{options:?}");
        let complaint = String::from_utf8(output.stderr).expect("text");
        assert!(complaint.contains("--port") && output.stdout.is_empty(), "{complaint}");
    }
}
