//! Agents on the hosts of a mesh.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use miette::miette;
use vtax_model::endpoint::Control;
use vtax_wire::{pool::AgentDial, ssh};

use super::attachment::namespace::HeldNamespace;
use crate::{
    labs::GREETING,
    stop::{Blamed, Coded, Stop},
};

/// Time limit for each step over ssh: login, copy of the agent, greeting.
const LOGIN: Duration = Duration::from_secs(30);

/// Begins to connect to the agent of a host. An agent on this machine is started here; in a network namespace, it ends
/// with the calling thread.
pub(crate) fn mesh_dial(control: &Control, program: &Path) -> Result<AgentDial, Stop> {
    let name = control.to_string();
    match control {
        Control::Ssh(host) => {
            ssh::check(host).or_input()?;
            Ok(AgentDial::ssh(host, program, LOGIN))
        }
        Control::Namespace(end) => Ok(AgentDial::child(name, HeldNamespace::open(end)?.start(program)?, GREETING)),
        Control::Local => {
            let mut command = Command::new(program);
            command.arg("--stdio").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let child = command.spawn().coded("agent-not-started", || format!("starting {}", program.display()));
            Ok(AgentDial::child(name, child.or_infrastructure()?, GREETING))
        }
        Control::Zone { .. } | Control::Libvirt { .. } | Control::Domain(_) | Control::Pod(_) => {
            Err(Stop::input(miette!(
                code = "option-not-for-this",
                "{name}: a mesh measures hosts (ssh:HOST) and network namespaces (netns:NAME, pid:PID, container:NAME)"
            )))
        }
    }
}
