//! Missing processes of bound domains.

use std::fmt;

use serde::{Deserialize, Serialize};
use vtax_model::{domain::DomainState, topology::Name};

use crate::{bound::BoundDomain, domains::Domains};

/// Process that should run for a domain, but doesn't or hangs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Down {
    /// A bound domain has no QEMU.
    Qemu {
        /// Domain without a process for its CPUs.
        domain: Name,
    },
    /// The QEMU of a domain is stopped by a signal or a debugger (proc_pid_stat(5)).
    Stopped {
        /// Domain whose CPUs are stopped until QEMU is continued.
        domain: Name,
    },
    /// A running domain without a supervisor.
    Supervisor {
        /// Domain that wouldn't be rebooted, and whose failure would go unnoticed.
        domain: Name,
    },
    /// The system of a domain rebooted repeatedly, so the domain was stopped.
    RebootLoop {
        /// Domain that is now bound, with its console log.
        domain: Name,
    },
    /// Nothing listens on a console's port.
    Console {
        /// Domain whose console is unreachable over telnet.
        domain: Name,
        /// Port on which the console service would listen.
        port: u16,
    },
}

impl Down {
    /// Returns the affected domain.
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
    /// Returns the processes that should run for these domains, but don't.
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
            Down::Qemu { domain } => write!(f, "{domain} has no QEMU; start it with vtax ldm start {domain}"),
            Down::Stopped { domain } => write!(f, "the QEMU of {domain} is stopped; resume it with kill -CONT"),
            Down::Supervisor { domain } => write!(f, "{domain} has no supervisor; {STARTED}"),
            Down::RebootLoop { domain } => {
                write!(f, "{domain} was stopped: its system rebooted repeatedly; see its console log for the reason")
            }
            Down::Console { domain, port } => {
                write!(f, "nothing listens on port {port} of {domain}: the console service is down; {STARTED}")
            }
        }
    }
}
