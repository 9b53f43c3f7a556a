//! The accuracy of vtax's figures on this machine: the clock, the noise floor, and reference cases.
//!
//! A tool's figures can be trusted only if the tool measures known values correctly. So this command creates reference
//! cases: a wire shaped to a rate, a responder that waits, one that stalls, a wire that drops, a thread that works half
//! of the time. It compares vtax's measurements of them with the calculated values.

mod clock;
mod floors;
mod load;
mod pairs;
mod report;
mod truths;

use std::time::Duration;

use clap::Args;
use miette::miette;
use serde::Serialize;
use vtax_host::inspect;
use vtax_lab::{Lifetime, World};
use vtax_model::{result::Disturbance, run::Environment, units::Span};
use vtax_run::{Interrupt, Locations, rig::Rig};

use crate::{
    exit::{Blamed, Stop},
    progress,
};
use clock::ClockRecord;
use floors::SelfComparison;
use truths::{TRUTHS, Truth, TruthRecord};

pub(crate) use load::LoadMeter;
pub(crate) use report::render;

#[derive(Debug, Clone, Args)]
pub(crate) struct CalibrationRequest {
    /// Rounds of the noise floor; 0: skip it
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u32).range(0..=1000))]
    rounds: u32,
    /// Measured time per sample of the noise floor, e.g. 1s [default: 300ms]
    #[arg(long, value_name = "TIME")]
    duration: Option<Span>,
    /// Reference cases to check, by parts of their names, e.g. tcp-100m or delay [default: all]
    #[arg(long, value_delimiter = ',', value_name = "CASE,…")]
    only: Vec<String>,
}

/// The default measured time of a sample of the noise floor.
const SAMPLE: Span = Span(Duration::from_millis(300));

/// The schema of the JSON form.
const SCHEMA: &str = "vtax.calibration/v1";

#[derive(Debug, Serialize)]
pub(crate) struct Calibration {
    schema: &'static str,
    environment: Environment,
    /// CPUs of the initiator and the responder; absent if there were too few to pin.
    cpus: Option<[u32; 2]>,
    clock: ClockRecord,
    /// The load by other programs and the hypervisor during the whole calibration.
    load: Disturbance,
    floors: Vec<SelfComparison>,
    truths: Vec<TruthRecord>,
}

pub(crate) fn run(wanted: &CalibrationRequest, locations: &Locations) -> Result<Calibration, Stop> {
    if wanted.rounds == 0 && wanted.duration.is_some() {
        return Err(Stop::input(miette!(
            code = "option-not-for-this",
            "--duration applies to the noise floor, which --rounds 0 skips: omit --duration"
        )));
    }
    let truths =
        chosen("reference case", &wanted.only, TRUTHS.iter().collect(), |truth| truth.name.to_owned()).or_input()?;
    let world = World::enter(Lifetime::Ephemeral).or_infrastructure()?;
    let interrupt = Interrupt::catch(&progress::terminal()).or_infrastructure()?;
    let clock = clock::measure();
    let rig = Rig::build(&world, "calibrate", &truths::wires(), locations)?;
    let found = measure(&rig, wanted, &truths, &interrupt);
    let cpus = rig.cpus();
    rig.down().or_infrastructure()?;
    let (load, floors, truths) = found.or_infrastructure()?;
    let environment = inspect::environment(&inspect::SystemRoot::live());
    Ok(Calibration { schema: SCHEMA, environment, cpus, clock, load, floors, truths })
}

fn measure(
    rig: &Rig,
    wanted: &CalibrationRequest,
    chosen: &[&'static Truth],
    interrupt: &Interrupt,
) -> miette::Result<(Disturbance, Vec<SelfComparison>, Vec<TruthRecord>)> {
    let mut meter = LoadMeter::open()?;
    let begun = meter.read()?;
    let mut truths = Vec::new();
    for truth in chosen {
        if interrupt.asked() {
            return Err(miette!(code = "stopped", "stopped by the user"));
        }
        tell!("reference case: {}", truth.name);
        truths.push(truth.find(rig, &mut meter)?);
    }
    let floors = floors::measure(rig, wanted.rounds, wanted.duration.unwrap_or(SAMPLE), interrupt)?;
    Ok((meter.since(&begun)?, floors, truths))
}

/// Returns those whose names contain one of the parts `only`; all if there are no parts.
pub(crate) fn chosen<T>(
    what: &str,
    only: &[String],
    mut all: Vec<T>,
    name: impl Fn(&T) -> String,
) -> miette::Result<Vec<T>> {
    let names: Vec<String> = all.iter().map(&name).collect();
    if let Some(unknown) = only.iter().find(|part| !names.iter().any(|name| name.contains(*part))) {
        let names = names.join(", ");
        return Err(miette!(code = "no-such-test", "--only {unknown}: no {what} has this name; available: {names}"));
    }
    all.retain(|one| only.is_empty() || only.iter().any(|part| name(one).contains(part)));
    Ok(all)
}

impl Calibration {
    /// Returns true if every reference case passed.
    pub(crate) fn holds(&self) -> bool {
        self.truths.iter().all(TruthRecord::holds)
    }
}
