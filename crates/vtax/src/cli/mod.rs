//! The command line: parsing only, then one file a verb.

mod agent;
mod calibrate;
mod crosscheck;
mod demo;
mod lab;
mod measure;
mod methods;
mod results;
mod run;
mod studies;

use std::{io::Write, path::PathBuf};

use clap::{Parser, Subcommand};
use serde::Serialize;

use crate::exit::{Blamed, Exit, Stop};

/// Measures what virtualization costs a network: for every way to attach a zone or a guest.
///
/// Data goes to standard output, progress and warnings to standard error.
///
/// Exit codes: 0 done; 1 a study ran but cells failed; 2 the input is wrong and nothing was
/// changed; 69 the machine lacks something; 130 stopped by Ctrl-C, with what was measured kept.
#[derive(Debug, Parser)]
#[command(name = "vtax", version, max_term_width = 100)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    places: Places,
}

/// Where vtax keeps and finds things.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Places {
    /// Folder of the results [default: $VTAX_STATE, else $XDG_STATE_HOME/vtax or
    /// ~/.local/state/vtax]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Places")]
    pub(crate) state: Option<PathBuf>,
    /// The vtax-agent program [default: $VTAX_AGENT, else beside vtax]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Places")]
    pub(crate) agent: Option<PathBuf>,
}

impl Places {
    /// The folder of the results, by the XDG Base Directory Specification.
    pub(crate) fn state_dir(&self) -> Result<PathBuf, Stop> {
        let named = self.state.clone().or_else(|| std::env::var_os("VTAX_STATE").map(PathBuf::from));
        let xdg = || std::env::var_os("XDG_STATE_HOME").map(|base| PathBuf::from(base).join("vtax"));
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state/vtax"));
        let found = named.or_else(xdg).or_else(home);
        found.ok_or_else(|| {
            Stop::input(anyhow::anyhow!("$HOME is not set; say where results are kept with --state DIR"))
        })
    }
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// What each way to attach a zone costs on this machine, in under two minutes
    Demo(run::Output),
    /// Run a study: a built-in one by name, or a file; or go on with a run
    Run(Box<run::RunArgs>),
    /// One test between any two ends, as netperf: this machine, ssh hosts, zones
    Measure(Box<measure::MeasureArgs>),
    /// List the built-in studies
    Studies(studies::StudiesArgs),
    /// What the figures are worth on this machine: clock, noise floor, known truths
    Calibrate(calibrate::CalibrateArgs),
    /// Our engine beside iperf3, sockperf, qperf, netperf and neper, where they are installed
    Crosscheck(crosscheck::CrosscheckArgs),
    /// List the I/O methods: which work here, and what keeps the others from it
    Methods(methods::MethodsArgs),
    /// Build, use and remove labs: hosts, wires, zones and guests of your own
    #[command(subcommand)]
    Lab(lab::LabVerb),
    /// List, show, compare and export what was measured
    #[command(subcommand)]
    Results(results::ResultsVerb),
    /// Talk to an agent on another host
    #[command(subcommand)]
    Agent(agent::AgentVerb),
    /// Hold an ordinary user's labs (started by `vtax lab up`)
    #[command(name = "lab-keeper", hide = true)]
    Keeper,
}

/// Carries out what the user asked for.
pub(crate) fn dispatch(line: CommandLine) -> Result<Exit, Stop> {
    let places = &line.places;
    match line.verb {
        Verb::Demo(output) => demo::demo(output, places),
        Verb::Run(args) => run::run(*args, places),
        Verb::Calibrate(args) => calibrate::calibrate(args, places),
        Verb::Crosscheck(args) => crosscheck::crosscheck(args, places),
        Verb::Measure(args) => measure::measure(*args, places),
        Verb::Studies(args) => studies::studies(&args),
        Verb::Methods(args) => methods::methods(&args, places),
        Verb::Lab(verb) => lab::lab(verb, places),
        Verb::Results(verb) => results::results(verb, places),
        Verb::Agent(verb) => agent::agent(verb, places),
        Verb::Keeper => lab::keeper(),
    }
}

/// Writes data to standard output. A reader that has gone away, as `head`, is no error.
fn print(text: &str) -> Result<(), Stop> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Stop::infrastructure(anyhow::Error::new(error).context("writing to standard output")))
        }
        _ => Ok(()),
    }
}

fn print_json(data: &impl Serialize) -> Result<(), Stop> {
    let text = serde_json::to_string_pretty(data).or_infrastructure()?;
    print(&(text + "\n"))
}
