//! `vtax agent`.

use std::time::Duration;

use clap::Subcommand;
use serde::Serialize;
use vtax_wire::{link::AgentLink, protocol::AgentFacts, ssh};

use super::{Locations, answer};
use crate::exit::{Blamed, Exit, Stop};

/// The time limit of each step of a login, and of an agent's answer.
const LOGIN: Duration = Duration::from_secs(30);

#[derive(Debug, Subcommand)]
pub(crate) enum AgentVerb {
    /// Start vtax-agent on another host over SSH, and report what it finds there
    Probe {
        /// ssh:HOST or ssh:USER@HOST, e.g. ssh:vm1, as in your ssh configuration. If this version of vtax-agent isn't
        /// in the PATH there, vtax copies it over and removes it afterwards
        #[arg(value_name = "ssh:HOST")]
        host: String,
        /// Print the facts as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Serialize)]
struct Probed {
    version: String,
    /// The round trip of a request over the control stream.
    answer_ms: f64,
    #[serde(flatten)]
    facts: AgentFacts,
}

pub(crate) fn agent(verb: AgentVerb, places: &Locations) -> Result<Exit, Stop> {
    let AgentVerb::Probe { host, json } = verb;
    let name = host.strip_prefix("ssh:");
    let name = name.ok_or_else(|| {
        Stop::input(miette::miette!(code = "not-a-remote-host", "`{host}` is not a remote host: use ssh:HOST"))
    })?;
    ssh::check(name).or_input()?;
    let link = ssh::connect(name, &places.agent_program()?, LOGIN).or_infrastructure()?;
    answer(json, &probe(&link)?, |probed| told(&host, probed))
}

fn probe(link: &AgentLink) -> Result<Probed, Stop> {
    let answer = link.ping(LOGIN).or_infrastructure()?;
    let facts = link.describe(LOGIN).or_infrastructure()?;
    Ok(Probed { version: link.hello().greeting.version.to_string(), answer_ms: answer.as_secs_f64() * 1e3, facts })
}

fn told(host: &str, probed: &Probed) -> String {
    let Probed { version, answer_ms, facts } = probed;
    let machine = &facts.environment;
    let known = |text: &str| if text.is_empty() { "unknown" } else { text }.to_owned();
    let cpus: Vec<String> = facts.cpus_allowed.iter().map(u32::to_string).collect();
    let addresses: Vec<String> =
        facts.addresses.iter().map(|own| format!("{}/{} ({})", own.address, own.prefix, own.link)).collect();
    format!(
        "{host}: vtax-agent {version} answers in {answer_ms:.1} ms\n  \
         host {}, Linux {} ({})\n  clocksource {}, CPUs allowed {}, congestion control {}\n  \
         addresses {}\n",
        known(&machine.hostname.to_string()),
        known(&machine.kernel.to_string()),
        facts.architecture,
        known(&machine.clocksource.to_string()),
        known(&cpus.join(",")),
        known(&machine.congestion_control.to_string()),
        known(&addresses.join(", ")),
    )
}
