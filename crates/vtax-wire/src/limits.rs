//! The limits of what an agent accepts.
//!
//! An agent may be on a machine that others use, and its coordinator may be faulty. So no order can make it start
//! threads, use memory or run without a limit.

use std::{thread::available_parallelism, time::Duration};

use vtax_model::{
    measurement::{ECHO_LEAST, EchoWatch},
    options::{self, Engine, INTERVALS_MOST},
    units::{ByteSize, Mtu, Span},
    workload::{SpecError, TestSpec, WorkloadSizes},
};

use crate::protocol::ProgramSpec;

/// The maximum number of concurrent sessions: running ones, and those whose report hasn't been fetched.
pub const SESSIONS_MOST: usize = 1024;
/// The maximum number of tuning orders that may wait while one is executed. A coordinator waits for each answer.
pub const TUNING_ORDERS_MOST: usize = 8;
/// The maximum number of flows of all running sessions: both ends of the largest test. A flow is a socket, plus a
/// thread with the engine `blocking`; the program raises its open-file limit accordingly.
pub const FLOWS_MOST: u32 = 2 * options::FLOWS_MOST;
/// Upper limit of message buffers of all running sessions.
pub const BUFFERS_MOST: ByteSize = ByteSize(1 << 30);
/// The longest warm-up and measured time of one session together.
pub const TIME_MOST: Span = Span(Duration::from_secs(24 * 60 * 60));
/// The largest file that an agent sends.
pub const FILE_MOST: ByteSize = ByteSize(1 << 40);
/// The maximum number of bytes on a program's standard input. They arrive in one frame with the order to run it
/// ([`REQUEST_MOST`](crate::frame::REQUEST_MOST)).
pub const INPUT_MOST: ByteSize = ByteSize(512 << 10);
/// Bytes of each output of a program that the agent keeps, from the beginning. It keeps nothing of streamed outputs.
pub const OUTPUT_MOST: ByteSize = ByteSize(1 << 20);
/// The largest window for streamed outputs.
pub const WINDOW_MOST: ByteSize = ByteSize(1 << 20);
/// Time limit of a program whose outputs are streamed. It is long, because a user is watching.
pub const WATCHED_MOST: Span = Span(Duration::from_secs(30 * 24 * 60 * 60));
/// The buffer for sending or receiving a file.
const FILE_BUFFER: ByteSize = ByteSize(1 << 20);
/// The receive buffer is at least this large, however short the messages are, and at most the next constant.
const INCOMING_LEAST: ByteSize = ByteSize(128 << 10);
const INCOMING_MOST: ByteSize = ByteSize(1 << 20);
/// An endpoint's memory per flow, in addition to its messages.
const FLOW_STATE: ByteSize = ByteSize(4 << 10);
/// The maximum number of CPUs in a setup: as many as Linux supports (`NR_CPUS`).
pub const CPUS_MOST: usize = 8192;

/// The reason why an order exceeds the limits.
#[derive(Debug, Clone, PartialEq, Eq, miette::Diagnostic, thiserror::Error)]
pub enum LimitError {
    #[error(transparent)]
    #[diagnostic(transparent)]
    Spec(#[from] SpecError),
    #[error("a duration of 0 measures nothing; use several seconds")]
    #[diagnostic(code("no-test-time"))]
    NoTime,
    #[error("{asked} is too long: an agent runs a test and its warm-up for at most {TIME_MOST}")]
    #[diagnostic(code("agent-limit"))]
    Time { asked: Span },
    #[error("{asked} is too long: an agent runs a program for at most {most}")]
    #[diagnostic(code("agent-limit"))]
    ProgramTime { asked: Span, most: Span },
    #[error("{asked} is too short: an agent sends at most one echo request every {ECHO_LEAST}")]
    #[diagnostic(code("agent-limit"))]
    EchoInterval { asked: Span },
    #[error("a window of {asked} for the output of a program in a guest: at most {WINDOW_MOST}")]
    #[diagnostic(code("agent-limit"))]
    Window { asked: ByteSize },
    #[error("{asked} on the standard input of a program in a guest: at most {INPUT_MOST}")]
    #[diagnostic(code("agent-limit"))]
    Input { asked: ByteSize },
    #[error("invalid interval 0; use e.g. --interval 100ms")]
    #[diagnostic(code("interval-too-short"))]
    NoInterval,
    #[error(
        "a series of {duration} in steps of {interval} has more than {INTERVALS_MOST} intervals; use at least {}",
        least_interval(*duration)
    )]
    #[diagnostic(code("interval-too-short"))]
    Intervals { duration: Span, interval: Span },
    #[error("a file of {asked} exceeds an agent's limit of {FILE_MOST}")]
    #[diagnostic(code("agent-limit"))]
    File { asked: ByteSize },
    #[error("{asked} CPUs to pin to: Linux supports at most {CPUS_MOST}")]
    #[diagnostic(code("agent-limit"))]
    Cpus { asked: usize },
    #[error("this agent already has {SESSIONS_MOST} open sessions; finish or cancel some")]
    #[diagnostic(code("agent-limit"))]
    Sessions,
    #[error("{TUNING_ORDERS_MOST} tuning requests are already queued")]
    #[diagnostic(code("agent-limit"))]
    TuningOrders,
    #[error("{asked} streams, with {running} already running, exceed an agent's limit of {FLOWS_MOST}")]
    #[diagnostic(code("agent-limit"))]
    Flows { asked: u32, running: u32 },
    #[error(
        "message buffers of {asked}, with {running} already in use, exceed an agent's limit of {BUFFERS_MOST}; use fewer streams or smaller messages"
    )]
    #[diagnostic(code("agent-limit"))]
    Buffers { asked: ByteSize, running: ByteSize },
}

