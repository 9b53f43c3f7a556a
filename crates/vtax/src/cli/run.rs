//! `vtax run`.

mod changes;
mod dry_run;
mod pods;

use std::{io::IsTerminal, path::PathBuf};

use clap::{ArgMatches, Args, FromArgMatches, Parser};
use vtax_model::{
    analysis::analyse_readings,
    endpoint::Pins,
    foreign::ForeignText,
    result::ResultDocument,
    run::{RunReadings, RunState},
    server::ServerSpec,
    study::Study,
};
use vtax_report::{self as report, Format, waiting};
use vtax_run::{Conditions, FinishedJob, Job, NewRun, RanJob, Work, study};
use vtax_store::Store;

use super::Locations;
use crate::{
    exit::{Exit, Stop},
    one_of::{Choice, one_of},
    progress,
    terminal::{print, print_styled, print_written, size},
};
use changes::ChangeArgs;
pub(super) use changes::{OLD_MODES, ONE_MODE, Precision};

/// The form of a result and its published figures.
#[derive(Debug, Clone, Args)]
pub(crate) struct OutputOptions {
    /// Show a classic study's published figures, even for rows without a measurement [default: only if a compared row
    /// has both]
    #[arg(long, overrides_with = "no_published")]
    published: bool,
    /// Omit the published figures
    #[arg(long, overrides_with = "published")]
    no_published: bool,
    #[command(flatten)]
    form: Form,
}

/// The form of a result.
#[derive(Debug, Clone, Args)]
pub(crate) struct Form {
    /// Also print all MTUs, percentiles, losses, retransmits, CPU time, the machine and the noise floor
    #[arg(long)]
    detail: bool,
    /// Also print a legend of terms and figures
    #[arg(long)]
    explain: bool,
    /// Also draw each row's tax, its interval and the noise floor as a line of characters
    #[arg(long)]
    bars: bool,
    #[command(flatten)]
    format: FormatArgs,
}

/// The options of the output format: one per form, or `--format`.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct FormatArgs {
    /// Print JSON for programs, like --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Print Markdown tables, like --format markdown
    #[arg(long = "md", conflicts_with_all = ["format", "json"])]
    markdown: bool,
    /// Print one line per cell, like --format csv
    #[arg(long, conflicts_with_all = ["format", "json", "markdown"])]
    csv: bool,
    /// Output format
    #[arg(long, value_parser = one_of(&FORMATS), default_value = "table")]
    format: Format,
}

/// The forms of a report.
const FORMATS: [Choice<Format>; 4] = [
    ("table", "Tables for a terminal", Format::Table),
    ("markdown", "The same tables in Markdown", Format::Markdown),
    ("csv", "One line per cell", Format::Csv),
    ("json", "JSON for programs; schema in docs/formats.md", Format::Json),
];

impl OutputOptions {
    pub(crate) fn options(&self) -> report::Options {
        let published = (self.published || self.no_published).then_some(self.published);
        report::Options { published, ..self.form.options() }
    }
}

impl Form {
    pub(crate) fn options(&self) -> report::Options {
        let usual = report::Options::default();
        report::Options {
            detail: self.detail,
            explain: self.explain,
            bars: self.bars,
            format: self.format.chosen(),
            width: terminal_width().unwrap_or(usual.width),
            ..usual
        }
    }
}

/// The forms of output that each of these options applies to.
const SHOWN_IN: [(&str, &[Format]); 3] = [
    ("detail", &[Format::Table, Format::Markdown]),
    ("explain", &[Format::Table, Format::Markdown]),
    ("bars", &[Format::Table]),
];

/// Returns an error message if an option on the command line does not apply to the chosen form of output.
pub(super) fn not_shown(matches: &ArgMatches) -> Option<String> {
    if let Some((_, below)) = matches.subcommand() {
        return not_shown(below);
    }
    // Only the commands that print results have this option.
    matches.try_get_one::<bool>("bars").ok().flatten()?;
    let format = FormatArgs::from_arg_matches(matches).ok()?.chosen();
    let (option, _) =
        SHOWN_IN.into_iter().find(|(option, forms)| matches.get_flag(option) && !forms.contains(&format))?;
    let (name, ..) = FORMATS.into_iter().find(|(.., of)| *of == format)?;
    Some(format!("--{option} does not apply to {name} output: omit --{option}"))
}

