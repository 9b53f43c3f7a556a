//! Packets of the measured sockets, so that costs per packet and per byte can be separated.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Packets of one endpoint's measured sockets in the measured time.
///
/// TCP: the kernel's counts of segments (`tcpi_segs_out` and `tcpi_segs_in` of `TCP_INFO`), including acknowledgements
/// and retransmissions. A large segment that the kernel or the NIC splits later (TSO, GSO) counts as the packets that
/// it becomes, a merged one (GRO) as those that it was made of. UDP: the datagrams of the messages counted, one packet
/// each, because vtax refuses messages that would be fragmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WireCounts {
    /// Packets that this endpoint sent.
    pub sent: PacketCounts,
    /// Packets that this endpoint received. Too few in a guest whose host passes segments on without splitting them
    /// (TSO on a virtio NIC), because the guest counts each as one.
    pub received: PacketCounts,
}

/// Packets of one direction.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PacketCounts {
    /// All packets.
    pub packets: u64,
    /// Packets with payload; the others only acknowledge. Absent on Linux before 4.6.
    pub with_payload: Option<u64>,
    /// Bytes of the IP packets: the payload, and for each packet the headers of IP (20 bytes for IPv4, RFC 791; 40 for
    /// IPv6, RFC 8200) and of UDP (8, RFC 768) or TCP (20, RFC 9293; 12 more with timestamps, RFC 7323). Not
    /// included: selective acknowledgements, the Ethernet header of 14 bytes per packet (IEEE 802.3), the padding and
    /// checksum of frames, VLAN tags, and the outer headers of a tunnel. Absent on Linux before 4.19.
    pub bytes: Option<u64>,
}

impl WireCounts {
    /// Returns the sum of both.
    pub fn plus(self, other: WireCounts) -> WireCounts {
        WireCounts { sent: self.sent.plus(other.sent), received: self.received.plus(other.received) }
    }
}

impl PacketCounts {
    /// Returns the counts of datagrams with `payload` bytes each, whose IP and UDP headers have
    /// `headers` bytes.
    pub fn datagrams(packets: u64, payload: u64, headers: u64) -> PacketCounts {
        let bytes = packets.saturating_mul(payload.saturating_add(headers));
        let with_payload = if payload > 0 { packets } else { 0 };
        PacketCounts { packets, with_payload: Some(with_payload), bytes: Some(bytes) }
    }

    /// Returns the sum of both; a value unknown in one is unknown in the sum.
    pub fn plus(self, other: PacketCounts) -> PacketCounts {
        let known = |one: Option<u64>, other: Option<u64>| Some(one?.saturating_add(other?));
        PacketCounts {
            packets: self.packets.saturating_add(other.packets),
            with_payload: known(self.with_payload, other.with_payload),
            bytes: known(self.bytes, other.bytes),
        }
    }

    /// Returns the packets of a time that is `factor` times as long.
    pub fn scaled(self, factor: f64) -> PacketCounts {
        // A foreign agent's times may be anything. The conversion saturates, and turns NaN into 0.
        let scale = |count: u64| (count as f64 * factor).round() as u64;
        PacketCounts {
            packets: scale(self.packets),
            with_payload: self.with_payload.map(scale),
            bytes: self.bytes.map(scale),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_have_headers() {
        let counts = PacketCounts::datagrams(1_000, 1_472, 28);
        assert_eq!((counts.packets, counts.bytes), (1_000, Some(1_500_000)));
        assert_eq!(PacketCounts::datagrams(u64::MAX, 2, 28).bytes, Some(u64::MAX));
    }

    #[test]
    fn a_sum_with_an_unknown_part_is_unknown() {
        let known = PacketCounts::datagrams(10, 100, 28);
        let sum = known.plus(PacketCounts { bytes: None, ..known });
        assert_eq!(sum, PacketCounts { packets: 20, with_payload: Some(20), bytes: None });
        let most = PacketCounts { packets: u64::MAX, ..known };
        assert_eq!(most.plus(known).packets, u64::MAX);
    }

    #[test]
    fn no_factor_is_a_panic() {
        let counts = PacketCounts::datagrams(10, 100, 28);
        assert_eq!(counts.scaled(1.06).packets, 11);
        assert_eq!([f64::NAN, -1.0, f64::INFINITY].map(|factor| counts.scaled(factor).packets), [0, 0, u64::MAX]);
    }
}
