//! Check of a workload against a transport.

use super::{TestKind, Transport, Workload, WorkloadSizes};
use crate::units::{ByteSize, Mtu};

impl Workload {
    /// Checks these sizes against `transport` on a path of `mtu`.
    pub fn check(&self, transport: Transport, mtu: Mtu) -> Result<(), WorkloadError> {
        for (what, size) in self.sizes().named() {
            check_size(what, size, transport, mtu)?;
        }
        match self.sizes() {
            _ if !transport.carries(self.kind()) => Err(WorkloadError::NotOver { test: self.kind(), transport }),
            WorkloadSizes::Exchange { request, response } if transport == Transport::Icmp && request != response => {
                Err(WorkloadError::UnequalEcho { request, response })
            }
            WorkloadSizes::Messages(message) if transport.is_datagram() && message.0 < UDP_STREAM_LEAST => {
                Err(WorkloadError::NoRoomForSequence { message })
            }
            WorkloadSizes::Messages(message) if self.kind().is_multicast() && message.0 < MULTICAST_LEAST => {
                Err(WorkloadError::NoRoomForToken { message })
            }
            _ => Ok(()),
        }
    }
}

/// Minimum bytes of a UDP stream's datagram: the sequence number at its start.
pub const UDP_STREAM_LEAST: u64 = 8;

/// Minimum bytes of a multicast datagram: the sequence number and the token at its start. Anybody may send to a group,
/// so the token is required.
const MULTICAST_LEAST: u64 = UDP_STREAM_LEAST + 16;

/// Maximum message passed to a TCP socket by a single call: it limits the buffers of an agent.
pub const MESSAGE_MOST: ByteSize = ByteSize(64 << 20);

fn check_size(what: &'static str, size: ByteSize, transport: Transport, mtu: Mtu) -> Result<(), WorkloadError> {
    if size.0 == 0 {
        return Err(WorkloadError::Empty { what });
    }
    let most = match transport {
        _ if what == "file" => ByteSize(u64::MAX),
        _ if transport.is_datagram() => mtu.udp_payload(),
        _ => MESSAGE_MOST,
    };
    if size > most {
        return Err(WorkloadError::TooLarge { what, size, transport, most, mtu });
    }
    Ok(())
}

/// Sizes that a transport can't carry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum WorkloadError {
    #[error("{what} size 0: nothing would be sent; use at least 1 byte")]
    #[diagnostic(code("message-too-small"))]
    Empty { what: &'static str },
    #[error("{what} size {size} exceeds one {transport} message at MTU {mtu}: at most {most}")]
    #[diagnostic(code("message-too-large"))]
    TooLarge { what: &'static str, size: ByteSize, transport: Transport, most: ByteSize, mtu: Mtu },
    #[error(
        "message size {message} leaves no room for the sequence number of a UDP stream; use at least {UDP_STREAM_LEAST} bytes"
    )]
    #[diagnostic(code("message-too-small"))]
    NoRoomForSequence { message: ByteSize },
    #[error(
        "message size {message} leaves no room for the token that distinguishes the stream from what others send to the \
         group; use at least {MULTICAST_LEAST} bytes"
    )]
    #[diagnostic(code("message-too-small"))]
    NoRoomForToken { message: ByteSize },
    #[error(
        "an ICMP echo is as long as its request; request {request} and response {response} differ: use the same size for both"
    )]
    #[diagnostic(code("unequal-echo"))]
    UnequalEcho { request: ByteSize, response: ByteSize },
    #[error("{test} does not run over {transport}; it supports {}", carried(*transport))]
    #[diagnostic(code("test-not-carried"))]
    NotOver { test: TestKind, transport: Transport },
}

fn carried(transport: Transport) -> String {
    let kinds = TestKind::ALL.into_iter().filter(|kind| transport.carries(*kind));
    kinds.map(|kind| kind.to_string()).collect::<Vec<_>>().join(", ")
}

impl WorkloadError {
    /// Returns the invalid size: `request`, `response`, `message` or `file`.
    pub fn what(&self) -> &'static str {
        match self {
            WorkloadError::Empty { what } | WorkloadError::TooLarge { what, .. } => what,
            WorkloadError::NoRoomForSequence { .. } | WorkloadError::NoRoomForToken { .. } => "message",
            WorkloadError::UnequalEcho { .. } => "response",
            WorkloadError::NotOver { test, .. } if test.is_file() => "file",
            WorkloadError::NotOver { .. } => "test",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Direction, *};

    fn rr(request: u64, response: u64) -> Workload {
        Workload::Rr { request: ByteSize(request), response: ByteSize(response) }
    }

    #[test]
    fn sizes_of_zero_are_refused() {
        let refused = rr(1, 0).check(Transport::Tcp, Mtu::ETHERNET);
        assert_eq!(refused, Err(WorkloadError::Empty { what: "response" }));
    }

    #[test]
    fn a_datagram_must_fit_the_mtu() {
        assert_eq!(rr(1472, 1).check(Transport::Udp, Mtu::ETHERNET), Ok(()));
        assert!(rr(1473, 1).check(Transport::Udp, Mtu::ETHERNET).is_err());
        assert_eq!(rr(1473, 1).check(Transport::Tcp, Mtu::ETHERNET), Ok(()));
    }

    #[test]
    fn a_udp_stream_needs_room_for_its_sequence_number() {
        let stream = |bytes| Workload::Stream { message: ByteSize(bytes), direction: Direction::Forward };
        assert!(stream(7).check(Transport::Udp, Mtu::ETHERNET).is_err());
        assert_eq!(stream(8).check(Transport::Udp, Mtu::ETHERNET), Ok(()));
        assert_eq!(stream(7).check(Transport::Tcp, Mtu::ETHERNET), Ok(()));
    }

    #[test]
    fn a_datagram_to_a_group_needs_room_for_the_token() {
        let to_group = |bytes| Workload::Multicast { message: ByteSize(bytes) }.check(Transport::Udp, Mtu::ETHERNET);
        assert_eq!(to_group(23), Err(WorkloadError::NoRoomForToken { message: ByteSize(23) }));
        assert_eq!(to_group(7), Err(WorkloadError::NoRoomForSequence { message: ByteSize(7) }));
        assert_eq!(to_group(24), Ok(()));
        let over_tcp = Workload::Multicast { message: ByteSize(24) }.check(Transport::Tcp, Mtu::ETHERNET);
        assert!(matches!(over_tcp, Err(WorkloadError::NotOver { .. })), "{over_tcp:?}");
    }

    #[test]
    fn a_connection_needs_a_transport_that_has_them() {
        assert_eq!(
            Workload::Cc.check(Transport::Udp, Mtu::ETHERNET),
            Err(WorkloadError::NotOver { test: TestKind::Cc, transport: Transport::Udp })
        );
        assert_eq!(Workload::Cc.check(Transport::Unix, Mtu::ETHERNET), Ok(()));
    }

    #[test]
    fn a_file_goes_over_tcp_only() {
        let file = Workload::File { size: ByteSize(1000 << 20) };
        assert_eq!(file.check(Transport::Tcp, Mtu::ETHERNET), Ok(()));
        assert_eq!(
            file.check(Transport::Udp, Mtu::ETHERNET),
            Err(WorkloadError::NotOver { test: TestKind::File, transport: Transport::Udp })
        );
    }
}
