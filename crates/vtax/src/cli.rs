//! The command line: its parser, and one module per command.

mod advise;
mod agent;
mod arguments;
#[cfg(test)]
mod book;
mod calibrate;
mod crosscheck;
mod demo;
mod examples;
mod explain;
mod fleet;
mod guest_command;
mod in_server;
mod io;
mod job;
mod lab;
mod ldm;
mod lists;
mod measure;
mod methods;
mod metric;
mod modes;
mod overview;
mod report;
mod results;
mod run;
mod server;
mod shell;
mod size;
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

/// Measure network and disk overhead of virtualization
///
/// A zone is a network namespace: a separate network stack on the same kernel. A guest is a virtual machine. vtax
/// compares every method to attach a zone or a guest to the network, and a guest to a disk.
///
/// Data goes to standard output, progress and warnings to standard error. Run `vtax demo` first.
#[derive(Debug, Parser)]
#[command(name = "vtax", version, max_term_width = 100)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    places: Places,
    /// Run in an emulated server, e.g. emulated; see `vtax help server`
    #[arg(long, global = true, value_name = "SPEC", help_heading = "Places")]
    server: Option<ServerSpec>,
    /// Print only errors on standard error
    #[arg(long, short, global = true, conflicts_with = "verbose", help_heading = "Messages")]
    quiet: bool,
    /// Log each sample on standard error, no progress display
    #[arg(long, short, global = true, help_heading = "Messages")]
    verbose: bool,
    /// True if the command prints JSON; errors are JSON too.
    #[arg(skip)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
