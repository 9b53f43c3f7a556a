//! Comparison of vtax's engine with other tools, over one wire, interleaved in one run.
//!
//! Each round measures with every tool once, in random order. The comparison uses the ratio of two figures of one
//! round, because the machine's drift affects both. Where two tools define a figure differently, the report says so; a
//! figure that can be converted is converted (half a round trip is doubled).

mod contest;
mod report;
mod tool;
mod tool_process;
mod tools;

use std::collections::BTreeSet;

use clap::Args;
use miette::{Context, miette};
use rand::{SeedableRng, seq::SliceRandom};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Serialize;
use vtax_lab::{Lifetime, World};
use vtax_model::{
    options::{CongestionControl, Idle},
    result::Disturbance,
    run::Environment,
    units::Span,
};
use vtax_run::{
    Interrupt, Locations,
    rig::{PEER, Rig, SUT},
    study::{Congestion, random_seed},
};
use vtax_stats::{Confidence, Pair, PairedTax, Summary};
use vtax_sys::idle::{self, IdleHold};

use crate::{
    calibrate::{LoadMeter, chosen},
    exit::{Blamed, Stop},
    progress,
    whole_number::whole,
};
use contest::Contest;
pub(crate) use tool::number_after;
use tool::{ServerLifetime, TOOLS, Tool};
use tool_process::{ToolProcess, WIRE};

pub(crate) use report::render;

#[derive(Debug, Clone, Args)]
pub(crate) struct CrosscheckRequest {
    /// Rounds; in each, every tool measures every test once
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Measured time per figure: whole seconds, or 20ms to 999ms. For less than a second, tools are given a number of
    /// transactions or bytes, there is no warm-up, and tools that require whole seconds are omitted
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = turn)]
    duration: Span,
    /// CPU idle states: `poll` disables them during the whole comparison, `system` leaves them unchanged
    #[arg(long, value_name = "poll|system", default_value = "system")]
    idle: Idle,
    /// TCP congestion control of all tools by name, e.g. cubic, or `system` for the machine's own
    #[arg(long, value_name = "NAME|system", default_value = "system")]
    congestion: Congestion,
    /// Flows of the test with several flows
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=64))]
    streams: u32,
    /// Tests to run, by parts of their names, e.g. tcp-rr or stream-16KiB [default: all]
    #[arg(long, value_delimiter = ',', value_name = "TEST,…")]
    only: Vec<String>,
    /// Tools to compare with, e.g. iperf3,netperf [default: all that are installed]
    #[arg(long, value_delimiter = ',', value_name = "TOOL,…")]
    tools: Vec<String>,
    /// Seed for the random order, e.g. 1 [default: random; recorded in the result]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    seed: Option<u64>,
}

fn turn(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|error| format!("{error}"))?;
    let short = (20..1000).contains(&span.0.as_millis());
    match short || span.0.subsec_nanos() == 0 && (1..=600).contains(&span.0.as_secs()) {
        true => Ok(span),
        false => Err("other tools require whole seconds, or a number of transactions or bytes for less: \
                      use 1s to 600s, or 20ms to 999ms"
            .to_owned()),
    }
}

/// The settings shared by vtax's engine and all other tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Held {
    /// CPU idle states.
    pub(crate) idle: Idle,
    /// TCP's congestion control; none for the machine's own.
    #[serde(rename = "congestion_control")]
    pub(crate) congestion: Option<CongestionControl>,
}

/// The schema of the JSON form.
const SCHEMA: &str = "vtax.crosscheck/v1";

#[derive(Debug, Serialize)]
pub(crate) struct Crosscheck {
    schema: &'static str,
    rounds: u32,
    /// Measured time of each figure.
    duration: Span,
    seed: u64,
    environment: Environment,
    #[serde(flatten)]
    held: Held,
    /// The reason why idle states could not be disabled as the user asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_not_held: Option<String>,
    /// CPUs of the initiator and the responder; absent if there were too few to pin.
    cpus: Option<[u32; 2]>,
    tools: Vec<ToolRecord>,
    contests: Vec<ContestRecord>,
}

