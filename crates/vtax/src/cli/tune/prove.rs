//! `vtax tune prove`.

mod table;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use vtax_model::{
    cell::Instrument,
    endpoint::{End, Endpoint, OtherPath, Pins},
    foreign::ForeignText,
    options::{Engine, TestOptions},
    proof::{Proof, StepComparison, against},
    run::{Difference, Goal, RunHeader, RunReadings, RunState},
    study::{SamplingPlan, Slices, StepName, TuningStep},
    units::Span,
    workload::Warmup,
};
use vtax_run::{
    Conditions, FinishedJob, Job, Locations, NewRun, RanJob, Work,
    study::{ChosenRounds, GivenSizes, KeptBatch, KeptChanges, MeasureRequest, Test, find_rule, keep},
};
use vtax_store::Store;
use vtax_tune::{ChangeRisk, RULES};

use super::file::TuningFile;
use crate::{
    cli::{answer, measure, run},
    exit::{Blamed, Exit, Stop},
    one_of::one_of_or_old,
    progress,
    whole_number::whole,
};

/// The settings to test.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct Tried {
    /// Rules to test, each separately, as named by `vtax tune check`, e.g. tcp-buffers
    #[arg(value_name = "RULE", conflicts_with = "all_safe")]
    rules: Vec<String>,
    /// Test all low-risk rules
    #[arg(long)]
    all_safe: bool,
    /// Rules to test together as one step, e.g. rps,xps, for settings that help only in combination
    #[arg(long, value_name = "RULE,…")]
    bundle: Vec<String>,
    /// Stopped or killed run of `vtax tune prove` to resume: `last`, its id, or a prefix of it, e.g. measure-20260102
    #[arg(long, value_name = "ID")]
    resume: Option<String>,
}

// The help of the options that `vtax measure` has too. Here, they name a single path.
const TO: &str = "Responder of the path to tune, e.g. ssh:vm1: local, ssh:HOST, libvirt:NAME (a running virtual machine of \
    libvirt), zone:NAME or zone:LAB/NAME (a zone, host or guest of a running lab), ldm:DOMAIN or ldm:DOMAIN/NIC (a \
    running logical domain, over one of its virtual NICs), netns:NAME, netns:/PATH or pid:PID (a network namespace of \
    this machine), container:NAME (a running container of this machine; docker:NAME, podman:NAME, nerdctl:NAME or \
    crictl:NAME select its engine), pod:NAMESPACE/NAME (a running pod). Settings are tested on the machines of both endpoints, but never in a pod";
const FROM: &str = "Initiator of the path to tune, e.g. zone:rack/web, in the syntax of --to [default: local; with \
    --to zone:NAME the other end of its wire; with --to ldm:DOMAIN the host of the domain]";
const TO_ADDRESS: &str = "Address of the responder, e.g. 192.0.2.1 [default: the address that ssh connected to; the \
    zone's address; or the address used to reach the other endpoint]. A link-local address names the link of --from, \
    e.g. fe80::1%eth0";
const FROM_ADDRESS: &str = "Address of the initiator, e.g. 192.0.2.2 [default: as for --to-address]";
const TO_DEVICE: &str = "Network device for the sockets of the responder, e.g. eth1. Without --to-address, vtax uses the \
    device's first address";
const TO_CID: &str =
    "vsock: context identifier of the responder, e.g. 3. Not needed if both endpoints are on one machine";
const WITHIN: &str = "Host of a lab with the logical domains of ldm:DOMAIN, e.g. rack/sut; as for `vtax ldm --in`";

