//! What a coordinator, or somebody in its place, sends to an agent.

use std::{
    io::{self, BufReader, Cursor},
    net::{IpAddr, Ipv4Addr},
    path::Path,
};

use vtax_engine::{Cancel, EndSetup, EngineError, Schedule, Station, Target, Token};
use vtax_fuzz::fuzz;
use vtax_model::{
    measurement::EndReport,
    options::TestOptions,
    units::{ByteSize, Span},
    workload::{TestSpec, Transport, Warmup, Workload},
};

use super::*;
use crate::{
    conversations::Conversations,
    frame::{MAGIC, REPLY_MOST, encode},
    limits::{BUFFERS_MOST, FLOWS_MOST, Load},
    protocol::{ProgramSpec, Request, SessionId, Signal},
};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn spec() -> TestSpec {
    TestSpec {
        transport: Transport::Tcp,
        workload: Workload::Rr { request: ByteSize(64), response: ByteSize(1) },
        streams: 1,
        warmup: Warmup::NONE,
        duration: Span::from_millis(100),
        slices: None,
        options: TestOptions::default(),
    }
}

/// An order of each kind.
fn orders() -> Vec<Request> {
    let (spec, setup, token) = (spec(), EndSetup::new(Station::Ip(LOOPBACK)), "0".repeat(32).parse::<Token>());
    let token = token.expect("a token");
    let target = Target::Ip((LOOPBACK, 4242).into());
    let session = SessionId(1);
    let program = ProgramSpec {
        session: SessionId(2),
        argv: vec!["true".into()],
        stdin: b"hello".to_vec(),
        limit: Span::from_millis(1),
        window: Some(ByteSize(64)),
    };
    vec![
        Request::Connect { session, spec, setup: setup.clone(), target, token },
        Request::Start { session, schedule: Schedule { at: Some(7), ..Schedule::default() } },
        Request::Listen { session: SessionId(3), spec, setup, token },
        Request::Finish { session: SessionId(3) },
        Request::Prepare { session: SessionId(4), directory: "/tmp".into(), size: ByteSize(1) },
        Request::Run(program),
        Request::More { session: SessionId(2), taken: ByteSize(1) },
        Request::Signal { session: SessionId(2), signal: Signal::Int },
        Request::Route { from: None, to: LOOPBACK, device: "lo".parse().ok() },
        Request::Clock,
        Request::Cancel { session },
        Request::CancelAll,
        Request::Ping,
        Request::Shutdown,
    ]
}

fn conversation(orders: &[Request]) -> Vec<u8> {
    let opening = Opening { greeting: Greeting::ours(), key: "key".to_owned() };
    let mut bytes = [&MAGIC[..], &encode(&opening, HELLO_MOST).expect("small")].concat();
    for (request, id) in orders.iter().zip(1..) {
        bytes.extend(encode(&Call { id: CallId(id), request: request.clone() }, REQUEST_MOST).expect("small"));
    }
    bytes
}

/// The orders as the agent reads them, from a port too. What it would take on is within its limits.
#[test]
fn fuzz_orders() {
    let seeds: Vec<Vec<u8>> = orders().into_iter().map(|order| conversation(&[order])).collect();
    fuzz("orders", &seeds, |bytes| {
        let mut conversations = Conversations::new(Cursor::new(bytes.to_vec()));
        let mut understood = None;
        while conversations.next_one().expect("memory") {
            let mut reader = BufReader::new(&mut conversations);
            if greet(&mut reader, &mut io::sink()).is_err() {
                continue;
            }
            while let Ok(Some(event)) = next_call(&mut reader) {
                if let OwnerEvent::Called(call) = event {
                    check(&call);
                    understood = Some(());
                }
            }
        }
        understood
    });
}

fn check(call: &Call) {
    let written = serde_json::to_string(call).expect("it can be written");
    let again: Call = serde_json::from_str(&written).unwrap_or_else(|error| panic!("{error}: {written}"));
    assert_eq!(serde_json::to_string(&again).expect("it can be written"), written);
    let load = match &call.request {
        Request::Listen { spec, .. } | Request::Connect { spec, .. } => Load::of(spec),
        Request::Prepare { size, .. } => Load::of_file(*size),
        Request::Run(program) => Load::of_program(program),
        _ => return,
    };
    if let Ok(load) = load {
        assert!(load.flows <= FLOWS_MOST && load.buffers <= BUFFERS_MOST, "{load:?}");
    }
}

/// An engine that measures nothing, at once.
struct Idle;

impl TestEngine for Idle {
    fn prepare(&self, _: &Path, _: ByteSize, _: &Cancel) -> Result<(), EngineError> {
        Ok(())
    }

    fn bind(&self, _: &TestPart) -> Result<(Target, ServeTest), EngineError> {
        Ok((Target::Ip((LOOPBACK, 4242).into()), Box::new(|_| Ok(EndReport::default()))))
    }

    fn connect(&self, _: &TestPart, _: &Target, _: &Cancel) -> Result<RunTest, EngineError> {
        Ok(Box::new(|_, _| Ok(EndReport::default())))
    }
}

/// The whole agent on somebody else's machine, with its threads. It answers in frames of the protocol.
#[test]
fn fuzz_agents() {
    fuzz("agents", &[conversation(&orders())], |bytes| {
        let mut said = Vec::new();
        let end = serve(Cursor::new(bytes.to_vec()), &mut said, Idle, AgentRights::Visitor);
        let mut reader = BufReader::new(&said[..]);
        if frame::read_magic(&mut reader).expect("its own magic").is_some() {
            while let Some(body) = frame::read_frame(&mut reader, REPLY_MOST).expect("whole frames") {
                frame::parse::<serde_json::Value>(&body).expect("JSON");
            }
        }
        end.ok().map(|_| ())
    });
}