#[derive(Debug, Serialize)]
struct ToolRecord {
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// Programs that are not in the PATH.
    missing: Vec<&'static str>,
}

#[derive(Debug, Serialize)]
struct ContestRecord {
    name: String,
    unit: &'static str,
    #[serde(flatten)]
    contest: Contest,
    /// vtax's figures, round by round.
    ours: Vec<f64>,
    /// The load by others while vtax measured: only then, no other tool runs.
    load: Disturbance,
    others: Vec<Other>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<LeftOut>,
}

/// A tool that has the test, but cannot run it for so short a time.
#[derive(Debug, Clone, Serialize)]
struct LeftOut {
    tool: &'static str,
    why: &'static str,
}

#[derive(Debug, Serialize)]
struct Other {
    tool: &'static str,
    /// Its figures, round by round, in vtax's unit and converted to vtax's definition as far as possible.
    figures: Vec<f64>,
    /// vtax's figure divided by the tool's, paired by round.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<Ratio>,
    difference: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Ratio {
    ratio: f64,
    low: f64,
    high: f64,
    p: f64,
}

pub(crate) fn run(wanted: &CrosscheckRequest, locations: &Locations) -> Result<Crosscheck, Stop> {
    let contests = wanted.contests().or_input()?;
    let tools = wanted.tools().or_input()?;
    let world = World::enter(Lifetime::Ephemeral).or_infrastructure()?;
    let (here, records) = survey(&tools);
    if here.is_empty() {
        let names: Vec<&str> = tools.iter().map(|tool| tool.name).collect();
        let error = miette!(
            code = "no-tool",
            "none of {} is installed; install one (Debian: apt-get install iperf3 sockperf qperf)",
            names.join(", ")
        );
        return Err(Stop::infrastructure(error));
    }
    check_comparable(&contests, &here).or_input()?;
    let interrupt = Interrupt::catch(&progress::terminal()).or_infrastructure()?;
    let seed = wanted.seed.map_or_else(random_seed, Ok).or_infrastructure()?;
    let rig = Rig::build(&world, "crosscheck", &[(WIRE, None)], locations)?;
    let held = Held { idle: wanted.idle, congestion: wanted.congestion.0 };
    if let Some(name) = held.congestion {
        set_congestion(&rig, name).or_input()?;
    }
    let (_hold, idle_not_held) = hold_idle(held.idle);
    let compared = compare(&rig, &contests, &here, wanted.rounds, seed, &interrupt);
    let cpus = rig.cpus();
    rig.down().or_infrastructure()?;
    Ok(Crosscheck {
        schema: SCHEMA,
        rounds: wanted.rounds,
        duration: wanted.duration,
        seed,
        environment: vtax_host::inspect::environment(&vtax_host::inspect::SystemRoot::live()),
        held,
        idle_not_held,
        cpus,
        tools: records,
        contests: compared.or_infrastructure()?,
    })
}

impl CrosscheckRequest {
    fn contests(&self) -> miette::Result<Vec<Contest>> {
        chosen("test", &self.only, Contest::all(self.duration, self.streams), Contest::to_string)
    }

    fn tools(&self) -> miette::Result<Vec<&'static Tool>> {
        let known = TOOLS.map(|tool| tool.name);
        if let Some(unknown) = self.tools.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(miette!(
                code = "no-such-tool",
                "--tools {unknown}: unknown tool; supported: {}",
                known.join(", ")
            ));
        }
        let chosen = |tool: &&Tool| self.tools.is_empty() || self.tools.iter().any(|name| name == tool.name);
        Ok(TOOLS.into_iter().filter(chosen).collect())
    }
}

/// Returns the installed tools, and a record of every tool.
fn survey(tools: &[&'static Tool]) -> (Vec<&'static Tool>, Vec<ToolRecord>) {
    let record = |tool: &&'static Tool| {
        let missing = tool.missing();
        let version = if missing.is_empty() { tool.version() } else { None };
        ToolRecord { name: tool.name, version, missing }
    };
    let records: Vec<ToolRecord> = tools.iter().map(record).collect();
    let here = tools.iter().zip(&records).filter(|(_, record)| record.missing.is_empty());
    (here.map(|(tool, _)| *tool).collect(), records)
}

