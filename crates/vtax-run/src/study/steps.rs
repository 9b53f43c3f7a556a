//! Tuning steps of a run: what each changes on the machines of its path, and which one is in force.
//!
//! The changes go through the journals of `vtax tune`, as trial changes: if vtax or an agent is killed, the next `vtax
//! tune` or the next such run on that machine reverts them.

mod keep;
mod places;

use std::time::{Duration, Instant};

use miette::{Context, miette};
use vtax_journal::BatchId;
use vtax_model::{
    foreign::ForeignText,
    method::Unsupported,
    study::{StepName, StepRecord, TuningStep},
    workload::TestKind,
};
use vtax_tune::{ChangeRisk, HostCheck, HostSetting, RULES, TuningGoal, TuningRule, WantedChanges};

use super::runner::{SampleError, Settings};
use crate::{events::RunEvents, stop::Stop};
pub use keep::{KeptBatch, KeptChanges, keep};
pub(super) use places::TunedPlace;

/// Brings the settings of steps into force, one step at a time.
pub(super) struct StepSwitch {
    places: Vec<TunedPlace>,
    steps: Vec<PlannedStep>,
    in_force: Option<(StepName, Vec<MadeBatch>)>,
}

struct PlannedStep {
    name: StepName,
    /// One for each place.
    wanted: Vec<WantedChanges>,
    changes: Vec<ForeignText>,
    /// Time taken to apply and revert the changes in a trial.
    took: Duration,
}

/// Changes that are tried out at one place.
struct MadeBatch {
    place: usize,
    batch: BatchId,
}

/// The steps of a study on these machines.
pub(super) struct PlannedSteps {
    pub(super) switch: StepSwitch,
    /// Steps that change nothing here, with the reasons.
    pub(super) without: Vec<(StepName, Unsupported)>,
}

/// Refuses a step that names an unknown rule, or one that vtax never applies.
pub(super) fn check_rules(steps: &[TuningStep]) -> miette::Result<()> {
    let known = |step: &TuningStep| step.rules.iter().try_for_each(|rule| find_rule(rule).map(drop));
    steps.iter().try_for_each(|step| known(step).with_context(|| format!("the step `{}`", step.name)))
}

/// Returns the rule of this name, if vtax may apply its findings.
pub fn find_rule(name: &str) -> miette::Result<&'static TuningRule> {
    let Some(rule) = RULES.iter().find(|rule| rule.id == name) else {
        let names: Vec<&str> = RULES.iter().map(|rule| rule.id).collect();
        let name = ForeignText::from(name);
        return Err(miette!(code = "no-such-rule", "no rule `{name}`; rules: {}", names.join(", ")));
    };
    match rule.risk {
        ChangeRisk::Security => Err(miette!(
            code = "not-changed-by-vtax",
            "vtax never changes the setting of {name}: {} Read docs/tuning/{name}.md, and change it yourself if it is \
             safe here",
            rule.risks
        )),
        _ => Ok(rule),
    }
}

impl StepSwitch {
    /// Inspects the machines of the paths, and plans what each step changes there. Each step is applied and reverted
    /// once, so that an impossible one is known before the first sample.
    pub(super) fn plan(
        wanted: &[TuningStep],
        goal: TuningGoal,
        places: Vec<TunedPlace>,
        events: &RunEvents,
    ) -> Result<PlannedSteps, Stop> {
        // Leftovers of a killed vtax are reverted before anything is inspected.
        for place in &places {
            let tried = place.host.try_out(&WantedChanges::default(), None)?;
            tried.recovered.iter().for_each(|recovered| events.tell(format_args!("note: {recovered}")));
        }
        let rules = wanted.iter().flat_map(|step| &step.rules).map(String::as_str).collect();
        let seen = places.iter().map(|place| place.look(goal, &rules)).collect::<Result<Vec<_>, _>>()?;
        let mut switch = StepSwitch { places, steps: Vec::new(), in_force: None };
        let mut without = Vec::new();
        for step in wanted {
            if let Err(unsupported) = switch.add(step, &seen) {
                without.push((step.name, unsupported));
            }
        }
        Ok(PlannedSteps { switch, without })
    }

    fn add(&mut self, step: &TuningStep, seen: &[HostCheck]) -> Result<(), Unsupported> {
        let (mut wanted, mut changes): (Vec<WantedChanges>, Vec<ForeignText>) = Default::default();
        for (place, seen) in self.places.iter().zip(seen) {
            let of_place = place.wanted(step, seen);
            changes.extend(place.planned(&of_place).map_err(|error| cannot(error.to_string()))?);
            wanted.push(of_place);
        }
        // A setting of the whole machine is seen at each of its places.
        changes.sort_by(|one, other| one.raw().cmp(other.raw()));
        changes.dedup();
        if changes.is_empty() {
            return Err(nothing_found(step, seen));
        }
        self.steps.push(PlannedStep { name: step.name, wanted, changes, took: Duration::ZERO });
        let begun = Instant::now();
        let tried = self.try_out(step.name).and_then(|()| self.revert());
        self.steps.last_mut().expect("just pushed").took = begun.elapsed();
        tried.map(drop).map_err(|error| {
            self.steps.pop();
            cannot(error.into_report().to_string())
        })
    }

    pub(super) fn records(&self) -> Vec<StepRecord> {
        let record = |step: &PlannedStep| StepRecord { step: step.name, changes: step.changes.clone() };
        self.steps.iter().map(record).collect()
    }

    /// Returns whether a step's changes may reset a link.
    pub(super) fn may_reset_links(&self) -> bool {
        let wanted = self.steps.iter().flat_map(|step| &step.wanted).flat_map(|wanted| &wanted.proposals);
        { wanted }.any(|proposal| may_reset_link(&proposal.setting))
    }

