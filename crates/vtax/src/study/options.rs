//! What the command line changes of a study.

use std::{
    fs::File,
    io::{self, Read as _},
    str::FromStr,
};

use clap::Args;
use miette::{Context, bail, miette};
use vtax_model::{
    cell::Instrument,
    endpoint::Endpoint,
    located::Source,
    method::DomainKind,
    options::{CongestionControl, Idle, OptionError},
    run::{Difference, Goal},
    spelling::suggestion,
    study::{Row, SamplingPlan, SamplingPlanError, Slices, Study, is_lab_file},
    topology::{Cable, NicName},
    units::{ByteSize, Mtu, Span},
    workload::{Transport, Warmup, Workload},
};
use vtax_stats::{Confidence, StoppingRule, Width};

use super::draft::mtus_of;
use crate::{
    exit::{Blamed, Coded, Stop},
    one_of::{Choice, one_of},
    whole_number::whole,
};

/// The largest file of a study, a lab or endpoints. The built-in ones have some KiB.
const FILE_MOST: ByteSize = ByteSize(1 << 20);

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Changes {
    /// Short samples and few rounds: minutes, not hours
    #[arg(long)]
    pub(crate) quick: bool,
    /// Rounds: samples of each cell [default: as the study says]
    #[arg(long, value_name = "N", value_parser = whole::<u32>, conflicts_with = "confidence")]
    pub(crate) samples: Option<u32>,
    /// Take as many rounds as it takes to show a difference of this size, as 2%, in four of five such runs. How noisy
    /// rounds are and how long they take is known from the last run of the same study on this machine, else from the
    /// first rounds
    #[arg(long, value_name = "PERCENT", conflicts_with_all = ["samples", "confidence", "budget"])]
    pub(crate) show: Option<Difference>,
    /// Take as many rounds as fit into this time, as 2m
    #[arg(long, value_name = "TIME", conflicts_with_all = ["samples", "confidence"])]
    pub(crate) budget: Option<Span>,
    /// Measured time of each sample, as 30s or 200ms [default: as the study says]
    #[arg(long)]
    pub(crate) duration: Option<Span>,
    /// Traffic before the measured time: a time, as 10ms; or `steady`, which waits until the figures are
    /// steady; or `steady:5s`, which waits 5 s at most [default: as the study says]
    #[arg(long)]
    pub(crate) warmup: Option<Warmup>,
    /// Attach a zone or guest by the method at both ends of the wire, not only at the host `sut`
    #[arg(long)]
    pub(crate) both: bool,
    /// Compare the other rows with this one [default: as the study says]
    #[arg(long, value_name = "ROW")]
    pub(crate) baseline: Option<Row>,
    /// Run only these rows and the baseline. A method stands for all of its rows
    #[arg(long, value_delimiter = ',', value_name = "METHOD,…")]
    pub(crate) methods: Vec<Row>,
    /// How many pairs of a client and a guest measure at the same time, in a study that has several (vmdq has 8)
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    pub(crate) guests: Option<u32>,
    /// Whether `assigned` and `sr-iov` attach guests or zones [default: guests]
    #[arg(long, value_parser = one_of(&DOMAINS), value_name = "KIND")]
    pub(crate) guest: Option<DomainKind>,
    /// Measure over a real cable and not over a veth pair. Name the two NICs of this machine that the cable joins,
    /// by link, PCI address, MAC address or name in `vtax io list`. Give the option once for each cable
    #[arg(long, value_name = "NIC,NIC")]
    pub(crate) cable: Vec<Cable>,
    /// Run only the cells with these MTUs
    #[arg(long, value_delimiter = ',', value_name = "MTU,…")]
    pub(crate) mtu: Vec<Mtu>,
    /// The endpoints to measure on, in place of the study's.
    #[arg(skip)]
    pub(crate) endpoints: Vec<Endpoint>,
    /// Run only one part of a study that measures by both instruments [default: both parts]
    #[arg(long, value_parser = one_of(&INSTRUMENTS), value_name = "INSTRUMENT")]
    pub(crate) instrument: Option<Instrument>,
    /// What CPUs do while they have nothing to do: `poll` keeps them awake while a sample is measured, `system`
    /// changes nothing [default: as the instrument has it]
    #[arg(long, value_name = "poll|system")]
    pub(crate) idle: Option<Idle>,
    /// TCP's congestion control by its name, or `system` for the machine's own [default: as the instrument
    /// has it: cubic for the path's own cost]
    #[arg(long, value_name = "NAME|system")]
    pub(crate) congestion: Option<Congestion>,
    /// Size of the file of file tests, as 1000MiB
    #[arg(long)]
    pub(crate) size: Option<ByteSize>,
    /// Seed of the random order of the samples [default: random; the result has it]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) precision: Precision,
}

