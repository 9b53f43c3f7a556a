//! What is the same for our engine and for all other tools: whether CPUs may sleep, and TCP's congestion control.

use serde::Serialize;
use vtax_model::options::{CongestionControl, Idle};
use vtax_sys::idle::{self, IdleHold};

/// What is held still, as it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Held {
    /// Whether CPUs may sleep.
    pub(crate) idle: Idle,
    /// TCP's congestion control of every tool; none for the machine's own.
    #[serde(rename = "congestion_control")]
    pub(crate) congestion: Option<CongestionControl>,
}

/// Keeps CPUs from sleeping if that is asked for, for as long as the first lives; or tells why it may not.
pub(super) fn hold(idle: Idle) -> (Option<IdleHold>, Option<String>) {
    match (idle == Idle::Poll).then(idle::hold).transpose() {
        Ok(hold) => (hold, None),
        Err(error) => (None, Some(error.to_string())),
    }
}
