//! The command line: parsing only, then one file a verb.

mod agent;
mod arguments;
#[cfg(test)]
mod book;
mod calibrate;
mod crosscheck;
mod demo;
mod examples;
mod explain;
mod guest_command;
mod in_server;
mod io;
mod job;
mod lab;
mod ldm;
mod lists;
mod measure;
mod methods;
mod modes;
mod report;
mod results;
mod run;
mod server;
mod shell;
mod studies;
mod tune;
mod ui;

use std::{path::PathBuf, time::Duration};

use clap::{Args, FromArgMatches, Parser, Subcommand};
use serde::Serialize;
use vtax_model::server::ServerSpec;
use vtax_run::{
    GUARD_VERB, Locations, TuningGuard,
    server::{self as emulated, JOB_VERB, Stay},
};
use vtax_sys::process::ProcessId;

use crate::{
    called_as,
    exit::{Blamed, Coded, Exit, Stop},
    terminal::{Voice, choose_voice, print},
};

/// The program's name.
const PROGRAM: &str = "vtax";

/// Measures what virtualization costs a network, for every way to attach a zone or a guest, and what it costs a disk.
///
/// A zone is a network namespace: a network stack of its own on the same kernel. A guest is a virtual machine.
///
/// Data goes to standard output, progress and warnings to standard error.
///
/// Exit codes: 0, done. 1, a study ran, but cells failed, or it did not reach what --confidence or --show asked
/// for; or a comparison found what --fail-above asks for. 2, the input is wrong and nothing was changed. 69, the machine lacks something. 130, Ctrl-C stopped it,
/// and what was measured is kept.
#[derive(Debug, Parser)]
#[command(name = "vtax", version, max_term_width = 100)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    places: Places,
    /// Run this command in an emulated server: QEMU imitates a whole machine with SR-IOV NICs, and cables join
    /// the NICs in pairs. The server sees this machine's files. The command uses the server that is up (`vtax
    /// server up`); if there is none, vtax boots one for this command
    #[arg(long, global = true, value_name = "emulated[:nics=8,…]", help_heading = "Places")]
    server: Option<ServerSpec>,
    /// Print nothing on standard error but errors
    #[arg(long, short, global = true, conflicts_with = "verbose", help_heading = "Messages")]
    quiet: bool,
    /// Print a line for each sample of a run on standard error, and no moving picture
    #[arg(long, short, global = true, help_heading = "Messages")]
    verbose: bool,
    /// Whether the verb prints JSON, and errors are JSON too.
    #[arg(skip)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
