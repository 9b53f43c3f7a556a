//! Options of transactions and streams: bursts, the open loop, gaps, manners, rates.

use std::time::{Duration, Instant};

use vtax_engine::EngineError;
use vtax_model::{
    measurement::EndReport,
    options::{ArrivalProcess, Arrivals, Burst, Engine, Manners, RequestRate, SocketOptions, TestOptions},
    units::{BitRate, ByteSize, Span},
    workload::{TestSpec, Transport},
};

use crate::pair::*;

/// Engines whose times are meaningful if two ends share two CPUs with other programs. An engine that spins at both ends
/// loses its CPU for a time slice whenever something else runs.
const CALM: [Engine; 3] = [Engine::Blocking, Engine::Epoll, Engine::IoUring];

fn ms(millis: u64) -> Span {
    Span::from_millis(millis)
}

fn open_loop(per_second: u32, process: ArrivalProcess) -> TestOptions {
    let arrivals = RequestRate::new(per_second).map(|per_second| Arrivals { per_second, process });
    TestOptions { arrivals, ..TestOptions::default() }
}

fn changed(spec: TestSpec, change: impl FnOnce(&mut TestOptions)) -> TestSpec {
    let mut options = spec.options;
    change(&mut options);
    TestSpec { options, ..spec }
}

#[test]
fn bursts_keep_several_in_flight() {
    let _alone = alone();
    for engine in ENGINES {
        for transport in [Transport::Tcp, Transport::Udp] {
            for (request, response) in [(1, 1), (100, 1400)] {
                let burst = TestOptions { engine, burst: Burst::try_from(16).unwrap(), ..TestOptions::default() };
                let spec = with(spec(transport, rr(request, response), 2), burst);
                let [initiator, _] = both(&spec, &setup());
                let rtt = initiator.rtt.as_ref().unwrap();
                assert_eq!(rtt.count(), initiator.transactions);
                // Little's law: this many requests were in flight at any time.
                let flying = 16.0 * (1.0 - beside_transactions(&initiator, 32.0));
                assert!(flying > 4.0, "{engine} {transport} {request}: {flying} in flight");
            }
        }
    }
}

/// Neither end may stop reading because it can't send: the messages in flight are far longer than the socket buffers.
#[test]
fn a_burst_of_large_messages_ends() {
    let _alone = alone();
    for engine in ENGINES {
        let burst = TestOptions { engine, burst: Burst::try_from(32).unwrap(), ..TestOptions::default() };
        let spec = lasting(with(spec(Transport::Tcp, rr(1 << 20, 1 << 20), 1), burst), 400);
        let [initiator, _] = both(&spec, &setup());
        assert!(initiator.transactions > 0);
    }
}

#[test]
fn the_open_loop_keeps_its_rate() {
    let _alone = alone();
    for engine in CALM {
        for transport in [Transport::Tcp, Transport::Udp] {
            for process in [ArrivalProcess::Poisson, ArrivalProcess::Fixed] {
                let options = TestOptions { engine, ..open_loop(2_000, process) };
                let spec = lasting(with(spec(transport, rr(8, 8), 4), options), 500);
                let [initiator, _] = both(&spec, &setup());
                let (due, sent) = (initiator.rtt.unwrap(), initiator.rtt_from_send.unwrap());
                assert_eq!((due.count(), sent.count()), (initiator.transactions, initiator.transactions));
                // The mean is 1000, with a Poisson deviation of 32.
                let due_in_all = initiator.transactions + initiator.lost;
                assert!((850..1150).contains(&due_in_all), "{engine} {due_in_all}");
                assert!((0.45..0.55).contains(&initiator.seconds), "{}", initiator.seconds);
                assert!(due.mean_ns() >= sent.mean_ns() * 0.99, "{} {}", due.mean_ns(), sent.mean_ns());
                assert!(initiator.lost == 0 || transport == Transport::Udp, "{} lost", initiator.lost);
            }
        }
    }
}

