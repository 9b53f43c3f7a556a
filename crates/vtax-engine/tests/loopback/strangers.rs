//! Unauthenticated peers that connect to a test of connections without its token, while it runs.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    sync::mpsc,
    thread,
    time::Duration,
};

use vtax_model::{
    measurement::EndReport,
    options::Engine,
    workload::{TestSpec, Transport, Workload},
};
use vtax_sys::token::Token;

use crate::pair::*;

/// Far below the time limit for showing a token, and far above the delays of a busy machine.
const NOTICEABLE: Duration = Duration::from_secs(2);

/// Behaviour of an unauthenticated peer after it has connected.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Conduct {
    Silent,
    /// As long as a token and a request, or longer.
    Garbage,
    /// A part of a token.
    Part,
    LeavesAtOnce,
}

const CONDUCTS: [Conduct; 4] = [Conduct::Silent, Conduct::Garbage, Conduct::Part, Conduct::LeavesAtOnce];

fn connect(port: u16, conduct: Conduct) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(target(port)).unwrap();
    let said: &[u8] = match conduct {
        Conduct::Silent => &[],
        Conduct::Garbage => &[0x5a; 1000],
        Conduct::Part => &[0x5a; 7],
        Conduct::LeavesAtOnce => return None,
    };
    let _ = stream.write_all(said);
    Some(stream)
}

/// Nothing arrived, and the connection has ended.
fn is_turned_away(mut stream: TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
    match stream.read(&mut [0; 16]) {
        Ok(len) => len == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// Runs a test during which unauthenticated peers connect; they stay until it is over.
fn amid(conducts: &[Conduct], spec: &TestSpec) -> [EndReport; 2] {
    let (done, stay) = mpsc::channel();
    let conducts = conducts.to_vec();
    let token = Token::random();
    let mut party = None;
    let outcomes = both_with(spec, &setup(), [token, token], |port, _| {
        party = Some(thread::spawn(move || {
            thread::sleep(Duration::from_millis(200));
            let strangers: Vec<_> = conducts.iter().filter_map(|conduct| connect(port, *conduct)).collect();
            let _: Result<(), _> = stay.recv();
            assert!(strangers.into_iter().all(is_turned_away), "an unauthenticated peer was answered, or not dropped");
        }));
    });
    drop(done);
    party.unwrap().join().unwrap();
    outcomes.map(|outcome| outcome.unwrap())
}

/// Returns the longest time.
fn check(spec: &TestSpec, strangers: usize, [initiator, responder]: &[EndReport; 2]) -> Duration {
    let case = format!("{} {:?} {strangers}", spec.options.engine, spec.workload);
    let rtt = initiator.rtt.as_ref().unwrap();
    assert!(rtt.count() == initiator.transactions && initiator.transactions > 0, "{case}");
    assert_eq!((responder.strangers, initiator.strangers), (strangers as u64, 0), "{case}");
    Duration::from_nanos(rtt.max())
}

/// A busy machine occasionally delays a connection. A responder that waits for unauthenticated peers would delay
/// connections each time.
fn run(spec: &TestSpec, conducts: &[Conduct]) {
    let mut longest = (0..10).map(|_| check(spec, conducts.len(), &amid(conducts, spec)));
    assert!(longest.any(|longest| longest < NOTICEABLE), "{} {:?}", spec.options.engine, spec.workload);
}

fn lasting_long_enough(workload: Workload, engine: Engine, streams: u32) -> TestSpec {
    lasting(on(engine, spec(Transport::Tcp, workload, streams)), 900)
}

#[test]
fn four_silent_strangers_take_no_time() {
    let _alone = alone();
    for engine in ENGINES {
        run(&lasting_long_enough(crr(1, 1), engine, 1), &[Conduct::Silent; 4]);
    }
}

#[test]
fn a_hundred_and_twenty_silent_strangers_take_no_time_from_crr_or_cc() {
    let _alone = alone();
    for workload in [crr(1, 1), Workload::Cc] {
        for engine in ENGINES {
            run(&lasting_long_enough(workload, engine, 2), &[Conduct::Silent; 120]);
        }
    }
}

#[test]
fn strangers_of_every_kind_get_no_answer_and_are_counted() {
    let _alone = alone();
    for workload in [crr(700, 20_000), Workload::Cc] {
        for engine in ENGINES {
            run(&lasting_long_enough(workload, engine, 2), &CONDUCTS.repeat(10));
        }
    }
}

/// There are more unauthenticated peers than places.
#[test]
fn strangers_that_fill_all_places_are_released() {
    let _alone = alone();
    for engine in ENGINES {
        run(&lasting(on(engine, spec(Transport::Tcp, crr(1, 1), 1)), 2_500), &[Conduct::Silent; 2_000]);
    }
}

#[test]
fn a_test_without_strangers_counts_none() {
    let spec = spec(Transport::Tcp, crr(1, 1), 2);
    assert!(both(&spec, &setup()).iter().all(|report| report.strangers == 0));
}
