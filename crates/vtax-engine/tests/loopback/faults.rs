//! Unauthenticated peers, wrong tokens, peers that die, and tests that are cancelled.

use std::{
    io::{ErrorKind, Read, Write},
    net::{IpAddr, TcpListener, TcpStream, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use vtax_engine::{Cancel, EngineError, Responder};
use vtax_model::{
    options::{Burst, Engine, THREADS_MOST, TestOptions},
    station::{EndSetup, Station, Target},
    units::Span,
    workload::{Direction, TestSpec, Transport, Workload},
};
use vtax_sys::{clock::now_ns, token::Token};

use crate::pair::*;

fn stranger(port: u16) -> TcpStream {
    let stream = TcpStream::connect(target(port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
    stream
}

/// Nothing arrived, and the connection has ended.
fn is_turned_away(mut stream: TcpStream) -> bool {
    let mut answer = [0; 16];
    match stream.read(&mut answer) {
        Ok(len) => len == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn strangers_on_the_tcp_port_get_no_answer_and_delay_nobody() {
    // Waiting for an unauthenticated peer takes eight seconds.
    assert_least(5.0, "delayed by unauthenticated peers", || {
        let token = Token::random();
        let begun = Instant::now();
        let mut strangers = vec![];
        let outcomes = both_with(&spec(Transport::Tcp, rr(1, 1), 2), &setup(), [token, token], |port, _| {
            strangers = (0..100).map(|_| stranger(port)).collect();
            for (index, stranger) in strangers.iter_mut().enumerate() {
                // Silent ones, short ones and ones with a wrong token.
                let _ = stranger.write_all(&[0x5a; 20][..index % 3 * 10]);
            }
        });
        let took = begun.elapsed().as_secs_f64();
        for outcome in outcomes {
            outcome.unwrap();
        }
        assert!(strangers.into_iter().all(is_turned_away));
        took
    });
}

#[test]
fn a_silent_stranger_is_dropped_after_a_while() {
    let cancel = Cancel::new();
    let responder = Responder::bind(&spec(Transport::Tcp, rr(1, 1), 1), &setup(), Token::random()).unwrap();
    let port = port(&responder);
    thread::scope(|scope| {
        let served = scope.spawn(|| responder.serve(&cancel));
        let begun = Instant::now();
        assert!(is_turned_away(stranger(port)));
        assert!(begun.elapsed() >= Duration::from_millis(7_500), "{:?}", begun.elapsed());
        cancel.cancel();
        assert!(matches!(served.join().unwrap().unwrap_err().error, EngineError::Cancelled));
    });
}

#[test]
fn a_flow_index_is_admitted_once() {
    let (cancel, token) = (Cancel::new(), Token::random());
    let responder = Responder::bind(&spec(Transport::Tcp, rr(1, 1), 2), &setup(), token).unwrap();
    let port = port(&responder);
    let hello = |index: u32| {
        let secret = u128::from_str_radix(&token.to_string(), 16).unwrap().to_be_bytes();
        let mut stream = stranger(port);
        stream.write_all(&[&secret[..], &index.to_le_bytes()].concat()).unwrap();
        stream
    };
    thread::scope(|scope| {
        let served = scope.spawn(|| responder.serve(&cancel));
        let mut first = hello(0);
        // The first connection is admitted before the others exist.
        thread::sleep(Duration::from_millis(100));
        assert!(is_turned_away(hello(0)));
        assert!(is_turned_away(hello(2)));
        let mut second = hello(1);
        for stream in [&mut first, &mut second] {
            let mut ready = [0];
            stream.read_exact(&mut ready).unwrap();
        }
        drop((first, second));
        assert!(matches!(served.join().unwrap().unwrap_err().error, EngineError::PeerGone { .. }));
    });
}

/// Returns true if an ICMP refusal arrived, which a connected socket reports. An answer never comes.
fn is_refused(socket: &UdpSocket) -> bool {
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let error = socket.recv(&mut [0; 64]).expect_err("no answer to an unauthenticated peer");
    !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[test]
fn a_stranger_on_the_udp_port_never_gets_an_answer() {
    for (workload, streams) in [(rr(1, 1), 2), (stream(8), 1), (rr(21, 1), 1)] {
        let token = Token::random();
        let over = AtomicBool::new(false);
        let spec = lasting(spec(Transport::Udp, workload, streams), 300);
        thread::scope(|scope| {
            let mut heard = None;
            let outcomes = both_with(&spec, &setup(), [token, token], |port, _| {
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                socket.connect(target(port)).unwrap();
                let over = &over;
                heard = Some(scope.spawn(move || {
                    let mut sent = 0;
                    while !over.load(Ordering::Relaxed) {
                        for len in [0, 1, 8, 20, 21, 24, 1000] {
                            let _ = socket.send(&vec![1; len]);
                        }
                        if is_refused(&socket) {
                            return (sent, now_ns());
                        }
                        sent += 1;
                    }
                    (sent, u64::MAX)
                }));
                // Unauthenticated peers come before the first hello and also during the test.
                thread::sleep(Duration::from_millis(50));
            });
            over.store(true, Ordering::Relaxed);
            let [initiator, responder] = outcomes.map(|outcome| outcome.unwrap());
            assert!(initiator.bytes > 0);
            let (sent, refused) = heard.unwrap().join().unwrap();
            assert!(sent > 0);
            // Once the test is over, the port is no longer bound.
            let measured = responder.started_ns + (responder.seconds * 1e9) as u64;
            assert!(refused >= measured, "{} ns before the end", measured - refused);
        });
    }
}

#[test]
fn a_wrong_token_is_refused_over_tcp() {
    let tokens = [Token::random(), Token::random()];
    let [initiator, responder] =
        both_with(&spec(Transport::Tcp, rr(1, 1), 1), &setup(), tokens, |_, [_, responder]| cancel_in(500, responder));
    let error = initiator.unwrap_err();
    assert!(matches!(error, EngineError::Refused { flow: 0, .. }), "{error}");
    assert!(matches!(responder, Err(EngineError::Cancelled)));
}

#[test]
fn a_wrong_token_is_not_answered_over_udp() {
    let tokens = [Token::random(), Token::random()];
    let [initiator, responder] = both_with(&spec(Transport::Udp, rr(1, 1), 1), &setup(), tokens, |_, _| {});
    let error = initiator.unwrap_err();
    assert!(matches!(error, EngineError::Unanswered { .. }), "{error}");
    let error = responder.unwrap_err();
    assert!(matches!(error, EngineError::FlowsMissing { arrived: 0, expected: 1, .. }), "{error}");
}

fn long_tests() -> Vec<TestSpec> {
    let mut specs = vec![];
    for transport in [Transport::Tcp, Transport::Udp] {
        for workload in [rr(1, 1), stream(1400), directed(1400, Direction::Both)] {
            for engine in [Engine::Blocking, Engine::Epoll, Engine::IoUring] {
                specs.push(lasting(on(engine, spec(transport, workload, 2)), UNNOTICED));
            }
        }
        let burst = TestOptions { burst: Burst::try_from(8).unwrap(), ..TestOptions::default() };
        specs.push(lasting(with(spec(transport, rr(8, 8), 2), burst), UNNOTICED));
    }
    specs
}

fn is_loss_of_peer(error: &EngineError) -> bool {
    matches!(error, EngineError::PeerGone { .. } | EngineError::PeerSilent { .. })
}

/// Ends one side in the middle of each test. The other side must notice that.
fn end_one_side(ended: usize) {
    let _alone = alone();
    // Starting all tests at the same time would take longer than the last of them runs.
    for specs in long_tests().chunks(5) {
        end_one_side_of(specs, ended);
    }
}

fn end_one_side_of(specs: &[TestSpec], ended: usize) {
    thread::scope(|scope| {
        for spec in specs {
            scope.spawn(move || {
                let token = Token::random();
                let outcomes = both_with(spec, &setup(), [token, token], |_, switches| {
                    cancel_in(500, switches[ended].clone());
                });
                let [cancelled, left] = if ended == 0 {
                    outcomes
                } else {
                    outcomes.into_iter().rev().collect::<Vec<_>>().try_into().unwrap()
                };
                assert!(matches!(cancelled, Err(EngineError::Cancelled)), "{spec:?}: {cancelled:?}");
                let error = left.unwrap_err();
                assert!(is_loss_of_peer(&error), "{spec:?}: {error}");
            });
        }
    });
}

#[test]
fn a_responder_that_dies_is_noticed() {
    end_one_side(1);
}

#[test]
fn an_initiator_that_dies_is_noticed() {
    end_one_side(0);
}

#[test]
fn an_initiator_that_dies_while_it_creates_its_file_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let setup = EndSetup { directory: Some(directory.path().to_owned()), ..setup() };
    let token = Token::random();
    let spec = spec(Transport::Tcp, file(1 << 30), 1);
    let [initiator, responder] = both_with(&spec, &setup, [token, token], |_, [initiator, _]| cancel_in(30, initiator));
    assert!(matches!(initiator, Err(EngineError::Cancelled)), "{initiator:?}");
    assert!(is_loss_of_peer(&responder.unwrap_err()));
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn waiting_for_a_peer_that_never_comes_can_be_cancelled() {
    for transport in [Transport::Tcp, Transport::Udp] {
        let spec = spec(transport, rr(1, 1), 1);
        let cancel = Cancel::new();
        let responder = Responder::bind(&spec, &setup(), Token::random()).unwrap();
        cancel_in(100, cancel.clone());
        assert!(matches!(responder.serve(&cancel).unwrap_err().error, EngineError::Cancelled));
    }
}

/// Listens, but never accepts or answers.
#[test]
fn waiting_to_be_admitted_can_be_cancelled() {
    let (tcp, udp) = (TcpListener::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    let ports =
        [(Transport::Tcp, tcp.local_addr().unwrap().port()), (Transport::Udp, udp.local_addr().unwrap().port())];
    for (transport, port) in ports {
        let cancel = Cancel::new();
        cancel_in(100, cancel.clone());
        let outcome =
            initiate(&spec(transport, rr(1, 1), 1), &setup(), &Target::Ip(target(port)), Token::random(), &cancel);
        assert!(matches!(outcome, Err(EngineError::Cancelled)), "{outcome:?}");
    }
}

#[test]
fn a_port_where_nothing_listens_is_named() {
    for transport in [Transport::Tcp, Transport::Udp] {
        let spec = spec(transport, rr(1, 1), 1);
        let free = Responder::bind(&spec, &setup(), Token::random()).unwrap().target();
        let error = initiate(&spec, &setup(), &free, Token::random(), &Cancel::new()).unwrap_err();
        assert!(matches!(&error, EngineError::NothingListens { target } if *target == free), "{error}");
    }
}

#[test]
fn impossible_tests_are_refused_immediately() {
    // TEST-NET-1 of RFC 5737: an unused address.
    let elsewhere = EndSetup { station: Station::Ip(IpAddr::from([192, 0, 2, 1])), ..setup() };
    let bind = |spec: &TestSpec, setup: &EndSetup| Responder::bind(spec, setup, Token::random()).err().unwrap();
    for transport in [Transport::Tcp, Transport::Udp] {
        let error = bind(&spec(transport, rr(1, 1), 1), &elsewhere);
        assert!(matches!(error, EngineError::AddressNotHere { .. }), "{error}");
    }
    let refused: [(Transport, Workload, u32); 4] = [
        (Transport::Udp, rr(65_508, 1), 1),
        (Transport::Tcp, stream((64 << 20) + 1), 1),
        (Transport::Tcp, rr(0, 1), 1),
        (Transport::Udp, file(1), 1),
    ];
    for (transport, workload, streams) in refused {
        let error = bind(&spec(transport, workload, streams), &setup());
        assert!(matches!(error, EngineError::Spec(_)), "{error}");
    }
    for streams in [0, THREADS_MOST + 1] {
        let error = bind(&spec(Transport::Tcp, rr(1, 1), streams), &setup());
        assert!(matches!(error, EngineError::Spec(_)), "{error}");
    }
}

/// Admits a flow like a responder, and then does nothing more.
fn lame_responder(token: Token) -> (TcpListener, thread::JoinHandle<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let door = listener.try_clone().unwrap();
    let secret = u128::from_str_radix(&token.to_string(), 16).unwrap().to_be_bytes();
    let admitted = thread::spawn(move || {
        let (mut stream, _) = door.accept().unwrap();
        let mut hello = [0; 20];
        stream.read_exact(&mut hello).unwrap();
        assert_eq!(hello[..16], secret);
        stream.write_all(&[6]).unwrap();
        stream
    });
    (listener, admitted)
}

/// No wait for a responder that doesn't answer, or for a receiver that doesn't read, is endless.
#[test]
fn a_responder_that_stops_reading_is_noticed() {
    thread::scope(|scope| {
        for engine in [Engine::Blocking, Engine::Epoll, Engine::IoUring] {
            for workload in [rr(1, 1), stream(1 << 16)] {
                scope.spawn(move || {
                    let (token, begun) = (Token::random(), Instant::now());
                    let (listener, admitted) = lame_responder(token);
                    let place = Target::Ip(listener.local_addr().unwrap());
                    let spec = lasting(on(engine, spec(Transport::Tcp, workload, 1)), UNNOTICED);
                    let error = initiate(&spec, &setup(), &place, token, &Cancel::new()).unwrap_err();
                    assert!(matches!(error, EngineError::PeerSilent { .. }), "{error}");
                    assert!(begun.elapsed() >= Duration::from_secs(4), "{:?}", begun.elapsed());
                    drop(admitted.join().unwrap());
                });
            }
        }
    });
}

/// Sends a hello, one request and then nothing, without closing.
#[test]
fn an_initiator_that_falls_silent_is_noticed() {
    let (cancel, token) = (Cancel::new(), Token::random());
    for engine in [Engine::Blocking, Engine::Epoll, Engine::IoUring] {
        let responder = Responder::bind(&on(engine, spec(Transport::Tcp, rr(1, 1), 1)), &setup(), token).unwrap();
        let mut stream = stranger(port(&responder));
        let secret = u128::from_str_radix(&token.to_string(), 16).unwrap().to_be_bytes();
        thread::scope(|scope| {
            let served = scope.spawn(|| responder.serve(&cancel));
            stream.write_all(&[&secret[..], &0u32.to_le_bytes(), &[0]].concat()).unwrap();
            let begun = Instant::now();
            let error = served.join().unwrap().unwrap_err().error;
            assert!(matches!(error, EngineError::PeerSilent { .. }), "{error}");
            assert!(begun.elapsed() >= Duration::from_secs(4), "{:?}", begun.elapsed());
        });
    }
}

#[test]
fn figures_measured_before_a_failure_are_kept_and_marked() {
    let _alone = alone();
    for engine in [Engine::Blocking, Engine::Epoll, Engine::IoUring] {
        for workload in [rr(1, 1), stream(1400), crr(1, 1)] {
            let options = TestOptions { engine, interval: Some(Span::from_millis(20)), ..TestOptions::default() };
            let spec = lasting(with(spec(Transport::Tcp, workload, 2), options), 60_000);
            let token = Token::random();
            let outcomes = both_whole(&spec, &setup(), [token, token], |_, [_, responder]| cancel_in(600, responder));
            for outcome in outcomes {
                let failed = outcome.unwrap_err();
                let partial = failed.partial.unwrap_or_else(|| panic!("{engine} {workload:?} {}", failed.error));
                assert!(partial.bytes > 0 && (0.01..60.0).contains(&partial.seconds), "{partial:?}");
                assert!(!partial.threads.is_empty() && partial.series.len() >= 2);
                if let Some(rtt) = &partial.rtt {
                    assert_eq!(rtt.count(), partial.transactions);
                }
            }
        }
    }
}

#[test]
fn a_test_that_never_began_has_no_partial_record() {
    let free = Responder::bind(&spec(Transport::Tcp, rr(1, 1), 1), &setup(), Token::random()).unwrap().target();
    let spec = spec(Transport::Tcp, rr(1, 1), 1);
    let failed = whole(&spec, &setup(), &free, Token::random(), None, &Cancel::new()).unwrap_err();
    assert!(failed.partial.is_none());
}
