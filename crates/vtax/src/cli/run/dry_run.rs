//! `vtax run --dry-run`.

use miette::miette;
use serde::Serialize;
use vtax_lab::Plan;
use vtax_model::{
    cell::{Arm, Cell, Instrument},
    run::{Forecast, RunHeader, RunReadings, UnavailableRow},
    study::{Row, SamplingPlan},
};
use vtax_report::{Format, planned};
use vtax_run::study::{self, PlannedPods, PlannedRun};
use vtax_stats::StoppingRule;

use super::RunArgs;
use crate::{
    cli::{Locations, print_json},
    exit::{Exit, Stop},
    terminal::{print, print_styled},
};

pub(super) fn dry_run(args: RunArgs, places: &Locations) -> Result<Exit, Stop> {
    let options = args.output.options();
    let file = args.study.clone().unwrap_or_default();
    if options.format == Format::Csv {
        let why = "--format csv: a dry run has no figures: use --format json";
        return Err(Stop::input(miette!(code = "option-not-for-this", "{why}")));
    }
    let server_cables = args.changes.cable.is_empty();
    let run = study::dry_run(args.job(server_cables)?, places)?;
    match options.format {
        Format::Json => print_json(&DryRunRecord::of(&run))?,
        _ => {
            let lab = run.lab.as_ref().map(|plan| told(plan, &file));
            let begun = RunReadings::begun(run.header);
            print_styled(&planned(&begun, &run.told, lab).draw(&options))?;
            run.pods.as_ref().map_or(Ok(()), print_pods)?;
        }
    }
    Ok(Exit::Done)
}

/// Prints the YAML documents of the pods, which can be copied from here.
fn print_pods(PlannedPods { manifest, permissions }: &PlannedPods) -> Result<(), Stop> {
    print(&format!(
        "\n# Created with `kubectl create`; the names of another run differ.\n{manifest}\n# Required permissions; `kubectl \
         auth whoami` prints USER.\n{permissions}"
    ))
}

/// Returns the lab's description in two lines.
fn told(plan: &Plan, study: &str) -> String {
    let blueprint = &plan.blueprint;
    let counts = [
        (blueprint.hosts.len(), "host"),
        (blueprint.wires.len(), "wire"),
        (blueprint.zones.len(), "zone"),
        (blueprint.guests.len(), "guest"),
    ];
    let count = |(count, what): &(usize, &str)| match count {
        0 => None,
        1 => Some(format!("1 {what}")),
        several => Some(format!("{several} {what}s")),
    };
    let counts: Vec<String> = counts.iter().filter_map(count).collect();
    let (counts, steps) = (counts.join(", "), plan.steps.len());
    format!("{counts} in {steps} steps; `vtax lab up {study} --dry-run` prints all steps for the whole study")
}

/// The dry run for programs.
#[derive(Serialize)]
struct DryRunRecord<'a> {
    study: &'a str,
    title: String,
    question: String,
    baseline: Row,
    quick: bool,
    seed: u64,
    instruments: Vec<InstrumentRecord<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stopping: Option<&'a StoppingRule>,
    /// Samples of all rounds.
    samples: usize,
    #[serde(flatten)]
    forecast: &'a Forecast,
    /// The earlier run on which the forecast is based.
    known_from: Option<&'a str>,
    /// The messages that a run would print before it begins.
    told: &'a [String],
    unavailable: &'a [UnavailableRow],
    cells: &'a [Cell],
    first_round: Vec<TurnRecord>,
    lab: Option<LabCounts>,
    /// Pods that a run creates, in YAML.
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest: Option<&'a str>,
    /// Permissions that this requires, in YAML.
    #[serde(skip_serializing_if = "Option::is_none")]
    permissions: Option<&'a str>,
}

#[derive(Serialize)]
struct InstrumentRecord<'a> {
    instrument: Instrument,
    /// The maximum, if `stopping` may end the run earlier.
    rounds: u32,
    plan: &'a SamplingPlan,
}

/// A sample of the first round: the index of its cell, and its arm of the baseline.
#[derive(Serialize)]
struct TurnRecord {
    cell: usize,
    arm: Arm,
}

#[derive(Serialize)]
struct LabCounts {
    hosts: usize,
    wires: usize,
    zones: usize,
    guests: usize,
    steps: usize,
}

impl DryRunRecord<'_> {
    fn of(run: &PlannedRun) -> DryRunRecord<'_> {
        let PlannedRun { header, forecast, known_from, told, lab, pods } = run;
        let RunHeader { study, quick, seed, stopping, unavailable, .. } = header;
        let has = |instrument: &Instrument| study.cells.iter().any(|cell| cell.instrument == *instrument);
        let instrument = |instrument| InstrumentRecord {
            instrument,
            rounds: header.rounds_of(instrument),
            plan: header.plan_of(instrument),
        };
        let turns = header.turns(1).into_iter().map(|turn| TurnRecord { cell: turn.cell, arm: turn.arm });
        DryRunRecord {
            study: study.id.as_str(),
            title: study.title.to_string(),
            question: study.question.to_string(),
            baseline: study.baseline,
            quick: *quick,
            seed: *seed,
            instruments: Instrument::ALL.into_iter().filter(has).map(instrument).collect(),
            stopping: stopping.as_ref(),
            samples: (1..=header.rounds()).map(|round| header.turns(round).len()).sum(),
            forecast,
            known_from: known_from.as_deref(),
            told,
            unavailable,
            cells: &study.cells,
            first_round: turns.collect(),
            lab: lab.as_ref().map(LabCounts::of),
            manifest: pods.as_ref().map(|pods| pods.manifest.as_str()),
            permissions: pods.as_ref().map(|pods| pods.permissions.as_str()),
        }
    }
}

impl LabCounts {
    fn of(plan: &Plan) -> LabCounts {
        let blueprint = &plan.blueprint;
        LabCounts {
            hosts: blueprint.hosts.len(),
            wires: blueprint.wires.len(),
            zones: blueprint.zones.len(),
            guests: blueprint.guests.len(),
            steps: plan.steps.len(),
        }
    }
}
