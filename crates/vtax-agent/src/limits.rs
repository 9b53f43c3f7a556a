//! What an agent takes on.
//!
//! An agent may stand on a machine that others use, and whoever holds its control stream may
//! be wrong. No order makes it start threads, hold memory or run without bound.

use std::time::Duration;

use vtax_engine::STREAMS_MOST;
use vtax_model::{
    units::{ByteSize, Mtu, Span},
    workload::{TestSpec, Workload, WorkloadError},
};

/// Sessions at the same time, running or waiting for their report to be fetched.
pub const SESSIONS_MOST: usize = 1024;
/// Flows of all running sessions together: both ends of the largest test. A flow is a thread
/// and a socket; the program raises its limit of open files accordingly.
pub const FLOWS_MOST: u32 = 2 * STREAMS_MOST;
/// Message buffers of all running sessions together.
pub const BUFFERS_MOST: ByteSize = ByteSize(1 << 30);
/// Warm-up and measured time of one session together.
pub const TIME_MOST: Span = Span(Duration::from_secs(24 * 60 * 60));
/// The largest file that is sent.
pub const FILE_MOST: ByteSize = ByteSize(1 << 40);
/// What a file goes through.
const FILE_BUFFER: ByteSize = ByteSize(1 << 20);
/// CPUs in a setup: as many as Linux can be built for (`NR_CPUS`).
pub const CPUS_MOST: usize = 8192;

/// An order beyond the limits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LimitError {
    /// Sizes that the transport can't carry at any MTU.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// Nothing would be sent.
    #[error("0 streams: nothing would be sent; give at least 1")]
    NoStreams,
    /// Nothing would be measured.
    #[error("a measured time of 0: nothing would be measured; give some seconds")]
    NoTime,
    /// Too long.
    #[error("a test of {asked} is beyond what an agent runs: at most {TIME_MOST} with its warm-up")]
    Time {
        /// Warm-up and measured time.
        asked: Span,
    },
    /// Too large.
    #[error("a file of {asked} is beyond what an agent sends: at most {FILE_MOST}")]
    File {
        /// As asked.
        asked: ByteSize,
    },
    /// Too many CPUs named.
    #[error("{asked} CPUs to pin to: no Linux has more than {CPUS_MOST}")]
    Cpus {
        /// As asked.
        asked: usize,
    },
    /// Too many sessions.
    #[error("{SESSIONS_MOST} sessions are open on this agent already; finish or cancel some")]
    Sessions,
    /// More flows than the engine runs.
    #[error("{asked} streams are beyond what one end runs: at most {STREAMS_MOST}")]
    Streams {
        /// As asked.
        asked: u32,
    },
    /// Too many flows.
    #[error(
        "{asked} streams, with {running} running already, are beyond what an agent runs: at most {FLOWS_MOST} at once"
    )]
    Flows {
        /// By this order.
        asked: u32,
        /// By the sessions before it.
        running: u32,
    },
    /// Too much memory.
    #[error(
        "message buffers of {asked}, with {running} in use already, are beyond what an agent holds: at most {BUFFERS_MOST}; use fewer streams or smaller messages"
    )]
    Buffers {
        /// By this order.
        asked: ByteSize,
        /// By the sessions before it.
        running: ByteSize,
    },
}

/// What a session takes of an agent while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Flows.
    pub flows: u32,
    /// Message buffers.
    pub buffers: ByteSize,
}

impl Load {
    /// Of an idle agent.
    pub const NONE: Load = Load { flows: 0, buffers: ByteSize(0) };

    /// Of a test that an idle agent would take on.
    pub fn of(spec: &TestSpec) -> Result<Load, LimitError> {
        spec.workload.check(spec.transport, Mtu::MAX)?;
        check_time(spec)?;
        check_streams(spec)?;
        let per_flow = match spec.workload {
            Workload::Rr { request, response } => request.max(response),
            Workload::Stream { message } => message,
            Workload::File { size } => Load::of_file(size)?.buffers,
        };
        let buffers = ByteSize(per_flow.0.saturating_mul(spec.streams.into()));
        Load::NONE.plus(Load { flows: spec.streams, buffers })
    }

