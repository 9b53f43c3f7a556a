//! What should run for the bound domains and doesn't.

use std::fmt;

use serde::Serialize;
use vtax_model::{domain::DomainState, topology::Name};

use crate::{bound::BoundDomain, domains::Domains};

/// Something that should run for a domain and doesn't, or hangs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Down {
    /// A bound domain has no QEMU.
    Qemu {
        /// Which one is without a process for its CPUs.
        domain: Name,
    },
    /// The QEMU of a domain is stopped by a signal or a debugger (proc_pid_stat(5)).
    Stopped {
        /// Whose CPUs stand still until QEMU is continued.
        domain: Name,
    },
    /// Nobody watches a domain that runs.
    Supervisor {
        /// Which one would neither boot again nor be noticed if it fails.
        domain: Name,
    },
    /// The system of a domain rebooted again and again, so that the domain was stopped.
    RebootLoop {
        /// Which one is bound now, with its console log kept.
        domain: Name,
    },
    /// Nobody listens at the port of a console.
    Console {
        /// Whose console can't be reached by telnet.
        domain: Name,
        /// Where the console service would listen.
        port: u16,
    },
}

impl Down {
    /// The domain that it is about.
    pub fn domain(&self) -> &Name {
        match self {
            Down::Qemu { domain }
            | Down::Stopped { domain }
            | Down::Supervisor { domain }
            | Down::RebootLoop { domain }
            | Down::Console { domain, .. } => domain,
        }
    }
}

impl Domains {
    /// What should run for these domains and doesn't.
    pub fn down(&self, bound: &[BoundDomain]) -> Vec<Down> {
        let is_served = self.is_served();
        bound.iter().flat_map(|bound| down(bound, is_served)).collect()
    }
}

fn down(bound: &BoundDomain, is_served: bool) -> Vec<Down> {
    let domain = || bound.name().clone();
    let (qemu, state) = (bound.qemu(), bound.state());
    let is_stopped = qemu.as_ref().is_some_and(|qemu| qemu.process().is_stopped());
    let is_watched = state != DomainState::Active || bound.has_supervisor();
    let is_rebooting = state == DomainState::Active;
    let console = bound.bindings.console.as_ref().filter(|_| !is_served);
    [
        (qemu.is_none() && !is_rebooting).then(|| Down::Qemu { domain: domain() }),
        is_stopped.then(|| Down::Stopped { domain: domain() }),
        (!is_watched).then(|| Down::Supervisor { domain: domain() }),
        bound.is_in_reboot_loop.then(|| Down::RebootLoop { domain: domain() }),
        console.map(|console| Down::Console { domain: domain(), port: console.port }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

impl fmt::Display for Down {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const STARTED: &str = "the next vtax ldm command that changes something starts it";
        match self {
            Down::Qemu { domain } => write!(f, "{domain} has no QEMU; vtax ldm start {domain} starts it"),
            Down::Stopped { domain } => write!(f, "the QEMU of {domain} is stopped; kill -CONT continues it"),
            Down::Supervisor { domain } => write!(f, "{domain} has no supervisor; {STARTED}"),
            Down::RebootLoop { domain } => {
                write!(f, "{domain} was stopped: its system rebooted again and again; its console log says why")
            }
            Down::Console { domain, port } => {
                write!(f, "nobody listens at port {port} of {domain}: the console service is down; {STARTED}")
            }
        }
    }
}
