//! Tests of programs run in a guest, and of links set up there.

use std::{
    fs,
    net::Shutdown,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use vtax_model::{
    foreign::ForeignText,
    units::{ByteSize, Mtu, Span},
};
use vtax_wire::{
    frame::{REQUEST_MOST, encode},
    limits::{INPUT_MOST, WATCHED_MOST, WINDOW_MOST},
    link::AgentError,
    protocol::{
        AddressLoan, Answer, Call, CallId, CallOutcome, FaultKind, LinkSetup, ProgramSpec, RUN_LIMIT, Ran, Request,
        SessionId, Signal, Stream,
    },
};

use super::{SOON, fake::WAITS, fault, initiate, rr, stage, stage_of};
use crate::server::AgentRights;

#[test]
fn a_visitor_changes_nothing() {
    let stage = stage();
    let link = stage.link();
    let attachment = LinkSetup { mac: "02:00:00:00:00:01".into(), mtu: Mtu::ETHERNET, addresses: Vec::new() };
    let loan = AddressLoan { mac: attachment.mac.clone(), address: "198.18.0.1/30".parse().expect("an address") };
    link.take_back().expect("nothing was lent");
    for refused in [
        link.attach(&attachment).expect_err("no guest"),
        link.lend(&loan).expect_err("no guest"),
        link.run(&["true".into()], &[], RUN_LIMIT).expect_err("no guest"),
    ] {
        let AgentError::Refused { fault, .. } = refused else { panic!("{refused:?}") };
        assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
    }
}

#[test]
fn a_guest_runs_programs_and_finds_its_links() {
    let stage = stage_of(AgentRights::Guest);
    let link = stage.link();
    let ran = link.run(&["sh", "-c", "echo $0; exit 5"].map(str::to_owned), &[], RUN_LIMIT).expect("it runs");
    assert_eq!(ran, Ran { status: 5, stdout: "sh\n".into(), stderr: ForeignText::default() });
    let missing = link.run(&["/no/such/program".to_owned()], &[], RUN_LIMIT).expect_err("it doesn't exist");
    assert!(matches!(&missing, AgentError::Refused { fault, .. } if fault.kind == FaultKind::NotFound), "{missing:?}");
    let most = vec![0xff; INPUT_MOST.0 as usize];
    let counted = link.run(&["wc", "-c"].map(str::to_owned), &most, RUN_LIMIT).expect("it runs");
    assert_eq!(counted.stdout.raw().trim(), INPUT_MOST.0.to_string());
    let more = link.run(&["true".into()], &[&most[..], &[0]].concat(), RUN_LIMIT).expect_err("too much");
    assert!(more.to_string().contains("at most 512 KiB"), "{more}");
    let missing = link.run(&["no-such-program".into()], &[], RUN_LIMIT).expect_err("missing").to_string();
    assert!(missing.contains("run a program") && missing.contains("no-such-program"), "{missing}");
    let century = Span(Duration::from_secs(100 * 365 * 24 * 3600));
    let hostile = |limit, window| {
        let (argv, stdin) = (vec!["true".into()], Vec::new());
        fault(&link, Request::Run(ProgramSpec { session: SessionId(77), argv, stdin, limit, window }))
    };
    let all = Some(ByteSize(u64::MAX));
    let refused = [hostile(century, None), hostile(century, Some(WINDOW_MOST)), hostile(RUN_LIMIT, all)];
    assert!(refused.iter().all(|fault| fault.kind == FaultKind::Refused), "{refused:?}");
    assert!(refused[1].message.raw().contains("at most 720h"), "{}", refused[1]);
    let misread = LinkSetup { mac: "02-00".into(), mtu: Mtu::ETHERNET, addresses: Vec::new() };
    let misread = link.attach(&misread).expect_err("no address").to_string();
    assert!(misread.contains("set up its link") && misread.contains("02-00"), "{misread}");
    let loan = AddressLoan { mac: "02-00".into(), address: "198.18.0.1/30".parse().expect("an address") };
    let misread = link.lend(&loan).expect_err("no address").to_string();
    assert!(misread.contains("add an address") && misread.contains("02-00"), "{misread}");
    link.take_back().expect("nothing was lent");
}

fn sh(script: &str) -> Vec<String> {
    ["sh", "-c", script].map(str::to_owned).to_vec()
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).expect("text")
}

#[test]
fn a_long_output_comes_whole_and_in_its_order() {
    let stage = stage_of(AgentRights::Guest);
    let link = stage.link();
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let script = "cat; seq 1 500000; echo end >&2; exit 6";
    let status = link.start(&sh(script), b"0\n", WATCHED_MOST).expect("sent").follow(|stream, bytes| match stream {
        Stream::Stdout => stdout.extend(bytes),
        Stream::Stderr => stderr.extend(bytes),
    });
    assert_eq!((status.expect("it runs"), text(&stderr)), (6, "end\n"));
    assert!(stdout.len() > 3_000_000, "{}", stdout.len());
    assert!(text(&stdout).lines().enumerate().all(|(number, line)| line == number.to_string()));
}

