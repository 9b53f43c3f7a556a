//! What is sent over a path: the tests and their sizes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::units::{ByteSize, Mtu, Span};

/// The protocol under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// One connection per flow.
    Tcp,
    /// Datagrams that carry a sequence number and, where they are long enough, the session's token.
    Udp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Transport::Tcp => "TCP",
            Transport::Udp => "UDP",
        })
    }
}

/// The kinds of test, without their sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TestKind {
    /// Request and response, one in flight: the round-trip time.
    Rr,
    /// Bytes one way, as fast as they go: the goodput at the receiver.
    Stream,
    /// A file from the sender's disk into a file at the receiver: real, user, sys.
    File,
}

impl fmt::Display for TestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            TestKind::Rr => "RR",
            TestKind::Stream => "stream",
            TestKind::File => "file",
        })
    }
}

/// A test with its sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "test", rename_all = "lowercase")]
pub enum Workload {
    /// Request and response, one in flight.
    Rr {
        /// Bytes of each request.
        #[serde(rename = "request_bytes")]
        request: ByteSize,
        /// Bytes of each response.
        #[serde(rename = "response_bytes")]
        response: ByteSize,
    },
    /// One way, as fast as it goes.
    Stream {
        /// Bytes handed to the kernel by one call; over UDP, of one datagram.
        #[serde(rename = "message_bytes")]
        message: ByteSize,
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
            Workload::Stream { .. } => TestKind::Stream,
            Workload::File { .. } => TestKind::File,
        }
    }

    /// Whether these sizes can go over `transport` on a path of `mtu`.
    pub fn check(&self, transport: Transport, mtu: Mtu) -> Result<(), WorkloadError> {
        for (what, size) in self.sizes() {
            check_size(what, size, transport, mtu)?;
        }
        match (self, transport) {
            (Workload::File { .. }, Transport::Udp) => Err(WorkloadError::FileOverUdp),
            (Workload::Stream { message }, Transport::Udp) if message.0 < UDP_STREAM_LEAST => {
                Err(WorkloadError::NoRoomForSequence { message: *message })
            }
            _ => Ok(()),
        }
    }

    fn sizes(&self) -> Vec<(&'static str, ByteSize)> {
        match *self {
            Workload::Rr { request, response } => vec![("request", request), ("response", response)],
            Workload::Stream { message } => vec![("message", message)],
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
        Transport::Tcp => MESSAGE_MOST,
        Transport::Udp => mtu.udp_payload(),
    };
    if size > most {
        return Err(WorkloadError::TooLarge { what, size, transport, most, mtu });
    }
    Ok(())
}

/// Sizes that a transport can't carry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadError {
    /// Zero bytes.
    #[error("{what} size 0: nothing would be sent; give at least 1 byte")]
    Empty {
        /// `request`, `response`, `message` or `file`.
        what: &'static str,
    },
    /// More than one message of the transport holds.
    #[error("{what} size {size} is beyond what {transport} carries in one message at MTU {mtu}: at most {most}")]
    TooLarge {
        /// `request`, `response` or `message`.
        what: &'static str,
        /// As asked.
        size: ByteSize,
        /// The transport that refuses it.
        transport: Transport,
        /// The largest that goes.
        most: ByteSize,
        /// The path's MTU.
        mtu: Mtu,
    },
    /// A UDP stream counts its losses by a sequence number in each datagram.
    #[error(
        "message size {message} leaves no room for the sequence number of a UDP stream; give at least {UDP_STREAM_LEAST} bytes"
    )]
    NoRoomForSequence {
        /// As asked.
        message: ByteSize,
    },
    /// A file needs a reliable transport.
    #[error("a file can't be sent over UDP, which may lose parts of it; use transport \"tcp\"")]
    FileOverUdp,
}

impl WorkloadError {
    /// The size that is wrong: `request`, `response`, `message` or `file`.
    pub fn what(&self) -> &'static str {
        match self {
            WorkloadError::Empty { what } | WorkloadError::TooLarge { what, .. } => what,
            WorkloadError::NoRoomForSequence { .. } => "message",
            WorkloadError::FileOverUdp => "file",
        }
    }
}

/// One test as both ends are told to run it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestSpec {
    /// The protocol.
    pub transport: Transport,
    /// The test and its sizes.
    pub workload: Workload,
    /// Flows at the same time, each on a thread and a 5-tuple of its own.
    pub streams: u32,
    /// Traffic before the measured time begins.
    pub warmup: Span,
    /// The measured time. A file transfer ends when the file is there instead.
    pub duration: Span,
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
        let stream = |bytes| Workload::Stream { message: ByteSize(bytes) };
        assert!(stream(7).check(Transport::Udp, Mtu::ETHERNET).is_err());
        assert_eq!(stream(8).check(Transport::Udp, Mtu::ETHERNET), Ok(()));
        assert_eq!(stream(7).check(Transport::Tcp, Mtu::ETHERNET), Ok(()));
    }

    #[test]
    fn a_file_goes_over_tcp_only() {
        let file = Workload::File { size: ByteSize(1000 << 20) };
        assert_eq!(file.check(Transport::Tcp, Mtu::ETHERNET), Ok(()));
        assert_eq!(file.check(Transport::Udp, Mtu::ETHERNET), Err(WorkloadError::FileOverUdp));
    }
}