/// Refuses a comparison in which no tool can run any contest.
fn check_comparable(contests: &[Contest], tools: &[&'static Tool]) -> miette::Result<()> {
    let able = |contest: &Contest| tools.iter().any(|tool| tool.takes(contest));
    if contests.iter().any(able) {
        return Ok(());
    }
    let why: BTreeSet<String> = (contests.iter())
        .flat_map(|contest| tools.iter().filter_map(move |tool| Some((tool, tool.left_out(contest)?))))
        .map(|(tool, why)| format!("; {}: {why}", tool.name))
        .collect();
    let names: Vec<&str> = tools.iter().map(|tool| tool.name).collect();
    let hint = if why.is_empty() { "choose others with --only or --tools" } else { "give --duration 1s or more" };
    Err(miette!(
        code = "not-comparable",
        "none of {} can run any of these tests; {hint}{}",
        names.join(", "),
        why.into_iter().collect::<String>()
    ))
}

/// Disables idle states as long as the returned value lives, if the user asks for it; or returns why vtax may not.
fn hold_idle(idle: Idle) -> (Option<IdleHold>, Option<String>) {
    match (idle == Idle::Poll).then(idle::hold).transpose() {
        Ok(hold) => (hold, None),
        Err(error) => (None, Some(error.to_string())),
    }
}

fn set_congestion(rig: &Rig, name: CongestionControl) -> miette::Result<()> {
    let ends = [rig.endpoint(SUT, WIRE)?, rig.endpoint(PEER, WIRE)?];
    rig.lab.set_congestion(ends, name).with_context(|| {
        format!("--congestion {name} (loaded ones: /proc/sys/net/ipv4/tcp_available_congestion_control)")
    })
}

fn compare(
    rig: &Rig,
    contests: &[Contest],
    tools: &[&'static Tool],
    rounds: u32,
    seed: u64,
    interrupt: &Interrupt,
) -> miette::Result<Vec<ContestRecord>> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut records = Vec::new();
    for contest in contests {
        if interrupt.asked() {
            break;
        }
        let mut running = RunningContest::new(rig, contest, tools)?;
        for round in 1..=rounds {
            if interrupt.asked() {
                break;
            }
            tell!("{contest}: round {round} of {rounds}");
            running.round(&mut rng)?;
        }
        records.push(running.record());
    }
    Ok(records)
}

struct RunningContest<'a> {
    rig: &'a Rig,
    contest: &'a Contest,
    ours: Vec<f64>,
    loads: Vec<Disturbance>,
    others: Vec<RunningTool>,
    left_out: Vec<LeftOut>,
}

struct RunningTool {
    tool: &'static Tool,
    /// The server, if it serves clients one after another.
    server: Option<ToolProcess>,
    /// The figure expected next. It determines the amount of work for a short turn.
    expected: f64,
    /// One entry per round, until it fails.
    figures: Vec<f64>,
    failed: Option<String>,
}