#[derive(Debug, Args)]
#[command(
    mut_arg("to", |to| to.help(TO)),
    mut_arg("from", |from| from.help(FROM)),
    mut_arg("to_address", |address| address.help(TO_ADDRESS)),
    mut_arg("from_address", |address| address.help(FROM_ADDRESS)),
    mut_arg("to_device", |device| device.help(TO_DEVICE)),
    mut_arg("to_cid", |cid| cid.help(TO_CID)),
    mut_arg("within", |host| host.help(WITHIN))
)]
pub(crate) struct ProveArgs {
    #[command(flatten)]
    tried: Tried,
    #[command(flatten)]
    ends: measure::MeasuredEnds,
    #[arg(long, value_name = "TEST,…", value_delimiter = ',', default_value = "tcp-rr,tcp-stream", help = measure::values::tests_help(), help_heading = "Test")]
    test: Vec<Test>,
    /// Endpoint to protect, e.g. zone:rack/web: a zone, guest or host that shares the machine. Its round trip is
    /// measured during each sample, and changes that worsen its median or 99th percentile by more than --margin are
    /// rejected. Same syntax as --to; without FROM, measured from --from. Up to four times
    #[arg(long, value_name = "[FROM,]TO", help_heading = "Proof")]
    guard: Vec<OtherPath>,
    /// Gain that the whole interval must exceed for a change to be kept, e.g. 5%
    #[arg(long, value_name = "PERCENT", default_value = "2%", help_heading = "Proof")]
    margin: Difference,
    /// Measurement mode, e.g. controlled
    #[arg(long, alias = "instrument", value_parser = one_of_or_old(&run::ONE_MODE, &run::OLD_MODES), default_value = "host", help_heading = "Proof")]
    mode: Instrument,
    /// Duration of a sample, e.g. 500ms
    #[arg(long, value_name = "TIME", default_value = "100ms", help_heading = "Proof")]
    duration: Span,
    /// Warm-up after settings were changed, before each sample, e.g. 1s
    #[arg(long, value_name = "TIME|steady", default_value = "20ms", help_heading = "Proof")]
    warmup: Warmup,
    /// Seed for the random order of samples, e.g. 1 [default: random; recorded in the result]
    #[arg(long, value_name = "N", value_parser = whole::<u64>, help_heading = "Proof")]
    seed: Option<u64>,
    #[command(flatten)]
    pub(in crate::cli) closing: Closing,
    #[command(flatten)]
    labelled: run::Labelled,
}

