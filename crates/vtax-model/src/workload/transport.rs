//! Transports and directions.

use serde::{Deserialize, Serialize};
use strum::Display;

use super::TestKind;

/// The protocol under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "UPPERCASE")]
pub enum Transport {
    /// One connection per flow.
    Tcp,
    /// Datagrams that carry a sequence number and, if they are long enough, the session's token.
    Udp,
    /// Stream sockets of the local domain, unix(7): two processes on one kernel, without a network.
    #[strum(to_string = "Unix")]
    Unix,
    /// Stream sockets between a virtual machine and its host, vsock(7): no network stack, no MTU.
    #[strum(to_string = "vsock")]
    Vsock,
    /// Echo requests, answered by the kernel of the other endpoint: ping(8).
    Icmp,
}

impl Transport {
    /// All of them, in the order of tables.
    pub const ALL: [Transport; 5] =
        [Transport::Tcp, Transport::Udp, Transport::Unix, Transport::Vsock, Transport::Icmp];

    /// Returns true if it runs on IP, and so has addresses, ports and an MTU.
    pub fn is_ip(self) -> bool {
        matches!(self, Transport::Tcp | Transport::Udp | Transport::Icmp)
    }

    /// Returns true if it carries messages that may be lost, each of which must fit in a packet.
    pub fn is_datagram(self) -> bool {
        matches!(self, Transport::Udp | Transport::Icmp)
    }

    /// Returns true if the responder's agent answers requests, and can therefore process them as instructed.
    pub fn is_answered_by_agent(self) -> bool {
        self != Transport::Icmp
    }

    /// Returns true if this test runs over it.
    pub fn carries(self, kind: TestKind) -> bool {
        kind.transports().contains(&self)
    }

    /// Returns true if samples of a test can be cut into slices: its flows must have marks.
    pub fn has_slices(self, kind: TestKind) -> bool {
        matches!(self, Transport::Tcp | Transport::Udp) && kind.has_marks()
    }
}

/// Sending endpoint of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The initiator sends.
    #[default]
    Forward,
    /// The responder sends.
    Reverse,
    /// Both endpoints send, on separate flows: `streams` of them in each direction.
    Both,
}
