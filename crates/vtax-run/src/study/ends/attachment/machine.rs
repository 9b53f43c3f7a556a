//! This machine, or one reached over ssh, in its current state.

use std::path::Path;

use super::{
    super::{agent::Agent, dial::AgentConnection},
    Attachment,
};
use crate::stop::{Blamed, Stop};

pub(in crate::study::ends) enum MachineEnd {
    Local,
    /// Destination, as passed to ssh.
    Ssh(String),
}

impl Attachment for MachineEnd {
    fn is_in_stack_of_vtax(&self) -> bool {
        matches!(self, MachineEnd::Local)
    }

    fn dial<'a>(&'a self, name: &'a str, program: &'a Path) -> Result<AgentConnection<'a>, Stop> {
        Ok(match self {
            MachineEnd::Local => Box::new(|_| Agent::local(program).or_infrastructure()),
            MachineEnd::Ssh(host) => Box::new(move |events| {
                events.tell(format_args!("connecting to {name}"));
                Agent::ssh(host, program)
            }),
        })
    }
}
