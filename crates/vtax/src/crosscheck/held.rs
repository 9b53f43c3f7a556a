//! What is the same for our engine and for all other tools: whether CPUs may sleep, and TCP's congestion control.

use serde::Serialize;
use vtax_model::options::{CongestionControl, Idle};
use vtax_sys::idle::{self, IdleHold};

/// What the user wants to be the same for all tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Held {
    /// Whether CPUs may sleep.
    pub(crate) idle: Idle,
    /// TCP's congestion control of every tool; none for the machine's own.
    #[serde(rename = "congestion_control")]
    pub(crate) congestion: Option<CongestionControl>,
}

/// Keeps CPUs from sleeping for as long as the returned value lives, if the user asks for it; or tells why vtax may not.
pub(super) fn hold(idle: Idle) -> (Option<IdleHold>, Option<String>) {
    match (idle == Idle::Poll).then(idle::hold).transpose() {
        Ok(hold) => (hold, None),
        Err(error) => (None, Some(error.to_string())),
    }
}