    /// Of making a file, or of moving one.
    pub fn of_file(size: ByteSize) -> Result<Load, LimitError> {
        if size > FILE_MOST {
            return Err(LimitError::File { asked: size });
        }
        Ok(Load { flows: 1, buffers: FILE_BUFFER })
    }

    /// With another session beside it, if the agent can take both.
    pub fn plus(self, asked: Load) -> Result<Load, LimitError> {
        let flows = self.flows.saturating_add(asked.flows);
        let buffers = ByteSize(self.buffers.0.saturating_add(asked.buffers.0));
        if flows > FLOWS_MOST {
            return Err(LimitError::Flows { asked: asked.flows, running: self.flows });
        }
        if buffers > BUFFERS_MOST {
            return Err(LimitError::Buffers { asked: asked.buffers, running: self.buffers });
        }
        Ok(Load { flows, buffers })
    }
}

fn check_streams(spec: &TestSpec) -> Result<(), LimitError> {
    match spec.streams {
        0 => Err(LimitError::NoStreams),
        1..=STREAMS_MOST => Ok(()),
        asked => Err(LimitError::Streams { asked }),
    }
}

fn check_time(spec: &TestSpec) -> Result<(), LimitError> {
    let asked = Span(spec.warmup.0.saturating_add(spec.duration.0));
    let ends_by_itself = matches!(spec.workload, Workload::File { .. });
    match spec.duration.0 {
        _ if asked > TIME_MOST => Err(LimitError::Time { asked }),
        Duration::ZERO if !ends_by_itself => Err(LimitError::NoTime),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vtax_model::workload::{MESSAGE_MOST, Transport};

    fn stream(message: u64, streams: u32, seconds: u64) -> TestSpec {
        TestSpec {
            transport: Transport::Tcp,
            workload: Workload::Stream { message: ByteSize(message) },
            streams,
            warmup: Span::from_millis(0),
            duration: Span(Duration::from_secs(seconds)),
        }
    }

    #[test]
    fn hostile_orders_are_refused() {
        let refused = |spec: TestSpec| Load::of(&spec).expect_err("hostile");
        assert!(matches!(refused(stream(1, u32::MAX, 1)), LimitError::Streams { .. }));
        assert!(matches!(refused(stream(MESSAGE_MOST.0 + 1, 1, 1)), LimitError::Workload(_)));
        assert!(matches!(refused(stream(MESSAGE_MOST.0, 100, 1)), LimitError::Buffers { .. }));
        assert!(matches!(refused(stream(1, 1, 3_155_760_000)), LimitError::Time { .. }));
        assert!(matches!(refused(stream(1, 1, u64::MAX)), LimitError::Time { .. }));
        assert_eq!(refused(stream(1, 0, 1)), LimitError::NoStreams);
        assert_eq!(refused(stream(1, 1, 0)), LimitError::NoTime);
    }

    #[test]
    fn a_file_needs_no_time_but_has_a_limit() {
        let file = |bytes| TestSpec { workload: Workload::File { size: ByteSize(bytes) }, ..stream(1, 1, 0) };
        assert!(Load::of(&file(1000 << 20)).is_ok());
        assert!(matches!(Load::of(&file(u64::MAX)), Err(LimitError::File { .. })));
    }

    #[test]
    fn sessions_share_the_limits() {
        let half = Load::of(&stream(1, FLOWS_MOST / 2, 1)).expect("fits");
        let both = half.plus(half).expect("fits");
        assert!(matches!(both.plus(half), Err(LimitError::Flows { running: FLOWS_MOST, .. })));
    }

    proptest! {
        #[test]
        fn what_is_taken_on_is_within_the_limits(message: u64, streams: u32, seconds: u64) {
            if let Ok(load) = Load::of(&stream(message, streams, seconds)) {
                prop_assert!(load.flows <= FLOWS_MOST && load.buffers <= BUFFERS_MOST);
                prop_assert!(seconds <= TIME_MOST.0.as_secs());
            }
        }
    }
}
