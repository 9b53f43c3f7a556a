//! Tuning steps of a run: what each changes on the machines of its path, and which one is in force.
//!
//! The changes go through the journal of `vtax tune`, as ones that are tried out: if vtax is killed, the next `vtax tune` or
//! the next such run takes them back.

mod keep;
mod places;

use std::{path::Path, thread, time::Duration};

use miette::{Context, miette};
use vtax_change::{Change, ChangeError, ChangeJournal, ChangeJournalError, HostAccess};
use vtax_journal::{BatchId, JournalError, UndoReport};
use vtax_model::{
    method::Unsupported,
    study::{StepName, StepRecord, TuningStep},
    workload::TestKind,
};
use vtax_tune::{ChangeRisk, HostCheck, Proposal, RULES, TuningGoal, TuningRule};

use super::runner::{SampleError, Settings};
use crate::{
    events::RunEvents,
    stop::{Blamed, Stop},
};
pub use keep::keep;
pub(super) use places::TunedPlace;

/// How long nothing is measured after settings were changed, so that queues and caches are as they stay.
const SETTLE: Duration = Duration::from_millis(20);

/// Brings the settings of steps into force, one step at a time.
#[derive(Debug)]
pub(super) struct StepSwitch {
    journal: ChangeJournal,
    steps: Vec<PlannedStep>,
    in_force: Option<(StepName, BatchId)>,
}

#[derive(Debug)]
struct PlannedStep {
    name: StepName,
    changes: Vec<Change>,
    /// What rules propose. Elsewhere, other changes come of them.
    proposals: Vec<Proposal>,
}

/// The steps of a study on these machines.
pub(super) struct PlannedSteps {
    pub(super) switch: StepSwitch,
    /// Steps that change nothing here, and why.
    pub(super) without: Vec<(StepName, Unsupported)>,
}

/// Refuses a step that names no rule, or one that vtax never applies.
pub(super) fn check_rules(steps: &[TuningStep]) -> miette::Result<()> {
    let known = |step: &TuningStep| step.rules.iter().try_for_each(|rule| find_rule(rule).map(drop));
    steps.iter().try_for_each(|step| known(step).with_context(|| format!("the step `{}`", step.name)))
}

/// The rule of this name, if vtax may change what it finds.
pub fn find_rule(name: &str) -> miette::Result<&'static TuningRule> {
    let Some(rule) = RULES.iter().find(|rule| rule.id == name) else {
        let names: Vec<&str> = RULES.iter().map(|rule| rule.id).collect();
        let name = vtax_model::foreign::ForeignText::from(name);
        return Err(miette!(code = "no-such-rule", "there is no rule `{name}`; there is {}", names.join(", ")));
    };
    match rule.risk {
        ChangeRisk::Security => Err(miette!(
            code = "not-changed-by-vtax",
            "vtax never changes what {name} is about: {} Read docs/tuning/{name}.md, and change it yourself if it is safe here",
            rule.risks
        )),
        _ => Ok(rule),
    }
}

impl StepSwitch {
    /// Looks at the machines of the paths, and plans what each step changes there. Nothing is changed yet.
    pub(super) fn plan(
        wanted: &[TuningStep],
        goal: TuningGoal,
        places: &[TunedPlace],
        directory: &Path,
        events: &RunEvents,
    ) -> Result<PlannedSteps, Stop> {
        let (mut journal, recovered) =
            ChangeJournal::start(directory, HostAccess::live().or_infrastructure()?).map_err(journal_stop)?;
        for report in recovered.before_reboot.iter().chain(recovered.interrupted.iter().map(|(_, report)| report)) {
            events.tell(format_args!("note: changes that a killed vtax has left were taken back: {}", told(report)));
        }
        let rules = wanted.iter().flat_map(|step| &step.rules).map(String::as_str).collect();
        let seen = places.iter().map(|place| place.look(goal, &rules)).collect::<Result<Vec<_>, _>>()?;
        let (mut steps, mut without) = (Vec::new(), Vec::new());
        for step in wanted {
            match changes_of(step, places, &seen, journal.host()) {
                Ok(changes) => {
                    steps.push(PlannedStep { name: step.name, changes, proposals: proposals_of(step, &seen) })
                }
                Err(unsupported) => without.push((step.name, unsupported)),
            }
        }
        Ok(PlannedSteps { switch: StepSwitch { journal, steps, in_force: None }, without })
    }

    pub(super) fn records(&self) -> Vec<StepRecord> {
        let record = |step: &PlannedStep| StepRecord {
            step: step.name,
            changes: step.changes.iter().map(|change| change.to_string().into()).collect(),
        };
        self.steps.iter().map(record).collect()
    }

    /// Lets the changes of all steps stay, until somebody takes them back (`vtax tune revert`).
    pub(super) fn keep(mut self) -> Result<KeptChanges, Stop> {
        let changes: Vec<Change> = self.steps.iter().flat_map(|step| step.changes.clone()).collect();
        let proposals = self.steps.iter().flat_map(|step| step.proposals.clone()).collect();
        let batch = self.journal.apply(changes.clone()).map_err(journal_stop)?;
        self.journal.close().map_err(journal_stop)?;
        Ok(KeptChanges { batch, changes, proposals })
    }

