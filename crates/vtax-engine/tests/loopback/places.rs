//! Addresses of ends other than IPv4: IPv6 and the Unix domain.

use std::fs;

use vtax_engine::{EngineError, Initiator, Responder};
use vtax_model::{
    options::Engine,
    station::{EndSetup, Station, Target},
    workload::{Direction, TestSpec, Transport, Workload},
};
use vtax_sys::token::Token;

use crate::pair::*;

fn works(spec: &TestSpec, setup: &EndSetup) {
    for report in both(spec, setup) {
        assert!(report.seconds > 0.0 && report.started_ns > 0, "{spec:?} {report:?}");
    }
}

#[test]
fn every_test_over_ipv6() {
    let _alone = alone();
    let setup = EndSetup::new(Station::Ip("::1".parse().unwrap()));
    for engine in [Engine::Blocking, Engine::Epoll] {
        for transport in [Transport::Tcp, Transport::Udp] {
            works(&on(engine, spec(transport, rr(1, 1), 2)), &setup);
            works(&on(engine, spec(transport, directed(1400, Direction::Both), 1)), &setup);
        }
        works(&on(engine, spec(Transport::Tcp, crr(1, 1), 2)), &setup);
    }
}

#[test]
fn every_test_in_the_unix_domain() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let setup = EndSetup {
        directory: Some(directory.path().to_owned()),
        ..EndSetup::new(Station::Unix(directory.path().to_owned()))
    };
    for engine in ENGINES {
        works(&on(engine, spec(Transport::Unix, rr(1, 1), 3)), &setup);
        works(&lasting(on(engine, spec(Transport::Unix, rr(300_000, 500_000), 1)), 600), &setup);
        for direction in [Direction::Forward, Direction::Reverse, Direction::Both] {
            works(&on(engine, spec(Transport::Unix, directed(16 << 10, direction), 2)), &setup);
        }
        works(&on(engine, spec(Transport::Unix, crr(1, 1), 4)), &setup);
        works(&on(engine, spec(Transport::Unix, Workload::Cc, 1)), &setup);
    }
    works(&spec(Transport::Unix, file(2 << 20), 1), &setup);
    works(&on(Engine::Epoll, spec(Transport::Unix, rr(1, 1), 500)), &setup);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0, "nothing is left");
}

#[test]
fn mismatched_ends_are_refused_by_name() {
    let (token, cancel) = (Token::random(), vtax_engine::Cancel::new());
    let spec = spec(Transport::Tcp, rr(1, 1), 1);
    let six = Target::Ip("[::1]:9".parse().unwrap());
    let error = Initiator::connect(&spec, &setup(), &six, token, &cancel).err().unwrap();
    assert!(matches!(error, EngineError::FamilyMismatch { .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains("127.0.0.1") && message.contains("[::1]:9"), "{message}");

    let unix = TestSpec { transport: Transport::Unix, ..spec };
    assert!(matches!(Responder::bind(&unix, &setup(), token).err().unwrap(), EngineError::FamilyMismatch { .. }));
    let gone = EndSetup::new(Station::Unix("/nonexistent".into()));
    assert!(matches!(Responder::bind(&unix, &gone, token).err().unwrap(), EngineError::File { .. }));
    let nobody = Target::Unix("/nonexistent/s".into());
    let error = Initiator::connect(&unix, &gone, &nobody, token, &cancel).err().unwrap();
    assert!(matches!(error, EngineError::NothingListens { .. }), "{error}");
}
