//! The kernel's timestamps split the round-trip time of every message.

use std::{net::UdpSocket, thread, time::Duration};

use rustix::net::RecvFlags;
use vtax_model::{
    measurement::{EndReport, Stages},
    options::{Manners, TestOptions},
    units::Span,
    workload::{TestSpec, Transport},
};
use vtax_stats::histogram::Histogram;
use vtax_sys::sock::timestamping::{enable_stamps, receive_stamped, sent_stamps};

use crate::pair::*;

/// The first socket that requests timestamps makes the kernel enable receive timestamping, for all sockets of the
/// machine and in the background. On a busy machine that takes a while. The returned socket keeps it enabled.
fn switch_on() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(socket.local_addr().unwrap()).unwrap();
    enable_stamps(&socket).unwrap();
    for _ in 0..30_000 {
        socket.send(&[0]).unwrap();
        if receive_stamped(&socket, &mut [0; 1], RecvFlags::empty()).unwrap().arrival.is_some() {
            return socket;
        }
        sent_stamps(&socket, &mut vec![]).unwrap();
        thread::sleep(Duration::from_millis(10));
    }
    panic!("the kernel stamps nothing");
}

fn staged(transport: Transport, sizes: (u64, u64), streams: u32) -> TestSpec {
    let options = TestOptions { stages: true, ..TestOptions::default() };
    with(spec(transport, rr(sizes.0, sizes.1), streams), options)
}

fn stages(report: &EndReport) -> &Stages {
    report.stages.as_ref().expect("stages were asked for")
}

/// Means in nanoseconds. They can be added, whatever the distributions are.
fn means(stages: [&Option<Histogram>; 4], count: u64) -> [f64; 4] {
    stages.map(|stage| {
        let stage = stage.as_ref().expect("each stage of this end has a histogram");
        assert_eq!(stage.count(), count);
        stage.mean_ns()
    })
}

/// The stages of an initiator add up to the round trip.
fn check_initiator(initiator: &EndReport) -> [f64; 4] {
    let Stages { send_to_qdisc, qdisc_to_driver, away, stack_to_receive, turnaround, without, .. } = stages(initiator);
    assert!(*without <= initiator.transactions / 10, "{without} of {}", initiator.transactions);
    let told = initiator.transactions - without;
    let means = means([send_to_qdisc, qdisc_to_driver, away, stack_to_receive], told);
    assert!(turnaround.is_none() && means[2] > 0.0);
    let (sum, rtt) = (means.iter().sum::<f64>(), initiator.rtt.as_ref().unwrap().mean_ns());
    assert!((0.75..1.25).contains(&(sum / rtt)), "{means:?} of {rtt}");
    means
}

/// Checks the stages of a responder, which has answered one more message of each flow.
fn check_responder(responder: &EndReport, bytes: u64) -> [f64; 4] {
    let Stages { send_to_qdisc, qdisc_to_driver, away, stack_to_receive, turnaround, without, .. } = stages(responder);
    assert!(away.is_none());
    let answered = responder.bytes / bytes;
    assert!(*without <= answered / 10, "{without} of {answered}");
    means([stack_to_receive, turnaround, send_to_qdisc, qdisc_to_driver], answered - without)
}

#[test]
fn the_stages_add_up_to_the_round_trip() {
    let _on = switch_on();
    for transport in [Transport::Tcp, Transport::Udp] {
        for sizes in [(1, 1), (1400, 64), (24, 1400)] {
            let [initiator, responder] = both(&staged(transport, sizes, 1), &setup());
            check_initiator(&initiator);
            check_responder(&responder, sizes.0 + sizes.1);
            // The other end's work on a message is part of the time spent away.
            let median = |stage: &Option<Histogram>| stage.as_ref().unwrap().percentile(50.0) as f64;
            let (there, away) = (stages(&responder), median(&stages(&initiator).away));
            for stage in [&there.turnaround, &there.send_to_qdisc, &there.qdisc_to_driver] {
                assert!(median(stage) < 1.25 * away, "{} of {away} ({transport}, {sizes:?})", median(stage));
            }
        }
    }
}

#[test]
fn messages_of_many_sends_and_packets_have_stages_too() {
    let _on = switch_on();
    let spec = lasting(staged(Transport::Tcp, (1 << 20, 3_000_000), 1), 600);
    let [initiator, responder] = both(&spec, &setup());
    check_initiator(&initiator);
    check_responder(&responder, (1 << 20) + 3_000_000);
}

#[test]
fn flows_add_up_their_stages() {
    let _on = switch_on();
    for transport in [Transport::Tcp, Transport::Udp] {
        let [initiator, responder] = both(&staged(transport, (10, 10), 3), &setup());
        check_initiator(&initiator);
        check_responder(&responder, 20);
    }
}

#[test]
fn a_late_answer_shows_in_the_turnaround_and_away() {
    let _on = switch_on();
    for transport in [Transport::Tcp, Transport::Udp] {
        let plain = staged(transport, (64, 64), 1);
        let responder = Manners { delay: Some(Span::from_millis(2)), ..Manners::default() };
        let spec = lasting(with(plain, TestOptions { responder, ..plain.options }), 250);
        let [initiator, responder] = both(&spec, &setup());
        let [_, _, away, _] = check_initiator(&initiator);
        let [_, turnaround, _, _] = check_responder(&responder, 128);
        assert!(turnaround > 1_990_000.0 && away > 0.9 * turnaround, "{turnaround} of {away}");
        // Nothing else takes as long, unless the machine has other work.
        let Stages { send_to_qdisc, qdisc_to_driver, .. } = stages(&initiator);
        let least = |stage: &Option<Histogram>| stage.as_ref().map(|stage| stage.percentile(1.0));
        let others = [send_to_qdisc, qdisc_to_driver].map(least);
        assert!(others.iter().all(|stage| stage.is_some_and(|ns| ns < 1_900_000)), "{others:?}");
    }
}

/// The gap belongs to no stage.
#[test]
fn stages_of_a_cold_path() {
    let _on = switch_on();
    let plain = staged(Transport::Udp, (1, 1), 1);
    let spec = lasting(with(plain, TestOptions { gap: Some(Span::from_millis(2)), ..plain.options }), 200);
    let [initiator, responder] = both(&spec, &setup());
    check_initiator(&initiator);
    check_responder(&responder, 2);
    assert!(initiator.transactions < 110, "{}", initiator.transactions);
}

#[test]
fn stages_are_absent_unless_requested() {
    let [initiator, responder] = both(&spec(Transport::Udp, rr(1, 1), 1), &setup());
    assert_eq!((initiator.stages, responder.stages), (None, None));
}
