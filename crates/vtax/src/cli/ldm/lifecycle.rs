//! Orders of the verbs that bind, start, stop and unbind domains.

use std::time::Duration;

use vtax_domain::{AddedDomains, ChosenDomains, DomainOrder, StopMode};

use super::{
    constraint_file,
    verbs::{NamedOrAdded, StartArgs, StopArgs, WhichDomains},
};
use crate::exit::Stop;

pub(super) fn bind(which: NamedOrAdded) -> Result<DomainOrder, Stop> {
    match which.input {
        Some(file) => constraint_file::add_domains(&file, AddedDomains::Bound),
        None => Ok(DomainOrder::Bind { domains: which.domains }),
    }
}

pub(super) fn start(which: StartArgs) -> Result<DomainOrder, Stop> {
    match which.input {
        Some(file) => constraint_file::add_domains(&file, AddedDomains::Started),
        None => Ok(DomainOrder::Start { which: chosen(which.all, which.domains) }),
    }
}

pub(super) fn stop(which: WhichDomains, how: &StopArgs) -> DomainOrder {
    let patience = how.seconds.map_or(StopMode::PATIENCE, |seconds| Duration::from_secs(seconds.into()));
    let mode = match (how.force, how.halt) {
        (true, _) => StopMode::Hard,
        (false, true) => StopMode::Shutdown(patience),
        (false, false) => StopMode::Orderly(patience),
    };
    DomainOrder::Stop { which: which.chosen(), mode, reboot: how.reboot }
}

impl WhichDomains {
    pub(super) fn chosen(self) -> ChosenDomains {
        chosen(self.all, self.domains)
    }
}

fn chosen(all: bool, named: Vec<vtax_model::topology::Name>) -> ChosenDomains {
    if all { ChosenDomains::All } else { ChosenDomains::Named(named) }
}
