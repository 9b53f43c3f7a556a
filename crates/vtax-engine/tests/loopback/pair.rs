//! Two ends on the loopback interface.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use vtax_engine::{Cancel, EngineError, Failed, Initiator, Responder, SourceFile};
use vtax_model::{
    measurement::EndReport,
    options::{Engine, TestOptions},
    station::{EndSetup, Schedule, Station, Target},
    units::{ByteSize, Span},
    workload::{Direction, TestSpec, Transport, Warmup, Workload},
};
use vtax_sys::token::Token;

pub(crate) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub(crate) const ENGINES: [Engine; 4] = Engine::ALL;

pub(crate) fn setup() -> EndSetup {
    EndSetup::new(Station::Ip(LOOPBACK))
}

pub(crate) fn target(port: u16) -> SocketAddr {
    SocketAddr::new(LOOPBACK, port)
}

pub(crate) fn port(responder: &Responder) -> u16 {
    match responder.target() {
        Target::Ip(address) => address.port(),
        other => panic!("{other} has no port"),
    }
}

pub(crate) fn spec(transport: Transport, workload: Workload, streams: u32) -> TestSpec {
    TestSpec {
        transport,
        workload,
        streams,
        warmup: Warmup::For(Span::from_millis(20)),
        duration: Span::from_millis(150),
        slices: None,
        options: TestOptions::default(),
    }
}

pub(crate) fn lasting(spec: TestSpec, millis: u64) -> TestSpec {
    TestSpec { duration: Span::from_millis(millis), ..spec }
}

pub(crate) fn with(spec: TestSpec, options: TestOptions) -> TestSpec {
    TestSpec { options, ..spec }
}

pub(crate) fn on(engine: Engine, spec: TestSpec) -> TestSpec {
    TestSpec { options: TestOptions { engine, ..spec.options }, ..spec }
}

pub(crate) fn rr(request: u64, response: u64) -> Workload {
    Workload::Rr { request: ByteSize(request), response: ByteSize(response) }
}

pub(crate) fn stream(message: u64) -> Workload {
    directed(message, Direction::Forward)
}

pub(crate) fn directed(message: u64, direction: Direction) -> Workload {
    Workload::Stream { message: ByteSize(message), direction }
}

pub(crate) fn crr(request: u64, response: u64) -> Workload {
    Workload::Crr { request: ByteSize(request), response: ByteSize(response) }
}

pub(crate) fn file(size: u64) -> Workload {
    Workload::File { size: ByteSize(size) }
}

pub(crate) type Outcome = Result<EndReport, EngineError>;

/// Connects and runs immediately.
pub(crate) fn initiate(spec: &TestSpec, setup: &EndSetup, target: &Target, token: Token, cancel: &Cancel) -> Outcome {
    whole(spec, setup, target, token, None, cancel).map_err(|failed| failed.error)
}

pub(crate) fn initiate_file(
    spec: &TestSpec,
    setup: &EndSetup,
    target: &Target,
    token: Token,
    source: &SourceFile,
    cancel: &Cancel,
) -> Outcome {
    whole(spec, setup, target, token, Some(source), cancel).map_err(|failed| failed.error)
}

pub(crate) fn whole(
    spec: &TestSpec,
    setup: &EndSetup,
    target: &Target,
    token: Token,
    source: Option<&SourceFile>,
    cancel: &Cancel,
) -> Result<EndReport, Failed> {
    Initiator::connect(spec, setup, target, token, cancel)?.run(Schedule::default(), source, cancel)
}

/// In milliseconds. A test with this duration ends in time only if the exit of a peer is noticed.
pub(crate) const UNNOTICED: u64 = 600_000;

/// Checks a figure that other load can only increase: the smallest of several attempts is the cost of the code itself.
pub(crate) fn assert_least(most: f64, what: &str, attempt: impl FnMut() -> f64) {
    const ATTEMPTS: usize = 40;
    let figures: Vec<f64> = std::iter::repeat_with(attempt)
        .take(ATTEMPTS)
        .scan(false, |done, figure| {
            let last = std::mem::replace(done, *done || figure < most);
            (!last).then_some(figure)
        })
        .collect();
    assert!(figures.last().is_some_and(|figure| *figure < most), "{what}: {figures:?}, at most {most}");
}

/// Returns the share of the time of closed loops that belongs to no transaction. The transactions don't last longer
/// than the loops; flows open and close their windows at different times, at most one transaction apart.
pub(crate) fn beside_transactions(initiator: &EndReport, in_flight: f64) -> f64 {
    let rtt = initiator.rtt.as_ref().expect("transactions have times");
    let [within, longest] = [rtt.mean_ns() * rtt.count() as f64, rtt.max() as f64].map(|ns| ns / 1e9);
    let loops = in_flight * initiator.seconds;
    assert!(within <= 1.02 * loops + 2.0 * in_flight * longest, "{within} s within transactions of {loops}");
    1.0 - within / loops
}

/// Runs both ends. `meanwhile` receives the responder's place and the cancel switches of the initiator and the
/// responder, before the initiator starts.
pub(crate) fn both_whole(
    spec: &TestSpec,
    setup: &EndSetup,
    tokens: [Token; 2],
    meanwhile: impl FnOnce(&Target, [Cancel; 2]),
) -> [Result<EndReport, Failed>; 2] {
    let switches = [Cancel::new(), Cancel::new()];
    let responder = Responder::bind(spec, setup, tokens[1]).unwrap();
    let target = responder.target();
    thread::scope(|scope| {
        let served = scope.spawn(|| responder.serve(&switches[1]));
        meanwhile(&target, switches.clone());
        let initiated = whole(spec, setup, &target, tokens[0], None, &switches[0]);
        [initiated, served.join().unwrap()]
    })
}

pub(crate) fn both_with(
    spec: &TestSpec,
    setup: &EndSetup,
    tokens: [Token; 2],
    meanwhile: impl FnOnce(u16, [Cancel; 2]),
) -> [Outcome; 2] {
    let meanwhile = |target: &Target, switches| match target {
        Target::Ip(address) => meanwhile(address.port(), switches),
        _ => meanwhile(0, switches),
    };
    both_whole(spec, setup, tokens, meanwhile).map(|outcome| outcome.map_err(|failed| failed.error))
}

pub(crate) fn both(spec: &TestSpec, setup: &EndSetup) -> [EndReport; 2] {
    let token = Token::random();
    match both_with(spec, setup, [token, token], |_, _| {}) {
        [Ok(initiator), Ok(responder)] => [initiator, responder],
        [initiator, responder] => panic!("{:?}\n{:?}\n{spec:?}", initiator.err(), responder.err()),
    }
}

/// Tests that measure times hold this lock, because other tests keep the CPUs busy.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Cancels after a while, from its own thread.
pub(crate) fn cancel_in(millis: u64, switch: Cancel) {
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(millis));
        switch.cancel();
    });
}