/// Options for what follows the first run. Everything else is taken from that run when a proof is resumed.
#[derive(Debug, Args)]
pub(in crate::cli) struct Closing {
    /// Difference to detect with 80 % power, e.g. 2%. A change is kept only if two runs show a gain of more than --margin:
    /// with the defaults, almost every change that gains 5 % is kept
    #[arg(long, value_name = "PERCENT", default_value = "2%", help_heading = "Proof")]
    show: Difference,
    /// Approximate total time, e.g. 30m. The detectable difference is printed before the first round, if estimating it takes
    /// less than a tenth of this
    #[arg(long, value_name = "TIME", default_value = "10m", help_heading = "Proof")]
    budget: Span,
    /// Revert everything at the end, even what helps
    #[arg(long, conflicts_with = "write", help_heading = "Proof")]
    keep_none: bool,
    /// Output file for the settings kept, e.g. proved.toml, for `vtax tune apply --file` on another host [default: a
    /// file in the results directory]
    #[arg(long, value_name = "FILE", help_heading = "Proof")]
    write: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Output of `--json`.
#[derive(Serialize)]
struct ProvedRecord {
    schema: &'static str,
    /// The run in which each step was tested separately. `vtax results show` has its figures.
    run: String,
    margin: Difference,
    proof: Proof,
    /// Steps that change nothing here, with the reason.
    without: Vec<StepWithout>,
    /// Absent if no step was shown to help.
    #[serde(skip_serializing_if = "Option::is_none")]
    confirmation: Option<Confirmation>,
    kept: Vec<StepName>,
    /// The changes kept.
    changes: Vec<KeptBatch>,
    /// The file to make the same changes on another host.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
}

#[derive(Serialize)]
struct StepWithout {
    step: String,
    why: String,
}

/// The second run, which tests together what helped in the first.
#[derive(Serialize)]
struct Confirmation {
    run: String,
    /// All helpful steps together.
    together: Proof,
    /// All but one step, compared with all of them.
    left_out: Vec<LeftOut>,
}

#[derive(Serialize)]
struct LeftOut {
    step: StepName,
    /// Ratio of the others without it to all together.
    without: Vec<StepComparison>,
    /// True if it adds to the gain of the others.
    adds: bool,
}

/// Name of the step with all changes to keep.
const TOGETHER: &str = "together";
/// The first run's share of the budget.
const FIRST: f64 = 0.6;

pub(super) fn prove(args: &ProveArgs, places: &Locations) -> Result<Exit, Stop> {
    let (ran, begun) = first_run(args, places)?;
    if ran.state != RunState::Complete {
        tell!("resume with: vtax tune prove --resume {}", ran.header.id);
        return begun.map_or(Ok(Exit::Interrupted), run::ended);
    }
    finish(&args.closing, &ran, places)
}

/// Confirms the results of the complete first run, and keeps them.
fn finish(closing: &Closing, ran: &RunReadings, places: &Locations) -> Result<Exit, Stop> {
    let (header, margin) = (&ran.header, margin(&ran.header)?);
    let proof = Proof::of(ran, margin);
    let helps = proof.kept();
    let candidates: Vec<&TuningStep> = header.study.steps.iter().filter(|step| helps.contains(&step.name)).collect();
    let confirmation = match confirm(closing, header, &candidates, places)? {
        Ok(confirmation) => confirmation,
        Err(stopped) => {
            tell!("nothing is kept without the confirmation run; resume with: vtax tune prove --resume {}", header.id);
            return run::ended(stopped);
        }
    };
    let kept = kept(&confirmation, &candidates);
    let changed = match kept.is_empty() || closing.keep_none {
        true => None,
        false => Some(keep_steps(closing, header, &kept, places)?),
    };
    let (changed, file) = changed.unzip();
    let record = ProvedRecord {
        schema: "vtax.tune-proved/v1",
        run: header.id.clone(),
        margin,
        without: without(header),
        proof,
        confirmation,
        kept: kept.iter().map(|step| step.name).collect(),
        changes: changed.map(|changed| changed.batches).unwrap_or_default(),
        file,
    };
    answer(closing.json, &record, table::told)
}

/// Returns the run in which each step is tested separately. A complete run is not measured again.
fn first_run(args: &ProveArgs, places: &Locations) -> Result<(RunReadings, Option<RanJob>), Stop> {
    let work = match &args.tried.resume {
        None => Work::New(NewRun::Measure(Box::new(args.request()?))),
        Some(id) => {
            let run = Store::open(&places.state_dir()?)?.load(id)?;
            margin(&run.header)?;
            if run.state == RunState::Complete {
                return Ok((run, None));
            }
            Work::GoOn { run: run.header.id, rounds: None }
        }
    };
    let ran = measured(work, args.ends.pinned.pin.clone(), args.labelled.label(), places)?;
    Ok((ran.run.clone(), Some(ran)))
}

/// Returns the minimum gain of a change. Only runs of `vtax tune prove` have one.
fn margin(header: &RunHeader) -> Result<Difference, Stop> {
    header.margin.ok_or_else(|| {
        let id = &header.id;
        Stop::input(miette::miette!(
            code = "option-not-for-this",
            "--resume: {id} is not a run of vtax tune prove; resume it with: vtax run --resume {id}"
        ))
    })
}

/// Applies what helped, and writes the file for other hosts.
fn keep_steps(
    closing: &Closing,
    header: &RunHeader,
    kept: &[&TuningStep],
    places: &Locations,
) -> Result<(KeptChanges, PathBuf), Stop> {
    let step = bundle(TOGETHER, kept.iter().copied())?;
    let asked = MeasureRequest::trying(header, vec![step.clone()], closing.goal(closing.show, 1.0));
    let changed = keep(&asked, &step, places, &progress::terminal())?;
    let usual = || Ok::<_, Stop>(places.state_dir()?.join("proved").join(format!("{}.toml", header.id)));
    let path = closing.write.clone().map_or_else(usual, Ok)?;
    TuningFile::new(&header.id, &step.rules, changed.proposals.clone()).write(&path)?;
    Ok((changed, path))
}

impl Tried {
    fn steps(&self) -> Result<Vec<TuningStep>, Stop> {
        let safe = RULES.iter().filter(|rule| self.all_safe && rule.risk == ChangeRisk::Low).map(|rule| rule.id);
        let named = self.rules.iter().map(String::as_str).chain(safe);
        let bundles = self.bundle.iter().map(String::as_str);
        let mut steps: Vec<TuningStep> = Vec::new();
        for names in named.chain(bundles) {
            let rules = names.split(',').map(|name| Ok(find_rule(name).or_input()?.id.to_owned()));
            let rules = rules.collect::<Result<Vec<_>, Stop>>()?;
            // The confirmation run uses this name for a step.
            without_name(names)?;
            let step = TuningStep { name: names.parse().or_input()?, rules, sysctl: Default::default() };
            if !steps.contains(&step) {
                steps.push(step);
            }
        }
        Ok(steps)
    }
}

impl Closing {
    /// Enough rounds to detect a difference, within a share of the budget.
    fn goal(&self, show: Difference, part: f64) -> Goal {
        Goal::Within { show, budget: Span(self.budget.0.mul_f64(part)) }
    }
}

impl ProveArgs {
    fn request(&self) -> Result<MeasureRequest, Stop> {
        Ok(MeasureRequest {
            endpoints: self.endpoints()?,
            tests: self.test.clone(),
            engines: vec![Engine::default()],
            under: Vec::new(),
            streams: vec![1],
            sizes: GivenSizes::default(),
            gaps: vec![None],
            options: TestOptions::default(),
            rounds: ChosenRounds {
                goal: Some(self.closing.goal(self.closing.show, FIRST)),
                seed: self.seed,
                ..ChosenRounds::default()
            },
            sampling: self.sampling(),
            steps: self.tried.steps()?,
            guarded: self.guarded()?,
            instrument: self.mode,
            margin: Some(self.margin),
            placed_as: None,
        })
    }
}

/// Each guarded path uses a few percent of a CPU at both of its endpoints.
const MOST_GUARDED: usize = 4;

/// Slices of a sample. A disturbance of one of them, such as by another program, does not affect their median.
const SLICES: u32 = 10;

impl ProveArgs {
    /// The two endpoints of the path. Rows measured in sequence, as steps are, have one pair.
    fn endpoints(&self) -> Result<Vec<Endpoint>, Stop> {
        let endpoints = self.ends.endpoints()?;
        let of = |end: End| endpoints.iter().filter(move |endpoint| endpoint.end == end).count();
        let several =
            [("to", of(End::Responder)), ("from", of(End::Initiator))].into_iter().find(|(_, ends)| *ends > 1);
        match several {
            None => Ok(endpoints),
            Some((option, ends)) => Err(Stop::input(miette::miette!(
                code = "option-count",
                "--{option} is given {ends} times, but settings are proved on one path at a time; specify it once, and name \
                 the others with --guard: their round trips must not become worse"
            ))),
        }
    }