    pub(super) fn use_settings(&mut self, settings: Settings) -> Result<(), SampleError> {
        let wanted = if let Settings::Of(step) = settings { Some(step) } else { None };
        if wanted.is_some() && self.in_force.map(|(step, _)| step) == wanted {
            return Ok(());
        }
        let mut changed = self.revert()?;
        if settings == Settings::Rewritten {
            for step in self.steps.iter().map(|step| step.name).collect::<Vec<_>>() {
                // A step that can't be made is told where it is measured.
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
        if changed {
            thread::sleep(SETTLE);
        }
        Ok(())
    }

    fn try_out(&mut self, step: StepName) -> Result<(), SampleError> {
        let planned = self.steps.iter().find(|planned| planned.name == step);
        let planned = planned.ok_or_else(|| {
            SampleError::run(miette!(
                code = "defect",
                "the step `{step}` changes nothing here, but a row of it is measured"
            ))
        })?;
        let tried = self.journal.try_out(planned.changes.clone());
        let batch = tried.map_err(|error| SampleError::cell(format!("the settings of {step}: {error}")))?;
        self.in_force = Some((step, batch));
        Ok(())
    }

    /// Brings the settings from before back. What another program has changed meanwhile ends the run: from then on the
    /// samples would not be of the same machine.
    fn revert(&mut self) -> Result<bool, SampleError> {
        let Some((step, batch)) = self.in_force.take() else { return Ok(false) };
        let report = self.journal.revert(batch).map_err(SampleError::run)?;
        match report.foreign.first() {
            None => Ok(true),
            Some(left) => Err(SampleError::run(miette!(
                code = "changed-meanwhile",
                "{}: another program made it {} while {step} was measured; stop that program, and start again",
                left.step,
                left.found
            ))),
        }
    }

    /// Brings the settings from before back, and lets go of the journal.
    pub(super) fn end(mut self) -> miette::Result<()> {
        self.revert().map_err(SampleError::into_report).context("taking the settings of the last step back")?;
        Ok(self.journal.close()?)
    }
}

/// Settings that were changed and stay so.
#[derive(Debug)]
pub struct KeptChanges {
    /// By this number `vtax tune revert` takes them back.
    pub batch: BatchId,
    /// What was changed.
    pub changes: Vec<Change>,
    /// What the rules have proposed, so that it can be changed on another host.
    pub proposals: Vec<Proposal>,
}

/// What tests are about.
pub(super) fn goal_of(kinds: impl Iterator<Item = TestKind> + Clone) -> TuningGoal {
    let latency = |kind| matches!(kind, TestKind::Rr | TestKind::Crr | TestKind::Cc);
    match (kinds.clone().all(latency), kinds.clone().any(latency)) {
        (true, _) => TuningGoal::Latency,
        (false, false) => TuningGoal::Throughput,
        (false, true) => TuningGoal::Both,
    }
}

/// What a step changes on all machines of the path together, each setting once.
fn changes_of(
    step: &TuningStep,
    places: &[TunedPlace],
    seen: &[HostCheck],
    host: &mut HostAccess,
) -> Result<Vec<Change>, Unsupported> {
    let mut changes: Vec<Change> = Vec::new();
    for (place, seen) in places.iter().zip(seen) {
        let planned = place.changes(step, seen, host).map_err(|error| cannot(&error))?;
        changes.extend(planned.into_iter().filter(|change| !change.changes_nothing()));
    }
    changes.sort_by_key(Change::name);
    changes.dedup_by_key(|change| change.name());
    match changes.is_empty() {
        true => Err(nothing_found(step, seen)),
        false => Ok(changes),
    }
}

/// What a step's rules propose, each setting once.
fn proposals_of(step: &TuningStep, seen: &[HostCheck]) -> Vec<Proposal> {
    let mut proposals: Vec<Proposal> = Vec::new();
    for proposal in seen.iter().flat_map(|check| places::proposals(step, check)) {
        if !proposals.contains(proposal) {
            proposals.push(proposal.clone());
        }
    }
    proposals
}

/// None of these steps changes a setting.
pub(super) fn nothing_to_change(without: &[(StepName, Unsupported)]) -> Stop {
    let why = without.iter().map(|(step, unsupported)| format!("{step}: {}", unsupported.why));
    let why = why.collect::<Vec<_>>().join("; ");
    Stop::input(miette!(code = "nothing-to-change", "none of the steps changes a setting on this path: {why}"))
}

fn cannot(error: &ChangeError) -> Unsupported {
    Unsupported { why: error.to_string(), remedy: "leave the step out, or mend what the message names".to_owned() }
}

/// What the rules say that found nothing.
fn nothing_found(step: &TuningStep, seen: &[HostCheck]) -> Unsupported {
    let says = seen.iter().flat_map(|check| [&check.good, &check.not_here, &check.unknown].into_iter().flatten());
    let mut why: Vec<String> =
        says.filter(|says| step.rules.iter().any(|rule| rule == says.rule)).map(|says| says.says.clone()).collect();
    why.dedup();
    why.truncate(2);
    let advice =
        seen.iter().flat_map(|check| &check.findings).any(|found| step.rules.iter().any(|rule| rule == found.rule));
    Unsupported {
        why: format!(
            "nothing to change: {}",
            if why.is_empty() { "each setting has its value already".to_owned() } else { why.join("; ") }
        ),
        remedy: match advice {
            true => "what it found can't be changed by vtax: vtax tune check says what to do".to_owned(),
            false => "nothing needs to be done".to_owned(),
        },
    }
}

fn told(report: &UndoReport) -> String {
    format!(
        "{} brought back, {} had their value from before, {} changed by others and left alone",
        report.reverted,
        report.already_gone + report.contained,
        report.foreign.len()
    )
}

/// Who can mend it: the user, where another vtax works on the journal.
fn journal_stop(error: ChangeJournalError) -> Stop {
    match error {
        ChangeJournalError::Journal(JournalError::Busy { .. }) => Stop::input(error),
        error => Stop::infrastructure(error),
    }
}
