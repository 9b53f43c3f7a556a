//! Forecasts before the first sample what a plan can detect and how long it takes, and chooses the rounds for `--show`
//! and `--budget`. The noise and duration of a round come from the last run of the study on this machine, else from the
//! first rounds of this run, a pilot whose samples count.

use std::time::Duration;

use vtax_model::{
    cell::{Cell, Instrument},
    metric::{Metric, SamplePercentile},
    run::{Experience, Forecast, Goal, Resolution, RunHeader, RunReadings, SampleReading, Unreachable},
    units::{Span, minutes},
};
use vtax_stats::planning::LEAST_FOR_NOISE;
use vtax_store::{Store, StoreError};

use super::clock;
use crate::stop::{Blamed, Stop};

pub(super) const PILOT: u32 = LEAST_FOR_NOISE;

pub(super) struct PlanForecast {
    known: Option<Experience>,
}

impl PlanForecast {
    /// Returns the forecast from the last similar run in the store.
    pub(super) fn of(header: &RunHeader, store: Option<&Store>) -> Result<PlanForecast, StoreError> {
        let Some(store) = store else { return Ok(PlanForecast { known: None }) };
        let earlier = store.complete_plans(header.study.id.as_str())?;
        for earlier in earlier.iter().filter(|earlier| header.resembles(earlier)) {
            let known = Experience::of(&store.load(&earlier.id)?, header.metric, clock::seconds);
            if known.is_some() {
                return Ok(PlanForecast { known });
            }
        }
        Ok(PlanForecast { known: None })
    }

    /// Chooses the number of rounds if vtax is to choose it. If nothing is known, that is a pilot's number of rounds.
    pub(super) fn settle(&self, header: &mut RunHeader) -> Result<(), Stop> {
        match (header.unsettled, &self.known) {
            (None, _) => Ok(()),
            (Some(goal), Some(known)) => {
                header.set_rounds(known.rounds_for(header, goal).or_input()?);
                header.unsettled = None;
                Ok(())
            }
            (Some(goal), None) => {
                header.least_rounds().ok_or(Unreachable::NothingCompared(goal)).or_input()?;
                header.set_rounds(PILOT);
                Ok(())
            }
        }
    }

    pub(super) fn needs_pilot(&self, header: &RunHeader) -> bool {
        let rounds = header.rounds_of(header.study.answering());
        let shows = header.least_rounds().is_some_and(|least| rounds >= least);
        let tells = self.known.is_none() && header.stopping.is_none() && shows && rounds > PILOT;
        header.unsettled.is_some() || tells
    }

    /// Returns the run that the forecast is based on.
    pub(super) fn known_from(&self) -> Option<&str> {
        self.known.as_ref().map(|known| known.run.as_str())
    }

    /// Returns the duration and detectable difference of the plan. Both are unknown until rounds are chosen.
    pub(super) fn figures(&self, header: &RunHeader) -> Forecast {
        let forecast = match (&self.known, header.unsettled) {
            (_, Some(_)) => Forecast { seconds: None, shown: Vec::new() },
            (Some(known), None) => known.forecast(header),
            (None, None) => Forecast { seconds: header.nominal_seconds(), shown: Vec::new() },
        };
        match header.plan.limit.map(|limit| limit.0.as_secs_f64()) {
            // The number of rounds that fit, and so the detectable difference, is known only then.
            Some(limit) if forecast.seconds > Some(limit) => Forecast { seconds: Some(limit), shown: Vec::new() },
            _ => forecast,
        }
    }

    /// Returns the forecast as lines. A plan with a stopping rule asks for a precision, so differences aren't
    /// mentioned.
    pub(super) fn lines(&self, header: &RunHeader) -> Vec<String> {
        let Forecast { seconds, shown } = self.figures(header);
        if header.stopping.is_some() {
            return vec![format!("plan: at most {}{}", rounds(header), about(seconds))];
        }
        let line = match (&self.known, header.unsettled) {
            (_, Some(goal @ Goal::Show(_))) => format!("plan: {PILOT} rounds first, to estimate how many {goal} needs"),
            (_, Some(goal @ (Goal::Budget(_) | Goal::Within { .. }))) => {
                format!("plan: {PILOT} rounds first, to estimate how many fit {goal}")
            }
            (Some(known), None) => {
                let shows = told(header, &shown).map(|shows| format!("; {shows} (from your run {})", known.run));
                format!("plan: {}{}", extent(header, seconds), shows.unwrap_or_default())
            }
            (None, None) => {
                let later = format!("; detectable differences are reported after the first {PILOT} rounds");
                let later = if self.needs_pilot(header) { later } else { String::new() };
                format!("plan: {}{later}", extent(header, seconds))
            }
        };
        std::iter::once(line).chain(left_out(header)).chain(too_few(header, None)).collect()
    }
}