impl FormatArgs {
    pub(super) fn chosen(self) -> Format {
        let named = [(self.json, Format::Json), (self.markdown, Format::Markdown), (self.csv, Format::Csv)];
        named.into_iter().find(|(is_asked, _)| *is_asked).map_or(self.format, |(_, format)| format)
    }
}

/// Prints a report that is not a run's.
pub(super) fn print_view(view: &report::View) -> Result<(), Stop> {
    let usual = report::Options::default();
    let options = report::Options { width: terminal_width().unwrap_or(usual.width), ..usual };
    print_styled(&view.draw(&options))
}

/// Returns the columns of the terminal, within readable limits; none unless standard output is a terminal.
pub(super) fn terminal_width() -> Option<usize> {
    let columns = rustix::termios::tcgetwinsize(std::io::stdout()).map(|size| usize::from(size.ws_col));
    columns.ok().filter(|columns| *columns > 0).map(|columns| columns.clamp(60, 140))
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Built-in study (`vtax studies`) or study file, e.g. demo or mine.toml
    #[arg(required_unless_present = "resume")]
    study: Option<String>,
    /// Stopped or killed run to resume: `last`, its id, or a prefix of it, e.g. demo-20260102. --samples N also extends
    /// a complete run, to N rounds in all
    #[arg(long, value_name = "ID")]
    resume: Option<String>,
    #[command(flatten)]
    changes: ChangeArgs,
    /// File of endpoints to measure between, e.g. vms.toml, without building a lab. It consists of `[[endpoint]]`
    /// tables; see docs/studies.md. Rows without endpoints are omitted
    #[arg(long, value_name = "FILE")]
    endpoints: Option<String>,
    #[command(flatten)]
    pinned: Pinned,
    /// Kernel for guests: a bzImage, or the directory of an unpacked package, e.g. /boot/vmlinuz-6.12 [default:
    /// $VTAX_KERNEL, else the running kernel, else that of `make kernel`]
    #[arg(long, value_name = "FILE", conflicts_with = "endpoints")]
    kernel: Option<PathBuf>,
    /// Directory on a disk for the files of file tests and for Unix sockets, at both endpoints
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    dir: PathBuf,
    #[command(flatten)]
    labelled: Labelled,
    /// Print the plan without running it: the samples and their order, the run time, the detectable differences, the
    /// rows unavailable on this machine, and the lab
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    pub(super) output: OutputOptions,
}

/// The command line of `vtax run` alone.
#[derive(Parser)]
struct RunLine {
    #[command(flatten)]
    args: RunArgs,
}

/// CPU pinning.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Pinned {
    /// CPUs of both endpoints. `auto` chooses different CPUs for each endpoint, near the NIC and away from the busiest
    /// interrupts. `none` pins nothing. Two endpoints on one machine split a list, e.g. 0,1,2,3. 0,1:2,3 is one list
    /// per endpoint
    #[arg(long, value_name = "auto|none|CPU,…", default_value_t)]
    pub(crate) pin: Pins,
}

/// The user's name for a run.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Labelled {
    /// Label of the result, e.g. "before tuning". Lists and reports show it before the title
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
}

impl Labelled {
    pub(crate) fn label(&self) -> ForeignText {
        self.label.clone().unwrap_or_default().into()
    }
}

impl RunArgs {
    pub(super) fn is_dry(&self) -> bool {
        self.dry_run
    }

    pub(super) fn job(self, server_cables: bool) -> Result<Job, Stop> {
        let RunArgs { study, resume, changes, endpoints, pinned, kernel, dir, labelled, .. } = self;
        let work = match (study, resume) {
            (_, Some(run)) => Work::GoOn { run, rounds: changes.samples },
            (Some(study), None) => {
                let endpoints = endpoints.as_deref().map(study::read_endpoints).transpose()?.unwrap_or_default();
                let changes = Box::new(changes.changes(endpoints)?);
                Work::New(NewRun::Study { study: Box::new(read_study(&study)?), changes })
            }
            (None, None) => unreachable!("clap asks for a study or --resume"),
        };
        let (pins, label, command) = (pinned.pin, labelled.label(), words());
        let conditions = Conditions { directory: dir, pins, kernel, server_cables, label, command };
        Ok(Job { work, conditions })
    }
}

pub(crate) fn run(args: RunArgs, places: &Locations, server: Option<ServerSpec>) -> Result<Exit, Stop> {
    if args.dry_run {
        return dry_run::dry_run(args, places);
    }
    let (output, server_cables) = (args.output.clone(), args.changes.cable.is_empty());
    carry_out(&args.job(server_cables)?, || output.options(), places, server)
}

