//! Messages of an agent, or another program in its place, to the coordinator.

use std::io::Write;

use vtax_fuzz::fuzz;
use vtax_model::{measurement::EndReport, station::Target, units::Span};
use vtax_stats::histogram::Histogram;

use vtax_change::Change;
use vtax_journal::BatchId;
use vtax_tune::{BatchStage, BatchStatus, KeptPlan, RevertReport, SettingStatus, TriedOut, TuningReply, TuningStatus};

use super::{tests::nobody, *};
use crate::{
    frame::{HELLO_MOST, MAGIC, REPLY_MOST, encode},
    protocol::{Answer, Attached, Fault, FaultKind, Greeting, Introduction, ProgramOutput, Ran, Stream},
};

const SOON: Duration = Duration::from_secs(10);

fn outcomes() -> Vec<CallOutcome> {
    let mut rtt = Histogram::new();
    rtt.record(7_000);
    let report = EndReport { seconds: 1.0, transactions: 1, rtt: Some(rtt), ..EndReport::default() };
    let fault = Fault { partial: Some(Box::new(report.clone())), ..Fault::new(FaultKind::Engine, "x", "y".into()) };
    let output = ProgramOutput { stream: Stream::Stdout, bytes: b"hello".to_vec() };
    vec![
        CallOutcome::Done(Reply::Done),
        CallOutcome::Done(Reply::Connected),
        CallOutcome::Done(Reply::Listening { target: Target::Vsock { cid: 3, port: 4242 } }),
        tuned(TuningReply::Planned(KeptPlan::default())),
        tuned(TuningReply::Kept),
        tuned(TuningReply::ConnectTime(Span::from_millis(1))),
        CallOutcome::Done(Reply::Report(Box::new(report))),
        CallOutcome::Failed(fault),
        CallOutcome::Output(output),
        CallOutcome::Done(Reply::Clock { now_ns: 7 }),
        CallOutcome::Done(Reply::OtherPrograms { cpus: 2, cpu_ns: 7 }),
        CallOutcome::Done(Reply::Facts(Box::default())),
        CallOutcome::Done(Reply::Route(Vec::new())),
        tuned(TuningReply::Facts(Box::default())),
        tuned(TuningReply::TriedOut(TriedOut {
            batch: Some(first()),
            plan: KeptPlan { changes: vec![change()], ..KeptPlan::default() },
            recovered: vec![],
        })),
        tuned(TuningReply::Reverted(RevertReport { reverted: 1, ..RevertReport::default() })),
        tuned(TuningReply::Status(status())),
        CallOutcome::Done(Reply::Link(Attached { name: "eth0".into(), driver: None })),
        CallOutcome::Done(Reply::Ran(Ran { status: 0, stdout: "".into(), stderr: "".into() })),
    ]
}

fn tuned(reply: TuningReply) -> CallOutcome {
    CallOutcome::Done(Reply::Tuned(Box::new(reply)))
}

fn first() -> BatchId {
    "1".parse().expect("a number")
}

fn change() -> Change {
    let text = r#"{"change":"sysctl","key":"net/core/rmem_max","value":"2","was":"1"}"#;
    serde_json::from_str(text).expect("a change")
}

fn status() -> TuningStatus {
    let setting = SettingStatus { change: change().to_string().into(), now: Some("2".into()), is_ours: true };
    let batch = BatchStatus { id: first(), state: BatchStage::NotConfirmed, is_kept: false, settings: vec![setting] };
    TuningStatus { changes: vec![batch], ..TuningStatus::default() }
}

fn hello() -> Vec<u8> {
    let greeting = Greeting::ours();
    let hello = Hello { greeting, pid: 1, hostname: "h".into(), kernel: "6.0".into(), boot_id: "b".into() };
    let introduction = Introduction { hello, key: "key".into() };
    [&MAGIC[..], &encode(&introduction, HELLO_MOST).expect("small")].concat()
}

/// The first calls of a link have the numbers 1 to 5.
fn answers(outcomes: Vec<CallOutcome>) -> Vec<u8> {
    let answers = outcomes.into_iter().zip(0..).map(|(outcome, id)| Answer { id: CallId(1 + id % 5), outcome });
    answers.flat_map(|answer| encode(&answer, REPLY_MOST).expect("small")).collect()
}

/// The first bytes of an agent, or of another program in its place.
#[test]
fn fuzz_hellos() {
    fuzz("hellos", &[hello()], |bytes| {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        // Anything beyond the limit is cut off.
        theirs.set_nonblocking(true).expect("set");
        let _ = theirs.write_all(bytes);
        drop(theirs);
        let link = AgentLink::from_streams("zone stage", ours, nobody(), SOON);
        link.inspect_err(|error| assert!(error.to_string().contains("zone stage"), "{error}")).ok().map(drop)
    });
}

/// Callers wait, one of them for the outputs of a program. Each learns how its call ended, or that the agent is gone.
#[test]
fn fuzz_answers() {
    let mut seeds: Vec<Vec<u8>> = outcomes().into_iter().map(|outcome| answers(vec![outcome; 5])).collect();
    seeds.push(answers(outcomes()));
    fuzz("answers", &seeds, |bytes| {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        theirs.write_all(&hello()).expect("there is room");
        let link = AgentLink::from_streams("zone stage", ours, nobody(), SOON).expect("greeted");
        let running = link.start(&["true".to_owned()], b"", Span::from_millis(1)).expect("sent");
        let pending: Vec<_> = (0..4).map(|_| link.call(Request::Ping).expect("sent")).collect();
        // An agent that sends more than the limit is cut off.
        theirs.set_nonblocking(true).expect("set");
        let _ = theirs.write_all(bytes);
        drop(theirs);
        let mut understood = None;
        let ended = running.follow(|_, _| understood = Some(()));
        understood = understood.or(ended.ok().map(|_| ()));
        for reply in pending {
            match reply.wait(SOON) {
                Ok(reply) => {
                    let written = serde_json::to_string(&reply).expect("it can be written");
                    assert_eq!(
                        serde_json::from_slice::<Reply>(written.as_bytes()).expect("it can be read"),
                        reply,
                        "{written}"
                    );
                    understood = Some(());
                }
                Err(error) => {
                    assert!(error.to_string().contains("zone stage"), "{error}");
                    understood = understood.or(matches!(error, AgentError::Refused { .. }).then_some(()));
                }
            }
        }
        understood
    });
}
