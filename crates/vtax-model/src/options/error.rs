//! Why a test can't have an option.

use super::{BURST_MOST, Engine, FLOWS_MOST, Idle, Segments};
use crate::workload::{TestKind, Transport};

/// Options that a test can't have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// No such engine.
    #[error("unknown engine `{0}`; there are {known}", known = Engine::ALL.map(Engine::name).join(", "))]
    UnknownEngine(String),
    /// No such way to be idle.
    #[error("unknown idle `{0}`; there are {known}", known = Idle::ALL.map(Idle::name).join(", "))]
    UnknownIdle(String),
    /// Neither a name nor a number.
    #[error("`{0}` is not a number")]
    NotANumber(String),
    /// None, or too many.
    #[error("{0} requests in flight: give 1 to {BURST_MOST}")]
    Burst(u32),
    /// Not a number of requests a second, or none.
    #[error("`{0}` is not a rate of requests; write how many a second, at least 1, as 500, 10k or 1M")]
    Rate(String),
    /// One, or more than the kernel cuts.
    #[error("{0} datagrams a call: give 2 to {most}", most = Segments::MOST.0)]
    Segments(u32),
    /// Not a name that the kernel could have.
    #[error("`{0}` is no congestion control; the kernel lists its own in net.ipv4.tcp_available_congestion_control")]
    CongestionControl(String),
    /// Neither a number below 64 nor a name.
    #[error("`{0}` is no DSCP; give 0 to 63 or a name as cs1, af21, ef")]
    Dscp(String),
    /// No flow, or more than the engine runs.
    #[error(
        "{asked} flows: the engine `{engine}` runs 1 to {most}{more}",
        most = engine.flows_most(),
        more = match (engine, asked) {
            (Engine::Blocking, 1..=FLOWS_MOST) => format!("; use --engine epoll, which runs up to {FLOWS_MOST}"),
            (Engine::Blocking, asked) if *asked > 0 => format!("; the other engines run up to {FLOWS_MOST}"),
            _ => String::new(),
        }
    )]
    Flows {
        /// As asked.
        asked: u32,
        /// As asked.
        engine: Engine,
    },
    /// A number of threads that makes no sense.
    #[error("{threads} threads for {flows} flows: {why}")]
    Threads {
        /// As asked.
        threads: u32,
        /// Of the test.
        flows: u32,
        /// What is wrong with it.
        why: &'static str,
    },
    /// An option of other tests or transports.
    #[error("`{option}` is for {of}, not for {transport} {test}; leave it out")]
    NotForTest {
        /// The option's name.
        option: &'static str,
        /// What has it.
        of: &'static str,
        /// The transport that was asked for.
        transport: Transport,
        /// The test that was asked for.
        test: TestKind,
    },
    /// Two options that exclude each other.
    #[error("`{first}` and `{second}` exclude each other: {why}")]
    Clash {
        /// One.
        first: &'static str,
        /// The other.
        second: &'static str,
        /// Why.
        why: &'static str,
    },
}