/// A caller that takes no output stops the program, but neither the agent nor other callers.
#[test]
fn a_program_that_writes_forever_waits_for_its_follower_and_is_signalled() {
    let stage = stage_of(AgentRights::Guest);
    let link = stage.link();
    let directory = tempfile::tempdir().expect("made");
    let count = directory.path().join("count");
    let written = || fs::read_to_string(&count).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let script = format!("i=0; while :; do printf %01024d 0; i=$((i+1)); echo $i >{}; done", count.display());
    let running = link.start(&sh(&script), &[], WATCHED_MOST).expect("sent");
    let session = running.session();
    let (hold, held) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let mut taken = 0;
        let status = scope.spawn(move || {
            running.follow(|_, bytes| {
                taken += bytes.len();
                let _ = held.recv();
            })
        });
        wait_for(|| {
            let before = written();
            thread::sleep(Duration::from_millis(300));
            before > Some(200) && before == written()
        });
        assert!(written() < Some(1024), "{:?} KiB: more than the window and the pipe", written());
        assert!(link.ping(SOON).expect("alive") < SOON);
        assert_eq!(link.run(&sh("echo another"), &[], RUN_LIMIT).expect("it runs").stdout, "another\n");
        drop(hold);
        wait_for(|| written() > Some(2048));
        link.signal(session, Signal::Int).expect("sent").wait(SOON).expect("passed on");
        assert_eq!(status.join().expect("no panic").expect("it ended"), 128 + 2);
        link.signal(session, Signal::Kill).expect("sent").wait(SOON).expect("it has just ended");
        let test = initiate(&link, 99, rr(WAITS));
        assert_eq!(
            fault(&link, Request::Signal { session: SessionId(99), signal: Signal::Kill }).kind,
            FaultKind::Session
        );
        drop(test);
    });
}

fn wait_for(condition: impl Fn() -> bool) {
    let end = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < end, "it didn't come to it");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns whether a process is gone. A zombie counts, too: only the machine's first process can reap it.
fn is_gone(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z"))
}

/// A program that writes endlessly and has started another one.
struct Babble {
    directory: tempfile::TempDir,
}

impl Babble {
    fn new() -> Babble {
        Babble { directory: tempfile::tempdir().expect("made") }
    }

    fn argv(&self) -> Vec<String> {
        let pids = self.directory.path().join("pids");
        sh(&format!("sleep 600 & echo $$ $! >{0}.new; mv {0}.new {0}; exec yes", pids.display()))
    }

    fn runs(&self) -> Vec<String> {
        let pids = self.directory.path().join("pids");
        wait_for(|| pids.exists());
        let pids = fs::read_to_string(pids).expect("there");
        pids.split_whitespace().map(str::to_owned).collect()
    }
}

#[test]
fn a_program_ends_with_who_follows_it() {
    let stage = stage_of(AgentRights::Guest);
    let link = stage.link();
    let babble = Babble::new();
    let running = link.start(&babble.argv(), &[], WATCHED_MOST).expect("sent");
    let pids = babble.runs();
    assert!(pids.len() == 2 && !pids.iter().any(|pid| is_gone(pid)), "{pids:?}");
    drop(running);
    wait_for(|| pids.iter().all(|pid| is_gone(pid)));
    link.ping(SOON).expect("the agent goes on");
}

#[test]
fn a_coordinator_that_vanishes_in_the_middle_takes_its_program_along() {
    let mut stage = stage_of(AgentRights::Guest);
    stage.greet();
    let babble = Babble::new();
    let (session, argv, stdin) = (SessionId(1), babble.argv(), Vec::new());
    let program = ProgramSpec { session, argv, stdin, limit: WATCHED_MOST, window: Some(WINDOW_MOST) };
    let request = Request::Run(program);
    stage.say(&encode(&Call { id: CallId(5), request }, REQUEST_MOST).expect("small"));
    let Answer { id: CallId(5), outcome: CallOutcome::Output(output) } = stage.answer() else { panic!("no output") };
    assert_eq!((output.stream, &output.bytes[..4]), (Stream::Stdout, &b"y\ny\n"[..]));
    let pids = babble.runs();
    stage.stream.shutdown(Shutdown::Both).expect("shut");
    wait_for(|| pids.iter().all(|pid| is_gone(pid)));
    // A cut in the middle of a frame is possible.
    let _ = stage.agent.join().expect("no panic");
}
