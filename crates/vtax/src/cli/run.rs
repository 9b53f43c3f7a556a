//! `vtax run`.

use std::path::PathBuf;

use clap::{Args, Parser, ValueEnum};
use vtax_model::{
    cell::Instrument,
    endpoint::Pins,
    method::DomainKind,
    options::Idle,
    run::{Difference, Goal, RunState},
    stats::{Confidence, StoppingRule, Width},
    study::{Row, Study},
    topology::Cable,
    units::{ByteSize, Mtu, Span},
    workload::Warmup,
};

use super::{Locations, RunSite, arguments::whole, print};
use crate::{
    exit::{Blamed, Exit, Stop},
    report::{self, Format},
    study::{self, Conditions, Finished, RunSource},
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
    /// Also print percentiles, losses, retransmits and how to read the tables
    #[arg(long)]
    detail: bool,
    /// Print the result document (vtax.result/v1)
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// The form of the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

impl OutputOptions {
    /// The options of the report.
    pub(crate) fn options(&self) -> report::Options {
        let published = (self.published || self.no_published).then_some(self.published);
        report::Options { published, ..self.form.options() }
    }
}

impl Form {
    /// The options of the report.
    pub(crate) fn options(&self) -> report::Options {
        let format = if self.json { Format::Json } else { self.format };
        report::Options { detail: self.detail, format, width: width(), ..Default::default() }
    }
}

/// The usual width if the tables don't go to a terminal.
fn width() -> usize {
    terminal_width().unwrap_or(report::Options::default().width)
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
    /// Short samples and few rounds: minutes, not hours
    #[arg(long)]
    quick: bool,
    /// Rounds: samples of each cell [default: as the study says]
    #[arg(long, value_name = "N", value_parser = whole::<u32>, conflicts_with = "confidence")]
    samples: Option<u32>,
    #[command(flatten)]
    aim: Aim,
    /// Measured time of each sample, as 30s or 200ms [default: as the study says]
    #[arg(long)]
    duration: Option<Span>,
    /// Traffic before the measured time: a time, as 10ms; or `steady`, which waits until the figures are
    /// steady; or `steady:5s`, which waits 5 s at most [default: as the study says]
    #[arg(long)]
    warmup: Option<Warmup>,
    /// Attach a zone or guest by the method at both ends of the wire, not only at the host `sut`
    #[arg(long)]
    both: bool,
    /// Compare the other rows with this one [default: as the study says]
    #[arg(long, value_name = "ROW")]
    baseline: Option<Row>,
    /// Run only these rows and the baseline. A method stands for all of its rows
    #[arg(long, value_delimiter = ',', value_name = "METHOD,…")]
    methods: Vec<Row>,
    /// How many pairs of a client and a guest measure at the same time, in a study that has several (vmdq has 8)
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    guests: Option<u32>,
    /// Whether `assigned` and `sr-iov` attach guests or zones [default: guests]
    #[arg(long, value_enum, value_name = "KIND")]
    guest: Option<Domains>,
    /// Measure over a real cable and not over a veth pair. Name the two NICs of this machine that the cable joins,
    /// by link, PCI address, MAC address or name in `vtax io list`. Give the option once for each cable
    #[arg(long, value_name = "NIC,NIC")]
    cable: Vec<Cable>,
    /// Run only the cells with these MTUs
    #[arg(long, value_delimiter = ',', value_name = "MTU,…")]
    mtu: Vec<Mtu>,
    /// Measure between the endpoints of this file and build no lab. The file has `[[endpoint]]` tables; see
    /// docs/studies.md. Rows without endpoints are left out
    #[arg(long, value_name = "FILE")]
    endpoints: Option<String>,
    /// Run only one part of a study that measures by both instruments [default: both parts]
    #[arg(long, value_enum, value_name = "INSTRUMENT")]
    instrument: Option<Instruments>,
    #[command(flatten)]
    held: HeldOptions,
    #[command(flatten)]
    pinned: Pinned,
    #[command(flatten)]
    boot: Guests,
    /// Size of the file of file tests, as 1000MiB
    #[arg(long)]
    size: Option<ByteSize>,
    /// Folder for the files of file tests and for Unix sockets, at both ends; on a disk
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    dir: PathBuf,
    /// Seed of the random order of the samples [default: random; the result has it]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    seed: Option<u64>,
    #[command(flatten)]
    precision: Precision,
    #[command(flatten)]
    output: OutputOptions,
}

/// A command line of `vtax run` alone.
#[derive(Parser)]
struct RunLine {
    #[command(flatten)]
    args: RunArgs,
}

/// What the number of rounds is chosen for. How noisy rounds are and how long they take is known from the last run
/// of the same study on this machine, else from the first rounds.
#[derive(Debug, Clone, Copy, Default, Args)]
struct Aim {
    /// Take as many rounds as it takes to show a difference of this size, as 2%, in four of five such runs
    #[arg(long, value_name = "PERCENT", conflicts_with_all = ["samples", "confidence", "budget"])]
    show: Option<Difference>,
    /// Take as many rounds as fit into this time, as 2m
    #[arg(long, value_name = "TIME", conflicts_with_all = ["samples", "confidence"])]
    budget: Option<Span>,
}

impl Aim {
    fn goal(self) -> Option<Goal> {
        self.show.map(Goal::Show).or(self.budget.map(Goal::Budget))
    }
}

/// The two instruments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Instruments {
    /// The path's own cost: CPUs don't sleep, TCP uses cubic, rows take turns within milliseconds
    Path,
    /// As the machine runs, which is what an application sees
    System,
}