/// Returns the note that `--quick` uses only one of the two measurement modes.
fn left_out(header: &RunHeader) -> Option<String> {
    let of_path = |cell: &Cell| cell.instrument == Instrument::Path;
    (header.quick && header.study.path.is_some() && !header.study.cells.iter().any(of_path)).then(|| {
        "--quick omits controlled conditions; --mode controlled measures only those, in a few minutes".to_owned()
    })
}

/// Returns the warning that a plan has too few rounds to show anything, with the remedy: a longer budget, if that was
/// the goal.
fn too_few(header: &RunHeader, goal: Option<Goal>) -> Option<String> {
    let (rounds, least) = (header.rounds_of(header.study.answering()), header.least_rounds()?);
    let need = match header.family(header.study.answering()) {
        1 => "one comparison needs".to_owned(),
        several => format!("{several} comparisons need"),
    };
    let remedy = match goal {
        Some(Goal::Budget(_) | Goal::Within { .. }) => "a longer --budget".to_owned(),
        Some(Goal::Show(_)) | None => format!("--samples {least}"),
    };
    (header.unsettled.is_none() && rounds < least)
        .then(|| format!("warning: {} cannot show any difference: {need} at least {least} ({remedy})", counted(rounds)))
}

pub(super) struct Piloted {
    /// Line to print while the run continues.
    pub(super) line: Option<String>,
    /// Reason why no number of rounds reaches what the user asked for.
    pub(super) shortfall: Option<String>,
}

/// Evaluates the first rounds, and chooses the number of rounds if vtax is to choose it.
pub(super) fn settle_by_pilot(run: &mut RunReadings) -> Piloted {
    let goal = run.header.unsettled.take();
    match (Experience::of(run, run.header.metric, clock::seconds), goal) {
        (Some(known), Some(goal)) => reach(run, &known, goal),
        (Some(known), None) => Piloted { line: Some(after_pilot(&run.header, &known)), shortfall: None },
        (None, Some(goal)) => {
            let own = run.header.study.plan_of(run.header.study.answering(), run.header.quick);
            run.header.set_rounds(own.map_or(PILOT, |plan| plan.samples));
            let rounds = rounds(&run.header);
            let shortfall = format!("{goal}: {}; using the study's {rounds}", nothing_known(run));
            Piloted { line: None, shortfall: Some(shortfall) }
        }
        (None, None) => {
            let line = format!("{}, so the detectable difference is unknown", nothing_known(run));
            Piloted { line: Some(line), shortfall: None }
        }
    }
}

/// Returns the reason why the first rounds show nothing about the metric.
fn nothing_known(run: &RunReadings) -> String {
    let withheld = |(metric, _): &(Metric, SamplePercentile)| {
        let lacks = |sample: &SampleReading| {
            let test = run.header.study.cells[sample.cell].kind();
            test.metrics().contains(metric) && !sample.metric(*metric, test).is_finite()
        };
        run.samples.iter().any(lacks)
    };
    let percentile = run.header.metric.and_then(|metric| Some((metric, metric.percentile()?)));
    match percentile.filter(withheld) {
        Some((metric, percentile)) => format!(
            "samples have fewer than {} transactions, too few for {}; use longer samples (--duration)",
            percentile.least_transactions(),
            metric.noun()
        ),
        None => match run.header.metric.filter(|metric| metric.role().is_some()) {
            Some(metric) => format!("the first {PILOT} rounds have no {} to compare", metric.noun()),
            None => format!("samples of the first {PILOT} rounds failed"),
        },
    }
}

/// Ends a run that had no time for more than these rounds.
pub(super) fn settle_by_time(header: &mut RunHeader, rounds: u32) -> Piloted {
    let goal = header.unsettled.take();
    let plans = [Some(&mut header.plan), header.path_plan.as_mut()];
    plans.into_iter().flatten().for_each(|plan| plan.samples = plan.samples.min(rounds));
    let few = too_few(header, goal).map(|few| format!("\n{few}")).unwrap_or_default();
    let why = match (goal, header.plan.limit) {
        (None, Some(limit)) => format!("--quick takes at most {limit} unless --samples or --budget is given"),
        (goal, _) => goal.map_or(String::new(), |goal| goal.to_string()),
    };
    let line = format!("warning: {why}: no time for another round after {}{few}", counted(rounds));
    Piloted { line: Some(line), shortfall: None }
}

