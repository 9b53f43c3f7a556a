//! `vtax run`.

use std::path::PathBuf;

use clap::{Args, Parser};
use vtax_model::{endpoint::Pins, run::RunState, study::Study};
use vtax_report::{self as report, Format};
use vtax_store::Store;

use super::{Locations, RunSite};
use crate::{
    exit::{Exit, Stop},
    one_of::{Choice, one_of},
    study::{self, Conditions, Finished, RunRequest},
    terminal::{print_styled, print_written},
};

/// How a result is printed.
#[derive(Debug, Clone, Args)]
pub(crate) struct OutputOptions {
    /// Show the published figures of a classic study beside ours, also where ours are missing [default: only if a
    /// row that is compared with the baseline has both]
    #[arg(long, overrides_with = "no_published")]
    published: bool,
    /// Leave the published figures out
    #[arg(long, overrides_with = "published")]
    no_published: bool,
    #[command(flatten)]
    form: Form,
}

/// The form of a result.
#[derive(Debug, Clone, Args)]
pub(crate) struct Form {
    /// Also print every MTU, percentiles, losses, retransmits, CPU, the machine and the noise floor
    #[arg(long)]
    detail: bool,
    /// Also print what the words and figures mean
    #[arg(long)]
    explain: bool,
    /// Print the result document (vtax.result/v1)
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// The form of the result
    #[arg(long, value_parser = one_of(&FORMATS), default_value = "table")]
    format: Format,
}

/// The forms of a report.
pub(super) const FORMATS: [Choice<Format>; 4] = [
    ("table", "Tables for a terminal", Format::Table),
    ("markdown", "The same tables in Markdown", Format::Markdown),
    ("csv", "One line a cell", Format::Csv),
    ("json", "The result document, vtax.result/v1", Format::Json),
];

impl OutputOptions {
    pub(crate) fn options(&self) -> report::Options {
        let published = (self.published || self.no_published).then_some(self.published);
        report::Options { published, ..self.form.options() }
    }
}

impl Form {
    pub(crate) fn options(&self) -> report::Options {
        let (format, usual) = (if self.json { Format::Json } else { self.format }, report::Options::default());
        report::Options {
            detail: self.detail,
            explain: self.explain,
            format,
            width: terminal_width().unwrap_or(usual.width),
            ..usual
        }
    }
}

/// Columns of the terminal, within what reads well; none if standard output is no terminal.
pub(super) fn terminal_width() -> Option<usize> {
    let columns = rustix::termios::tcgetwinsize(std::io::stdout()).map(|size| usize::from(size.ws_col));
    columns.ok().filter(|columns| *columns > 0).map(|columns| columns.clamp(60, 140))
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// A built-in study (`vtax studies`) or a study file
    #[arg(required_unless_present = "resume")]
    study: Option<String>,
    /// Go on with a run that was stopped or killed. ID is its id, the beginning of its id, or `last`. With
    /// --samples N a complete run goes on too, until it has N rounds in all
    #[arg(long, value_name = "ID", conflicts_with_all = ["study", "quick", "duration", "warmup", "both", "baseline", "methods", "guests", "guest", "cable", "mtu", "endpoints", "instrument", "idle", "congestion", "pin", "size", "seed", "confidence", "show", "budget"])]
    resume: Option<String>,
    #[command(flatten)]
    changes: study::Changes,
    /// Measure between the endpoints of this file and build no lab. The file has `[[endpoint]]` tables; see
    /// docs/studies.md. Rows without endpoints are left out
    #[arg(long, value_name = "FILE")]
    endpoints: Option<String>,
    #[command(flatten)]
    pinned: Pinned,
    /// The kernel that guests boot, a bzImage [default: the host's own, else what `make` unpacked]
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Folder for the files of file tests and for Unix sockets, at both ends; on a disk
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    dir: PathBuf,
    #[command(flatten)]
    output: OutputOptions,
}

/// A command line of `vtax run` alone.
#[derive(Parser)]
struct RunLine {
    #[command(flatten)]
    args: RunArgs,
}

/// Where the ends run.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Pinned {
    /// CPUs of both ends. `auto` chooses CPUs near the NIC, away from the busiest interrupts, and others for
    /// each end. `none` pins nothing. Of a list, as 0,1,2,3, two ends on one machine get a half each. 0,1:2,3 is
    /// a list for each end
    #[arg(long, value_name = "auto|none|CPU,…", default_value_t)]
    pub(crate) pin: Pins,
}

impl RunArgs {
    fn changes(&self) -> Result<study::Changes, Stop> {
        let endpoints = self.endpoints.as_deref().map(study::read_endpoints).transpose()?;
        Ok(study::Changes { endpoints: endpoints.unwrap_or_default(), ..self.changes.clone() })
    }
}

pub(crate) fn run(args: RunArgs, places: &Locations, site: &RunSite) -> Result<Exit, Stop> {
    let server_cables = args.changes.cable.is_empty();
    carry_out(&args, server_cables, places, site)
}

/// Runs a built-in study with nothing changed but the number of rounds.
pub(crate) fn run_study(
    study: &str,
    samples: Option<u32>,
    output: OutputOptions,
    places: &Locations,
    site: &RunSite,
) -> Result<Exit, Stop> {
    let RunLine { args } = RunLine::parse_from(["run", study]);
    carry_out(&RunArgs { changes: study::Changes { samples, ..args.changes }, output, ..args }, false, places, site)
}

fn carry_out(args: &RunArgs, server_cables: bool, places: &Locations, site: &RunSite) -> Result<Exit, Stop> {
    let source = match (&args.study, &args.resume) {
        (_, Some(id)) => RunRequest::Old { run: id.clone(), rounds: args.changes.samples },
        (Some(study), None) => RunRequest::Study(Box::new(args.changes()?.apply(read_study(study)?)?)),
        (None, None) => unreachable!("clap asks for a study or --resume"),
    };
    let (pins, kernel) = (args.pinned.pin.clone(), args.kernel.clone());
    let conditions = Conditions { directory: args.dir.clone(), pins, kernel, server_cables };
    finish(study::run(source, &conditions, places, site)?, &args.output.options())
}

pub(crate) fn finish(finished: Finished, options: &report::Options) -> Result<Exit, Stop> {
    match &finished.store {
        None => finished.warn_of_shortfalls(),
        Some(store) => {
            print_run(store, &finished.id, options)?;
            finished.epilogue();
        }
    }
    ended(finished)
}

/// Prints a run in the form that was asked for.
pub(crate) fn print_run(store: &Store, id: &str, options: &report::Options) -> Result<(), Stop> {
    match options.format {
        Format::Json => print_written(|out| store.export(id, out)),
        Format::Table | Format::Markdown | Format::Csv => print_styled(&report::render(&store.document(id)?, options)),
    }
}

/// A built-in study by its name, else a file.
pub(crate) fn read_study(study: &str) -> Result<Study, Stop> {
    match Study::built_in(study) {
        Some(study) => Ok(study),
        None => study::read_file(study),
    }
}

fn ended(finished: Finished) -> Result<Exit, Stop> {
    match (finished.error, finished.state) {
        (Some(error), _) => Err(Stop::infrastructure(error)),
        (None, RunState::Stopped) => Ok(Exit::Interrupted),
        (None, _) if finished.failed => Ok(Exit::CellsFailed),
        (None, _) if !finished.shortfalls.is_empty() => Ok(Exit::NotReached),
        (None, _) => Ok(Exit::Done),
    }
}
