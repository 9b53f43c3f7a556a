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
    Conditions, FinishedJob, Job, Locations, RanJob, Work,
    study::{GivenSizes, KeptBatch, KeptChanges, MeasureRequest, Test, find_rule, keep},
};
use vtax_store::Store;
use vtax_tune::{ChangeRisk, RULES};

use super::file::TuningFile;
use crate::{
    cli::{answer, measure, run},
    exit::{Blamed, Exit, Stop},
    one_of::one_of,
    progress,
    whole_number::whole,
};

/// What is tried.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
struct Tried {
    /// The rules whose findings are tried, each by itself, as `vtax tune check` names them
    #[arg(value_name = "RULE", conflicts_with = "all_safe")]
    rules: Vec<String>,
    /// Try every rule that risks nothing
    #[arg(long)]
    all_safe: bool,
    /// Try these rules together, as one: settings that only help with each other
    #[arg(long, value_name = "RULE,RULE…")]
    bundle: Vec<String>,
    /// Go on with a run of `vtax tune prove` that was stopped or killed. ID is its id, the beginning of its id, or `last`
    #[arg(long, value_name = "ID")]
    resume: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ProveArgs {
    #[command(flatten)]
    tried: Tried,
    #[command(flatten)]
    ends: measure::MeasuredEnds,
    #[arg(long, value_name = "TEST,…", value_delimiter = ',', default_value = "tcp-rr,tcp-stream", help = measure::values::tests_help(), help_heading = "Test")]
    test: Vec<Test>,
    /// Also measure the round trip to this end while each sample is taken, and keep no change that makes its median or
    /// 99th percentile worse by more than --margin: a zone, guest or host that shares the machine. Ends are spelled as those
    /// of --to; without FROM, it is measured from where --from is. Can be given four times
    #[arg(long, value_name = "[FROM,]TO", help_heading = "Proof")]
    guard: Vec<OtherPath>,
    /// Keep a change only if it surely helps by more than this
    #[arg(long, value_name = "PERCENT", default_value = "2%", help_heading = "Proof")]
    margin: Difference,
    /// Under which conditions the path is measured
    #[arg(long, value_parser = one_of(&run::INSTRUMENTS), value_name = "INSTRUMENT", default_value = "system", help_heading = "Proof")]
    instrument: Instrument,
    /// Measured time of each sample
    #[arg(long, value_name = "TIME", default_value = "100ms", help_heading = "Proof")]
    duration: Span,
    /// Traffic before the measured time, after settings were changed
    #[arg(long, value_name = "TIME", default_value = "20ms", help_heading = "Proof")]
    warmup: Warmup,
    /// Seed of the random order of the samples [default: random; the result has it]
    #[arg(long, value_name = "N", value_parser = whole::<u64>, help_heading = "Proof")]
    seed: Option<u64>,
    #[command(flatten)]
    pub(in crate::cli) closing: Closing,
    #[command(flatten)]
    labelled: run::Labelled,
}

/// What a proof does with its first run. All else is that run's, so a proof that goes on is told only this.
#[derive(Debug, Args)]
pub(in crate::cli) struct Closing {
    /// Take as many rounds as it takes to show a difference of this size, in four of five such runs. A change is kept only
    /// if two runs show that it helps by more than --margin: with the defaults, nearly each change that helps by 5 %
    #[arg(long, value_name = "PERCENT", default_value = "2%", help_heading = "Proof")]
    show: Difference,
    /// Take no longer than about this in all. What can be shown in it is told before the first round, if the samples that
    /// tell it take less than a tenth of this
    #[arg(long, value_name = "TIME", default_value = "10m", help_heading = "Proof")]
    budget: Span,
    /// Bring everything back in the end, also what was shown to help
    #[arg(long, conflicts_with = "write", help_heading = "Proof")]
    keep_none: bool,
    /// Write the settings that are kept to this file, for `vtax tune apply --file` on another host [default: a file in the
    /// folder of the results]
    #[arg(long, value_name = "FILE", help_heading = "Proof")]
    write: Option<PathBuf>,
    /// Print what was proved as JSON
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct ProvedRecord {
    schema: &'static str,
    /// The run in which each step was tried by itself. `vtax results show` has its figures.
    run: String,
    margin: Difference,
    proof: Proof,
    /// Steps that change nothing here, and why.
    without: Vec<StepWithout>,
    /// Absent if nothing was shown to help.
    #[serde(skip_serializing_if = "Option::is_none")]
    confirmation: Option<Confirmation>,
    kept: Vec<StepName>,
    /// The changes that stay.
    changes: Vec<KeptBatch>,
    /// The file that changes the same on another host.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
}

#[derive(Serialize)]
struct StepWithout {
    step: String,
    why: String,
}

/// The second run, in which what was shown to help is tried together.
#[derive(Serialize)]
struct Confirmation {
    run: String,
    /// All of it together.
    together: Proof,
    /// All of it but one step, against all of it.
    left_out: Vec<LeftOut>,
}

#[derive(Serialize)]
struct LeftOut {
    step: StepName,
    /// The others without it, over all together.
    without: Vec<StepComparison>,
    /// Whether it adds something beside the others.
    adds: bool,
}

/// The name of the step that has all that is to be kept.
const TOGETHER: &str = "together";
/// The part of the budget that the first run has.
const FIRST: f64 = 0.6;

pub(super) fn prove(args: &ProveArgs, places: &Locations) -> Result<Exit, Stop> {
    let (ran, begun) = first_run(args, places)?;
    if ran.state != RunState::Complete {
        tell!("go on with: vtax tune prove --resume {}", ran.header.id);
        return begun.map_or(Ok(Exit::Interrupted), run::ended);
    }
    finish(&args.closing, &ran, places)
}

/// Confirms what the complete first run has shown, and keeps it.
fn finish(closing: &Closing, ran: &RunReadings, places: &Locations) -> Result<Exit, Stop> {
    let (header, margin) = (&ran.header, margin(&ran.header)?);
    let proof = Proof::of(ran, margin);
    let helps = proof.kept();
    let candidates: Vec<&TuningStep> = header.study.steps.iter().filter(|step| helps.contains(&step.name)).collect();
    let confirmation = match confirm(closing, header, &candidates, places)? {
        Ok(confirmation) => confirmation,
        Err(stopped) => {
            tell!("nothing is kept without its confirmation; go on with: vtax tune prove --resume {}", header.id);
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

/// The run in which each step is tried by itself. Of a run that was complete before, nothing is measured.
fn first_run(args: &ProveArgs, places: &Locations) -> Result<(RunReadings, Option<RanJob>), Stop> {
    let work = match &args.tried.resume {
        None => Work::Measure(Box::new(args.request()?)),
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

/// By how much a change must help. Only runs of `vtax tune prove` have it.
fn margin(header: &RunHeader) -> Result<Difference, Stop> {
    header.margin.ok_or_else(|| {
        let id = &header.id;
        Stop::input(miette::miette!(
            code = "option-not-for-this",
            "--resume: {id} is not a run of vtax tune prove; resume it with: vtax run --resume {id}"
        ))
    })
}

/// Changes what has helped, and writes the file for other hosts.
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
            // The confirmation has a step of this name.
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
    /// As many rounds as show a difference, within a part of the budget.
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
            streams: vec![1],
            sizes: GivenSizes::default(),
            gaps: vec![None],
            options: TestOptions::default(),
            samples: None,
            sampling: self.sampling(),
            quick: false,
            seed: self.seed,
            stopping: None,
            steps: self.tried.steps()?,
            guarded: self.guarded()?,
            instrument: self.instrument,
            goal: Some(self.closing.goal(self.closing.show, FIRST)),
            margin: Some(self.margin),
            placed_as: None,
        })
    }
}

/// Each guarded path takes some per cent of a CPU at both of its ends.
const MOST_GUARDED: usize = 4;

/// Slices of a sample. What disturbs one of them, as another program does for a moment, doesn't move their median.
const SLICES: u32 = 10;

impl ProveArgs {
    /// The two ends of the path. Rows that are measured one after the other, as steps are, have one pair.
    fn endpoints(&self) -> Result<Vec<Endpoint>, Stop> {
        let endpoints = self.ends.endpoints()?;
        let of = |end: End| endpoints.iter().filter(move |endpoint| endpoint.end == end).count();
        let several =
            [("to", of(End::Responder)), ("from", of(End::Initiator))].into_iter().find(|(_, ends)| *ends > 1);
        match several {
            None => Ok(endpoints),
            Some((option, ends)) => Err(Stop::input(miette::miette!(
                code = "option-count",
                "--{option} is given {ends} times, but settings are proved on one path at a time; give it once, and name \
                 the others by --guard: their round trips must not become worse"
            ))),
        }
    }

    fn guarded(&self) -> Result<Vec<OtherPath>, Stop> {
        let given = self.guard.len();
        if given > MOST_GUARDED {
            return Err(Stop::input(miette::miette!(
                code = "option-count",
                "--guard is given {given} times, and each is one more load; give it {MOST_GUARDED} times at most"
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

/// The name of the step that has all but one.
fn without_name(name: &str) -> Result<StepName, Stop> {
    format!("without-{name}").parse().or_input()
}

/// The rules of several steps as one step.
fn bundle<'a>(name: &str, steps: impl Iterator<Item = &'a TuningStep>) -> Result<TuningStep, Stop> {
    let mut rules: Vec<String> = steps.flat_map(|step| step.rules.iter().cloned()).collect();
    rules.sort();
    rules.dedup();
    Ok(TuningStep { name: name.parse().or_input()?, rules, sysctl: Default::default() })
}

/// Measures all that helps together, and all but each of them. A run that was stopped confirms nothing.
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
    // A change that truly helps must not be lost here by chance, and there are few steps left, so it gets more rounds.
    let asked = MeasureRequest::trying(header, steps.clone(), closing.goal(closing.show.halved(), 1.0 - FIRST));
    // Its ends run where those of the first run did.
    let ran = measured(Work::Measure(Box::new(asked)), Pins::default(), header.label.clone(), places)?;
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

/// What is kept: if all together helps by more than the margin again, each step that may add as much to the others.
fn kept<'a>(confirmation: &Option<Confirmation>, candidates: &[&'a TuningStep]) -> Vec<&'a TuningStep> {
    let Some(Confirmation { together, left_out, .. }) = confirmation else { return Vec::new() };
    if !together.kept().iter().any(|step| step.as_str() == TOGETHER) {
        return Vec::new();
    }
    let adds = |step: &&TuningStep| left_out.iter().all(|left_out| left_out.step != step.name || left_out.adds);
    candidates.iter().copied().filter(adds).collect()
}