/// Chooses the number of rounds for a goal, at least the number already taken.
fn reach(run: &mut RunReadings, known: &Experience, goal: Goal) -> Piloted {
    match known.rounds_for(&run.header, goal) {
        Ok(rounds) => {
            run.header.set_rounds(rounds.max(PILOT));
            let few = too_few(&run.header, Some(goal)).map(|few| format!("\n{few}")).unwrap_or_default();
            let line = format!("{goal}: {}{few}", after_pilot(&run.header, known));
            Piloted { line: Some(line), shortfall: None }
        }
        Err(Unreachable::TooShort { asked, .. }) => {
            let few = too_few(&run.header, Some(goal)).map(|few| format!("\n{few}")).unwrap_or_default();
            let line = format!("warning: --budget {asked}: the first {PILOT} rounds used it up{few}");
            Piloted { line: Some(line), shortfall: None }
        }
        Err(error) => {
            let shortfall = format!("{error}; the run ended after its first {PILOT} rounds");
            Piloted { line: None, shortfall: Some(shortfall) }
        }
    }
}

/// Returns what a goal has room for, before the first sample, from what is `known` about the unchanged path.
pub(super) fn foretold(header: &RunHeader, known: &Experience, goal: Goal) -> String {
    match known.rounds_for(header, goal) {
        Ok(rounds) => {
            let mut planned = RunHeader { unsettled: None, ..header.clone() };
            planned.set_rounds(rounds.max(PILOT));
            let few = too_few(&planned, Some(goal)).map(|few| format!("\n{few}")).unwrap_or_default();
            format!(
                "forecast for {goal}, from {PILOT} pairs of samples of the unchanged path: {}{few}",
                planned_rounds(&planned, known)
            )
        }
        Err(error) => format!("warning: {error}"),
    }
}

fn after_pilot(header: &RunHeader, known: &Experience) -> String {
    format!("after {PILOT} rounds: {}", planned_rounds(header, known))
}

fn planned_rounds(header: &RunHeader, known: &Experience) -> String {
    let forecast = known.forecast(header);
    let shows = told(header, &forecast.shown).map(|shows| format!("; {shows}")).unwrap_or_default();
    format!("{}{} in all{shows}", rounds(header), about(forecast.seconds))
}

/// `50 rounds`, or the rounds of both modes if both are measured.
fn rounds(header: &RunHeader) -> String {
    let has = |instrument| header.study.cells.iter().any(|cell| cell.instrument == instrument);
    let [path, system] = Instrument::ALL.map(|instrument| counted(header.rounds_of(instrument)));
    let (path, system) = (format!("{path} under controlled conditions"), format!("{system} with host settings"));
    match Instrument::ALL.into_iter().all(has) {
        true if header.study.answering() == Instrument::Path => format!("{path}, {system}"),
        true => format!("{system}, {path}"),
        false => counted(header.rounds_of(header.study.answering())),
    }
}

fn counted(rounds: u32) -> String {
    if rounds == 1 { "1 round".to_owned() } else { format!("{rounds} rounds") }
}

fn extent(header: &RunHeader, seconds: Option<f64>) -> String {
    let is_reached = |limit: &Span| seconds.is_some_and(|seconds| seconds >= limit.0.as_secs_f64());
    match header.plan.limit.filter(is_reached) {
        Some(limit) => format!("at most {}, as many as fit in {limit}", rounds(header)),
        None => format!("{}{}", rounds(header), about(seconds)),
    }
}

fn about(seconds: Option<f64>) -> String {
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds.round()).ok());
    time.map(|time| format!(", about {}", minutes(time))).unwrap_or_default()
}

/// Returns the difference that the plan can detect. None if nothing is compared, or there are too few rounds.
fn told(header: &RunHeader, shown: &[Resolution]) -> Option<String> {
    if too_few(header, None).is_some() {
        return None;
    }
    let can = |shown: &Resolution| Some(format!("{} in {}", percent(shown.smallest?), name(shown)));
    let [can, cannot] = [
        shown.iter().filter_map(can).collect::<Vec<_>>(),
        shown.iter().filter(|shown| shown.smallest.is_none()).map(name).collect(),
    ];
    let can = (!can.is_empty()).then(|| format!("detectable (80 % power): about {}", can.join(", ")));
    let cannot = (!cannot.is_empty()).then(|| format!("too noisy to detect a factor of two in {}", cannot.join(", ")));
    let parts: Vec<String> = [can, cannot].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn name(shown: &Resolution) -> String {
    format!("{} {}", shown.medium, shown.test)
}

/// Formats at most two digits: it is an estimate.
fn percent(fraction: f64) -> String {
    let percent = fraction * 100.0;
    match percent {
        ..0.095 => format!("{percent:.2} %"),
        0.095..9.95 => format!("{} %", (percent * 10.0).round() / 10.0),
        _ => format!("{percent:.0} %"),
    }
}

#[cfg(test)]
mod tests;
