//! Outages that last beyond the measured time. Results must not improve because the end of the outage is cut off.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, OnceLock},
    thread,
    time::{Duration, Instant},
};

use vtax_engine::{Cancel, EngineError};
use vtax_model::{
    measurement::EndReport,
    options::{Burst, Engine, Manners, TestOptions},
    station::Target,
    units::Span,
    workload::{TestSpec, Transport, Workload},
};
use vtax_sys::token::Token;

use crate::pair::*;

/// The measured time in milliseconds; the outage begins in the middle of it and lasts beyond it.
const DURATION: u64 = 500;
const FROM: Duration = Duration::from_millis(250);
const OUTAGE: Duration = Duration::from_millis(900);
const FOR_EVER: Duration = Duration::from_secs(60);

/// Time that an answer to this flow is held back; `since` is the time since the window was opened.
type Falters = fn(flow: u32, since: Option<Duration>) -> Duration;

/// No connection is answered during the outage.
fn for_a_while(_: u32, since: Option<Duration>) -> Duration {
    let since = since.filter(|since| *since >= FROM);
    since.map_or(Duration::ZERO, |since| (FROM + OUTAGE).saturating_sub(since))
}

fn for_ever(_: u32, since: Option<Duration>) -> Duration {
    since.filter(|since| *since >= FROM).map_or(Duration::ZERO, |_| FOR_EVER)
}

/// One flow waits from before the window until after it; the others don't.
fn one_flow(flow: u32, since: Option<Duration>) -> Duration {
    if flow == 1 && since.is_none() { OUTAGE } else { Duration::ZERO }
}

/// A responder of connections, written for this test.
struct Faltering {
    listener: TcpListener,
    token: Token,
    falters: Falters,
    opened: OnceLock<Instant>,
}

impl Faltering {
    /// Serves until the initiator reports the end of the window.
    fn serve(self: Arc<Self>, request: bool) {
        let (mut control, _) = self.accept();
        control.write_all(&[6]).unwrap();
        let takes_in = self.clone();
        thread::spawn(move || takes_in.take_in(request));
        let mut mark = [0];
        while control.read_exact(&mut mark).is_ok() {
            self.opened.get_or_init(Instant::now);
            let _ = control.write_all(&mark);
        }
    }

    /// Accepts a connection that shows the token, and returns it with the index of its flow.
    fn accept(&self) -> (TcpStream, u32) {
        let (mut stream, _) = self.listener.accept().unwrap();
        let mut hello = [0; 20];
        stream.read_exact(&mut hello).unwrap();
        assert_eq!(hello[..16], u128::from_str_radix(&self.token.to_string(), 16).unwrap().to_be_bytes());
        (stream, u32::from_le_bytes(hello[16..].try_into().unwrap()))
    }

    fn take_in(self: Arc<Self>, request: bool) {
        loop {
            let (mut stream, flow) = self.accept();
            let answers = self.clone();
            thread::spawn(move || {
                if request && stream.read_exact(&mut [0]).is_err() {
                    return;
                }
                // Asked now, so that a thread which had to wait for a CPU doesn't answer in the outage.
                thread::sleep((answers.falters)(flow, answers.opened.get().map(Instant::elapsed)));
                if request {
                    let _ = stream.write_all(&[0]);
                }
            });
        }
    }
}

fn initiate_against(falters: Falters, spec: &TestSpec) -> Outcome {
    let (listener, token) = (TcpListener::bind("127.0.0.1:0").unwrap(), Token::random());
    let place = Target::Ip(listener.local_addr().unwrap());
    let faltering = Arc::new(Faltering { listener, token, falters, opened: OnceLock::new() });
    let request = spec.workload != Workload::Cc;
    thread::spawn(move || faltering.serve(request));
    initiate(spec, &setup(), &place, token, &Cancel::new())
}

fn longest(report: &EndReport) -> Duration {
    let rtt = report.rtt.as_ref().unwrap();
    assert_eq!(rtt.count(), report.transactions);
    Duration::from_nanos(rtt.max())
}