/// Returns the command line of this vtax, for the record of the run.
pub(super) fn words() -> Vec<String> {
    let given = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    std::iter::once("vtax".to_owned()).chain(given).collect()
}

/// Runs a built-in study with no changes except the number of rounds and their order.
pub(crate) fn run_study(
    study: &str,
    samples: Option<u32>,
    seed: Option<u64>,
    labelled: Labelled,
    output: &OutputOptions,
    places: &Locations,
    server: Option<ServerSpec>,
) -> Result<Exit, Stop> {
    let RunLine { mut args } = RunLine::parse_from(["run", study]);
    args.changes.samples = samples;
    args.changes.seed = seed;
    args.labelled = labelled;
    carry_out(&args.job(false)?, || output.options(), places, server)
}

/// Carries out a job, and prints its result. `options` is evaluated then: the terminal may have been resized.
pub(super) fn carry_out(
    job: &Job,
    options: impl FnOnce() -> report::Options,
    places: &Locations,
    server: Option<ServerSpec>,
) -> Result<Exit, Stop> {
    let finished = vtax_run::carry_out(job, server, places, &progress::terminal())?;
    keep_brief(&finished.store, &finished.ran.run)?;
    print_run(&finished.store, &finished.ran.run.header.id, &options())?;
    epilogue(&finished);
    ended(finished.ran)
}

/// Stores a summary of a complete run, so that a list need not read its samples.
pub(in crate::cli) fn keep_brief(store: &Store, run: &RunReadings) -> Result<(), Stop> {
    match run.state {
        RunState::Complete => Ok(store.keep_brief(&run.header.id, &report::in_brief(&analyse_readings(run)))?),
        RunState::Running | RunState::Stopped => Ok(()),
    }
}

/// Reports where the result is, how long the run took, and which goals it missed.
fn epilogue(FinishedJob { ran: RanJob { run, shortfalls, .. }, state_dir, .. }: &FinishedJob) {
    let (id, count, wall) = (&run.header.id, run.samples.len(), run.wall_seconds);
    let measured: f64 = run.samples.iter().map(|sample| sample.seconds).sum();
    match measured > 0.0 {
        true => tell!("{count} samples: {measured:.1} s of measured time in {}", waiting(wall)),
        false => tell!("no samples taken in {wall:.1} s"),
    }
    tell!("saved as {id} in {}", state_dir.display());
    if run.state != RunState::Complete && run.header.study.pods().is_none() {
        tell!("resume with: vtax run --resume {id}");
    }
    shortfalls.iter().for_each(|shortfall| tell!("warning: {shortfall}"));
}

/// Prints a run in the requested form.
pub(crate) fn print_run(store: &Store, id: &str, options: &report::Options) -> Result<(), Stop> {
    match options.format {
        Format::Json => print_written(|out| store.export(id, out)),
        Format::Table | Format::Markdown | Format::Csv => print_report(&store.document(id)?, options),
    }
}

/// Prints a report. If it does not fit on the terminal, the answer, which has scrolled off the screen, is repeated at
/// the end.
pub(super) fn print_report(document: &ResultDocument, options: &report::Options) -> Result<(), Stop> {
    let text = report::render(document, options);
    print_styled(&text)?;
    let (lines, out) = (text.lines().len(), std::io::stdout());
    match options.format == Format::Table && out.is_terminal() && lines > size(out).lines {
        true => print("\n").and_then(|()| print_styled(&report::answer_again(document, options))),
        false => Ok(()),
    }
}

/// Returns a built-in study by its name, else a file.
pub(crate) fn read_study(study: &str) -> Result<Study, Stop> {
    match Study::built_in(study) {
        Some(study) => Ok(study),
        None => study::read_file(study),
    }
}

pub(super) fn ended(RanJob { run, error, shortfalls }: RanJob) -> Result<Exit, Stop> {
    match (error, run.state) {
        (Some(error), _) => Err(Stop::infrastructure(error)),
        (None, RunState::Stopped) => Ok(Exit::Interrupted),
        (None, _) if !run.failures.is_empty() => Ok(Exit::CellsFailed),
        (None, _) if !shortfalls.is_empty() => Ok(Exit::NotReached),
        (None, _) => Ok(Exit::Done),
    }
}