const INSTRUMENTS: [Choice<Instrument>; 2] = [
    (
        "path",
        "The path's own cost: CPUs don't sleep, TCP uses cubic, rows take turns within milliseconds",
        Instrument::Path,
    ),
    ("system", "As the machine runs, which is what an application sees", Instrument::System),
];

/// What methods attach that can attach both.
const DOMAINS: [Choice<DomainKind>; 2] = [
    ("guest", "Virtual machines", DomainKind::Guest),
    ("zone", "Processes in a network stack of their own", DomainKind::Zone),
];

/// netperf's rule for stopping.
#[derive(Debug, Clone, Default, Args)]
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
    pub(crate) fn rule(&self) -> Result<Option<StoppingRule>, Stop> {
        let precision = self.confidence.zip(self.width);
        let rule = precision.map(|(confidence, width)| StoppingRule::new(confidence, width, self.min, self.max));
        rule.transpose().or_input()
    }
}

/// A congestion control by its name, or none for `system`, the machine's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Congestion(pub(crate) Option<CongestionControl>);

impl FromStr for Congestion {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        if text == "system" { Ok(Congestion(None)) } else { Ok(Congestion(Some(text.parse()?))) }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChangedStudy {
    pub(crate) study: Study,
    pub(crate) plan: SamplingPlan,
    pub(crate) path_plan: Option<SamplingPlan>,
    pub(crate) quick: bool,
    pub(crate) seed: Option<u64>,
    pub(crate) stopping: Option<StoppingRule>,
    pub(crate) goal: Option<Goal>,
}

impl Changes {
    pub(crate) fn apply(&self, mut study: Study) -> Result<ChangedStudy, Stop> {
        self.change(&mut study).or_input()?;
        let (plan, path_plan) = self.plans(&study).or_input()?;
        let Changes { quick, seed, .. } = *self;
        let (stopping, goal) = (self.precision.rule()?, self.goal());
        Ok(ChangedStudy { study, plan, path_plan, quick, seed, stopping, goal })
    }

    fn goal(&self) -> Option<Goal> {
        self.show.map(Goal::Show).or(self.budget.map(Goal::Budget))
    }

    fn change(&self, study: &mut Study) -> miette::Result<()> {
        if !self.endpoints.is_empty() {
            stand_on(study, &self.endpoints)?;
        }
        self.choose_baseline(study)?;
        self.keep_methods(study)?;
        self.cable(study)?;
        study.domains = self.guest.unwrap_or(study.domains);
        self.keep_mtus(study)?;
        self.keep_instrument(study)?;
        self.keep_planned(study);
        self.hold(study);
        if let Some(size) = self.size.or(study.quick_file.filter(|_| self.quick)) {
            resize_files(study, size)?;
        }
        let both_named = study.pairs > 1 || !study.rows.iter().all(|row| row.may_be_both());
        if self.both && (both_named || !study.endpoints.is_empty()) {
            let id = &study.id;
            bail!(
                code = "option-not-for-this",
                "--both: the rows of `{id}` name both of their ends already; leave it out"
            );
        }
        study.both |= self.both;
        self.guests.map_or(Ok(()), |guests| keep_guests(study, guests))
    }

    fn choose_baseline(&self, study: &mut Study) -> miette::Result<()> {
        let Some(baseline) = self.baseline else { return Ok(()) };
        if !study.rows.contains(&baseline) {
            return Err(no_row(study, "baseline", baseline));
        }
        study.baseline = baseline;
        study.extra.retain(|row| *row != baseline);
        Ok(())
    }