impl From<Instruments> for Instrument {
    fn from(instrument: Instruments) -> Instrument {
        match instrument {
            Instruments::Path => Instrument::Path,
            Instruments::System => Instrument::System,
        }
    }
}

/// What of the machine's own behaviour is held still.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct HeldOptions {
    /// What CPUs do while they have nothing to do: `poll` keeps them awake while a sample is measured, `system`
    /// changes nothing [default: as the instrument has it]
    #[arg(long, value_name = "poll|system")]
    pub(crate) idle: Option<Idle>,
    /// TCP's congestion control by its name, or `system` for the machine's own [default: as the instrument
    /// has it: cubic for the path's own cost]
    #[arg(long, value_name = "NAME|system")]
    pub(crate) congestion: Option<study::Congestion>,
}

/// What methods attach that can attach both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Domains {
    /// Virtual machines
    Guest,
    /// Processes in a network stack of their own
    Zone,
}

impl From<Domains> for DomainKind {
    fn from(domains: Domains) -> DomainKind {
        match domains {
            Domains::Guest => DomainKind::Guest,
            Domains::Zone => DomainKind::Zone,
        }
    }
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

/// What guests boot.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Guests {
    /// The kernel that guests boot, a bzImage [default: the host's own, else what `make` unpacked]
    #[arg(long, value_name = "FILE")]
    pub(crate) kernel: Option<PathBuf>,
}

/// netperf's rule for stopping.
#[derive(Debug, Clone, Args)]
pub(crate) struct Precision {
    /// Stop when each cell's mean is known with this confidence, in per cent, as netperf's -I does
    #[arg(long, value_name = "PERCENT", requires = "width")]
    confidence: Option<Confidence>,
    /// With --confidence: the full width of the interval that is precise enough, in per cent of the mean
    #[arg(long, value_name = "PERCENT", requires = "confidence")]
    width: Option<Width>,
    /// With --confidence: take at least this many rounds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole::<usize>, requires = "confidence")]
    min: usize,
    /// With --confidence: take at most this many rounds
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = whole::<usize>, requires = "confidence")]
    max: usize,
}

impl Precision {
    /// The rule, if one is asked for.
    pub(crate) fn rule(&self) -> Result<Option<StoppingRule>, Stop> {
        let precision = self.confidence.zip(self.width);
        let rule = precision.map(|(confidence, width)| StoppingRule::new(confidence, width, self.min, self.max));
        rule.transpose().or_input()
    }
}

impl RunArgs {
    fn changes(&self) -> Result<study::Changes, Stop> {
        let endpoints = self.endpoints.as_deref().map(study::read_endpoints).transpose()?;
        Ok(study::Changes {
            quick: self.quick,
            samples: self.samples,
            duration: self.duration,
            warmup: self.warmup,
            both: self.both,
            baseline: self.baseline,
            methods: self.methods.clone(),
            guests: self.guests,
            mtus: self.mtu.clone(),
            endpoints: endpoints.unwrap_or_default(),
            cables: self.cable.clone(),
            domains: self.guest.map(DomainKind::from),
            size: self.size,
            seed: self.seed,
            stopping: self.precision.rule()?,
            goal: self.aim.goal(),
            instrument: self.instrument.map(Instrument::from),
            idle: self.held.idle,
            congestion: self.held.congestion,
        })
    }
}

pub(crate) fn run(args: RunArgs, places: &Locations, site: &RunSite) -> Result<Exit, Stop> {
    let server_cables = args.cable.is_empty();
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
    carry_out(&RunArgs { samples, output, ..args }, false, places, site)
}

fn carry_out(args: &RunArgs, server_cables: bool, places: &Locations, site: &RunSite) -> Result<Exit, Stop> {
    let source = match (&args.study, &args.resume) {
        (_, Some(id)) => RunSource::Resumed { id: id.clone(), rounds: args.samples },
        (Some(study), None) => RunSource::Fresh(Box::new(args.changes()?.apply(read_study(study)?)?)),
        (None, None) => unreachable!("clap asks for a study or --resume"),
    };
    let (pins, kernel) = (args.pinned.pin.clone(), args.boot.kernel.clone());
    let conditions = Conditions { directory: args.dir.clone(), pins, kernel, server_cables };
    finish(study::run(source, &conditions, places, site)?, &args.output.options())
}

/// Prints a result, and how it ended.
pub(crate) fn finish(finished: Finished, options: &report::Options) -> Result<Exit, Stop> {
    match finished.relayed {
        true => finished.warn_of_shortfalls(),
        false => {
            print(&report::render(&finished.document, options))?;
            finished.epilogue();
        }
    }
    ended(finished)
}

/// A built-in study by its name, else a file.
pub(crate) fn read_study(study: &str) -> Result<Study, Stop> {
    match Study::built_in(study) {
        Some(study) => Ok(study),
        None => study::read_file(study),
    }
}

fn ended(finished: Finished) -> Result<Exit, Stop> {
    match (finished.error, finished.document.state) {
        (Some(error), _) => Err(Stop::infrastructure(error)),
        (None, RunState::Stopped) => Ok(Exit::Interrupted),
        (None, _) if !finished.document.failures.is_empty() => Ok(Exit::CellsFailed),
        (None, _) if !finished.shortfalls.is_empty() => Ok(Exit::NotReached),
        (None, _) => Ok(Exit::Done),
    }
}
