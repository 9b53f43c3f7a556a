//! Figures by interval, the warm-up, and starts in parallel.

use std::{thread, time::Duration};

use vtax_engine::{Cancel, Initiator, Responder};
use vtax_model::{
    measurement::EndReport,
    options::{Engine, Manners, TestOptions},
    station::Schedule,
    units::Span,
    workload::{Direction, TestSpec, Transport, Warmup},
};
use vtax_sys::{clock::now_ns, token::Token};

use crate::pair::*;

fn each(millis: u64) -> TestOptions {
    TestOptions { interval: Some(Span::from_millis(millis)), ..TestOptions::default() }
}

fn check_whole(report: &EndReport, planned: usize) {
    assert_eq!(report.series.len(), planned);
    for (index, interval) in report.series.iter().enumerate() {
        assert!((interval.at - index as f64 * 0.05).abs() < 1e-9, "{}", interval.at);
    }
    let sum = |of: fn(&vtax_model::measurement::Interval) -> u64| report.series.iter().map(of).sum::<u64>();
    assert_eq!(sum(|interval| interval.transactions), report.transactions);
    assert_eq!(sum(|interval| interval.bytes), report.bytes);
    let cpu: f64 = report.series.iter().map(|interval| interval.cpu).sum();
    let used: f64 = report.threads.iter().map(|thread| thread.user + thread.system).sum();
    // One is from the scheduler's account, the other from ticks.
    assert!((cpu - used).abs() < 0.1 + 0.5 * used, "{cpu} of {used}");
}

#[test]
fn the_intervals_add_up_to_the_whole() {
    let _alone = alone();
    for engine in ENGINES {
        for (transport, workload) in [
            (Transport::Tcp, rr(1, 1)),
            (Transport::Udp, rr(1, 1)),
            (Transport::Tcp, stream(16 << 10)),
            (Transport::Udp, stream(1400)),
        ] {
            let spec = spec(transport, workload, 2);
            let options = TestOptions { engine, ..each(50) };
            let [initiator, responder] = both(&with(spec, options), &setup());
            [&initiator, &responder].into_iter().for_each(|report| check_whole(report, 3));
            let (tcp, one_way) = (transport == Transport::Tcp, spec.workload.kind().is_stream());
            // On a busy machine, a whole interval can pass between two checks.
            let has_window = |report: &EndReport| report.series.iter().any(|interval| interval.cwnd > Some(0.0));
            assert_eq!((has_window(&initiator), has_window(&responder)), (tcp, tcp && !one_way));
        }
    }
}

#[test]
fn percentiles_of_an_interval_are_its_own() {
    let _alone = alone();
    let stall = Manners { stall: Some(Span::from_millis(100)), ..Manners::default() };
    let options = TestOptions { responder: stall, ..each(50) };
    let [initiator, _] = both(&lasting(with(spec(Transport::Tcp, rr(1, 1), 1), options), 400), &setup());
    check_whole(&initiator, 8);
    let slow: Vec<_> = initiator.series.iter().filter_map(|i| i.rtt_ns).filter(|rtt| rtt.max > 99_000_000).collect();
    // Sequentially, no more than five of this length fit into the window, whatever else the machine does.
    assert!(!slow.is_empty() && slow.len() < 6, "{slow:?}");
    for rtt in initiator.series.iter().filter_map(|interval| interval.rtt_ns) {
        assert!(rtt.p50 <= rtt.p90 && rtt.p90 <= rtt.p99 && rtt.p99 <= rtt.max);
    }
}

#[test]
fn a_warm_up_ends_when_it_is_steady_or_out_of_time() {
    let _alone = alone();
    for engine in [Engine::Blocking, Engine::Epoll] {
        for (transport, workload) in
            [(Transport::Tcp, rr(1, 1)), (Transport::Udp, stream(1400)), (Transport::Tcp, stream(65536))]
        {
            for most in [1_000, 60] {
                let warmup = Warmup::UntilSteady { most: Span::from_millis(most) };
                let spec = TestSpec { warmup, ..on(engine, spec(transport, workload, 2)) };
                let [initiator, responder] = both(&spec, &setup());
                let told = initiator.warmup;
                // It takes at least ten bins of 10 ms.
                assert!(told.steady.is_some() && (told.steady == Some(false) || told.seconds > 0.09), "{told:?}");
                assert!(most == 1_000 || told.steady == Some(false));
                let streams = !matches!(workload, vtax_model::workload::Workload::Rr { .. });
                // A responder follows the initiator's marks.
                assert_eq!(responder.warmup.steady.is_some(), streams);
                assert_eq!(told.in_slow_start.is_some(), streams && transport == Transport::Tcp);
                assert!(initiator.seconds > 0.0 && responder.seconds > 0.0);
            }
        }
    }
}

#[test]
fn a_fixed_warm_up_is_reported() {
    let [initiator, _] = both(&spec(Transport::Tcp, rr(1, 1), 1), &setup());
    assert_eq!(initiator.warmup.steady, None);
    assert!(initiator.warmup.seconds >= 0.02, "{:?}", initiator.warmup);
}

/// Two pairs that were admitted one after another start together.
#[test]
fn pairs_begin_at_the_same_moment() {
    let _alone = alone();
    // A busy machine occasionally wakes an end late.
    let mut least = Duration::MAX;
    for (transport, workload) in [
        (Transport::Tcp, rr(1, 1)),
        (Transport::Udp, directed(1000, Direction::Reverse)),
        (Transport::Tcp, directed(1000, Direction::Both)),
        (Transport::Tcp, crr(1, 1)),
    ] {
        let (spec, setup, cancel) = (spec(transport, workload, 2), setup(), &Cancel::new());
        let responders = [(); 2].map(|()| {
            let token = Token::random();
            (token, Responder::bind(&spec, &setup, token).unwrap())
        });
        thread::scope(|scope| {
            let ends = responders.map(|(token, responder)| {
                let target = responder.target();
                let served = scope.spawn(move || responder.serve(cancel));
                (Initiator::connect(&spec, &setup, &target, token, cancel).unwrap(), served)
            });
            let start = now_ns() + 300_000_000;
            let running = ends.map(|(end, served)| {
                (
                    scope.spawn(move || end.run(Schedule { at: Some(start), ..Schedule::default() }, None, cancel)),
                    served,
                )
            });
            for (initiated, served) in running {
                let initiated = initiated.join().unwrap().unwrap();
                assert!(initiated.started_ns >= start, "{transport}: {} early", start - initiated.started_ns);
                least = least.min(Duration::from_nanos(initiated.started_ns - start));
                let served = served.join().unwrap().unwrap();
                assert!(served.started_ns >= start, "{transport}: {} early", start - served.started_ns);
            }
        });
    }
    assert!(least < Duration::from_millis(50), "{least:?}");
}
