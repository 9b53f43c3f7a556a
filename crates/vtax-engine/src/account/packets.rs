//! Packets of a thread's flows.

use std::num::Wrapping;

use vtax_model::{
    measurement::{PacketCounts, WireCounts},
    workload::WorkloadSizes,
};
use vtax_sys::sock::{TcpInfo, TcpTraffic};

use super::ledger::Counted;
use crate::flow::Flow;

/// TCP's counters of the flows of a thread at one moment. The kernel counts segments in 32 bits, and so is their sum:
/// only the difference of two readings is meaningful, up to 4,294,967,295 packets of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TcpReading {
    sent: DirectionReading,
    received: DirectionReading,
    /// Bytes of the IP and TCP headers of a packet: the same in all flows of a test.
    headers: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DirectionReading {
    packets: Wrapping<u32>,
    with_payload: Option<Wrapping<u32>>,
    payload: Option<u64>,
}

impl TcpReading {
    /// Returns None if the kernel is too old.
    pub(super) fn of(flow: &Flow, info: &TcpInfo) -> Option<TcpReading> {
        let headers = flow.ip_header() + u64::from(info.header);
        Some(TcpReading { sent: info.sent?.into(), received: info.received?.into(), headers })
    }

    pub(super) fn plus(self, other: TcpReading) -> TcpReading {
        let (sent, received) = (self.sent.plus(other.sent), self.received.plus(other.received));
        TcpReading { sent, received, headers: self.headers }
    }

    pub(super) fn since(self, opened: TcpReading) -> WireCounts {
        WireCounts {
            sent: self.sent.since(opened.sent, self.headers),
            received: self.received.since(opened.received, self.headers),
        }
    }
}

impl From<TcpTraffic> for DirectionReading {
    fn from(traffic: TcpTraffic) -> DirectionReading {
        DirectionReading {
            packets: Wrapping(traffic.segments),
            with_payload: traffic.data_segments.map(Wrapping),
            payload: traffic.bytes,
        }
    }
}

impl DirectionReading {
    fn plus(self, other: DirectionReading) -> DirectionReading {
        DirectionReading {
            packets: self.packets + other.packets,
            with_payload: self.with_payload.zip(other.with_payload).map(|(one, other)| one + other),
            payload: self.payload.zip(other.payload).map(|(one, other)| one.wrapping_add(other)),
        }
    }

    fn since(self, opened: DirectionReading, headers: u64) -> PacketCounts {
        let packets = u64::from((self.packets - opened.packets).0);
        let payload = self.payload.zip(opened.payload).map(|(closed, opened)| closed.wrapping_sub(opened));
        let with_payload = self.with_payload.zip(opened.with_payload);
        PacketCounts {
            packets,
            with_payload: with_payload.map(|(closed, opened)| u64::from((closed - opened).0)),
            bytes: payload.map(|payload| payload.saturating_add(packets * headers)),
        }
    }
}

/// Counts of a thread with UDP flows.
#[derive(Debug, Clone, Copy)]
pub(super) struct UdpWork {
    pub(super) unit: Counted,
    /// Transactions, or bytes received.
    pub(super) done: u64,
    /// Bytes sent in streams.
    pub(super) sent: u64,
    /// Requests without a response.
    pub(super) lost: u64,
}

impl UdpWork {
    /// Its datagrams, each of which is one packet: see [`Flow::check_datagrams`]. `headers` are the bytes of the IP and
    /// UDP headers.
    pub(super) fn datagrams(&self, sizes: WorkloadSizes, headers: u64) -> Option<WireCounts> {
        let of = |packets: u64, size: u64| PacketCounts::datagrams(packets, size, headers);
        let (sent, received) = match (sizes, self.unit) {
            (WorkloadSizes::Exchange { request, response }, Counted::Transactions(_)) => {
                (of(self.done.saturating_add(self.lost), request.0), of(self.done, response.0))
            }
            (WorkloadSizes::Exchange { request, response }, _) => (of(self.done, response.0), of(self.done, request.0)),
            (WorkloadSizes::Messages(message), _) => {
                let datagrams = |bytes: u64| Some(of(bytes.checked_div(message.0)?, message.0));
                (datagrams(self.sent)?, datagrams(self.done)?)
            }
            (WorkloadSizes::File(_) | WorkloadSizes::Nothing, _) => return None,
        };
        Some(WireCounts { sent, received })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vtax_model::units::ByteSize;

    fn reading(segments: u32, bytes: Option<u64>) -> TcpReading {
        let one = DirectionReading::from(TcpTraffic { segments, data_segments: Some(segments / 2), bytes });
        TcpReading { sent: one, received: one, headers: 52 }
    }

    #[test]
    fn counters_of_32_bits_may_wrap() {
        let opened = reading(u32::MAX - 1, Some(1_000)).plus(reading(u32::MAX, Some(5)));
        let closed = reading(98, Some(2_000)).plus(reading(19, Some(25)));
        let sent = closed.since(opened).sent;
        assert_eq!((sent.packets, sent.bytes), (120, Some(1_020 + 120 * 52)));
    }

    #[test]
    fn an_old_kernel_counts_no_bytes() {
        let counts = reading(50, None).since(reading(10, None));
        assert_eq!(counts.sent, PacketCounts { packets: 40, with_payload: Some(20), bytes: None });
    }

    #[test]
    fn a_lost_request_was_sent_and_its_response_was_not_received() {
        let sizes = WorkloadSizes::Exchange { request: ByteSize(100), response: ByteSize(200) };
        let work = |unit| UdpWork { unit, done: 10, sent: 0, lost: 2 };
        let of = |unit| work(unit).datagrams(sizes, 28).unwrap();
        let initiator = of(Counted::Transactions(300));
        assert_eq!((initiator.sent.packets, initiator.received.packets), (12, 10));
        assert_eq!((initiator.sent.bytes, initiator.received.bytes), (Some(12 * 128), Some(10 * 228)));
        let responder = of(Counted::Answers(300));
        assert_eq!((responder.sent.bytes, responder.received.bytes), (Some(10 * 228), Some(10 * 128)));
    }

    #[test]
    fn a_message_of_a_stream_is_a_packet() {
        let work = UdpWork { unit: Counted::Bytes, done: 2_944, sent: 147_200, lost: 3 };
        let of = |size| work.datagrams(WorkloadSizes::Messages(ByteSize(size)), 28);
        let sent = PacketCounts { packets: 100, with_payload: Some(100), bytes: Some(150_000) };
        assert_eq!(of(1_472).map(|counts| (counts.sent, counts.received.packets)), Some((sent, 2)));
        assert_eq!((of(0), work.datagrams(WorkloadSizes::Nothing, 28)), (None, None));
    }
}