/// Half of the requests that are due while the responder stalls wait for half of the stall or more. An
/// initiator that waits for each response would have sent only one of them.
#[test]
fn a_stall_delays_all_requests_that_were_due() {
    let _alone = alone();
    for engine in CALM {
        for transport in [Transport::Tcp, Transport::Udp] {
            let stall = Manners { stall: Some(ms(200)), ..Manners::default() };
            let options = TestOptions { engine, responder: stall, ..open_loop(1_000, ArrivalProcess::Fixed) };
            let spec = lasting(with(spec(transport, rr(8, 8), 1), options), 600);
            let [initiator, _] = both(&spec, &setup());
            let slow = |report: &EndReport| {
                let rtt = report.rtt.as_ref().unwrap();
                rtt.recorded().filter(|(ns, _)| *ns > 100_000_000).map(|(_, count)| count).sum::<u64>()
            };
            assert!(slow(&initiator) + initiator.lost >= 90, "{engine} {transport}: {}", slow(&initiator));
            assert!(initiator.rtt.as_ref().unwrap().max() >= 195_000_000);
            assert!(
                initiator.transactions + initiator.lost >= 598,
                "{} lost {}",
                initiator.transactions,
                initiator.lost
            );

            let closed = changed(spec, |options| options.arrivals = None);
            let [initiator, _] = both(&closed, &setup());
            // Sequentially, no more fit into the window and the stall, whatever else the machine does.
            let expected = if transport == Transport::Udp { 0..9 } else { 1..9 };
            assert!(expected.contains(&slow(&initiator)), "{}", slow(&initiator));
        }
    }
}

/// With every engine, the stall is the longest silence, to the requests before and after it.
#[test]
fn a_stall_is_the_longest_silence() {
    let _alone = alone();
    for engine in CALM {
        let stall = Manners { stall: Some(ms(500)), ..Manners::default() };
        let outage = Some(ms(5_000));
        let options = TestOptions { engine, outage, responder: stall, ..open_loop(1_000, ArrivalProcess::Fixed) };
        let spec = lasting(with(spec(Transport::Udp, rr(32, 32), 1), options), 1_000);
        // An answer is late on a busy machine, but none is early.
        assert_least(503e6, &format!("{engine}"), || {
            let [initiator, _] = both(&spec, &setup());
            let silence = initiator.silences[0];
            assert!(silence.length() >= ms(499).0, "{engine} {silence:?}");
            assert!(silence.next_due_ns < silence.from_ns + 10_000_000, "{engine} the first of those that waited");
            silence.length().as_nanos() as f64
        });
    }
}

/// Requests in flight or overdue at the end of the window count as well.
#[test]
fn a_stall_at_the_end_of_the_window_is_not_cut_off() {
    let _alone = alone();
    let stall = Manners { stall: Some(ms(400)), ..Manners::default() };
    let options = TestOptions { responder: stall, ..open_loop(1_000, ArrivalProcess::Fixed) };
    let spec = lasting(with(spec(Transport::Tcp, rr(8, 8), 1), options), 300);
    let [initiator, _] = both(&spec, &setup());
    assert_eq!(initiator.transactions, 300);
    assert!((0.29..0.31).contains(&initiator.seconds), "{}", initiator.seconds);
    let rtt = initiator.rtt.unwrap();
    assert!(rtt.percentile(50.0) < 400_000_000 && rtt.max() > 390_000_000, "{}", rtt.max());
}

/// The rate is higher than the path allows. Requests that could not be sent in time are lost, and the test ends.
#[test]
fn an_excessive_rate_is_reported() {
    let _alone = alone();
    let delay = Manners { delay: Some(ms(20)), ..Manners::default() };
    let options = TestOptions { responder: delay, ..open_loop(100, ArrivalProcess::Fixed) };
    let spec = lasting(with(spec(Transport::Udp, rr(8, 8), 1), options), 300);
    let [initiator, _] = both(&spec, &setup());
    assert_eq!(initiator.transactions + initiator.lost, 30);
    assert!(initiator.rtt.unwrap().max() > 250_000_000);
}