    fn guarded(&self) -> Result<Vec<OtherPath>, Stop> {
        let given = self.guard.len();
        if given > MOST_GUARDED {
            return Err(Stop::input(miette::miette!(
                code = "option-count",
                "--guard is given {given} times, and each adds load; specify it at most {MOST_GUARDED} times"
            )));
        }
        let controls = self.guard.iter().flat_map(|path| path.from.iter().chain([&path.to]));
        measure::check_ssh(controls)?;
        Ok(self.guard.iter().map(|path| self.ends.on_host_too(path)).collect())
    }

    fn sampling(&self) -> SamplingPlan {
        let slice = Span(self.duration.0 / SLICES);
        let slices = Some(Slices { passes: SLICES, stream: slice });
        SamplingPlan { samples: 0, duration: slice, warmup: self.warmup, slices, limit: None }
    }
}

fn measured(work: Work, pins: Pins, label: ForeignText, places: &Locations) -> Result<RanJob, Stop> {
    let (directory, command) = (std::env::temp_dir(), run::words());
    let conditions = Conditions { directory, pins, kernel: None, server_cables: false, label, command };
    let FinishedJob { ran, store, .. } =
        vtax_run::carry_out(&Job { work, conditions }, None, places, &progress::terminal())?;
    run::keep_brief(&store, &ran.run)?;
    Ok(ran)
}

fn without(header: &RunHeader) -> Vec<StepWithout> {
    let unavailable = header.unavailable.iter();
    let named = unavailable.filter_map(|row| Some((row.method.step()?, row.unsupported.why.clone())));
    named.map(|(step, why)| StepWithout { step: step.to_string(), why }).collect()
}

/// Name of the step with all but one.
fn without_name(name: &str) -> Result<StepName, Stop> {
    format!("without-{name}").parse().or_input()
}

/// Combines the rules of several steps into one step.
fn bundle<'a>(name: &str, steps: impl Iterator<Item = &'a TuningStep>) -> Result<TuningStep, Stop> {
    let mut rules: Vec<String> = steps.flat_map(|step| step.rules.iter().cloned()).collect();
    rules.sort();
    rules.dedup();
    Ok(TuningStep { name: name.parse().or_input()?, rules, sysctl: Default::default() })
}