/// A connection may begin in the middle of the outage, and on a busy machine late in it. An outage that is cut off at
/// the end of the window has lasted for no more than a quarter of a second.
const MOST_OF_IT: Duration = Duration::from_millis(400);

/// A time that is cut off at the end of the window is no longer than the window, whatever else runs. But on a busy
/// machine the initiator may open its window so long after the responder that part of the outage lies before it. Then
/// another attempt decides.
fn assert_outlasts_the_window(engine: Engine, attempt: impl FnMut() -> EndReport) {
    const ATTEMPTS: usize = 10;
    let mut figures = Vec::new();
    let counted = std::iter::repeat_with(attempt).take(ATTEMPTS).any(|report| {
        figures.push((longest(&report), report.seconds));
        longest(&report) > Duration::from_millis(DURATION) && report.seconds >= (FROM + MOST_OF_IT).as_secs_f64()
    });
    assert!(counted, "{engine}: {figures:?}");
}

#[test]
fn an_outage_that_lasts_to_the_end_of_crr_or_cc_is_counted() {
    let _alone = alone();
    for engine in ENGINES {
        for (workload, flows) in [(crr(1, 1), 1), (crr(1, 1), 3), (Workload::Cc, 1)] {
            let spec = lasting(on(engine, spec(Transport::Tcp, workload, flows)), DURATION);
            assert_outlasts_the_window(engine, || initiate_against(for_a_while, &spec).unwrap());
        }
    }
}

#[test]
fn a_connection_that_waits_during_the_whole_window_of_the_others_is_counted() {
    let _alone = alone();
    for engine in [Engine::Epoll, Engine::BusyPoll, Engine::IoUring] {
        let options = TestOptions { engine, threads: Some(1), ..TestOptions::default() };
        let spec = lasting(with(spec(Transport::Tcp, crr(1, 1), 2), options), 200);
        let report = initiate_against(one_flow, &spec).unwrap();
        assert!(longest(&report) >= MOST_OF_IT, "{engine} {:?}", longest(&report));
    }
}

#[test]
fn connections_that_are_never_answered_fail_the_sample() {
    thread::scope(|scope| {
        for engine in ENGINES {
            scope.spawn(move || {
                let spec = lasting(on(engine, spec(Transport::Tcp, crr(1, 1), 1)), DURATION);
                let error = initiate_against(for_ever, &spec).unwrap_err();
                assert!(matches!(error, EngineError::PeerSilent { .. }), "{engine} {error}");
            });
        }
    });
}

/// The responder does nothing from the middle of the window until after its end.
#[test]
fn an_outage_that_lasts_to_the_end_of_a_burst_is_counted() {
    let _alone = alone();
    for engine in ENGINES {
        for (transport, flows) in [(Transport::Tcp, 1), (Transport::Tcp, 2), (Transport::Udp, 1)] {
            let stall = Some(Span::from_millis(OUTAGE.as_millis() as u64));
            let responder = Manners { stall, ..Manners::default() };
            let burst = Burst::try_from(8).unwrap();
            let options = TestOptions { engine, burst, responder, ..TestOptions::default() };
            let spec = lasting(with(spec(transport, rr(8, 8), flows), options), DURATION);
            let [report, _] = both(&spec, &setup());
            assert!(longest(&report) >= MOST_OF_IT, "{engine} {transport} {:?}", longest(&report));
            assert!(report.seconds >= (FROM + MOST_OF_IT).as_secs_f64(), "{engine} {transport} {} s", report.seconds);
        }
    }
}

/// Each place in flight is a closed loop, so the rate follows from the times.
#[test]
fn the_rate_of_a_burst_is_the_sum_over_its_places() {
    let _alone = alone();
    for (transport, engine) in [(Transport::Tcp, Engine::Blocking), (Transport::Udp, Engine::Epoll)] {
        let burst = Burst::try_from(16).unwrap();
        let options = TestOptions { engine, burst, ..TestOptions::default() };
        let [report, _] = both(&with(spec(transport, rr(16, 16), 1), options), &setup());
        let idle = beside_transactions(&report, 16.0);
        assert!(idle < 0.25, "{idle} of the places in flight were empty");
    }
}