    fn keep_methods(&self, study: &mut Study) -> miette::Result<()> {
        if self.methods.is_empty() {
            return Ok(());
        }
        let is = |row: &Row, asked: &Row| row == asked || row.method().map(Row::Method) == Some(*asked);
        for asked in &self.methods {
            if !study.rows.iter().any(|row| is(row, asked)) {
                return Err(no_row(study, "methods", *asked));
            }
        }
        let baseline = study.baseline;
        let kept = |row: &Row| *row == baseline || self.methods.iter().any(|asked| is(row, asked));
        study.rows.retain(kept);
        study.cells.retain(|cell| kept(&cell.row));
        Ok(())
    }

    /// Each row takes a cable, so the extra rows of a study are left out unless the user names them.
    fn cable(&self, study: &mut Study) -> miette::Result<()> {
        if self.cable.is_empty() {
            return Ok(());
        }
        let on_one_host = study.rows.iter().any(|row| matches!(row, Row::Zones { .. }));
        if on_one_host || !study.endpoints.is_empty() {
            let id = &study.id;
            bail!(
                code = "option-not-for-this",
                "--cable: the rows of `{id}` have no wire between two hosts; leave it out"
            );
        }
        let mut nics: Vec<&NicName> = self.cable.iter().flat_map(|Cable(nics)| nics).collect();
        nics.sort();
        if let Some([nic, _]) = nics.array_windows().find(|[one, other]| one == other) {
            bail!(code = "named-twice", "--cable: the NIC {nic} is at the end of two cables; name each once");
        }
        study.cables.clone_from(&self.cable);
        if self.methods.is_empty() {
            let extra = std::mem::take(&mut study.extra);
            study.rows.retain(|row| !extra.contains(row));
            study.cells.retain(|cell| !extra.contains(&cell.row));
        }
        Ok(())
    }

    fn keep_mtus(&self, study: &mut Study) -> miette::Result<()> {
        let has = |mtu: &Mtu| study.cells.iter().any(|cell| cell.mtu == *mtu);
        if let Some(missing) = self.mtu.iter().find(|mtu| !has(mtu)) {
            let (id, mtus) = (&study.id, listed(&mtus_of(&study.cells)));
            bail!(code = "not-in-study", "--mtu: `{id}` has nothing at {missing}; it has {mtus}");
        }
        study.cells.retain(|cell| self.mtu.is_empty() || self.mtu.contains(&cell.mtu));
        Ok(())
    }

    fn keep_instrument(&self, study: &mut Study) -> miette::Result<()> {
        let Some(asked) = self.instrument else { return Ok(()) };
        if !study.cells.iter().any(|cell| cell.instrument == asked) {
            bail!(code = "not-in-study", "--instrument {asked}: `{}` has no such part; leave it out", study.id);
        }
        study.cells.retain(|cell| cell.instrument == asked);
        if asked == Instrument::System {
            (study.path, study.quick_path) = (None, None);
        }
        Ok(())
    }

    /// `--quick` has no plan for the path's own cost where it isn't the answer.
    fn keep_planned(&self, study: &mut Study) {
        if study.plan_of(Instrument::Path, self.quick).is_none() {
            study.cells.retain(|cell| cell.instrument != Instrument::Path);
        }
    }

    fn hold(&self, study: &mut Study) {
        for cell in &mut study.cells {
            cell.options.idle = self.idle.unwrap_or(cell.options.idle);
            if let (Transport::Tcp, Some(Congestion(chosen))) = (cell.transport, self.congestion) {
                cell.options.socket.congestion = chosen;
            }
        }
    }

    /// The options change the plan of the instrument that answers the study.
    fn plans(&self, study: &Study) -> miette::Result<(SamplingPlan, Option<SamplingPlan>)> {
        let system = if self.quick { study.quick } else { study.plan };
        let path = study.plan_of(Instrument::Path, self.quick);
        match study.answering() {
            Instrument::Path => Ok((system, path.map(|path| self.plan(path)).transpose()?)),
            Instrument::System => Ok((self.plan(system)?, path)),
        }
    }