impl<'a> RunningContest<'a> {
    fn new(rig: &'a Rig, contest: &'a Contest, tools: &[&'static Tool]) -> miette::Result<RunningContest<'a>> {
        // A sample of vtax's determines the others' amount of work in a short turn, until they have their own figures.
        let expected = if contest.is_short() { ours(rig, contest)?.0 } else { 1.0 };
        let start = |tool: &'static Tool| -> miette::Result<RunningTool> {
            let server = match tool.lifetime {
                ServerLifetime::Contest => Some(ToolProcess::server(rig, tool, contest)?),
                ServerLifetime::Client => None,
            };
            Ok(RunningTool { tool, server, expected, figures: Vec::new(), failed: None })
        };
        let able = tools.iter().copied().filter(|tool| tool.takes(contest));
        let others = able.map(start).collect::<miette::Result<Vec<_>>>()?;
        let left_out = |tool: &&'static Tool| Some(LeftOut { tool: tool.name, why: tool.left_out(contest)? });
        let left_out = tools.iter().filter_map(left_out).collect();
        Ok(RunningContest { rig, contest, ours: Vec::new(), loads: Vec::new(), others, left_out })
    }

    /// Measures with every tool and vtax's engine once, in random order.
    fn round(&mut self, rng: &mut Xoshiro256PlusPlus) -> miette::Result<()> {
        let mut order: Vec<Option<usize>> = (0..self.others.len()).map(Some).chain([None]).collect();
        order.shuffle(rng);
        for turn in order {
            match turn {
                None => {
                    let (figure, load) = ours(self.rig, self.contest)?;
                    self.ours.push(figure);
                    self.loads.push(load);
                }
                Some(index) => self.others[index].turn(self.rig, self.contest),
            }
        }
        Ok(())
    }

    fn record(self) -> ContestRecord {
        let RunningContest { contest, ours, loads, others, left_out, .. } = self;
        let others = others.into_iter().map(|other| other.record(contest, &ours)).collect();
        let (name, unit, load) = (contest.to_string(), contest.unit(), mean_load(&loads));
        ContestRecord { name, unit, contest: *contest, ours, load, others, left_out }
    }
}

fn mean_load(loads: &[Disturbance]) -> Disturbance {
    let mean_of = |share: fn(&Disturbance) -> Option<f64>| {
        let shares: Option<Vec<f64>> = loads.iter().map(share).collect();
        shares.filter(|shares| !shares.is_empty()).map(|shares| shares.iter().sum::<f64>() / shares.len() as f64)
    };
    let (other_programs, stolen) = (mean_of(|load| load.other_programs), mean_of(|load| load.stolen));
    Disturbance { other_programs, stolen, guests_waited: None }
}

impl RunningTool {
    /// Measures with the tool once. A failed tool is not called again: its rounds would no longer pair with vtax's.
    fn turn(&mut self, rig: &Rig, contest: &Contest) {
        if self.failed.is_some() {
            return;
        }
        match self.measure(rig, contest) {
            Ok(figure) => {
                self.figures.push(figure);
                self.expected = figure;
            }
            Err(error) => self.failed = Some(format!("in round {}: {error:#}", self.figures.len() + 1)),
        }
    }

    fn measure(&self, rig: &Rig, contest: &Contest) -> miette::Result<f64> {
        let _server = match self.server {
            Some(_) => None,
            None => Some(ToolProcess::server(rig, self.tool, contest)?),
        };
        let text = ToolProcess::client(rig, self.tool, contest, contest.length(self.expected))?;
        self.tool
            .figure(contest, &text)
            .map_err(|why| miette!(code = "tool-failed", "unexpected output of {}: {why}", self.tool.name))
    }

    fn record(self, contest: &Contest, ours: &[f64]) -> Other {
        let pairs: Vec<Pair> =
            self.figures.iter().zip(ours).map(|(theirs, ours)| Pair { baseline: *theirs, cell: *ours }).collect();
        let tax = PairedTax::of(&pairs, Confidence::P95).ok();
        let ratio = tax.map(|tax| Ratio { ratio: tax.ratio, low: tax.low, high: tax.high, p: tax.p.get() });
        let RunningTool { tool, figures, failed, .. } = self;
        Other { tool: tool.name, figures, ratio, difference: (tool.difference)(contest), failed }
    }
}

/// Returns the figure of vtax's engine, and the load by others in the meantime.
fn ours(rig: &Rig, contest: &Contest) -> miette::Result<(f64, Disturbance)> {
    let mut meter = LoadMeter::open()?;
    let begun = meter.read()?;
    let figures = rig.sample(&contest.spec(), WIRE)?;
    Ok((contest.metric().value(contest.workload.kind(), &figures), meter.since(&begun)?))
}

fn mean(figures: &[f64]) -> Option<f64> {
    Summary::of(figures, Confidence::P95).ok().map(|summary| summary.mean)
}

impl Crosscheck {
    /// Returns true if a tool failed in the middle.
    pub(crate) fn any_failed(&self) -> bool {
        self.contests.iter().flat_map(|contest| &contest.others).any(|other| other.failed.is_some())
    }
}
