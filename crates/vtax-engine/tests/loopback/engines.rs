//! Tests that hold on every engine: the same workloads, several flows on a thread, very many flows.

use vtax_model::{
    measurement::EndReport,
    options::{Engine, TestOptions},
    station::{EndSetup, Station},
    workload::{Direction, TestSpec, Transport},
};

use crate::pair::*;

const READY: [Engine; 3] = [Engine::Epoll, Engine::BusyPoll, Engine::IoUring];

fn threads(spec: TestSpec, threads: u32) -> TestSpec {
    TestSpec { options: TestOptions { threads: Some(threads), ..spec.options }, ..spec }
}

/// Checks the reports of both ends with one request in flight in each flow. Returns the share of time outside of
/// transactions.
fn check_rr(spec: &TestSpec, [initiator, responder]: &[EndReport; 2]) -> f64 {
    let rtt = initiator.rtt.as_ref().expect("transactions have times");
    assert!(initiator.transactions >= u64::from(spec.streams), "{}", initiator.transactions);
    assert_eq!(rtt.count(), initiator.transactions);
    assert!(initiator.started_ns > 0 && responder.started_ns > 0);
    assert!(responder.bytes >= initiator.bytes, "{} of {}", responder.bytes, initiator.bytes);
    assert!(initiator.lost == 0 || spec.transport == Transport::Udp, "{} lost", initiator.lost);
    beside_transactions(initiator, spec.streams.into())
}

#[test]
fn transactions_on_each_engine() {
    let _alone = alone();
    for engine in ENGINES {
        for transport in [Transport::Tcp, Transport::Udp] {
            for (request, response) in [(1, 1), (200, 3000)] {
                let spec = on(engine, spec(transport, rr(request, response), 1));
                let case = format!("{engine} {transport} {request}");
                assert_least(0.02, &case, || check_rr(&spec, &both(&spec, &setup())));
            }
        }
    }
}

#[test]
fn several_flows_share_a_thread() {
    let _alone = alone();
    for engine in READY {
        for transport in [Transport::Tcp, Transport::Udp] {
            let spec = threads(on(engine, spec(transport, rr(1, 1), 12)), 1);
            assert_least(0.26, &format!("{engine} {transport}"), || {
                let reports = both(&spec, &setup());
                assert!(reports.iter().all(|report| report.threads.len() == 1));
                check_rr(&spec, &reports)
            });
        }
    }
}

#[test]
fn flows_are_dealt_to_threads_and_threads_to_cpus() {
    let _alone = alone();
    let first = vtax_sys::cpu::allowed_cpus().unwrap().iter().next().unwrap();
    let setup = EndSetup { cpus: vec![first, first, first], ..setup() };
    let spec = on(Engine::Epoll, spec(Transport::Tcp, rr(1, 1), 7));
    let reports = both(&spec, &setup);
    check_rr(&spec, &reports);
    for report in &reports {
        assert_eq!(report.threads.iter().map(|thread| thread.cpu).collect::<Vec<_>>(), [Some(first); 3]);
    }
}

#[test]
fn streams_on_each_engine() {
    let _alone = alone();
    for engine in READY {
        for (transport, message) in [(Transport::Tcp, 1500), (Transport::Tcp, 1 << 20), (Transport::Udp, 1472)] {
            for streams in [1, 4] {
                let spec = on(engine, spec(transport, stream(message), streams));
                let [sender, receiver] = both(&spec, &setup());
                assert!(sender.bytes > 0 && receiver.bytes > 0, "{spec:?}");
                assert!(receiver.seconds > 0.0, "{spec:?}: {}", receiver.seconds);
                assert_eq!(receiver.reordered, 0);
            }
        }
    }
}

#[test]
fn large_messages_do_not_block_a_thread() {
    let _alone = alone();
    for engine in READY {
        let spec = lasting(threads(on(engine, spec(Transport::Tcp, rr(3 << 20, 2 << 20), 3)), 1), 400);
        let [initiator, _] = both(&spec, &setup());
        assert!(initiator.transactions > 0, "{}", initiator.transactions);
    }
}

#[test]
fn streams_of_each_direction() {
    let _alone = alone();
    for engine in ENGINES {
        for (transport, message) in [(Transport::Tcp, 64 << 10), (Transport::Udp, 1200)] {
            let spec = on(engine, spec(transport, directed(message, Direction::Reverse), 2));
            let [receiver, sender] = both(&spec, &setup());
            assert!(receiver.bytes > 0 && sender.bytes > 0);
            assert_eq!((receiver.sent_bytes, sender.sent_bytes), (0, 0));
            if transport == Transport::Udp {
                let dropped = sender.whole_flow - receiver.whole_flow;
                assert_eq!(dropped, receiver.socket_drops, "{} sent", sender.whole_flow);
            }
        }
    }
}

#[test]
fn streams_run_in_both_directions_simultaneously() {
    let _alone = alone();
    for engine in ENGINES {
        for (transport, message) in [(Transport::Tcp, 64 << 10), (Transport::Udp, 1200)] {
            let spec = on(engine, spec(transport, directed(message, Direction::Both), 2));
            for report in both(&spec, &setup()) {
                assert!(report.bytes > 0 && report.sent_bytes > 0, "{engine} {report:?}");
                // Flows that open their window later than the first flow of their thread have a shorter one.
                assert!(report.seconds > 0.0, "{}", report.seconds);
            }
        }
    }
}

/// The machine may be compiling at the same time. The test must end, and every message must be counted.
fn many(engine: Engine, flows: u32, transport: Transport) {
    let _alone = alone();
    let spec = lasting(on(engine, spec(transport, rr(1, 1), flows)), 1_500);
    let [initiator, responder] = both(&spec, &EndSetup::new(Station::Ip(LOOPBACK)));
    let rtt = initiator.rtt.as_ref().unwrap();
    assert_eq!(rtt.count(), initiator.transactions);
    assert!(initiator.transactions > 0, "{}", initiator.transactions);
    assert!(responder.bytes > 0);
}

/// Both ends are in one process, whose limit on open files may be as low as 20,000.
#[test]
fn nearly_ten_thousand_flows_over_tcp() {
    many(Engine::Epoll, 9_900, Transport::Tcp);
}

#[test]
fn two_thousand_flows_over_udp() {
    many(Engine::Epoll, 2_000, Transport::Udp);
}

#[test]
fn thousands_of_flows_on_rings() {
    many(Engine::IoUring, 9_900, Transport::Tcp);
    many(Engine::IoUring, 2_000, Transport::Udp);
}
