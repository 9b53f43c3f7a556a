//! A network stack of the path whose settings a step changes.

use std::{collections::BTreeSet, path::Path};

use vtax_model::{foreign::ForeignText, study::TuningStep};
use vtax_tune::{GuestsOnPath, HostCheck, HostSetting, Proposal, TuningCase, TuningGoal, TuningPath, WantedChanges};

use crate::{
    stop::Stop,
    tuning::{SharedTuner, TuningHost},
};

/// A network stack of this machine, or of an agent's machine.
pub(in crate::study) struct TunedPlace {
    pub(super) host: TuningHost,
    /// Location, unique among places.
    at: String,
    /// Machine name for `--host`. None for this one.
    pub(super) other: Option<String>,
    /// The only link that belongs to the path. None if all do.
    link: Option<ForeignText>,
}

impl TunedPlace {
    /// Returns the stack of a host or zone of a lab: all of its links belong to the study.
    pub(in crate::study) fn namespace(tuner: &SharedTuner, path: &Path) -> Result<TunedPlace, Stop> {
        let at = path.display().to_string();
        Ok(TunedPlace { host: TuningHost::in_namespace(tuner, path)?, at, other: None, link: None })
    }

    /// Returns this machine's own stack, of which only one link belongs to the path.
    pub(in crate::study) fn machine(tuner: &SharedTuner, link: &ForeignText) -> TunedPlace {
        let at = format!("this machine, {}", link.raw());
        TunedPlace { host: TuningHost::here(tuner), at, other: None, link: Some(link.clone()) }
    }

    /// Returns the machine of an agent, which the user calls `name`. For a guest of a lab, all links belong to the
    /// path.
    pub(in crate::study) fn other(host: TuningHost, name: &str, link: Option<ForeignText>) -> TunedPlace {
        let at = format!("{name}, {}", link.as_ref().map_or("", ForeignText::raw));
        TunedPlace { host, at, other: Some(name.to_owned()), link }
    }

    /// Returns whether both are the same stack.
    pub(in crate::study) fn is_at(&self, other: &TunedPlace) -> bool {
        self.at == other.at
    }

    /// Returns the results of these rules here. They were named, so they are evaluated whatever they improve.
    pub(super) fn look(&self, goal: TuningGoal, rules: &BTreeSet<&str>) -> Result<HostCheck, Stop> {
        let facts = self.host.facts()?;
        let link = self.link.iter().cloned();
        let path = self.link.as_ref().map(|_| TuningPath::under(&facts, link, GuestsOnPath::All));
        let case = TuningCase { host: &facts, observed: None, goal, rtt: None, path: path.as_ref() };
        Ok(vtax_tune::check_named(&case, rules))
    }

    /// Returns the changes of a step here: its rules' proposals and its own settings.
    pub(super) fn wanted(&self, step: &TuningStep, seen: &HostCheck) -> WantedChanges {
        let found = seen.findings.iter().filter(|found| step.rules.iter().any(|rule| rule == found.rule));
        let own = step.sysctl.iter().map(|(key, value)| Proposal {
            setting: HostSetting::Sysctl { key: key.clone(), value: value.as_str().into() },
            now: ForeignText::default(),
        });
        let proposals = found.flat_map(|found| found.says.proposals()).cloned().chain(own).collect();
        WantedChanges { proposals, persist: false }
    }

    /// Returns the changes that would be made now, each with the machine if it isn't this one.
    pub(super) fn planned(&self, wanted: &WantedChanges) -> Result<Vec<ForeignText>, Stop> {
        let plan = self.host.plan(wanted)?;
        let named = |change: &vtax_change::Change| match &self.other {
            None => change.to_string().into(),
            Some(other) => format!("{other}: {change}").into(),
        };
        Ok(plan.changes.iter().map(named).collect())
    }
}