    /// Returns the average time of the changes before a sample: in a round each step is applied and reverted for its
    /// own sample and for one of the two samples of the original settings.
    pub(super) fn time_of_sample(&self) -> Duration {
        let once: Duration = self.steps.iter().map(|step| step.took).sum();
        once * 2 / u32::try_from(self.steps.len() + 2).unwrap_or(u32::MAX)
    }

    /// Brings settings into force. Returns whether anything was changed.
    pub(super) fn use_settings(&mut self, settings: Settings) -> Result<bool, SampleError> {
        let wanted = if let Settings::Of(step) = settings { Some(step) } else { None };
        if wanted.is_some() && self.in_force.as_ref().map(|(step, _)| *step) == wanted {
            return Ok(false);
        }
        let mut changed = self.revert()?;
        if settings == Settings::Rewritten {
            for step in self.steps.iter().map(|step| step.name).collect::<Vec<_>>() {
                // A step that can't be applied is reported where it is measured.
                if self.try_out(step).is_ok() {
                    self.revert()?;
                    changed = true;
                }
            }
        }
        if let Some(step) = wanted {
            self.try_out(step)?;
            changed = true;
        }
        Ok(changed)
    }

    fn try_out(&mut self, step: StepName) -> Result<(), SampleError> {
        let Some(planned) = self.steps.iter().find(|planned| planned.name == step) else {
            let defect =
                miette!(code = "defect", "the step `{step}` changes nothing here, but one of its rows is measured");
            return Err(SampleError::run(defect));
        };
        let (mut made, mut failed) = (Vec::new(), None);
        for (place, wanted) in planned.wanted.iter().enumerate().filter(|(_, wanted)| !wanted.proposals.is_empty()) {
            match self.places[place].host.try_out(wanted, None) {
                Ok(tried) => {
                    made.extend(tried.batch.map(|batch| MadeBatch { place, batch }));
                }
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        self.in_force = Some((step, made));
        match failed {
            None => Ok(()),
            Some(error) => {
                self.revert()?;
                Err(SampleError::cell(format!("the settings of {step}: {error}")))
            }
        }
    }

    /// Restores the previous settings, the last place first: an earlier one may have changed the same setting of the
    /// machine. Changes made by another program in the meantime end the run: from then on the samples would be of a
    /// different machine.
    fn revert(&mut self) -> Result<bool, SampleError> {
        let Some((step, made)) = self.in_force.take() else { return Ok(false) };
        for MadeBatch { place, batch } in made.into_iter().rev() {
            let report = self.places[place].host.revert(batch).map_err(|error| {
                SampleError::run(miette!(code = "not-undone", "reverting the settings of {step}: {error}"))
            })?;
            if let Some(left) = report.foreign.first() {
                return Err(SampleError::run(miette!(
                    code = "changed-meanwhile",
                    "{}: another program set it to {} while {step} was measured; stop that program, and start again",
                    left.change,
                    left.found
                )));
            }
        }
        Ok(true)
    }

    /// Restores the previous settings.
    pub(super) fn end(mut self) -> miette::Result<()> {
        self.revert().map(drop).map_err(SampleError::into_report).context("reverting the settings of the last step")
    }
}

fn may_reset_link(setting: &HostSetting) -> bool {
    match setting {
        HostSetting::LinkMtu { .. }
        | HostSetting::LinkFeature { .. }
        | HostSetting::LinkRxRing { .. }
        | HostSetting::LinkRxUsecs { .. }
        | HostSetting::LinkAdaptiveRx { .. } => true,
        HostSetting::Sysctl { .. }
        | HostSetting::Sysfs { .. }
        | HostSetting::InterruptCpus { .. }
        | HostSetting::ThreadCpus { .. } => false,
    }
}

pub(super) fn goal_of(kinds: impl Iterator<Item = TestKind> + Clone) -> TuningGoal {
    let latency = TestKind::is_transactions;
    match (kinds.clone().all(latency), kinds.clone().any(latency)) {
        (true, _) => TuningGoal::Latency,
        (false, false) => TuningGoal::Throughput,
        (false, true) => TuningGoal::Both,
    }
}

/// None of these steps changes a setting.
pub(super) fn nothing_to_change(without: &[(StepName, Unsupported)]) -> Stop {
    let why = without.iter().map(|(step, unsupported)| format!("{step}: {}", unsupported.why));
    let why = why.collect::<Vec<_>>().join("; ");
    Stop::input(miette!(code = "nothing-to-change", "none of the steps changes a setting on this path: {why}"))
}

fn cannot(why: String) -> Unsupported {
    Unsupported { why, remedy: "omit the step, or fix the reported problem".to_owned() }
}

/// Returns the reasons of rules that found nothing.
fn nothing_found(step: &TuningStep, seen: &[HostCheck]) -> Unsupported {
    let is_of_step = |rule: &str| step.rules.iter().any(|own| own == rule);
    let says = seen.iter().flat_map(|check| [&check.good, &check.not_here, &check.unknown].into_iter().flatten());
    let mut why: Vec<String> = says.filter(|says| is_of_step(says.rule)).map(|says| says.says.clone()).collect();
    why.dedup();
    why.truncate(2);
    let why = if why.is_empty() { "every setting already has its value".to_owned() } else { why.join("; ") };
    let advice = seen.iter().flat_map(|check| &check.findings).any(|found| is_of_step(found.rule));
    Unsupported {
        why: format!("nothing to change: {why}"),
        remedy: match advice {
            true => "vtax cannot fix this: vtax tune check shows what to do".to_owned(),
            false => "no changes needed".to_owned(),
        },
    }
}
