//! All methods of sending and receiving a stream's bytes, on every engine and from either end.

use vtax_model::{
    measurement::EndReport,
    options::{Engine, Segments, Sending, TestOptions},
    units::BitRate,
    workload::{Direction, TestSpec, Transport},
};
use vtax_sys::token::Token;

use crate::pair::*;

const ENGINES: [Engine; 3] = [Engine::Blocking, Engine::Epoll, Engine::BusyPoll];

/// The sender's report, then the receiver's.
fn by_role(spec: &TestSpec, direction: Direction) -> [EndReport; 2] {
    let [initiator, responder] = both(spec, &setup());
    match direction {
        Direction::Reverse => [responder, initiator],
        _ => [initiator, responder],
    }
}

fn without_copy(sending: Sending, message: u64, direction: Direction) -> TestSpec {
    let options = TestOptions { sending, ..TestOptions::default() };
    with(spec(Transport::Tcp, directed(message, direction), 1), options)
}

fn check_bytes([sender, receiver]: &[EndReport; 2]) {
    assert!(sender.bytes > 0 && receiver.bytes > 0, "{} sent, {} received", sender.bytes, receiver.bytes);
    assert_eq!(receiver.zerocopy_sends, 0);
}

/// Loopback copies all sends. The kernel has reported them all, unless the receiver was very slow.
fn check_copied(sender: &EndReport) {
    let EndReport { zerocopy_sends, zerocopy_copied, .. } = *sender;
    assert!(zerocopy_sends > 0 && zerocopy_copied <= zerocopy_sends, "{zerocopy_copied} of {zerocopy_sends}");
    assert!(zerocopy_copied > 0, "{zerocopy_copied} of {zerocopy_sends}");
}

#[test]
fn zero_copy_bytes_arrive_and_loopback_copies_them() {
    for engine in ENGINES {
        for (message, direction) in
            [(1, Direction::Forward), (128 << 10, Direction::Reverse), (5 << 20, Direction::Forward)]
        {
            let spec = on(engine, without_copy(Sending::ZeroCopy, message, direction));
            let reports = by_role(&spec, direction);
            check_bytes(&reports);
            check_copied(&reports[0]);
        }
    }
}

#[test]
fn a_file_is_sent_repeatedly() {
    for engine in ENGINES {
        for (message, direction) in
            [(1, Direction::Reverse), (100_001, Direction::Forward), (5 << 20, Direction::Reverse)]
        {
            let reports = by_role(&on(engine, without_copy(Sending::SendFile, message, direction)), direction);
            check_bytes(&reports);
            assert_eq!(reports[0].zerocopy_sends, 0);
        }
    }
}

#[test]
fn several_flows_share_the_zero_copy_memory() {
    for sending in [Sending::ZeroCopy, Sending::SendFile] {
        for engine in ENGINES {
            let spec = on(engine, without_copy(sending, 64 << 10, Direction::Both));
            for end in both(&lasting(TestSpec { streams: 3, ..spec }, 400), &setup()) {
                assert!(end.bytes > 0 && end.sent_bytes > 0, "{engine} {sending}: {} {}", end.bytes, end.sent_bytes);
                match sending {
                    Sending::ZeroCopy => check_copied(&end),
                    _ => assert_eq!((end.zerocopy_sends, end.zerocopy_copied), (0, 0)),
                }
            }
        }
    }
}

#[test]
fn a_rate_is_kept_with_each_send_method() {
    let options = TestOptions { bitrate: BitRate::new(80_000_000), ..TestOptions::default() };
    let tcp = |sending| with(spec(Transport::Tcp, stream(10_000), 1), TestOptions { sending, ..options });
    let gso = TestOptions { gso: Segments::try_from(10).ok(), gro: true, ..options };
    let udp = with(spec(Transport::Udp, stream(1000), 1), gso);
    for spec in [tcp(Sending::ZeroCopy), tcp(Sending::SendFile), udp] {
        for engine in ENGINES {
            let [sender, _] = both(&lasting(on(engine, spec), 300), &setup());
            let rate = sender.bytes as f64 / sender.seconds;
            // A delayed sender skips what was due in the meantime, so there is no lower bound.
            assert!(rate > 0.0 && rate < 11_000_000.0, "{engine}: {rate} bytes a second");
        }
    }
}

