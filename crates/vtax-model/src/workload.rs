//! Workloads: the tests and their sizes.
//!
//! A new workload is a variant of [`Workload`] with its sizes here, an entry in the table of `workload/kind.rs`, and a
//! task of the engine.

mod check;
mod kind;
mod sizes;
mod spec;
mod stream_load;
mod transport;
mod warmup;

use serde::{Deserialize, Serialize};

pub use check::{MESSAGE_MOST, UDP_STREAM_LEAST, WorkloadError};
pub use kind::{TestFamily, TestKind, TestQuantity, WorkUnit};
pub use sizes::{TestSizes, WorkloadSizes};
pub use spec::{Sliced, SpecError, TestSpec};
pub use stream_load::{StreamLoad, StreamLoadError};
pub use transport::{Direction, Transport};
pub use warmup::Warmup;

use crate::units::ByteSize;

/// A test with its sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "test", rename_all = "lowercase")]
pub enum Workload {
    /// Bytes of each request.
    Rr {
        /// Bytes of each request.
        #[serde(rename = "request_bytes")]
        request: ByteSize,
        /// Bytes of each response.
        #[serde(rename = "response_bytes")]
        response: ByteSize,
    },
    /// A connection for each request and its response. The token precedes the request, in the same segment.
    Crr {
        /// Bytes of each request.
        #[serde(rename = "request_bytes")]
        request: ByteSize,
        /// Bytes of each response.
        #[serde(rename = "response_bytes")]
        response: ByteSize,
    },
    /// Connections that are closed as soon as they are established.
    Cc,
    /// Bytes in one direction or both, as fast as the path allows, or at
    /// [`TestOptions::bitrate`](crate::options::TestOptions::bitrate).
    Stream {
        /// Bytes passed to the kernel by one call; over UDP, of one datagram.
        #[serde(rename = "message_bytes")]
        message: ByteSize,
        /// Sending endpoint.
        #[serde(default, skip_serializing_if = "crate::is_default")]
        direction: Direction,
    },
    /// Datagrams from the initiator to a multicast group that the responder has joined.
    Multicast {
        /// Bytes of each datagram.
        #[serde(rename = "message_bytes")]
        message: ByteSize,
    },
    /// A file, from disk to disk.
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
            Workload::Multicast { .. } => TestKind::Multicast,
            Workload::File { .. } => TestKind::File,
        }
    }

    /// Bytes of each message, request, response or file, by the kind of workload.
    pub fn sizes(&self) -> WorkloadSizes {
        match *self {
            Workload::Rr { request, response } | Workload::Crr { request, response } => {
                WorkloadSizes::Exchange { request, response }
            }
            Workload::Cc => WorkloadSizes::Nothing,
            Workload::Stream { message, .. } | Workload::Multicast { message } => WorkloadSizes::Messages(message),
            Workload::File { size } => WorkloadSizes::File(size),
        }
    }

    /// Returns the size of its file, if it sends one.
    pub fn file(&self) -> Option<ByteSize> {
        if let WorkloadSizes::File(size) = self.sizes() { Some(size) } else { None }
    }

    /// Returns the bytes that it passes to each call, if it sends a stream.
    pub fn message(&self) -> Option<ByteSize> {
        if let WorkloadSizes::Messages(size) = self.sizes() { Some(size) } else { None }
    }

    /// Returns the same with a file of this size, if it sends a file.
    pub fn with_file(self, size: ByteSize) -> Option<Workload> {
        self.file().map(|_| Workload::File { size })
    }

    /// Returns the same with messages of at most this size, if it sends a stream.
    #[must_use]
    pub fn with_message_at_most(self, most: ByteSize) -> Workload {
        match self {
            Workload::Stream { message, direction } => Workload::Stream { message: message.min(most), direction },
            Workload::Multicast { message } => Workload::Multicast { message: message.min(most) },
            other => other,
        }
    }

    /// The number of flows of a test with this many streams.
    pub fn flows(&self, streams: u32) -> u32 {
        if self.kind().is_both_ways() { streams.saturating_mul(2) } else { streams }
    }
}

impl TestSizes {
    /// Returns the workload of a network test with these sizes. None for other tests.
    pub fn workload(self, kind: TestKind) -> Option<Workload> {
        let TestSizes { request, response, message, file } = self;
        Some(match kind {
            TestKind::Rr => Workload::Rr { request, response },
            TestKind::Crr => Workload::Crr { request, response },
            TestKind::Cc => Workload::Cc,
            TestKind::Stream => Workload::Stream { message, direction: Direction::Forward },
            TestKind::Maerts => Workload::Stream { message, direction: Direction::Reverse },
            TestKind::Bidirectional => Workload::Stream { message, direction: Direction::Both },
            TestKind::Multicast => Workload::Multicast { message },
            TestKind::File => Workload::File { size: file },
            TestKind::Random | TestKind::Sequential | TestKind::Migration => return None,
        })
    }
}
