//! Fuzz targets for input from a coordinator, or from someone in its place.

use std::{
    io::{self, BufReader, Cursor},
    net::{IpAddr, Ipv4Addr},
    path::Path,
    time::Instant,
};

use vtax_engine::{Cancel, EngineError};
use vtax_fuzz::fuzz;
use vtax_model::{
    measurement::{EchoWatch, EndReport},
    options::TestOptions,
    station::{EndSetup, Schedule, Station, Target},
    units::{ByteSize, Mtu, Span},
    workload::{TestSpec, Transport, Warmup, Workload},
};
use vtax_sys::token::Token;

use vtax_journal::BatchId;
use vtax_tune::{
    HostSetting, KeptPlan, Proposal, RevertReport, TriedOut, TunedMachine, TuningError, TuningOrder, TuningReply,
    TuningStatus, WantedChanges,
};
use vtax_wire::{
    conversations::Conversations,
    frame::{MAGIC, REPLY_MOST, encode},
    limits::{BUFFERS_MOST, FLOWS_MOST, Load},
    protocol::{AddressLoan, LinkSetup, MemoryLoad, ProgramSpec, Request, SessionId, Signal},
};

use super::*;

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

fn first() -> BatchId {
    "1".parse().expect("a number")
}

fn wanted() -> WantedChanges {
    WantedChanges { proposals: vec![proposal()], persist: true }
}

fn proposal() -> Proposal {
    let setting = HostSetting::Sysctl { key: "net.core.rmem_max".to_owned(), value: "2".into() };
    Proposal { setting, now: "1".into() }
}

/// One order of each kind.
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
    let (every, most) = (Span::from_millis(1), Span::from_millis(9));
    let watch = EchoWatch { station: Station::Ip(LOOPBACK), target: LOOPBACK, every, most };
    let loan = AddressLoan { mac: "02:00:00:00:00:01".into(), address: "198.18.0.1/30".parse().expect("an address") };
    let multicast =
        TestSpec { transport: Transport::Udp, workload: Workload::Multicast { message: ByteSize(64) }, ..spec };
    let attachment = LinkSetup { mac: loan.mac.clone(), mtu: Mtu::ETHERNET, addresses: vec![loan.address] };
    vec![
        Request::Describe,
        Request::Attach { session: SessionId(7), attachment },
        Request::Listen { session: SessionId(8), spec: multicast, setup: setup.clone(), token },
        Request::PowerOff,
        Request::Connect { session, spec, setup: setup.clone(), target, token },
        Request::Start { session, schedule: Schedule { at: Some(7), ..Schedule::default() } },
        Request::Listen { session: SessionId(3), spec, setup, token },
        Request::Finish { session: SessionId(3) },
        Request::Prepare { session: SessionId(4), directory: "/tmp".into(), size: ByteSize(1) },
        Request::Watch { session: SessionId(6), watch },
        Request::Lend { session: SessionId(5), loan },
        Request::TakeBack,
        Request::Load(MemoryLoad { region: ByteSize(1 << 20), per_second: ByteSize(1) }),
        Request::Run(program),
        Request::More { session: SessionId(2), taken: ByteSize(1) },
        Request::Signal { session: SessionId(2), signal: Signal::Int },
        Request::Route { from: None, to: LOOPBACK, device: "lo".parse().ok() },
        Request::Tune(TuningOrder::Facts),
        Request::Tune(TuningOrder::TryOut { wanted: wanted(), within: Some(Span::from_millis(9)) }),
        Request::Tune(TuningOrder::Plan(wanted())),
        Request::Tune(TuningOrder::Keep { batch: first() }),
        Request::Tune(TuningOrder::Revert { batch: first() }),
        Request::Tune(TuningOrder::RevertAll),
        Request::Tune(TuningOrder::Status),
        Request::Tune(TuningOrder::ConnectTime { to: (LOOPBACK, 9).into() }),
        Request::Clock,
        Request::OtherPrograms { ours: vec![7] },
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

/// Orders as the agent reads them, also from a port. Accepted orders must be within its limits.
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
        Request::Watch { watch, .. } => Load::of_watch(watch),
        _ => return,
    };
    if let Ok(load) = load {
        assert!(load.flows <= FLOWS_MOST && load.buffers <= BUFFERS_MOST, "{load:?}");
    }
}

/// An engine that measures nothing and returns immediately.
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

    fn watch(&self, _: &EchoWatch, _: &Cancel) -> Result<EndReport, EngineError> {
        Ok(EndReport::default())
    }

    fn machine(&self) -> Option<Box<dyn TunedMachine>> {
        Some(Box::new(Untouched))
    }
}

/// A machine on which nothing is read or changed.
struct Untouched;

impl TunedMachine for Untouched {
    fn obey(&mut self, order: TuningOrder) -> Result<TuningReply, TuningError> {
        Ok(match order {
            TuningOrder::Facts => TuningReply::Facts(Box::default()),
            TuningOrder::Plan(_) => TuningReply::Planned(KeptPlan::default()),
            TuningOrder::TryOut { .. } => TuningReply::TriedOut(TriedOut::default()),
            TuningOrder::Keep { batch } => return Err(TuningError::NotTriedOut { batch }),
            TuningOrder::Revert { .. } | TuningOrder::RevertAll => TuningReply::Reverted(RevertReport::default()),
            TuningOrder::Status => TuningReply::Status(TuningStatus::default()),
            TuningOrder::ConnectTime { .. } => TuningReply::ConnectTime(Span::from_millis(1)),
        })
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn expire(&mut self) {}
}

/// The whole agent on someone else's machine, with its threads. It must answer in frames of the protocol.
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
