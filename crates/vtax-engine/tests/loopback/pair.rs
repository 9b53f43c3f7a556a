//! Two ends on the loopback interface.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    thread,
    time::Duration,
};

use vtax_engine::{Cancel, EndSetup, EngineError, Responder, Token, initiate};
use vtax_model::{
    measurement::EndReport,
    units::{ByteSize, Span},
    workload::{TestSpec, Transport, Workload},
};

pub(crate) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub(crate) fn setup() -> EndSetup {
    EndSetup { address: LOOPBACK, cpus: vec![], directory: None }
}

pub(crate) fn target(port: u16) -> SocketAddr {
    SocketAddr::new(LOOPBACK, port)
}

pub(crate) fn spec(transport: Transport, workload: Workload, streams: u32) -> TestSpec {
    TestSpec { transport, workload, streams, warmup: Span::from_millis(20), duration: Span::from_millis(150) }
}

pub(crate) fn lasting(spec: TestSpec, millis: u64) -> TestSpec {
    TestSpec { duration: Span::from_millis(millis), ..spec }
}

pub(crate) fn rr(request: u64, response: u64) -> Workload {
    Workload::Rr { request: ByteSize(request), response: ByteSize(response) }
}

pub(crate) fn stream(message: u64) -> Workload {
    Workload::Stream { message: ByteSize(message) }
}

pub(crate) fn file(size: u64) -> Workload {
    Workload::File { size: ByteSize(size) }
}

pub(crate) type Outcome = Result<EndReport, EngineError>;

/// Runs both ends; `meanwhile` gets the port and the switches of the initiator and the responder
/// before the initiator starts.
pub(crate) fn both_with(
    spec: &TestSpec,
    setup: &EndSetup,
    tokens: [Token; 2],
    meanwhile: impl FnOnce(u16, [Cancel; 2]),
) -> [Outcome; 2] {
    let switches = [Cancel::new(), Cancel::new()];
    let responder = Responder::bind(spec, setup, tokens[1]).unwrap();
    let port = responder.port();
    thread::scope(|scope| {
        let served = scope.spawn(|| responder.serve(&switches[1]));
        meanwhile(port, switches.clone());
        let initiated = initiate(spec, setup, target(port), tokens[0], &switches[0]);
        [initiated, served.join().unwrap()]
    })
}

pub(crate) fn both(spec: &TestSpec, setup: &EndSetup) -> [EndReport; 2] {
    let token = Token::random();
    both_with(spec, setup, [token, token], |_, _| {}).map(|outcome| outcome.unwrap())
}

/// Throws a switch after a while, on a thread of its own.
pub(crate) fn cancel_in(millis: u64, switch: Cancel) {
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(millis));
        switch.cancel();
    });
}
