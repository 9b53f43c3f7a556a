//! Connections for one transaction each (crr), or for none (cc).

use vtax_engine::EngineError;
use vtax_model::{
    measurement::EndReport,
    options::{Engine, TestOptions},
    units::Span,
    workload::{TestSpec, Transport, Workload},
};
use vtax_sys::token::Token;

use crate::pair::*;

fn check(spec: &TestSpec, [initiator, responder]: &[EndReport; 2], bytes: u64) {
    let rtt = initiator.rtt.as_ref().expect("transactions have times");
    assert!(initiator.transactions > 0 && rtt.count() == initiator.transactions, "{}", initiator.transactions);
    assert_eq!(initiator.bytes, initiator.transactions * bytes);
    assert!(responder.threads.iter().any(|thread| thread.user + thread.system > 0.0), "{responder:?}");
    beside_transactions(initiator, spec.streams.into());
    assert!(initiator.started_ns > 0 && initiator.warmup.seconds > 0.0);
}

#[test]
fn a_connection_for_each_transaction() {
    let _alone = alone();
    for engine in ENGINES {
        for (request, response) in [(1, 1), (700, 20_000)] {
            for streams in [1, 8] {
                let spec = on(engine, spec(Transport::Tcp, crr(request, response), streams));
                check(&spec, &both(&spec, &setup()), request + response);
            }
        }
    }
}

#[test]
fn connections_without_a_transaction() {
    let _alone = alone();
    for engine in ENGINES {
        for streams in [1, 8] {
            let spec = on(engine, spec(Transport::Tcp, Workload::Cc, streams));
            check(&spec, &both(&spec, &setup()), 0);
        }
    }
}

#[test]
fn a_responder_of_connections_that_dies_is_noticed() {
    let _alone = alone();
    for engine in ENGINES {
        for (workload, ended) in [(crr(1, 1), 1), (Workload::Cc, 1), (crr(1, 1), 0)] {
            let spec = lasting(on(engine, spec(Transport::Tcp, workload, 2)), UNNOTICED);
            let token = Token::random();
            let outcomes =
                both_with(&spec, &setup(), [token, token], |_, switches| cancel_in(300, switches[ended].clone()));
            assert!(matches!(outcomes[ended], Err(EngineError::Cancelled)), "{:?}", outcomes[ended]);
            let error = outcomes.into_iter().nth(1 - ended).unwrap().unwrap_err();
            assert!(matches!(error, EngineError::PeerGone { .. } | EngineError::PeerSilent { .. }), "{error:?}");
        }
    }
}

#[test]
fn many_connections_at_a_time() {
    let _alone = alone();
    for engine in [Engine::Epoll, Engine::IoUring] {
        let spec = lasting(on(engine, spec(Transport::Tcp, crr(1, 1), 300)), 600);
        let [initiator, _] = both(&spec, &setup());
        assert!(initiator.transactions > 0, "{engine} {}", initiator.transactions);
    }
}

#[test]
fn connections_have_a_series_and_a_steady_state() {
    let _alone = alone();
    let options = TestOptions { interval: Some(Span::from_millis(50)), ..TestOptions::default() };
    let spec = with(spec(Transport::Tcp, crr(1, 1), 2), options);
    let warmup = vtax_model::workload::Warmup::UntilSteady { most: Span::from_millis(400) };
    let [initiator, responder] = both(&TestSpec { warmup, ..spec }, &setup());
    assert!(initiator.warmup.steady.is_some());
    let counted: u64 = initiator.series.iter().map(|interval| interval.transactions).sum();
    assert_eq!(counted, initiator.transactions);
    assert!(responder.series.len() >= 3);
}
