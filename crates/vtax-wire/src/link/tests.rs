use std::{
    fs::File,
    io::{BufReader, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    thread,
};

use proptest::prelude::*;
use serde_json::json;
use vtax_model::units::{ByteSize, Span};

use super::*;
use crate::{
    frame::{FrameError, HELLO_MOST, MAGIC, REPLY_MOST, REQUEST_MOST, encode, parse, read_frame, read_magic},
    protocol::{Answer, Call, Greeting, Introduction, Opening, PROTOCOL, ProgramOutput, Stream, VERSION},
};

const SOON: Duration = Duration::from_secs(300);

fn hello() -> Vec<u8> {
    let greeting = Greeting::ours();
    let hello = Hello { greeting, pid: 1, hostname: "stage".into(), kernel: "6.0".into(), boot_id: String::new() };
    said(&encode(&hello, HELLO_MOST).expect("small"))
}

fn said(hello: &[u8]) -> Vec<u8> {
    [&MAGIC[..], hello].concat()
}

/// A stream that accepts everything.
pub(super) fn nobody() -> File {
    File::options().write(true).open("/dev/null").expect("it is always there")
}

fn to_words(words: Vec<u8>) -> Result<AgentLink, AgentError> {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    theirs.write_all(&words).expect("there is room");
    drop(theirs);
    AgentLink::from_streams("zone stage", ours, nobody(), SOON)
}

/// An agent's end of a stream; the test acts as the agent.
fn stage() -> (AgentLink, UnixStream) {
    stage_of("zone stage")
}

pub(crate) fn stage_of(name: &str) -> (AgentLink, UnixStream) {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    let reader = ours.try_clone().expect("cloned");
    theirs.write_all(&hello()).expect("written");
    let link = AgentLink::from_streams(name, reader, ours, SOON).expect("greeted");
    read_magic(&mut BufReader::with_capacity(1, &theirs)).expect("magic").expect("some");
    read_frame(&mut theirs, HELLO_MOST).expect("whole").expect("a greeting");
    (link, theirs)
}

fn next_call(stream: &mut UnixStream) -> Call {
    try_next_call(stream).expect("a call")
}

/// None if the link was dropped.
pub(crate) fn try_next_call(stream: &mut UnixStream) -> Option<Call> {
    Some(parse(&read_frame(stream, REQUEST_MOST).ok()??).expect("of the protocol"))
}

fn answer(stream: &mut UnixStream, id: CallId, reply: Reply) {
    give(stream, id, CallOutcome::Done(reply));
}

pub(crate) fn give(stream: &mut UnixStream, id: CallId, outcome: CallOutcome) {
    let answer = Answer { id, outcome };
    stream.write_all(&encode(&answer, REPLY_MOST).expect("small")).expect("written");
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

#[test]
fn another_version_is_reported_with_the_remedy() {
    let others = [
        json!({ "protocol": PROTOCOL, "version": "99.0.0", "pid": 1, "hostname": "h", "kernel": "k" }),
        json!({ "protocol": 99, "version": VERSION, "unheard": ["of"] }),
    ];
    for other in others {
        let error = to_words(said(&encode(&other, HELLO_MOST).expect("small"))).expect_err("another version");
        assert!(matches!(error, AgentError::OtherVersion { .. }), "{error:?}");
        let text = error.to_string();
        for part in ["zone stage", VERSION, "99", "install the same version"] {
            assert!(text.contains(part), "no {part} in: {text}");
        }
    }
}

#[test]
fn a_banner_instead_of_the_agent_is_quoted() {
    let error = to_words(b"Last login: never\n".to_vec()).expect_err("a banner").to_string();
    assert!(error.contains("zone stage") && error.contains("Last login"), "{error}");
}

/// Messages for earlier coordinators are still in a port's stream, and may be truncated anywhere.
#[test]
fn a_hello_for_others_is_skipped() {
    let directory = tempfile::tempdir().expect("made");
    let path = directory.path().join("agent");
    let listener = UnixListener::bind(&path).expect("bound");
    thread::scope(|scope| {
        let link = scope.spawn(|| AgentLink::connect_unix("guest stage", &path, SOON));
        let (mut agent, _) = listener.accept().expect("a connection");
        read_magic(&mut BufReader::with_capacity(1, &agent)).expect("magic").expect("some");
        let opening = read_frame(&mut agent, HELLO_MOST).expect("whole").expect("an opening");
        let Opening { key, .. } = parse(&opening).expect("of the protocol");
        let hello = |key: &str| {
            let greeting = Greeting::ours();
            let hello = Hello { greeting, pid: 1, hostname: key.into(), kernel: "6.0".into(), boot_id: String::new() };
            said(&encode(&Introduction { hello, key: key.into() }, HELLO_MOST).expect("small"))
        };
        let stale = hello("another");
        for piece in [b"late\"}}}".as_slice(), &stale[..20], &stale, b"VTAXCTL\n", b"\x01\0\0\0{", &hello(&key)] {
            agent.write_all(piece).expect("written");
        }
        let link = link.join().expect("no panic").expect("greeted");
        assert_eq!(link.hello().hostname, *key);
        drop(link);
        agent.set_read_timeout(Some(SOON)).expect("set");
        let rest = agent.read_to_end(&mut Vec::new());
        assert!(rest.is_ok(), "the socket is still open: {rest:?}");
    });
}

#[test]
fn silence_has_a_deadline() {
    let (ours, _theirs) = UnixStream::pair().expect("a pair");
    let reader = ours.try_clone().expect("cloned");
    let silent = AgentLink::from_streams("zone stage", reader, ours, Duration::from_millis(50));
    assert!(matches!(silent, Err(AgentError::Silent { .. })), "{silent:?}");
}

#[test]
fn answers_find_their_callers_in_any_order() {
    let (link, mut agent) = stage();
    thread::scope(|scope| {
        let callers: Vec<_> = (0..4).map(|_| scope.spawn(|| link.describe(SOON))).collect();
        let calls: Vec<_> = callers.iter().map(|_| next_call(&mut agent)).collect();
        for call in calls.iter().rev() {
            answer(&mut agent, call.id, Reply::Facts(Box::default()));
        }
        for caller in callers {
            assert_eq!(caller.join().expect("no panic").expect("described"), AgentFacts::default());
        }
    });
}

#[test]
fn a_late_answer_is_an_error_and_harmless_to_others() {
    let (link, mut agent) = stage();
    let late = link.ping(Duration::from_millis(20)).expect_err("late");
    assert!(late.to_string().contains("zone stage") && late.to_string().contains("ping"), "{late}");
    let first = next_call(&mut agent);
    let second = link.call(Request::Ping).expect("sent");
    answer(&mut agent, first.id, Reply::Done);
    let call = next_call(&mut agent);
    answer(&mut agent, call.id, Reply::Done);
    assert_eq!(second.wait(SOON).expect("answered"), Reply::Done);
}

#[test]
fn a_stream_truncated_inside_a_frame_fails_all_callers() {
    let (link, mut agent) = stage();
    let waiting: Vec<_> = (0..3).map(|_| link.call(Request::Ping).expect("sent")).collect();
    agent.write_all(&[200, 0, 0, 0, b'{']).expect("written");
    drop(agent);
    for caller in waiting {
        let error = caller.wait(SOON).expect_err("cut");
        let AgentError::Died { death, .. } = error else { panic!("{error:?}") };
        assert!(matches!(death.stream.as_deref(), Some(FrameError::Truncated { .. } | FrameError::Io(_))), "{death:?}");
    }
    assert!(link.call(Request::Ping).expect_err("dead").is_death());
}

#[test]
fn a_hostile_length_ends_the_link_before_memory_runs_out() {
    let (link, mut agent) = stage();
    let waiting = link.call(Request::Ping).expect("sent");
    agent.write_all(&[0xff; 4]).expect("written");
    let error = waiting.wait(SOON).expect_err("hostile").to_string();
    assert!(error.contains("exceeds the limit"), "{error}");
}

/// vtax's standard output may be slow, so outputs are buffered in memory.
#[test]
fn outputs_beyond_the_window_end_the_link_before_memory_runs_out() {
    for piece in [vec![0; 32 << 10], vec![0; 1], Vec::new()] {
        let (link, mut agent) = stage();
        let program = link.start(&["yes".into()], b"", Span(SOON)).expect("sent");
        let call = next_call(&mut agent);
        let output = ProgramOutput { stream: Stream::Stdout, bytes: piece };
        let frame = encode(&Answer { id: call.id, outcome: CallOutcome::Output(output) }, REPLY_MOST).expect("small");
        thread::spawn(move || while agent.write_all(&frame).is_ok() {});
        while !link.call(Request::Ping).is_err_and(|error| error.is_death()) {
            thread::sleep(Duration::from_millis(1));
        }
        let mut taken = 0;
        let error = program.follow(|_, bytes| taken += bytes.len().max(1)).expect_err("hostile");
        let AgentError::Died { death, .. } = error else { panic!("{error:?}") };
        assert!(matches!(death.stream.as_deref(), Some(FrameError::BeyondWindow)), "{death:?}");
        assert!(taken <= 256 << 10, "{taken} bytes waited in memory");
    }
}

/// One thread reads the streams of all agents.
#[test]
fn an_agent_that_floods_delays_no_other_agent() {
    let (flooded, mut flood) = stage();
    let (link, mut agent) = stage();
    let frame = encode(&Answer { id: CallId(77), outcome: CallOutcome::Done(Reply::Done) }, REPLY_MOST).expect("small");
    let frames = frame.repeat(1000);
    let flooding = thread::spawn(move || while flood.write_all(&frames).is_ok() {});
    thread::scope(|scope| {
        let pings = scope.spawn(|| (0..100).try_for_each(|_| link.ping(SOON).map(drop)));
        for _ in 0..100 {
            let call = next_call(&mut agent);
            answer(&mut agent, call.id, Reply::Done);
        }
        pings.join().expect("no panic").expect("answered");
    });
    assert!(flooded.death().is_none(), "answers that nobody waits for are dropped");
    drop(flooded);
    flooding.join().expect("its stream has ended");
}

#[test]
fn half_a_frame_delays_no_other_agent() {
    let (half, mut its_agent) = stage();
    let (link, mut agent) = stage();
    let waiting = half.call(Request::Ping).expect("sent");
    let Call { id, .. } = next_call(&mut its_agent);
    let frame = encode(&Answer { id, outcome: CallOutcome::Done(Reply::Done) }, REPLY_MOST).expect("small");
    let (first, rest) = frame.split_at(frame.len() / 2);
    its_agent.write_all(first).expect("written");
    thread::scope(|scope| {
        let ping = scope.spawn(|| link.ping(SOON));
        let call = next_call(&mut agent);
        answer(&mut agent, call.id, Reply::Done);
        ping.join().expect("no panic").expect("answered");
    });
    its_agent.write_all(rest).expect("written");
    assert_eq!(waiting.wait(SOON).expect("answered"), Reply::Done);
}

/// Its requests are queued in memory, up to a limit. When it reads again, all of them arrive.
#[test]
fn an_agent_that_reads_nothing_fills_no_memory() {
    let (link, mut agent) = stage();
    let large = || Request::Prepare {
        session: SessionId(1),
        directory: "x".repeat(REQUEST_MOST.0 as usize / 2).into(),
        size: ByteSize(1),
    };
    let mut sent = 0;
    let refused = loop {
        match link.call(large()) {
            Ok(_) => sent += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, AgentError::Backlog { .. }) && (15..64).contains(&sent), "{sent}: {refused}");
    assert!(refused.to_string().contains("zone stage"), "{refused}");
    let (other, mut others_agent) = stage();
    let waiting = other.call(Request::Ping).expect("sent");
    let call = next_call(&mut others_agent);
    answer(&mut others_agent, call.id, Reply::Done);
    waiting.wait(SOON).expect("answered");
    for _ in 0..sent {
        assert!(matches!(next_call(&mut agent).request, Request::Prepare { .. }));
    }
    let waiting = link.call(Request::Ping).expect("there is room again");
    let call = next_call(&mut agent);
    answer(&mut agent, call.id, Reply::Done);
    waiting.wait(SOON).expect("answered");
}

#[test]
fn an_early_death_is_reported_with_status_and_last_words() {
    let dies = AgentLink::spawn("zone stage", shell("echo no room here >&2; exit 3"), SOON).expect_err("dead");
    let AgentError::Died { death, .. } = &dies else { panic!("{dies:?}") };
    assert_eq!(death.status.and_then(|status| status.code()), Some(3));
    assert_eq!(death.stderr, "no room here");
    assert!(dies.to_string().contains("zone stage") && dies.to_string().contains("no room here"), "{dies}");
}

#[test]
fn only_the_last_words_are_kept() {
    let dies = AgentLink::spawn("zone stage", shell("yes babble | head -c 300000 >&2; echo end >&2"), SOON);
    let AgentError::Died { death, .. } = dies.expect_err("dead") else { panic!("another error") };
    assert!(death.stderr.raw().len() <= 4096 && death.stderr.raw().ends_with("end"), "{}", death.stderr);
}

#[test]
fn a_missing_agent_has_its_own_error() {
    let missing = AgentLink::spawn("host stage", shell("vtax-no-such-program"), SOON).expect_err("missing");
    assert!(missing.to_string().contains("install vtax-agent there"), "{missing}");
    let gone = AgentLink::spawn("zone stage", Command::new("/nowhere/vtax-agent"), SOON).expect_err("missing");
    assert!(matches!(gone, AgentError::Start { .. }) && gone.to_string().contains("/nowhere/vtax-agent"), "{gone}");
}

#[test]
fn a_child_without_pipes_is_refused_and_reaped() {
    let child = shell("exec sleep 10").stdin(Stdio::null()).spawn().expect("started");
    let id = child.id();
    let refused = AgentLink::from_child("zone stage", child, SOON);
    assert!(matches!(refused, Err(AgentError::NotPiped { .. })), "{refused:?}");
    assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
}

/// A program that greets like an agent, and then neither reads nor exits.
pub(crate) fn program_that_hangs() -> Command {
    let hello: String = hello().iter().map(|byte| format!("\\{byte:03o}")).collect();
    shell(&format!("printf '{hello}'; exec sleep 1000"))
}

#[test]
fn an_agent_that_ignores_the_end_of_its_stream_is_killed_and_reaped() {
    let link = AgentLink::spawn("zone stage", program_that_hangs(), SOON).expect("greeted");
    let id = link.process_id().expect("a process");
    let start = Instant::now();
    drop(link);
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_bytes_of_an_agent_make_a_link_panic_or_hang(bytes: Vec<u8>, greeted: bool) {
        let words = if greeted { [hello(), bytes].concat() } else { bytes };
        match to_words(words) {
            Ok(link) => prop_assert!(link.ping(SOON).expect_err("no agent").is_death()),
            Err(error) => prop_assert!(error.is_death(), "{error:?}"),
        }
    }
}