struct Places {
    /// Folder of the results [default: $VTAX_STATE, else $XDG_STATE_HOME/vtax or ~/.local/state/vtax]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Places")]
    state: Option<PathBuf>,
    /// The vtax-agent program [default: $VTAX_AGENT, else beside vtax]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Places")]
    agent: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show what each way to attach a zone costs on this machine, in some two minutes
    Demo(demo::DemoArgs),
    /// Run a study, built-in or from a file, or go on with an earlier run
    Run(Box<run::RunArgs>),
    /// Run one test between two ends, as netperf does: this machine, ssh hosts, zones, guests; or of disks, as fio does
    Measure(Box<measure::MeasureArgs>),
    /// List the built-in studies and how long each takes
    Studies(studies::StudiesArgs),
    /// Check what the figures are worth on this machine: clock, noise floor, known truths
    Calibrate(calibrate::CalibrateArgs),
    /// Compare vtax's engine with iperf3, sockperf, qperf, netperf and neper, where they are installed
    Crosscheck(crosscheck::CrosscheckArgs),
    /// List the I/O methods: which work on this machine, and what the others lack
    Methods(methods::MethodsArgs),
    /// List the PCI devices and make virtual functions of NICs
    #[command(subcommand)]
    Io(io::IoVerb),
    /// Build, use and remove labs: hosts, wires, zones and guests from a file
    #[command(subcommand)]
    Lab(lab::LabVerb),
    /// Keep logical domains, their virtual switches, disks and consoles, with the verbs of Oracle's ldm
    Ldm(ldm::LdmArgs),
    /// Keep an emulated server up, for several commands with --server emulated
    #[command(subcommand)]
    Server(server::ServerVerb),
    /// List, show, compare and export what was measured
    #[command(subcommand)]
    Results(results::ResultsVerb),
    /// Report one result or several, as a page, as text or as data
    Report(report::ReportArgs),
    /// Show all results in a browser on this machine, and runs while they go on
    Ui(ui::UiArgs),
    /// Find settings of this host that cost its network speed
    #[command(subcommand)]
    Tune(tune::TuneVerb),
    /// Talk to an agent on another host
    #[command(subcommand)]
    Agent(agent::AgentVerb),
    /// Print what a shell needs to complete the words of vtax
    Completions(shell::CompletionsArgs),
    /// Print the manual page, or write the pages of all verbs
    Man(shell::ManArgs),
    /// Explain the code of an error, or list all codes
    Explain(explain::ExplainArgs),
    /// Hold an ordinary user's labs (started by `vtax lab up`)
    #[command(name = "lab-keeper", hide = true)]
    Keeper,
    /// Revert settings that nobody confirms (started by `vtax tune apply --confirm-within`)
    #[command(name = GUARD_VERB, hide = true)]
    TuningGuard {
        /// The process of that vtax
        #[arg(value_name = "PID@START")]
        watched: ProcessId,
        /// The folder of its journal
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// How long it may take
        #[arg(value_name = "MILLISECONDS")]
        within: u64,
    },
    /// Do the job that a vtax outside of this emulated server has written to a file
    #[command(name = JOB_VERB, hide = true)]
    Job {
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

impl Verb {
    /// How long the verb needs the server to which it is handed over. Verbs with results for the store are not.
    fn stay(&self) -> Result<Option<Stay>, Stop> {
        match self {
            Verb::Run(args) if args.is_dry() => Ok(Some(Stay::Command)),
            Verb::Demo(_) | Verb::Run(_) | Verb::Measure(_) | Verb::Job { .. } => Ok(None),
            Verb::Lab(verb) => Ok(Some(verb.stay())),
            Verb::Tune(verb) => verb.stay().map(Some),
            Verb::Ldm(args) => Ok(Some(args.stay())),
            // Virtual functions are made to be there afterwards.
            Verb::Io(verb) if !matches!(verb, io::IoVerb::List(_)) => Ok(Some(Stay::Kept)),
            Verb::Results(_) | Verb::Report(_) | Verb::Ui(_) => Err(Stop::input(miette::miette!(
                code = "option-not-for-this",
                "results of runs on an emulated server are kept here, with all others; leave --server out"
            ))),
            Verb::Server(_) | Verb::Keeper | Verb::TuningGuard { .. } => Err(Stop::input(miette::miette!(
                code = "option-not-for-this",
                "no server is made in a server; vtax server up [SPEC] says of which kind without --server"
            ))),
            _ => Ok(Some(Stay::Command)),
        }
    }

    /// Whether it hands standard input on.
    fn has_input(&self) -> bool {
        match self {
            Verb::Lab(verb) => matches!(verb, lab::LabVerb::Exec { .. } | lab::LabVerb::Console { .. }),
            Verb::Ldm(args) => args.has_input(),
            _ => false,
        }
    }
}

/// Reads the command line, and ends the program where it can't be read.
pub(crate) fn parse() -> CommandLine {
    let words = called_as::words();
    let json = words.iter().take_while(|word| *word != "--").any(|word| word == "--json");
    let matches = arguments::read(words).unwrap_or_else(|error| arguments::end(&error, json));
    let line = CommandLine::from_arg_matches(&matches).unwrap_or_else(|error| arguments::end(&error, json));
    CommandLine { json: arguments::asks_for_json(&matches), ..line }
}

pub(crate) fn dispatch(line: CommandLine) -> Result<Exit, Stop> {
    let CommandLine { verb, places: Places { state, agent }, server, quiet, verbose, json: _ } = line;
    choose_voice(match (quiet, verbose) {
        (true, _) => Voice::Quiet,
        (false, true) => Voice::Verbose,
        (false, false) => Voice::Usual,
    });
    let places = &Locations { state, agent };
    // The vtax outside has handed its whole command line over.
    let server = server.filter(|_| !emulated::is_here());
    if let Some(spec) = server
        && let Some(stay) = verb.stay()?
    {
        return in_server::carry_out(spec, stay, places, verb.has_input());
    }
    match verb {
        Verb::Demo(args) => demo::demo(args, places, server),
        Verb::Run(args) => run::run(*args, places, server),
        Verb::Calibrate(args) => calibrate::calibrate(args, places),
        Verb::Crosscheck(args) => crosscheck::crosscheck(args, places),
        Verb::Measure(args) => measure::measure(*args, places, server),
        Verb::Studies(args) => studies::studies(&args),
        Verb::Methods(args) => methods::methods(&args, places),
        Verb::Io(verb) => io::io(&verb),
        Verb::Lab(verb) => lab::lab(verb, places),
        Verb::Ldm(args) => ldm::ldm(args, places),
        Verb::Server(verb) => server::server(verb, places),
        Verb::Results(verb) => results::results(verb, places),
        Verb::Report(args) => report::report(&args, places),
        Verb::Ui(args) => ui::ui(&args, places),
        Verb::Tune(verb) => tune::tune(&verb, places),
        Verb::Agent(verb) => agent::agent(verb, places),
        Verb::Explain(args) => explain::explain(&args),
        Verb::Completions(args) => shell::completions(&args),
        Verb::Man(args) => shell::man(&args),
        Verb::Keeper => lab::keeper(),
        Verb::TuningGuard { watched, folder, within } => {
            TuningGuard { watched, folder, within: Duration::from_millis(within) }.watch().map(|()| Exit::Done)
        }
        Verb::Job { file } => job::job(&file, places),
    }
}

/// Prints what a verb has found: as JSON, or the text that `told` makes of it.
fn answer<T: Serialize>(json: bool, found: &T, told: impl FnOnce(&T) -> String) -> Result<Exit, Stop> {
    if json {
        print_json(found)?
    } else {
        print(&told(found))?
    }
    Ok(Exit::Done)
}

fn print_json(data: &impl Serialize) -> Result<(), Stop> {
    let text = serde_json::to_string_pretty(data).coded("defect", || "writing JSON").or_infrastructure()?;
    print(&(text + "\n"))
}
