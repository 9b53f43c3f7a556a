//! `vtax agent`.

use std::time::{Duration, Instant};

use clap::Subcommand;
use serde::Serialize;
use vtax_agent::{link::AgentLink, protocol::Facts, ssh};

use super::{print, print_json};
use crate::exit::{Blamed, Exit, Stop};

/// How long ssh may take to log in and the agent to greet.
const LOGIN: Duration = Duration::from_secs(30);

#[derive(Debug, Subcommand)]
pub(crate) enum AgentVerb {
    /// Start vtax-agent on another host by ssh, and say what it finds there
    Probe {
        /// ssh:HOST or ssh:USER@HOST, as your ssh knows it; vtax-agent must be in its PATH
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
    /// Of a request over the control stream.
    answer_ms: f64,
    #[serde(flatten)]
    facts: Facts,
}

pub(crate) fn agent(verb: AgentVerb) -> Result<Exit, Stop> {
    let AgentVerb::Probe { host, json } = verb;
    let name = host.strip_prefix("ssh:");
    let name = name.ok_or_else(|| Stop::input(anyhow::anyhow!("`{host}` is no remote host; write ssh:HOST")))?;
    let command = ssh::command(name).or_input()?;
    let link = AgentLink::spawn(&host, command, LOGIN).or_infrastructure()?;
    let probed = probe(&link)?;
    match json {
        true => print_json(&probed)?,
        false => print(&told(&host, &probed))?,
    }
    Ok(Exit::Done)
}

fn probe(link: &AgentLink) -> Result<Probed, Stop> {
    let begun = Instant::now();
    link.ping(LOGIN).or_infrastructure()?;
    let answer_ms = begun.elapsed().as_secs_f64() * 1e3;
    let facts = link.describe(LOGIN).or_infrastructure()?;
    Ok(Probed { version: link.hello().greeting.version.clone(), answer_ms, facts })
}

fn told(host: &str, probed: &Probed) -> String {
    let Probed { version, answer_ms, facts } = probed;
    let unknown = || "unknown".to_owned();
    format!(
        "{host}: vtax-agent {version} answers in {answer_ms:.1} ms\n  \
         host {}, Linux {} ({})\n  clocksource {}, CPUs allowed {}, congestion control {}\n",
        facts.hostname,
        facts.kernel,
        facts.architecture,
        facts.clocksource.clone().unwrap_or_else(unknown),
        facts.cpus_allowed.clone().unwrap_or_else(unknown),
        facts.congestion_control.clone().unwrap_or_else(unknown),
    )
}