/// A running session's share of an agent's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    pub flows: u32,
    pub buffers: ByteSize,
}

impl Load {
    /// The load of an idle agent.
    pub const NONE: Load = Load { flows: 0, buffers: ByteSize(0) };

    /// The load of a test. An error if even an idle agent can't accept it.
    pub fn of(spec: &TestSpec) -> Result<Load, LimitError> {
        spec.check(Mtu::MAX)?;
        check_time(spec)?;
        check_series(spec)?;
        let flows = flows(spec);
        let messages = buffer(spec)?.0.saturating_mul(threads(spec, flows).into());
        let state = FLOW_STATE.0.saturating_mul(flows.into());
        Load::NONE.plus(Load { flows, buffers: ByteSize(messages.saturating_add(state)) })
    }

    /// The load of creating or sending a file.
    pub fn of_file(size: ByteSize) -> Result<Load, LimitError> {
        if size > FILE_MOST {
            return Err(LimitError::File { asked: size });
        }
        Ok(Load { flows: 1, buffers: FILE_BUFFER })
    }

    /// The load of watching an address.
    pub fn of_watch(watch: &EchoWatch) -> Result<Load, LimitError> {
        match (watch.every, watch.most) {
            (every, _) if every < ECHO_LEAST => Err(LimitError::EchoInterval { asked: every }),
            (_, most) if most > TIME_MOST => Err(LimitError::Time { asked: most }),
            _ => Ok(Load { flows: 1, buffers: INCOMING_MOST }),
        }
    }

    /// The load of running a program in a guest.
    pub fn of_program(program: &ProgramSpec) -> Result<Load, LimitError> {
        let (asked, window) = (program.limit, program.window);
        let most = if window.is_some() { WATCHED_MOST } else { TIME_MOST };
        if asked > most {
            return Err(LimitError::ProgramTime { asked, most });
        }
        if let Some(asked) = window.filter(|window| *window > WINDOW_MOST) {
            return Err(LimitError::Window { asked });
        }
        let input = ByteSize(program.stdin.len() as u64);
        if input > INPUT_MOST {
            return Err(LimitError::Input { asked: input });
        }
        let outputs = window.map_or(2 * OUTPUT_MOST.0, |window| window.0);
        Ok(Load { flows: 1, buffers: ByteSize(outputs + input.0) })
    }

