//! Losses of UDP transactions are counted exactly. A relay between the ends drops the messages that the test chooses.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vtax_engine::{Cancel, Responder};
use vtax_model::{
    measurement::EndReport,
    options::{ArrivalProcess, Arrivals, Burst, Engine, RequestRate, TestOptions},
    station::Target,
    units::BitRate,
    workload::{TestSpec, Transport},
};
use vtax_sys::token::Token;

use crate::pair::*;

/// Bytes of each message: a sequence number and no token.
const LEN: usize = 8;

#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Forward,
    Drop,
    /// Arrives after the initiator has given up on it.
    Late,
}

/// Forwards datagrams between one initiator and the responder.
struct Relay {
    near: UdpSocket,
    far: UdpSocket,
    initiator: Option<SocketAddr>,
    /// Requests and responses of the measured window so far.
    measured: Option<[u32; 2]>,
    /// The last request of the window.
    latest: Vec<u8>,
    held: Option<Vec<u8>>,
    dropped: u64,
    /// Datagrams that came from the sender of a stream. On a busy machine the relay may have no space for some.
    came: u64,
    /// Responses that were sent on after a newer request had come. On a busy machine there may be more of
    /// them than the test has chosen.
    late: u64,
}

impl Relay {
    fn new(responder: u16) -> Relay {
        let [near, far] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        far.connect(target(responder)).unwrap();
        for socket in [&near, &far] {
            socket.set_nonblocking(true).unwrap();
        }
        Relay { near, far, initiator: None, measured: None, latest: vec![], held: None, dropped: 0, came: 0, late: 0 }
    }

    fn run(mut self, over: &AtomicBool, fate: impl Fn([u32; 2]) -> [Fate; 2]) -> Relay {
        while !over.load(Ordering::Relaxed) {
            let mut datagram = [0; 2048];
            if let Ok((len, from)) = self.near.recv_from(&mut datagram) {
                self.initiator = Some(from);
                self.request(&datagram[..len], &fate);
            }
            if let Ok(len) = self.far.recv(&mut datagram) {
                self.response(&datagram[..len], &fate);
            }
            // The ends need the CPU time that continuous polling would take. A socket that has more data is ready
            // immediately.
            let mut sockets = [&self.near, &self.far].map(|socket| PollFd::new(socket, PollFlags::IN));
            let _ = poll(&mut sockets, Some(&Timespec { tv_sec: 0, tv_nsec: 10_000_000 }));
        }
        self
    }

    fn request(&mut self, datagram: &[u8], fate: impl Fn([u32; 2]) -> [Fate; 2]) {
        let counts = self.count(datagram, 0);
        self.came += u64::from(datagram.len() == LEN);
        if counts.is_some() {
            self.latest = datagram.to_vec();
        }
        if let Some(late) = self.held.take() {
            self.deliver(&late, true);
        }
        match counts.map(|counts| fate(counts)[0]) {
            None | Some(Fate::Forward) => drop(self.far.send(datagram)),
            Some(_) => self.dropped += 1,
        }
    }

    fn response(&mut self, datagram: &[u8], fate: impl Fn([u32; 2]) -> [Fate; 2]) {
        let counts = self.count(datagram, 1);
        match counts.map(|counts| fate(counts)[1]) {
            None | Some(Fate::Forward) => self.deliver(datagram, counts.is_some()),
            Some(Fate::Drop) => self.dropped += 1,
            Some(Fate::Late) => self.held = Some(datagram.to_vec()),
        }
    }

    fn deliver(&mut self, response: &[u8], measured: bool) {
        self.late += u64::from(measured && self.latest != response);
        let _ = self.near.send_to(response, self.initiator.unwrap());
    }

    /// Counts the transactions between the marks, which are the two lowest bits.
    fn count(&mut self, datagram: &[u8], way: usize) -> Option<[u32; 2]> {
        let mark = datagram.first().map(|byte| byte & 3);
        match (datagram.len(), mark) {
            (LEN, Some(0)) => {
                let counts = self.measured.as_mut()?;
                counts[way] += 1;
                Some(*counts)
            }
            (LEN, Some(1)) => {
                self.measured.get_or_insert_default();
                None
            }
            _ => None,
        }
    }
}

/// Measures until the scenario chosen by the test has occurred: on a busy machine, that takes longer.
fn until(is_over: impl Fn(&Relay) -> bool, millis: u64, measure: impl Fn(u64) -> (EndReport, Relay)) {
    let happened = [1, 4, 16, 64].into_iter().any(|times| {
        let (initiator, relay) = measure(times * millis);
        check(&initiator, &relay);
        is_over(&relay)
    });
    assert!(happened, "too few transactions");
}

/// `fate` receives the numbers of the request and of the response, and decides what happens to each. Returns the
/// initiator's report and the relay with its counts.
fn relayed(millis: u64, fate: impl Fn([u32; 2]) -> [Fate; 2] + Sync) -> (EndReport, Relay) {
    let spec = lasting(spec(Transport::Udp, rr(LEN as u64, LEN as u64), 1), millis);
    let ([initiator, _], relay) = relay(&spec, fate);
    (initiator, relay)
}

