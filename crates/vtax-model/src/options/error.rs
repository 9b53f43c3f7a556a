//! Reasons why a test can't have an option.

use super::{BURST_MOST, Engine, FLOWS_MOST, Idle, Segments};
use crate::{
    spelling::available,
    workload::{TestKind, Transport},
};

/// Options that a test can't have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum OptionError {
    #[error("unknown engine `{_0}`; {}", available(_0, &Engine::ALL.map(<&str>::from)))]
    #[diagnostic(code("unknown-name"))]
    UnknownEngine(String),
    #[error("unknown idle `{_0}`; {}", available(_0, &Idle::ALL.map(<&str>::from)))]
    #[diagnostic(code("unknown-name"))]
    UnknownIdle(String),
    #[error("`{0}` is not a number")]
    #[diagnostic(code("not-a-number"))]
    NotANumber(String),
    #[error("{0} requests in flight: must be 1 to {BURST_MOST}")]
    #[diagnostic(code("bad-option"))]
    Burst(u32),
    #[error("invalid request rate `{0}`; use requests/s, at least 1, e.g. 500, 10k or 1M")]
    #[diagnostic(code("bad-rate"))]
    Rate(String),
    #[error("{0} datagrams per call: must be 2 to {most}", most = Segments::MOST.0)]
    #[diagnostic(code("bad-option"))]
    Segments(u32),
    #[error(
        "invalid congestion control `{0}`; the kernel lists the available ones in net.ipv4.tcp_available_congestion_control"
    )]
    #[diagnostic(code("bad-congestion-control"))]
    CongestionControl(String),
    #[error("invalid DSCP `{0}`; use 0 to 63 or a name, e.g. cs1, af21, ef")]
    #[diagnostic(code("bad-dscp"))]
    Dscp(String),
    #[error(
        "{asked} flows: the engine `{engine}` runs 1 to {most}{more}",
        most = engine.flows_most(),
        more = match (engine, asked) {
            (Engine::Blocking, 1..=FLOWS_MOST) => format!("; use --engine epoll, which runs up to {FLOWS_MOST}"),
            (Engine::Blocking, asked) if *asked > 0 => format!("; the other engines run up to {FLOWS_MOST}"),
            _ => String::new(),
        }
    )]
    #[diagnostic(code("too-many-flows"))]
    Flows { asked: u32, engine: Engine },
    #[error("{threads} threads for {flows} flows: {why}")]
    #[diagnostic(code("wrong-thread-count"))]
    Threads { threads: u32, flows: u32, why: &'static str },
    #[error("`{option}` applies to {of}, not to {transport} {test}; omit it")]
    #[diagnostic(code("option-not-for-this"))]
    NotForTest { option: &'static str, of: &'static str, transport: Transport, test: TestKind },
    #[error("`outage` requires {why}")]
    #[diagnostic(code("option-not-for-this"))]
    Outage { why: &'static str },
    #[error("`{first}` and `{second}` are mutually exclusive: {why}")]
    #[diagnostic(code("options-clash"))]
    Clash { first: &'static str, second: &'static str, why: &'static str },
}

impl OptionError {
    pub(super) fn unknown_engine(text: &str) -> OptionError {
        OptionError::UnknownEngine(text.to_owned())
    }

    pub(super) fn unknown_idle(text: &str) -> OptionError {
        OptionError::UnknownIdle(text.to_owned())
    }
}
