//! A connected agent and the machine that it is on.

use std::{
    fs,
    path::Path,
    process::{Child, Command},
    time::Duration,
};

use vtax_model::run::Environment;
use vtax_sys::process::Pid;
use vtax_wire::{link::AgentLink, protocol::AgentFacts, ssh};

use crate::{
    labs::GREETING,
    stop::{Blamed, Stop},
};

/// Time that ssh may take for each step: to log in, to copy the agent, to greet.
const LOGIN: Duration = Duration::from_secs(30);
/// Time that an agent may take for a question.
pub(super) const ANSWER: Duration = Duration::from_secs(10);

pub(crate) struct Agent {
    pub(crate) link: AgentLink,
    pub(crate) facts: AgentFacts,
    here: bool,
}

impl Agent {
    /// A child of this process, in its namespaces.
    pub(crate) fn local(program: &Path) -> miette::Result<Agent> {
        let mut command = Command::new(program);
        command.arg("--stdio");
        Agent::greeted(AgentLink::spawn("local", command, GREETING)?)
    }

    /// A process of this machine that was started.
    pub(super) fn of_child(name: &str, child: Child) -> miette::Result<Agent> {
        Agent::greeted(AgentLink::from_child(name, child, GREETING)?)
    }

    /// An agent that the user's ssh starts.
    pub(super) fn ssh(host: &str, program: &Path) -> Result<Agent, Stop> {
        ssh::check(host).or_input()?;
        let link = ssh::connect(host, program, LOGIN).or_infrastructure()?;
        Agent::greeted(link).or_infrastructure()
    }

    pub(super) fn greeted(link: AgentLink) -> miette::Result<Agent> {
        let facts = link.describe(ANSWER)?;
        let ours = boot_id();
        let here = !ours.is_empty() && boot(&link) == ours;
        Ok(Agent { link, facts, here })
    }

    /// An identity of its machine, which no agent on another machine has.
    pub(super) fn machine(&self) -> &str {
        match boot(&self.link) {
            "" => self.link.name(),
            boot => boot,
        }
    }

    pub(super) fn is_here(&self) -> bool {
        self.here
    }

    /// Its process, in its own PID namespace.
    pub(super) fn pid(&self) -> Pid {
        Pid(self.link.hello().pid)
    }

    /// Its machine, if vtax runs on another one.
    pub(super) fn elsewhere(&self) -> Option<&Environment> {
        (!self.here).then_some(&self.facts.environment)
    }
}

pub(super) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// The boot id of its kernel. The id of the agent's clock comes behind a `/`.
fn boot(link: &AgentLink) -> &str {
    link.hello().boot_id.split('/').next().unwrap_or_default()
}
