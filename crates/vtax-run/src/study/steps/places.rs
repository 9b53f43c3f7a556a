//! A network stack of the path, whose settings a step changes.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use vtax_agent::tuning::read_host;
use vtax_change::{Change, ChangeError, HostAccess, NamespaceRef};
use vtax_model::{foreign::ForeignText, study::TuningStep};
use vtax_sys::netns::NetNs;
use vtax_tune::{GuestsOnPath, HostCheck, Proposal, TuningCase, TuningGoal, TuningPath, plan};

use crate::stop::{Blamed, Stop};

/// A network stack of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::study) struct TunedPlace {
    /// The namespace. None for vtax's own.
    namespace: Option<NamespaceRef>,
    path: Option<PathBuf>,
    /// The only link that belongs to the path. None if all do.
    link: Option<ForeignText>,
}

impl TunedPlace {
    /// The stack of a host or zone of a lab: all of its links are there for the study.
    pub(in crate::study) fn namespace(path: &Path) -> Result<TunedPlace, Stop> {
        let namespace = NamespaceRef::at(path).or_infrastructure()?;
        Ok(TunedPlace { namespace: Some(namespace), path: Some(path.to_owned()), link: None })
    }

    /// This machine's own stack, of which only one link belongs to the path.
    pub(in crate::study) fn machine(link: &ForeignText) -> TunedPlace {
        TunedPlace { namespace: None, path: None, link: Some(link.clone()) }
    }

    /// What these rules say here. They were named, so they are asked whatever they serve.
    pub(super) fn look(&self, goal: TuningGoal, rules: &BTreeSet<&str>) -> Result<HostCheck, Stop> {
        let inside = self.path.as_deref().map(NetNs::open).transpose().or_infrastructure()?;
        let facts = read_host(inside.as_ref()).or_infrastructure()?;
        let link = self.link.iter().cloned();
        let path = self.link.as_ref().map(|_| TuningPath::under(&facts, link, GuestsOnPath::All));
        let case = TuningCase { host: &facts, observed: None, goal, rtt: None, path: path.as_ref() };
        Ok(vtax_tune::check_named(&case, rules))
    }

    /// What a step changes here.
    pub(super) fn changes(
        &self,
        step: &TuningStep,
        seen: &HostCheck,
        host: &mut HostAccess,
    ) -> Result<Vec<Change>, ChangeError> {
        let proposals: Vec<Proposal> = proposals(step, seen).cloned().collect();
        let mut changes = plan(host, self.namespace.as_ref(), &proposals)?;
        for (key, value) in &step.sysctl {
            changes.push(Change::plan_sysctl_for(host, self.namespace.clone(), key.parse()?, value)?);
        }
        Ok(changes)
    }
}

/// What the rules of a step propose.
pub(super) fn proposals<'a>(step: &'a TuningStep, seen: &'a HostCheck) -> impl Iterator<Item = &'a Proposal> {
    let found = seen.findings.iter().filter(|found| step.rules.iter().any(|rule| rule == found.rule));
    found.flat_map(|found| found.says.proposals())
}
