//! The sizes of workloads. What only depends on sizes asks these, and not which workload has them.

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
    /// Messages one after another.
    Messages(ByteSize),
    /// Transfer of a file of this size.
    File(ByteSize),
    /// Nothing but what makes and ends a connection.
    Nothing,
}

/// The sizes of a test, as far as it has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestSizes {
    /// Bytes of each request of an RR or CRR test; other tests ignore it.
    pub request: ByteSize,
    /// Bytes of each response of an RR or CRR test; other tests ignore it.
    pub response: ByteSize,
    /// The bytes that a stream sends with each call.
    pub message: ByteSize,
    /// Bytes of the file of a file test; other tests ignore it.
    pub file: ByteSize,
}

impl WorkloadSizes {
    /// Each with its name: `request`, `response`, `message` or `file`.
    pub fn named(self) -> Vec<(&'static str, ByteSize)> {
        match self {
            WorkloadSizes::Exchange { request, response } => vec![("request", request), ("response", response)],
            WorkloadSizes::Messages(message) => vec![("message", message)],
            WorkloadSizes::File(size) => vec![("file", size)],
            WorkloadSizes::Nothing => vec![],
        }
    }

    /// The size of this name, if the workload has it.
    pub fn get(self, name: &str) -> Option<ByteSize> {
        self.named().into_iter().find(|(known, _)| *known == name).map(|(_, size)| size)
    }
}