struct Places {
    /// State directory, with the results [default: $VTAX_STATE, else $XDG_STATE_HOME/vtax or ~/.local/state/vtax]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Places")]
    state: Option<PathBuf>,
    /// vtax-agent program, e.g. /opt/vtax/vtax-agent [default: $VTAX_AGENT, else next to vtax]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Places")]
    agent: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    // The order is that of the long help and of the overview.
    /// Compare zone attachment methods on this machine (about 2 min)
    Demo(demo::DemoArgs),
    /// List I/O methods: which are available on this machine, and why others are not
    Methods(methods::MethodsArgs),
    /// List built-in studies and their run times
    Studies(studies::StudiesArgs),
    /// Run a study, built-in or from a file, or resume a run
    Run(Box<run::RunArgs>),
    /// Measure a path between two endpoints (like netperf), or a disk (with fio)
    Measure(Box<measure::MeasureArgs>),
    /// Measure many hosts against each other, and name the slow ones
    #[command(subcommand)]
    Fleet(fleet::FleetVerb),
    /// Check accuracy on this machine: clock, noise floor, reference cases
    Calibrate(calibrate::CalibrateArgs),
    /// Compare vtax's engine with iperf3, sockperf, qperf, netperf and neper, if installed
    Crosscheck(crosscheck::CrosscheckArgs),
    /// Manage stored results: list, show, compare, import, export, remove
    #[command(subcommand)]
    Results(results::ResultsVerb),
    /// Create a report of one or more results: HTML page, charts, text or data
    Report(report::ReportArgs),
    /// Browse results and watch runs in a browser on this machine
    Ui(ui::UiArgs),
    /// Find the I/O methods that meet requirements, from measurements on this machine
    ///
    /// A method meets a target if the whole interval of its figure does. Figures are those of stored runs on this
    /// machine, with its kernel, MTU and accelerator, of as many guests as required. Unmeasured requirements remain
    /// open, with the command that decides each; `--measure` runs these commands.
    ///
    /// The exit status is 0 if a method meets all requirements, 1 if none is shown to do so, and 69 if nothing was
    /// measured.
    Advise(Box<advise::AdviseArgs>),
    /// Size an I/O domain: cores and memory for a load, from measured costs
    Size(Box<size::SizeArgs>),
    /// Check, apply, prove and revert network tuning
    #[command(subcommand)]
    Tune(tune::TuneVerb),
    /// List PCI devices and manage virtual functions of NICs
    #[command(subcommand)]
    Io(io::IoVerb),
    /// Build, use and remove labs: hosts, wires, zones and guests from a file
    #[command(subcommand)]
    Lab(lab::LabVerb),
    /// Manage logical domains, their virtual switches, disks and consoles (Oracle ldm syntax)
    #[command(version, display_name = "vtax ldm")]
    Ldm(ldm::LdmArgs),
    /// Manage a persistent emulated server, shared by commands with --server emulated
    ///
    /// QEMU emulates a whole machine with SR-IOV NICs, cabled in pairs. A command with --server emulated runs in the
    /// server and sees this machine's files. It uses the running server (`vtax server up`); if there is none, vtax
    /// boots one for this command. A SPEC such as emulated:nics=2,memory=2GiB configures the server to boot.
    #[command(subcommand)]
    Server(server::ServerVerb),
    /// Check the agent on another host
    #[command(subcommand)]
    Agent(agent::AgentVerb),
    /// Explain an error code, or list all codes
    Explain(explain::ExplainArgs),
    /// Generate shell completions
    Completions(shell::CompletionsArgs),
    /// Generate the manual page, or the pages of all commands
    Man(shell::ManArgs),
    /// Hold an unprivileged user's labs (started by `vtax lab up`)
    #[command(name = "lab-keeper", hide = true)]
    Keeper,
    /// Revert settings unless they are confirmed (started by `vtax tune apply --confirm-within`)
    #[command(name = GUARD_VERB, hide = true)]
    TuningGuard {
        /// Process of that vtax
        #[arg(value_name = "PID@START")]
        watched: ProcessId,
        /// Directory of its journal
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// Time limit
        #[arg(value_name = "MILLISECONDS")]
        within: u64,
    },
    /// Carry out the job that a vtax outside of this emulated server has written to a file
    #[command(name = JOB_VERB, hide = true)]
    Job {
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

impl Verb {
    /// Returns how long the command needs the server that carries it out; None for commands with results for the store.
    fn stay(&self) -> Result<Option<Stay>, Stop> {
        match self {
            Verb::Run(args) if args.is_dry() => Ok(Some(Stay::Command)),
            Verb::Demo(_) | Verb::Run(_) | Verb::Measure(_) | Verb::Job { .. } => Ok(None),
            Verb::Lab(verb) => Ok(Some(verb.stay())),
            Verb::Tune(verb) => verb.stay().map(Some),
            Verb::Ldm(args) => Ok(Some(args.stay())),
            // Virtual functions are created to be used afterwards.
            Verb::Io(verb) if !matches!(verb, io::IoVerb::List(_)) => Ok(Some(Stay::Kept)),
            Verb::Results(_) | Verb::Report(_) | Verb::Ui(_) | Verb::Size(_) => Err(Stop::input(miette::miette!(
                code = "option-not-for-this",
                "results of runs on an emulated server are stored on this machine, with all others: omit --server"
            ))),
            Verb::Advise(_) => Err(Stop::input(miette::miette!(
                code = "option-not-for-this",
                "an emulated server shows function, not speed, so its figures cannot support advice: omit --server"
            ))),
            Verb::Server(_) | Verb::Keeper | Verb::TuningGuard { .. } => Err(Stop::input(miette::miette!(
                code = "option-not-for-this",
                "cannot create an emulated server in another one: omit --server and use vtax server up [SPEC]"
            ))),
            _ => Ok(Some(Stay::Command)),
        }
    }

    /// Returns true if the command passes standard input on.
    fn has_input(&self) -> bool {
        match self {
            Verb::Lab(verb) => matches!(verb, lab::LabVerb::Exec { .. } | lab::LabVerb::Console { .. }),
            Verb::Ldm(args) => args.has_input(),
            _ => false,
        }
    }
}

/// Reads the command line, and ends the program if it cannot be read.
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
    // The vtax outside has handed over its whole command line.
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
        Verb::Fleet(verb) => fleet::fleet(verb, places),
        Verb::Studies(args) => studies::studies(&args),
        Verb::Methods(args) => methods::methods(&args, places),
        Verb::Io(verb) => io::io(&verb),
        Verb::Lab(verb) => lab::lab(verb, places),
        Verb::Ldm(args) => ldm::ldm(args, places),
        Verb::Server(verb) => server::server(verb, places),
        Verb::Results(verb) => results::results(verb, places),
        Verb::Report(args) => report::report(&args, places),
        Verb::Ui(args) => ui::ui(&args, places),
        Verb::Advise(args) => advise::advise(&args, places),
        Verb::Size(args) => size::size(&args, places),
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

/// Prints the result of a command: as JSON, or the text that `told` makes of it.
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
