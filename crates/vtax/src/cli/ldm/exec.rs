//! `vtax ldm exec`.

use std::{ffi::OsString, time::Duration};

use miette::miette;
use vtax_domain::LdmHost;
use vtax_guest::{launch::Boot, process::Qemu};
use vtax_model::{domain::PRIMARY, topology::Name};
use vtax_run::labs;

use super::super::guest_command::{CommandGuest, words};
use crate::{
    exit::{Blamed, Exit, Stop},
    progress,
};

/// A guest with its own system has opened the agent's port long before a command arrives.
const OPEN_ALREADY: Duration = Duration::from_secs(2);

/// Runs a command in an active domain, and exits with its status.
pub(super) fn exec(host: &LdmHost, name: &Name, command: &[OsString]) -> Result<Exit, Stop> {
    let command = words(command, "domain")?;
    host.read()?.configuration.domain(name).or_input()?;
    if name.as_str() == PRIMARY {
        return Err(of_primary(host));
    }
    let (_, mut qemu) = host.domains()?.active(name)?;
    let is_own = matches!(qemu.launch().boot, Boot::Kernel { .. });
    if !is_own && qemu.wait_agent(OPEN_ALREADY).is_err() {
        return Err(no_agent(name));
    }
    if is_own {
        // It may still be booting.
        labs::wait_for_agent(&mut qemu, None, &progress::terminal()).or_infrastructure()?;
    }
    let (whom, renewal) = (format!("domain {name}"), format!("stop and start {name} to add it"));
    CommandGuest { whom, qemu: &qemu, renewal }.exec(&command, || connect(name, &qemu))
}

fn connect(name: &Name, qemu: &Qemu) -> Result<vtax_wire::link::AgentLink, Stop> {
    labs::connect(&format!("domain {name}"), qemu).or_infrastructure()
}

fn of_primary(host: &LdmHost) -> Stop {
    let remedy = match host.within() {
        Some(within) => format!("run vtax lab exec {} {} -- COMMAND", within.lab, within.host),
        None => "run the command directly, without vtax".to_owned(),
    };
    Stop::input(miette!(code = "is-primary", "primary is the host itself and has no agent; instead, {remedy}"))
}

fn no_agent(domain: &Name) -> Stop {
    Stop::input(miette!(
        code = "no-domain-agent",
        "{domain} boots an image with its own system, and no vtax agent has opened its port there; start \
         `vtax-agent --port` of this version in {domain} at boot, or log in at its console (vtax ldm list shows its port), \
         or by ssh at one of its addresses"
    ))
}
