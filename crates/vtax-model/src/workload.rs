//! What is sent over a path: the tests and their sizes.

mod kind;
mod spec;
mod transport;
mod warmup;

use serde::{Deserialize, Serialize};

pub use kind::{TestKind, TestQuantity, WorkUnit};
pub use spec::{Sliced, SpecError, TestSpec};
pub use transport::{Direction, Transport};
pub use warmup::Warmup;

use crate::units::{ByteSize, Mtu};

/// A test with its sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "test", rename_all = "lowercase")]
pub enum Workload {
    /// Request and response.
    Rr {
        /// Bytes of each request.
        #[serde(rename = "request_bytes")]
        request: ByteSize,
        /// Bytes of each response.
        #[serde(rename = "response_bytes")]
        response: ByteSize,
    },
    /// A connection for each request and its response. The token goes before the request, in the same segment.
    Crr {
        /// Bytes of each request.
        #[serde(rename = "request_bytes")]
        request: ByteSize,
        /// Bytes of each response.
        #[serde(rename = "response_bytes")]
        response: ByteSize,
    },
    /// Connections that are closed as soon as they are there.
    Cc,
    /// Bytes one way or both, as fast as the path carries them, or at [`TestOptions::bitrate`](crate::options::TestOptions::bitrate).
    Stream {
        /// Bytes handed to the kernel by one call; over UDP, of one datagram.
        #[serde(rename = "message_bytes")]
        message: ByteSize,
        /// Which end sends.
        #[serde(default, skip_serializing_if = "crate::is_default")]
        direction: Direction,
    },
    /// One file, disk to disk.
    File {
        /// Bytes of the file.
        #[serde(rename = "file_bytes")]
        size: ByteSize,
    },
}

impl Workload {
    /// The kind without the sizes.
    pub fn kind(&self) -> TestKind {
        match self {
            Workload::Rr { .. } => TestKind::Rr,
            Workload::Crr { .. } => TestKind::Crr,
            Workload::Cc => TestKind::Cc,
            Workload::Stream { direction: Direction::Forward, .. } => TestKind::Stream,
            Workload::Stream { direction: Direction::Reverse, .. } => TestKind::Maerts,
            Workload::Stream { direction: Direction::Both, .. } => TestKind::Bidirectional,
            Workload::File { .. } => TestKind::File,
        }
    }

    /// Whether these sizes can go over `transport` on a path of `mtu`.
    pub fn check(&self, transport: Transport, mtu: Mtu) -> Result<(), WorkloadError> {
        for (what, size) in self.sizes() {
            check_size(what, size, transport, mtu)?;
        }
        match self {
            _ if !transport.carries(self.kind()) => Err(WorkloadError::NotOver { test: self.kind(), transport }),
            Workload::Rr { request, response } if transport == Transport::Icmp && request != response => {
                Err(WorkloadError::UnequalEcho { request: *request, response: *response })
            }
            Workload::Stream { message, .. } if transport.is_datagram() && message.0 < UDP_STREAM_LEAST => {
                Err(WorkloadError::NoRoomForSequence { message: *message })
            }
            _ => Ok(()),
        }
    }

    fn sizes(&self) -> Vec<(&'static str, ByteSize)> {
        match *self {
            Workload::Rr { request, response } | Workload::Crr { request, response } => {
                vec![("request", request), ("response", response)]
            }
            Workload::Cc => vec![],
            Workload::Stream { message, .. } => vec![("message", message)],
            Workload::File { size } => vec![("file", size)],
        }
    }
}

/// Bytes of the sequence number that each datagram of a UDP stream starts with.
pub const UDP_STREAM_LEAST: u64 = 8;

/// The largest message a single call may hand to a TCP socket here: it bounds the buffers of an agent.
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
#[expect(missing_docs, reason = "the messages say it")]
pub enum WorkloadError {
    #[error("{what} size 0: nothing would be sent; give at least 1 byte")]
    #[diagnostic(code("message-too-small"))]
    Empty { what: &'static str },
    #[error("{what} size {size} is beyond what {transport} carries in one message at MTU {mtu}: at most {most}")]
    #[diagnostic(code("message-too-large"))]
    TooLarge { what: &'static str, size: ByteSize, transport: Transport, most: ByteSize, mtu: Mtu },
    #[error(
        "message size {message} leaves no room for the sequence number of a UDP stream; give at least {UDP_STREAM_LEAST} bytes"
    )]
    #[diagnostic(code("message-too-small"))]
    NoRoomForSequence { message: ByteSize },
    #[error(
        "an ICMP echo is as long as its request; request {request} and response {response} differ: give both the same size"
    )]
    #[diagnostic(code("unequal-echo"))]
    UnequalEcho { request: ByteSize, response: ByteSize },
    #[error("{test} doesn't run over {transport}; it has {}", carried(*transport))]
    #[diagnostic(code("test-not-carried"))]
    NotOver { test: TestKind, transport: Transport },
}

fn carried(transport: Transport) -> String {
    let kinds = TestKind::ALL.into_iter().filter(|kind| transport.carries(*kind));
    kinds.map(|kind| kind.to_string()).collect::<Vec<_>>().join(", ")
}

impl WorkloadError {
    /// The size that is wrong: `request`, `response`, `message` or `file`.
    pub fn what(&self) -> &'static str {
        match self {
            WorkloadError::Empty { what } | WorkloadError::TooLarge { what, .. } => what,
            WorkloadError::NoRoomForSequence { .. } => "message",
            WorkloadError::UnequalEcho { .. } => "response",
            WorkloadError::NotOver { test: TestKind::File, .. } => "file",
            WorkloadError::NotOver { .. } => "test",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
