//! Connects to the agents of several endpoints concurrently, because a single login may take half a minute.

use std::{path::Path, sync::Arc};

use vtax_wire::pool::dial_all;

use super::{agent::Agent, attachment::Attachment};
use crate::{events::RunEvents, stop::Stop};

/// Slow part of connecting to an agent, which any thread can execute.
pub(super) type AgentConnection<'a> = Box<dyn FnOnce(&RunEvents) -> Result<Agent, Stop> + Send + 'a>;

/// An agent to connect to.
pub(super) struct DialledEnd<K> {
    pub(super) key: K,
    /// Name of its endpoint in errors.
    pub(super) name: String,
    pub(super) attachment: Box<dyn Attachment>,
}

/// Connects to all agents. The error names every endpoint whose agent can't be reached.
pub(super) fn connect_all<K: Clone>(
    ends: &[DialledEnd<K>],
    program: &Path,
    events: &RunEvents,
) -> Result<Vec<(K, Arc<Agent>)>, Stop> {
    let dials = ends.iter().map(|end| end.attachment.dial(&end.name, program)).collect();
    let connected = dial_all(dials, |dial: Result<AgentConnection<'_>, Stop>| dial.and_then(|dial| dial(events)));
    let (mut agents, mut failures) = (Vec::new(), Vec::new());
    for (end, connected) in ends.iter().zip(connected) {
        match connected {
            Ok(agent) => agents.push((end.key.clone(), Arc::new(agent))),
            Err(stop) => failures.push(stop),
        }
    }
    Stop::of_all(failures).map_or(Ok(agents), Err)
}
