//! The agents of a run and the machines that they are on.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use vtax_agent::{link::AgentLink, protocol::AgentFacts, ssh};
use vtax_lab::{Lab, LabEndpoint};
use vtax_model::run::Environment;

use super::ConnectedEnd;
use crate::exit::{Blamed, Stop};

/// How long a local agent may take to greet.
const GREETING: Duration = Duration::from_secs(10);
/// How long ssh may take for each step: to log in, to copy the agent, to greet.
pub(crate) const LOGIN: Duration = Duration::from_secs(30);
/// How long an agent may take for a question.
pub(super) const ANSWER: Duration = Duration::from_secs(10);

/// A connected agent.
pub(super) struct Agent {
    pub(super) link: AgentLink,
    pub(super) facts: AgentFacts,
    /// Whether it is on the machine on which vtax runs.
    here: bool,
}

/// All agents of a run; parties know theirs by index.
pub(super) struct Agents(pub(super) Vec<Agent>);

impl Agents {
    pub(super) fn get(&self, party: &ConnectedEnd) -> &Agent {
        &self.0[party.agent]
    }

    pub(super) fn one_machine(&self, one: &ConnectedEnd, other: &ConnectedEnd) -> bool {
        self.get(one).machine() == self.get(other).machine()
    }
}

impl Agent {
    /// In a host or zone of a lab. The kernel ends it when the calling thread ends.
    pub(super) fn in_lab(name: &str, lab: &Lab, endpoint: &LabEndpoint, program: &Path) -> anyhow::Result<Agent> {
        let mut command = stdio(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A group of its own: Ctrl-C is for vtax, which then ends its agents in order.
        command.process_group(0);
        Agent::greeted(AgentLink::from_child(name, lab.spawn(endpoint, command)?, GREETING)?)
    }

    /// A child of this process, in its namespaces.
    pub(super) fn local(program: &Path) -> anyhow::Result<Agent> {
        Agent::greeted(AgentLink::spawn("local", stdio(program), GREETING)?)
    }

    /// By the user's ssh.
    pub(super) fn ssh(host: &str, program: &Path) -> Result<Agent, Stop> {
        ssh::check(host).or_input()?;
        let link = ssh::connect(host, program, LOGIN).or_infrastructure()?;
        Agent::greeted(link).or_infrastructure()
    }

    pub(super) fn greeted(link: AgentLink) -> anyhow::Result<Agent> {
        let facts = link.describe(ANSWER)?;
        let ours = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let here = !ours.trim().is_empty() && boot(&link) == ours.trim();
        Ok(Agent { link, facts, here })
    }

    /// What no agent on another machine says.
    pub(super) fn machine(&self) -> &str {
        match boot(&self.link) {
            "" => self.link.name(),
            boot => boot,
        }
    }

    pub(super) fn is_here(&self) -> bool {
        self.here
    }

    /// Its machine, if that isn't the one on which vtax runs.
    pub(super) fn elsewhere(&self) -> Option<&Environment> {
        (!self.here).then_some(&self.facts.environment)
    }
}

/// Which start of which kernel it is on; what comes after a `/` is the agent's clock.
fn boot(link: &AgentLink) -> &str {
    link.hello().boot_id.split('/').next().unwrap_or_default()
}

fn stdio(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("--stdio");
    command
}
