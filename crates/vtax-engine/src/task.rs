//! The workloads: straight-line code for one flow, on any engine.

pub(crate) mod accept;
pub(crate) mod answers;
pub(crate) mod connections;
pub(crate) mod echo;
mod handover;
mod line;
pub(crate) mod pipelined;
pub(crate) mod requests;
pub(crate) mod rr;
mod schedule;
pub(crate) mod sink;
pub(crate) mod source;
pub(crate) mod transactions;

pub(crate) use line::FlowOnPoller;

use vtax_model::{units::ByteSize, workload::TestSpec};

/// Bytes of the two messages of a transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MessageSizes {
    pub(crate) request: usize,
    pub(crate) response: usize,
}

impl MessageSizes {
    pub(crate) fn new(request: ByteSize, response: ByteSize) -> MessageSizes {
        MessageSizes { request: bytes(request), response: bytes(response) }
    }
}

pub(crate) fn bytes(size: ByteSize) -> usize {
    usize::try_from(size.0).expect("a message of a checked test is at most 64 MiB")
}

/// The longest datagram of a test, plus one byte to detect a longer one.
fn longest_datagram(expected: usize) -> usize {
    expected.max(crate::wire::GREETING_LEN) + 1
}

/// Returns true if a test has several requests per flow in flight.
pub(crate) fn is_pipelined(spec: &TestSpec) -> bool {
    spec.options.burst.get() > 1 || spec.options.arrivals.is_some()
}
