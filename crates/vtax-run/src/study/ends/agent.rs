//! A connected agent and its machine.

use std::{
    fs,
    path::Path,
    process::{Child, Command},
    time::Duration,
};

use vtax_model::run::Environment;
use vtax_sys::process::{Pid, named_within};
use vtax_wire::{link::AgentLink, protocol::AgentFacts, ssh};

use crate::{
    labs::GREETING,
    stop::{Blamed, Stop},
};

/// Time limit for each step over ssh: login, copy of the agent, greeting.
const LOGIN: Duration = Duration::from_secs(30);
/// Name of an agent's process.
const PROGRAM: &str = "vtax-agent";
/// Time limit for an answer of an agent.
pub(super) const ANSWER: Duration = Duration::from_secs(10);

pub(crate) struct Agent {
    pub(crate) link: AgentLink,
    pub(crate) facts: AgentFacts,
    here: bool,
    /// Processes of the agent on this machine.
    processes: Vec<Pid>,
    /// True if it is in a container, where it sees no process of its machine.
    is_contained: bool,
}

impl Agent {
    /// Starts an agent as a child of this process, in its namespaces.
    pub(crate) fn local(program: &Path) -> miette::Result<Agent> {
        let mut command = Command::new(program);
        command.arg("--stdio");
        Agent::greeted(AgentLink::spawn("local", command, GREETING)?)
    }

    /// Connects to an agent that was started as a process of this machine.
    pub(super) fn of_child(name: &str, child: Child) -> miette::Result<Agent> {
        Agent::greeted(AgentLink::from_child(name, child, GREETING)?)
    }

    /// Starts an agent on another host, through the user's ssh.
    pub(super) fn ssh(host: &str, program: &Path) -> Result<Agent, Stop> {
        ssh::check(host).or_input()?;
        let link = ssh::connect(host, program, LOGIN).or_infrastructure()?;
        Agent::greeted(link).or_infrastructure()
    }

    pub(super) fn greeted(link: AgentLink) -> miette::Result<Agent> {
        let facts = link.describe(ANSWER)?;
        let ours = boot_id();
        let here = !ours.is_empty() && boot(&link) == ours;
        let processes = Some(Pid(link.hello().pid)).filter(|_| here).into_iter().collect();
        Ok(Agent { link, facts, here, processes, is_contained: false })
    }

    /// Like [`greeted`](Self::greeted), for an agent in a container, which has a separate PID namespace.
    pub(super) fn contained(link: AgentLink) -> miette::Result<Agent> {
        let agent = Agent::greeted(link)?;
        let processes = if agent.here { named_within(PROGRAM, agent.pid()) } else { Vec::new() };
        Ok(Agent { processes, is_contained: true, ..agent })
    }

    /// Returns a unique identifier of its machine: the boot ID, or the link's name if that is unknown.
    pub(super) fn machine(&self) -> &str {
        match boot(&self.link) {
            "" => self.link.name(),
            boot => boot,
        }
    }

    pub(super) fn is_here(&self) -> bool {
        self.here
    }

    /// Returns its processes on this machine, as known here.
    pub(super) fn processes(&self) -> &[Pid] {
        &self.processes
    }

    /// Returns whether it sees the processes of its machine.
    pub(super) fn sees_machine(&self) -> bool {
        !self.is_contained
    }

    /// Returns its PID in its own PID namespace.
    pub(super) fn pid(&self) -> Pid {
        Pid(self.link.hello().pid)
    }

    /// Returns its machine, if vtax runs on another one.
    pub(super) fn elsewhere(&self) -> Option<&Environment> {
        (!self.here).then_some(&self.facts.environment)
    }
}

pub(super) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Returns the boot ID of its kernel, without the ID of the agent's clock, which follows a `/`.
fn boot(link: &AgentLink) -> &str {
    link.hello().boot_id.split('/').next().unwrap_or_default()
}