#[test]
fn a_gap_is_not_part_of_a_round_trip() {
    let _alone = alone();
    for engine in CALM {
        for transport in [Transport::Tcp, Transport::Udp] {
            let options = TestOptions { engine, gap: Some(ms(5)), ..TestOptions::default() };
            let spec = lasting(with(spec(transport, rr(1, 1), 2), options), 200);
            let [initiator, _] = both(&spec, &setup());
            assert!((1..=82).contains(&initiator.transactions), "{engine} {}", initiator.transactions);
            assert!(initiator.rtt.unwrap().min() < 4_000_000);
        }
    }
}

/// The answer is never early. It is in time if the machine allows that.
#[test]
fn a_delayed_answer_is_late_by_the_delay() {
    let _alone = alone();
    for engine in CALM {
        for transport in [Transport::Tcp, Transport::Udp] {
            let delay = Manners { delay: Some(ms(3)), ..Manners::default() };
            let options = TestOptions { engine, responder: delay, ..TestOptions::default() };
            assert_least(5e6, &format!("{engine} {transport}"), || {
                let [initiator, _] = both(&lasting(with(spec(transport, rr(1, 1), 1), options), 300), &setup());
                let least = initiator.rtt.unwrap().min();
                assert!(least >= 2_990_000, "{least}");
                least as f64
            });
        }
    }
}

#[test]
fn streams_keep_to_their_rate() {
    let _alone = alone();
    for engine in CALM {
        for (transport, message) in [(Transport::Tcp, 1000), (Transport::Udp, 1000)] {
            // 1000 messages per second in each of two flows.
            let options = TestOptions { engine, bitrate: BitRate::new(8_000_000), ..TestOptions::default() };
            let spec = lasting(with(spec(transport, stream(message), 2), options), 500);
            // A delayed sender skips what was due in the meantime, and a delayed receiver finds more than was due.
            assert_least(0.15, &format!("{engine} {transport}"), || {
                let [sender, receiver] = both(&spec, &setup());
                let off = |report: &EndReport| report.bytes as f64 / report.seconds / 2_000_000.0 - 1.0;
                assert!(off(&sender) < 0.03, "{engine} {transport}: {}", off(&sender));
                let dropped = receiver.socket_drops;
                assert!(receiver.lost <= dropped, "{} lost, {dropped} without room", receiver.lost);
                off(&sender).abs().max(off(&receiver).abs())
            });
        }
    }
}

#[test]
fn every_datagram_of_a_stream_is_accounted_for() {
    let _alone = alone();
    for engine in ENGINES {
        let spec = on(engine, spec(Transport::Udp, stream(200), 3));
        let [sender, receiver] = both(&spec, &setup());
        assert!(sender.whole_flow > 0);
        assert_eq!(sender.whole_flow, receiver.whole_flow + receiver.socket_drops, "{engine}");
        assert_eq!(sender.socket_drops, 0);
    }
}

#[test]
fn a_receiver_without_space_reports_its_drops() {
    let _alone = alone();
    let socket = SocketOptions { receive_buffer: Some(ByteSize(4_096)), ..SocketOptions::default() };
    let spec = with(spec(Transport::Udp, stream(1_400), 1), TestOptions { socket, ..TestOptions::default() });
    let [sender, receiver] = both(&spec, &setup());
    assert!(receiver.socket_drops > 0, "{} sent", sender.whole_flow);
    assert_eq!(sender.whole_flow, receiver.whole_flow + receiver.socket_drops);
}