    /// The load of both sessions. An error if the agent can't accept both.
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

/// Returns the number of flows at each endpoint.
fn flows(spec: &TestSpec) -> u32 {
    spec.workload.flows(spec.streams)
}

/// Returns the number of threads at each endpoint; the flows of a thread share its buffers.
fn threads(spec: &TestSpec, flows: u32) -> u32 {
    let own = || available_parallelism().map_or(1, |cpus| cpus.get().try_into().unwrap_or(u32::MAX));
    match spec.options.engine {
        Engine::Blocking => flows,
        Engine::Epoll | Engine::BusyPoll | Engine::IoUring => spec.options.threads.unwrap_or_else(own).min(flows),
    }
}

/// The buffers of a thread: the engine has one to send from and one to receive into.
fn buffer(spec: &TestSpec) -> Result<ByteSize, LimitError> {
    let segments = spec.options.gso.map_or(1, |segments| segments.get().into());
    let message = match spec.workload.sizes() {
        WorkloadSizes::Exchange { request, response } => request.max(response),
        WorkloadSizes::Nothing => ByteSize(0),
        WorkloadSizes::Messages(message) => ByteSize(message.0.saturating_mul(segments)),
        WorkloadSizes::File(size) => Load::of_file(size)?.buffers,
    };
    Ok(ByteSize(message.0.saturating_add(message.0.clamp(INCOMING_LEAST.0, INCOMING_MOST.0))))
}

fn check_time(spec: &TestSpec) -> Result<(), LimitError> {
    let asked = Span(spec.warmup.most().0.saturating_add(spec.duration.0));
    let ends_by_itself = spec.workload.kind().is_file();
    match spec.duration.0 {
        _ if asked > TIME_MOST => Err(LimitError::Time { asked }),
        Duration::ZERO if !ends_by_itself => Err(LimitError::NoTime),
        _ => Ok(()),
    }
}

fn check_series(spec: &TestSpec) -> Result<(), LimitError> {
    let Some(interval) = spec.options.interval else { return Ok(()) };
    if interval.0.is_zero() {
        return Err(LimitError::NoInterval);
    }
    if spec.duration.0.as_nanos().div_ceil(interval.0.as_nanos()) > INTERVALS_MOST {
        return Err(LimitError::Intervals { duration: spec.duration, interval });
    }
    Ok(())
}

/// In whole milliseconds.
fn least_interval(duration: Span) -> Span {
    let most = Duration::from_millis(1).as_nanos() * INTERVALS_MOST;
    Span::from_millis(duration.0.as_nanos().div_ceil(most).try_into().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vtax_model::workload::{Direction, Workload};
    use vtax_model::{
        options::TestOptions,
        workload::{MESSAGE_MOST, Transport, Warmup},
    };

    fn stream(message: u64, streams: u32, seconds: u64) -> TestSpec {
        TestSpec {
            transport: Transport::Tcp,
            workload: Workload::Stream { message: ByteSize(message), direction: Direction::Forward },
            streams,
            warmup: Warmup::NONE,
            duration: Span(Duration::from_secs(seconds)),
            slices: None,
            options: TestOptions::default(),
        }
    }

    fn epoll(streams: u32) -> TestSpec {
        let options = TestOptions { engine: Engine::Epoll, threads: Some(2), ..TestOptions::default() };
        TestSpec { options, ..stream(128 << 10, streams, 1) }
    }

    #[test]
    fn hostile_orders_are_refused() {
        let refused = |spec: TestSpec| Load::of(&spec).expect_err("hostile");
        assert!(matches!(refused(stream(1, u32::MAX, 1)), LimitError::Spec(SpecError::Options(_))));
        assert!(matches!(refused(stream(MESSAGE_MOST.0 + 1, 1, 1)), LimitError::Spec(SpecError::Workload(_))));
        assert!(matches!(refused(stream(MESSAGE_MOST.0, 100, 1)), LimitError::Buffers { .. }));
        assert!(matches!(refused(stream(1, 1, 3_155_760_000)), LimitError::Time { .. }));
        assert!(matches!(refused(stream(1, 1, u64::MAX)), LimitError::Time { .. }));
        assert!(refused(stream(1, 0, 1)).to_string().contains("0 flows"));
        assert_eq!(refused(stream(1, 1, 0)), LimitError::NoTime);
    }

    #[test]
    fn an_endless_warmup_is_refused() {
        let most = Span(Duration::from_secs(u64::MAX));
        let endless = TestSpec { warmup: Warmup::UntilSteady { most }, ..stream(1, 1, 1) };
        assert!(matches!(Load::of(&endless), Err(LimitError::Time { .. })));
    }

    #[test]
    fn the_largest_test_fits_at_both_ends() {
        let one = Load::of(&epoll(options::FLOWS_MOST)).expect("fits");
        let both = one.plus(one).expect("both ends fit");
        assert_eq!(both.flows, FLOWS_MOST);
        assert!(Load::of(&epoll(options::FLOWS_MOST + 1)).is_err());
        let direction = Direction::Both;
        let workload = Workload::Stream { message: ByteSize(1), direction };
        let doubled = TestSpec { workload, ..epoll(options::FLOWS_MOST / 2) };
        assert_eq!(Load::of(&doubled).map(|load| load.flows), Ok(options::FLOWS_MOST));
    }

    #[test]
    fn a_series_is_bounded() {
        let series = |seconds, interval| {
            let options = TestOptions { interval: Some(Span(interval)), ..TestOptions::default() };
            Load::of(&TestSpec { options, ..stream(1, 1, seconds) })
        };
        assert!(series(1000, Duration::from_millis(100)).is_ok());
        assert_eq!(series(1, Duration::ZERO), Err(LimitError::NoInterval));
        let long = series(1001, Duration::from_millis(100)).expect_err("10,010 intervals").to_string();
        assert!(long.contains("at least 101ms"), "{long}");
        assert!(series(3600, Duration::from_nanos(1)).is_err());
    }

    #[test]
    fn a_file_needs_no_time_but_has_a_limit() {
        let file = |bytes| TestSpec { workload: Workload::File { size: ByteSize(bytes) }, ..stream(1, 1, 0) };
        assert!(Load::of(&file(1000 << 20)).is_ok());
        assert!(matches!(Load::of(&file(u64::MAX)), Err(LimitError::File { .. })));
    }

    #[test]
    fn sessions_share_the_limits() {
        let half = Load::of(&epoll(FLOWS_MOST / 2)).expect("fits");
        let both = half.plus(half).expect("fits");
        assert!(matches!(both.plus(half), Err(LimitError::Flows { running: FLOWS_MOST, .. })));
    }

    proptest! {
        #[test]
        fn accepted_load_is_within_the_limits(message: u64, streams: u32, seconds: u64) {
            if let Ok(load) = Load::of(&stream(message, streams, seconds)) {
                prop_assert!(load.flows <= FLOWS_MOST && load.buffers <= BUFFERS_MOST);
                prop_assert!(seconds <= TIME_MOST.0.as_secs());
            }
        }
    }
}