/// Measures all that helps together, and all but each of them. A stopped run confirms nothing.
fn confirm(
    closing: &Closing,
    header: &RunHeader,
    candidates: &[&TuningStep],
    places: &Locations,
) -> Result<Result<Option<Confirmation>, RanJob>, Stop> {
    if candidates.is_empty() {
        return Ok(Ok(None));
    }
    let together = bundle(TOGETHER, candidates.iter().copied())?;
    let mut steps = vec![together.clone()];
    if candidates.len() > 1 {
        for left_out in candidates {
            let others = candidates.iter().copied().filter(|step| step.name != left_out.name);
            steps.push(TuningStep { name: without_name(left_out.name.as_str())?, ..bundle(TOGETHER, others)? });
        }
    }
    // A change that helps must not be lost here by chance, and few steps are left, so it gets more rounds.
    let asked = MeasureRequest::trying(header, steps.clone(), closing.goal(closing.show.halved(), 1.0 - FIRST));
    // Its endpoints use the CPUs of the first run.
    let ran = measured(Work::New(NewRun::Measure(Box::new(asked))), Pins::default(), header.label.clone(), places)?;
    if ran.error.is_some() || ran.run.state != RunState::Complete {
        return Ok(Err(ran));
    }
    let (run, margin) = (ran.run, margin(header)?);
    let left_out = candidates.iter().zip(&steps[1..]).map(|(left_out, others)| {
        let without = against(&run, others.name, together.name);
        let adds = without.iter().any(|comparison| comparison.worse().1 > margin.log());
        LeftOut { step: left_out.name, without, adds }
    });
    let left_out = left_out.collect();
    Ok(Ok(Some(Confirmation { run: run.header.id.clone(), together: Proof::of(&run, margin), left_out })))
}

/// Returns what to keep: if all together again gains more than the margin, each step that may add as much to the others.
fn kept<'a>(confirmation: &Option<Confirmation>, candidates: &[&'a TuningStep]) -> Vec<&'a TuningStep> {
    let Some(Confirmation { together, left_out, .. }) = confirmation else { return Vec::new() };
    if !together.kept().iter().any(|step| step.as_str() == TOGETHER) {
        return Vec::new();
    }
    let adds = |step: &&TuningStep| left_out.iter().all(|left_out| left_out.step != step.name || left_out.adds);
    candidates.iter().copied().filter(adds).collect()
}
