//! Reconciles the actual state with the intended one. Each command that changes something starts with this, and a
//! domain that can't be repaired affects neither the others nor the command.

use std::time::Duration;

use vtax_model::{domain::DomainState, topology::Name};

use crate::{
    bound::BoundDomain,
    error::BindError,
    locked::{LockedDomains, WantedDomains},
};

/// Timeout after which a QEMU counts as hung during reconciliation.
const GLANCE: Duration = Duration::from_secs(1);

impl LockedDomains<'_> {
    /// Completes or reverts the changes of killed commands, and starts missing supervisors. Returns what can't be
    /// repaired now. A domain with an unreadable record is left unchanged.
    pub fn reconcile(&self, wanted: WantedDomains<'_>) -> Vec<BindError> {
        let mut troubles = Vec::new();
        troubles.extend(self.end_abandoned_loans(&mut self.site()).err());
        self.mend_all(&mut troubles);
        self.finish_renewals(wanted, &mut troubles);
        troubles.extend(self.finish_change(wanted.configuration).err());
        self.start_supervisors(&mut troubles);
        troubles
    }

    fn mend_all(&self, troubles: &mut Vec<BindError>) {
        match self.survey() {
            Ok(survey) => {
                let abandoned = survey.bound.iter().filter(|bound| bound.is_abandoned);
                troubles.extend(abandoned.filter_map(|bound| self.mend(bound.name()).err()));
            }
            Err(error) => troubles.push(error),
        }
    }

    fn start_supervisors(&self, troubles: &mut Vec<BindError>) {
        // If there is no survey, that was already reported.
        let Ok(survey) = self.survey() else { return };
        let running = survey.bound.iter().filter(|bound| bound.state() == DomainState::Active);
        // The process that moves a domain ends its supervisor, and restarts it if the domain stays.
        for bound in running.filter(|bound| !bound.has_supervisor() && !self.is_leaving(bound.name())) {
            troubles.extend(self.supervise_again(bound).err());
        }
    }

    /// Starts the supervisor of a running domain without one.
    pub(crate) fn supervise_again(&self, bound: &BoundDomain) -> Result<(), BindError> {
        let domain: &Name = bound.name();
        if let Some(mut qemu) = bound.qemu()
            && let Err(error) = qemu.monitor(GLANCE)
        {
            return Err(BindError::Hung { domain: domain.clone(), error: Box::new(error) });
        }
        self.start_supervisor(domain)
    }
}
