//! Orders of the verbs that bind, start, stop and unbind domains.

use std::time::Duration;

use vtax_domain::{AddedDomains, ChosenDomains, DomainChange, StopMode};

use super::{
    constraint_file,
    verbs::{LifecycleVerb, NamedOrAdded, StartArgs, StopArgs, WhichDomains},
};
use crate::exit::Stop;

/// Returns the order of a verb.
pub(super) fn of(verb: LifecycleVerb) -> Result<DomainChange, Stop> {
    Ok(match verb {
        LifecycleVerb::Bind { which } => bind(which)?,
        LifecycleVerb::Unbind { which } => DomainChange::Unbind { which: which.chosen() },
        LifecycleVerb::Autostart => DomainChange::Autostart,
        LifecycleVerb::Start { which } => start(which)?,
        LifecycleVerb::Panic { domains } => DomainChange::Panic { domains },
        LifecycleVerb::Stop { how, which } => stop(which, &how),
        LifecycleVerb::Release { domains } => DomainChange::Release { domains },
    })
}

fn bind(which: NamedOrAdded) -> Result<DomainChange, Stop> {
    match which.input {
        Some(file) => constraint_file::add_domains(&file, AddedDomains::Bound),
        None => Ok(DomainChange::Bind { domains: which.domains }),
    }
}

fn start(which: StartArgs) -> Result<DomainChange, Stop> {
    match which.input {
        Some(file) => constraint_file::add_domains(&file, AddedDomains::Started),
        None => Ok(DomainChange::Start { which: chosen(which.all, which.domains) }),
    }
}

fn stop(which: WhichDomains, how: &StopArgs) -> DomainChange {
    let patience = how.seconds.map_or(StopMode::PATIENCE, |seconds| Duration::from_secs(seconds.into()));
    let mode = match (how.force, how.halt) {
        (true, _) => StopMode::Hard,
        (false, true) => StopMode::Shutdown(patience),
        (false, false) => StopMode::Orderly(patience),
    };
    DomainChange::Stop { which: which.chosen(), mode, reboot: how.reboot }
}

impl WhichDomains {
    pub(super) fn chosen(self) -> ChosenDomains {
        chosen(self.all, self.domains)
    }
}

fn chosen(all: bool, named: Vec<vtax_model::topology::Name>) -> ChosenDomains {
    if all { ChosenDomains::All } else { ChosenDomains::Named(named) }
}
