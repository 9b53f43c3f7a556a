//! What a killed vtax has left: half of a domain, or a domain without a supervisor.

use vtax_journal::{Batch, BatchState, Journal};
use vtax_model::{domain::DomainState, topology::Name};

use crate::{domains::Domains, error::BindError, site::DomainSite, step::DomainStep, supervisor};

impl Domains {
    /// Removes what a killed vtax has left half done. The caller holds the store's lock, so nobody is at work. What has a
    /// record that can't be read stays as it is.
    pub fn clean(&self) -> Result<(), BindError> {
        self.clean_loans()?;
        for bound in self.survey()?.bound.into_iter().filter(|bound| bound.is_abandoned) {
            self.mend(bound.name())?;
        }
        for bound in self.survey()?.bound.into_iter().filter(|bound| bound.state() == DomainState::Active) {
            if supervisor::living(&self.directory(bound.name())).is_none() {
                supervisor::start(self, bound.name())?;
            }
        }
        Ok(())
    }

    /// Undoes the batches that somebody was interrupted in. If the first one is among them, the domain is inactive.
    fn mend(&self, domain: &Name) -> Result<(), BindError> {
        let mut journal = Journal::<DomainStep>::open(&self.journals(), domain.as_str())?;
        let mut site = DomainSite::open()?;
        let is_whole = |batch: Batch<'_, DomainStep>| batch.state() == BatchState::Done && batch.is_kept();
        let first_is_whole = journal.batches().next().is_some_and(is_whole);
        if !first_is_whole {
            return self.undo_all(journal, &mut site, domain);
        }
        let abandoned: Vec<_> = journal.batches().rev().filter(Batch::is_abandoned).map(|batch| batch.id).collect();
        for batch in abandoned {
            journal.undo_batch(batch, &mut site).map_err(Box::new)?;
        }
        journal.keep()?;
        Ok(())
    }
}
