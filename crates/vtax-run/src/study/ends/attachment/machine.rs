//! This machine or one that ssh reaches, as it is.

use std::path::Path;

use super::{super::agent::Agent, Attachment};
use crate::{
    events::RunEvents,
    stop::{Blamed, Stop},
};

pub(in crate::study::ends) enum MachineEnd {
    Local,
    /// The host as the user's ssh knows it.
    Ssh(String),
}

impl Attachment for MachineEnd {
    fn is_in_stack_of_vtax(&self) -> bool {
        matches!(self, MachineEnd::Local)
    }

    fn start_agent(&self, name: &str, program: &Path, events: &RunEvents) -> Result<Agent, Stop> {
        match self {
            MachineEnd::Local => Agent::local(program).or_infrastructure(),
            MachineEnd::Ssh(host) => {
                events.tell(format_args!("connecting to {name}"));
                Agent::ssh(host, program)
            }
        }
    }
}