#[test]
fn a_dead_peer_ends_a_sender_without_copies() {
    for (sending, engine) in
        [(Sending::ZeroCopy, ENGINES[0]), (Sending::ZeroCopy, ENGINES[1]), (Sending::SendFile, ENGINES[2])]
    {
        let spec = lasting(on(engine, without_copy(sending, 1 << 20, Direction::Forward)), UNNOTICED);
        let token = Token::random();
        let outcomes = both_with(&spec, &setup(), [token, token], |_, [_, responder]| cancel_in(200, responder));
        assert!(outcomes.iter().all(Result::is_err), "{engine} {sending}");
    }
}

/// Checks the reports of a UDP stream whose calls send a given number of datagrams.
fn check_datagrams(spec: &TestSpec, [sender, receiver]: &[EndReport; 2], message: u64, of_a_call: u64) {
    let told = format!("{message} bytes, {:?}: {sender:?} {receiver:?}", spec.options);
    assert!(sender.bytes > 0 && sender.bytes.is_multiple_of(message * of_a_call), "{told}");
    assert!(receiver.bytes > 0 && receiver.bytes.is_multiple_of(message), "{told}");
    assert!(sender.whole_flow.is_multiple_of(of_a_call), "{told}");
    assert!(sender.bytes / message <= sender.whole_flow && receiver.bytes / message <= receiver.whole_flow, "{told}");
    // Loopback neither duplicates nor reorders, and drops only at the receiver's socket.
    assert!(sender.whole_flow >= receiver.whole_flow, "{told}");
    let missing = sender.whole_flow - receiver.whole_flow;
    assert!(receiver.lost <= missing && receiver.reordered == 0, "{told}");
    // The kernel counts coalesced datagrams as one. A greeting may be among them.
    let drops = receiver.socket_drops;
    assert!(drops <= missing + 100 && (spec.options.gro || missing <= drops), "{told}");
}

#[test]
fn datagrams_are_the_same_with_segmentation_at_either_end_both_or_none() {
    let count = Segments::try_from(10).unwrap();
    for engine in ENGINES {
        for (gso, gro) in [(None, true), (Some(count), false), (Some(count), true), (None, false)] {
            let direction = if gro { Direction::Reverse } else { Direction::Forward };
            let options = TestOptions { gso, gro, ..TestOptions::default() };
            for message in [8, 21, 1472] {
                let spec = on(engine, with(spec(Transport::Udp, directed(message, direction), 1), options));
                let reports = by_role(&lasting(spec, 80), direction);
                check_datagrams(&spec, &reports, message, gso.map_or(1, |gso| gso.get().into()));
            }
        }
    }
}

#[test]
fn a_call_sends_no_more_segments_than_a_packet_holds() {
    let options = TestOptions { gso: Some(Segments::MOST), gro: true, ..TestOptions::default() };
    for (message, of_a_call) in [(1472, 44), (8, 64), (30_000, 2), (60_000, 1)] {
        let spec = with(spec(Transport::Udp, stream(message), 1), options);
        check_datagrams(&spec, &by_role(&spec, Direction::Forward), message, of_a_call);
    }
}

#[test]
fn several_flows_of_segments_both_ways() {
    let options = TestOptions { gso: Segments::try_from(8).ok(), gro: true, ..TestOptions::default() };
    for engine in ENGINES {
        let spec = on(engine, with(spec(Transport::Udp, directed(1000, Direction::Both), 3), options));
        for end in both(&spec, &setup()) {
            assert!(end.bytes.is_multiple_of(1000) && end.bytes > 0, "{engine} {}", end.bytes);
            assert!(end.sent_bytes.is_multiple_of(8000) && end.sent_bytes > 0, "{engine} {}", end.sent_bytes);
            assert_eq!(end.reordered, 0);
        }
    }
}
