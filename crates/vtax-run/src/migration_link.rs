//! Links to the target of a migration, and the target's end of a link over ssh.
//!
//! Orders and memory take separate paths. For a host of a lab on this machine, both come from this process. Another
//! machine gets orders from `vtax ldm serve`, memory from `vtax ldm receive-guest`, each of several channels of it from
//! `vtax ldm receive-channel`, and each copied disk from `vtax ldm receive-disk`, each with a separate login: none of them listens on a network, and each ends with its connection.

mod channels;
mod lab;
mod reception;
mod relay;
mod ssh;

use std::sync::Arc;

use vtax_domain::{BindError, DomainNotice, TargetLink};
use vtax_model::topology::Name;
use vtax_wire::link::AgentLink;

pub use self::{
    lab::LabTarget,
    relay::{reach_agent, receive_channel, receive_disk, receive_guest},
    ssh::SshTarget,
};
use crate::stop::Stop;

/// Receives notices from the target.
type Hear = Arc<dyn Fn(DomainNotice) + Send + Sync>;

/// Target of a migration, and its domains.
pub trait ReachableTarget: TargetLink {
    /// Connects to the agent in a domain there.
    fn guest_agent(&mut self, domain: &Name) -> Option<AgentLink>;
}

/// Returns the error of a target, or of the way to it.
fn of_target(target: &str, stop: &Stop) -> BindError {
    BindError::MigrationTarget { target: target.to_owned(), why: stop.to_string() }
}
