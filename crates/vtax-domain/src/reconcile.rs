//! Makes what runs agree with what should run. Each command that changes something begins with this, and one
//! domain that can't be mended keeps neither the others nor the command from it.

use std::time::Duration;

use vtax_model::{domain::DomainState, topology::Name};

use crate::{
    bound::BoundDomain,
    error::BindError,
    locked::{LockedDomains, WantedDomains},
};

/// A QEMU that takes longer than this to answer hangs, for somebody who has something else to do.
const GLANCE: Duration = Duration::from_secs(1);

impl LockedDomains<'_> {
    /// Finishes or takes back what killed commands have left, and starts the supervisors that are missing. Returns what can't
    /// be mended now. A domain whose record can't be read stays as it is.
    pub fn reconcile(&self, wanted: WantedDomains<'_>) -> Vec<BindError> {
        let mut troubles = Vec::new();
        troubles.extend(self.clean_loans().err());
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
        // If there is no survey, it was told already.
        let Ok(survey) = self.survey() else { return };
        let running = survey.bound.iter().filter(|bound| bound.state() == DomainState::Active);
        for bound in running.filter(|bound| !bound.has_supervisor()) {
            troubles.extend(self.supervise_again(bound).err());
        }
    }

    /// Starts a supervisor of a domain that runs without one.
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
