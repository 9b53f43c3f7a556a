//! Packets of the measured sockets.

use vtax_model::{
    measurement::{EndReport, WireCounts},
    units::Span,
    workload::{Direction, Sliced, TestSpec, Transport, Workload},
};

use crate::pair::{both, crr, directed, rr, setup, spec, stream};

fn counts(reports: &[EndReport; 2]) -> [WireCounts; 2] {
    [&reports[0], &reports[1]].map(|report| report.wire.expect("counted"))
}

/// Each request and each response is a segment. In addition, each window has messages that open and close it.
#[test]
fn a_transaction_is_a_segment_each_way() {
    let slices = Some(Sliced { passes: 3, span: Span::from_millis(500) });
    let whole = spec(Transport::Tcp, rr(100, 200), 2);
    for spec in [whole, TestSpec { slices, ..spec(Transport::Tcp, rr(100, 200), 1) }] {
        let reports = both(&spec, &setup());
        let (transactions, [initiator, responder]) = (reports[0].transactions, counts(&reports));
        assert!(transactions > 100, "{reports:?}");
        for (direction, payload) in
            [(initiator.sent, 100), (initiator.received, 200), (responder.sent, 200), (responder.received, 100)]
        {
            let data = direction.with_payload.expect("a kernel of 2016 or later");
            assert!(data.abs_diff(transactions) <= 12, "{data} of {transactions} ({:?})", spec.slices);
            // 20 bytes of IP, 20 of TCP, 12 of timestamps.
            let bytes = direction.bytes.expect("a kernel of 2018 or later");
            assert_eq!((bytes - 52 * direction.packets) / payload, data, "{direction:?}");
        }
    }
}

#[test]
fn a_datagram_is_a_packet() {
    let reports = both(&spec(Transport::Udp, rr(100, 200), 2), &setup());
    let (transactions, lost, [initiator, responder]) = (reports[0].transactions, reports[0].lost, counts(&reports));
    assert_eq!(
        (initiator.sent.packets, initiator.sent.bytes),
        (transactions + lost, Some((transactions + lost) * 128))
    );
    assert_eq!((initiator.received.packets, initiator.received.bytes), (transactions, Some(transactions * 228)));
    assert_eq!(responder.sent.packets * 300, reports[1].bytes);
}

#[test]
fn datagrams_of_streams_have_a_direction() {
    let reports = both(&spec(Transport::Udp, stream(1_000), 1), &setup());
    let [sender, receiver] = counts(&reports);
    assert_eq!((sender.sent.packets * 1_000, sender.received.packets), (reports[0].bytes, 0));
    assert_eq!((receiver.received.packets * 1_000, receiver.sent.packets), (reports[1].bytes, 0));

    let reports = both(&spec(Transport::Udp, directed(1_000, Direction::Both), 1), &setup());
    for (report, wire) in reports.iter().zip(counts(&reports)) {
        assert!(report.bytes > 0 && report.sent_bytes > 0, "{report:?}");
        assert_eq!((wire.received.packets * 1_000, wire.sent.packets * 1_000), (report.bytes, report.sent_bytes));
    }
}

#[test]
fn packets_are_unknown_if_each_transaction_has_its_own_socket() {
    for workload in [crr(1, 1), Workload::Cc] {
        let reports = both(&spec(Transport::Tcp, workload, 1), &setup());
        assert_eq!([reports[0].wire, reports[1].wire], [None, None], "{workload:?}");
    }
}
