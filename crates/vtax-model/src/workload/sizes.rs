//! Sizes of workloads, for code that depends only on sizes and not on the workload.

use crate::units::ByteSize;

/// Payload sizes in bytes; the kind of workload decides which of them exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkloadSizes {
    /// Messages that are answered.
    Exchange {
        /// Bytes of each request.
        request: ByteSize,
        /// Bytes of each response.
        response: ByteSize,
    },
    /// Consecutive messages.
    Messages(ByteSize),
    /// Transfer of a file of this size.
    File(ByteSize),
    /// Only what opens and closes a connection.
    Nothing,
}

/// Sizes of a test; those that it lacks are ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestSizes {
    /// Bytes of each request of an RR or CRR test; other tests ignore it.
    pub request: ByteSize,
    /// Bytes of each response of an RR or CRR test; other tests ignore it.
    pub response: ByteSize,
    /// Bytes that a stream sends with each call.
    pub message: ByteSize,
    /// Bytes of the file of a file test; other tests ignore it.
    pub file: ByteSize,
}

impl WorkloadSizes {
    /// Returns each with its name: `request`, `response`, `message` or `file`.
    pub fn named(self) -> Vec<(&'static str, ByteSize)> {
        match self {
            WorkloadSizes::Exchange { request, response } => vec![("request", request), ("response", response)],
            WorkloadSizes::Messages(message) => vec![("message", message)],
            WorkloadSizes::File(size) => vec![("file", size)],
            WorkloadSizes::Nothing => vec![],
        }
    }

    /// Returns the size of this name, if the workload has it.
    pub fn get(self, name: &str) -> Option<ByteSize> {
        self.named().into_iter().find(|(known, _)| *known == name).map(|(_, size)| size)
    }
}