    fn plan(&self, base: SamplingPlan) -> miette::Result<SamplingPlan> {
        let duration = self.duration.unwrap_or(base.duration);
        let longer = duration.0.as_secs_f64() / base.duration.0.as_secs_f64();
        let stretched = |slices: Slices| Slices { stream: Span(slices.stream.0.mul_f64(longer)), ..slices };
        let plan = SamplingPlan {
            samples: self.samples.unwrap_or(base.samples),
            duration,
            warmup: self.warmup.unwrap_or(base.warmup),
            slices: base.slices.map(stretched),
        };
        plan.check().map_err(blaming)?;
        Ok(plan)
    }
}

pub(super) fn blaming(error: SamplingPlanError) -> miette::Report {
    let option = match error {
        SamplingPlanError::NoSamples => "samples",
        SamplingPlanError::TooShort(_) | SamplingPlanError::ShortSlice(_) | SamplingPlanError::Passes(_) => "duration",
    };
    let told = format!("--{option}: {error}");
    miette::Report::new(error).wrap_err(told)
}

fn listed(items: &[impl ToString]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn no_row(study: &Study, option: &str, row: Row) -> miette::Report {
    let (id, rows) = (&study.id, listed(&study.rows));
    miette!(code = "not-in-study", "--{option}: `{id}` has no row `{row}`; it has {rows}")
}

/// Changes the number of pairs, so that a study fits a small or a large machine.
fn keep_guests(study: &mut Study, guests: u32) -> miette::Result<()> {
    if study.pairs < 2 || !study.endpoints.is_empty() {
        let what = format!("the rows of `{}` have no number of guests that could be changed", study.id);
        bail!(code = "option-not-for-this", "--guests: {what}; leave it out");
    }
    if !(1..=Study::MOST_PAIRS).contains(&guests) {
        bail!(code = "bad-option", "--guests {guests}: a row has 1 to {}", Study::MOST_PAIRS);
    }
    study.pairs = guests;
    Ok(())
}

/// Takes these endpoints. Each must belong to a row of the study.
fn stand_on(study: &mut Study, endpoints: &[Endpoint]) -> miette::Result<()> {
    let rows = endpoints.iter().filter_map(|endpoint| endpoint.method);
    if let Some(row) = { rows }.find(|row| !study.rows.contains(row)) {
        let (id, rows) = (&study.id, listed(&study.rows));
        bail!(code = "not-in-study", "--endpoints: an endpoint stands for `{row}`, which `{id}` hasn't; it has {rows}");
    }
    study.endpoints = endpoints.to_vec();
    Ok(())
}

fn resize_files(study: &mut Study, size: ByteSize) -> miette::Result<()> {
    let mut files = 0;
    for cell in &mut study.cells {
        if let Workload::File { size: current } = &mut cell.workload {
            *current = size;
            files += 1;
            cell.workload.check(cell.transport, cell.mtu).context("--size")?;
        }
    }
    if files == 0 {
        bail!(code = "option-not-for-this", "--size: `{}` sends no file; leave it out", study.id);
    }
    Ok(())
}

pub(crate) fn read_file(path: &str) -> Result<Study, Stop> {
    let text = read_text(path)?;
    if is_lab_file(&text) {
        return Err(Stop::input(miette!(
            code = "not-a-study",
            "{path} is a lab, not a study; build it with: vtax lab up {path}"
        )));
    }
    Study::parse(Source { name: path, text: &text }).or_input()
}

/// The text of the file of a study or a lab, which is no built-in study.
pub(crate) fn read_text(path: &str) -> Result<String, Stop> {
    let known = Study::BUILT_IN.map(|(id, _)| id);
    read_bounded(path).map_err(|error| {
        let near = suggestion(path, known);
        let known = known.join(", ");
        Stop::input(miette!(
            code = "no-such-study",
            "`{path}` is neither a built-in study ({known}) nor a file that can be read ({error}){near}"
        ))
    })
}

pub(crate) fn read_endpoints(path: &str) -> Result<Vec<Endpoint>, Stop> {
    let text = read_bounded(path).coded("file", || format!("--endpoints: `{path}` can't be read"));
    Endpoint::parse_file(Source { name: path, text: &text.or_input()? }).or_input()
}

/// Reads a file that a user wrote. A device such as `/dev/zero` would fill the memory.
fn read_bounded(path: &str) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(FILE_MOST.0 + 1).read_to_string(&mut text)?;
    match text.len() as u64 > FILE_MOST.0 {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {FILE_MOST}"))),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests;