/// Checks what holds however often the engine's thread is preempted.
#[test]
fn a_spinning_engine_takes_every_option() {
    let _alone = alone();
    let engine = Engine::BusyPoll;
    let gap = TestOptions { engine, gap: Some(ms(1)), ..TestOptions::default() };
    let open = TestOptions { engine, ..open_loop(500, ArrivalProcess::Fixed) };
    for transport in [Transport::Tcp, Transport::Udp] {
        let [initiator, _] = both(&lasting(with(spec(transport, rr(8, 8), 1), gap), 200), &setup());
        assert!((1..=200).contains(&initiator.transactions), "{}", initiator.transactions);
        let [initiator, _] = both(&lasting(with(spec(transport, rr(8, 8), 2), open), 200), &setup());
        assert_eq!(initiator.transactions + initiator.lost, 100);
        let paced = TestOptions { engine, bitrate: BitRate::new(8_000_000), ..TestOptions::default() };
        // A sender that was preempted before the window catches up within it.
        let begun = Instant::now();
        let [sender, _] = both(&lasting(with(spec(transport, stream(1_000), 1), paced), 200), &setup());
        assert!(sender.bytes as f64 <= 1_000_000.0 * begun.elapsed().as_secs_f64() + 2_000.0, "{}", sender.bytes);
    }
}

#[test]
fn socket_options_are_set_or_refused_by_name() {
    let chosen = SocketOptions {
        nodelay: Some(false),
        send_buffer: Some(ByteSize(200_000)),
        receive_buffer: Some(ByteSize(200_000)),
        congestion: Some("reno".parse().unwrap()),
        dscp: Some("af21".parse().unwrap()),
        pacing: BitRate::new(10_000_000_000),
        busy_poll: Some(Span(Duration::ZERO)),
    };
    let options = TestOptions { socket: chosen, ..TestOptions::default() };
    let [initiator, _] = both(&with(spec(Transport::Tcp, rr(1, 1), 1), options), &setup());
    assert!(initiator.transactions > 0);

    let unknown = SocketOptions { congestion: Some("no_such_one".parse().unwrap()), ..SocketOptions::default() };
    let options = TestOptions { socket: unknown, ..TestOptions::default() };
    let token = vtax_sys::token::Token::random();
    let refused = vtax_engine::Responder::bind(&with(spec(Transport::Tcp, rr(1, 1), 1), options), &setup(), token);
    let error = refused.err().unwrap();
    assert!(matches!(error, EngineError::NoCongestionControl(_)), "{error}");
}

/// Six bits can't distinguish two hundred requests.
#[test]
fn datagrams_without_room_for_their_number_are_refused() {
    for options in [
        TestOptions { burst: Burst::try_from(200).unwrap(), ..TestOptions::default() },
        open_loop(100_000, ArrivalProcess::Poisson),
    ] {
        let bind = |bytes, transport| {
            let spec = with(spec(transport, rr(bytes, bytes), 1), options);
            vtax_engine::Responder::bind(&spec, &setup(), vtax_sys::token::Token::random()).err()
        };
        let error = bind(1, Transport::Udp).unwrap();
        assert!(matches!(error, EngineError::Unsupported { .. }), "{error}");
        assert!(bind(8, Transport::Udp).is_none() && bind(1, Transport::Tcp).is_none());
    }
}

/// A responder stops in the middle of a sample and continues after its end. An earlier version then reported
/// half of the time, and an ordinary round trip as the longest one.
#[test]
fn an_outage_that_lasts_to_the_end_of_a_sample_is_seen() {
    let _alone = alone();
    for (engine, transport) in ENGINES.iter().flat_map(|engine| [(*engine, Transport::Tcp), (*engine, Transport::Udp)])
    {
        let stall = Manners { stall: Some(ms(400)), ..Manners::default() };
        let options = TestOptions { engine, responder: stall, ..TestOptions::default() };
        let [initiator, _] = both(&with(lasting(spec(transport, rr(1, 1), 1), 300), options), &setup());
        assert!(initiator.seconds >= 0.3, "{transport} {engine}: {} s of the time asked for", initiator.seconds);
        let longest = initiator.rtt.as_ref().map_or(0, |rtt| rtt.max());
        // Over UDP the request of the outage is lost, and the report says that instead.
        assert!(longest >= 300_000_000 || initiator.lost > 0, "{transport} {engine}: {longest} ns");
    }
}