fn relay(spec: &TestSpec, fate: impl Fn([u32; 2]) -> [Fate; 2] + Sync) -> ([EndReport; 2], Relay) {
    let (token, cancel, over) = (Token::random(), Cancel::new(), AtomicBool::new(false));
    let responder = Responder::bind(spec, &setup(), token).unwrap();
    let relay = Relay::new(port(&responder));
    let target = Target::Ip(relay.near.local_addr().unwrap());
    thread::scope(|scope| {
        let relay = scope.spawn(|| relay.run(&over, &fate));
        let served = scope.spawn(|| responder.serve(&cancel));
        let initiated = initiate(spec, &setup(), &target, token, &cancel);
        let served = served.join();
        over.store(true, Ordering::Relaxed);
        ([initiated.unwrap(), served.unwrap().unwrap()], relay.join().unwrap())
    })
}

fn check(initiator: &EndReport, relay: &Relay) {
    assert_eq!(initiator.lost, relay.dropped + relay.late);
    let rtt = initiator.rtt.as_ref().unwrap();
    assert!(rtt.count() > 0 && rtt.count() == initiator.transactions);
    let [requests, _] = relay.measured.unwrap();
    assert_eq!(u64::from(requests), initiator.transactions + initiator.lost);
    // The window includes the time of lost transactions, and no round-trip time does.
    let waited = initiator.seconds - rtt.mean_ns() / 1e9 * rtt.count() as f64;
    assert!(waited >= 0.095 * initiator.lost as f64 - 0.01, "{waited}");
}

#[test]
fn no_loss_is_counted_without_loss() {
    let (initiator, relay) = relayed(150, |_| [Fate::Forward; 2]);
    assert_eq!(relay.dropped, 0);
    check(&initiator, &relay);
}

#[test]
fn lost_requests_and_responses_are_counted_exactly() {
    let lose = |number, chosen: &[u32]| if chosen.contains(&number) { Fate::Drop } else { Fate::Forward };
    until(
        |relay| relay.dropped >= 4,
        800,
        |millis| relayed(millis, |[request, response]| [lose(request, &[3, 9]), lose(response, &[4, 5])]),
    );
}

#[test]
fn a_late_response_is_lost_and_not_taken_for_the_next() {
    until(
        |relay| relay.late >= 1,
        500,
        |millis| {
            relayed(millis, |[_, response]| [Fate::Forward, if response == 5 { Fate::Late } else { Fate::Forward }])
        },
    );
}

fn lose(chosen: &'static [u32]) -> impl Fn(u32) -> Fate {
    |number| if chosen.contains(&number) { Fate::Drop } else { Fate::Forward }
}

#[test]
fn losses_are_counted_by_engines_that_share_a_thread_too() {
    for engine in [Engine::Epoll, Engine::BusyPoll, Engine::IoUring] {
        let spec = on(engine, spec(Transport::Udp, rr(LEN as u64, LEN as u64), 1));
        until(
            |relay| relay.dropped >= 3,
            900,
            |millis| {
                let fate = |[request, response]: [u32; 2]| [lose(&[3, 9])(request), lose(&[4])(response)];
                let ([initiator, _], relay) = relay(&lasting(spec, millis), fate);
                (initiator, relay)
            },
        );
    }
}

/// With several requests in flight, a loss delays no other request, and its number identifies it.
#[test]
fn losses_among_several_in_flight_are_counted_exactly() {
    let burst = TestOptions { burst: Burst::try_from(4).unwrap(), ..TestOptions::default() };
    let process = ArrivalProcess::Fixed;
    let arrivals = RequestRate::new(200).map(|per_second| Arrivals { per_second, process });
    let open = TestOptions { arrivals, ..TestOptions::default() };
    for options in [burst, open] {
        for engine in [Engine::Blocking, Engine::Epoll, Engine::IoUring] {
            let spec = with(spec(Transport::Udp, rr(LEN as u64, LEN as u64), 1), TestOptions { engine, ..options });
            let fate = |[request, response]: [u32; 2]| [lose(&[5, 6])(request), lose(&[20])(response)];
            // A response that a busy machine delays is lost too.
            assert_least(3.5, &format!("{engine} {options:?}"), || {
                let ([initiator, _], relay) = relay(&lasting(spec, 500), fate);
                assert!(relay.dropped <= 3 && initiator.lost >= relay.dropped, "{} lost", initiator.lost);
                if arrivals == options.arrivals {
                    assert_eq!(initiator.transactions + initiator.lost, 100);
                }
                let missing = 3 - relay.dropped;
                (initiator.lost + 10 * missing) as f64
            });
        }
    }
}

/// The wire's losses are what was sent, minus what arrived and what the socket had no space for.
#[test]
fn a_streams_loss_is_the_difference_of_both_ends() {
    for engine in [Engine::Blocking, Engine::Epoll, Engine::IoUring] {
        // A low rate, so that the relay itself loses nothing.
        let options = TestOptions { engine, bitrate: BitRate::new(64_000), ..TestOptions::default() };
        let spec = lasting(with(spec(Transport::Udp, stream(LEN as u64), 1), options), 400);
        let ([sender, receiver], relay) =
            relay(&spec, |[request, _]| [if request % 10 == 3 { Fate::Drop } else { Fate::Forward }, Fate::Forward]);
        // A busy machine sends fewer in the time.
        assert!(relay.dropped > 0, "{}", relay.dropped);
        assert!(sender.whole_flow >= relay.came, "{} of {}", relay.came, sender.whole_flow);
        assert_eq!(relay.came - receiver.whole_flow - receiver.socket_drops, relay.dropped);
        let lost = relay.dropped + (sender.whole_flow - relay.came) + receiver.socket_drops;
        assert!(receiver.lost <= lost && receiver.lost > 0, "{} of {lost}", receiver.lost);
    }
}
