//! Cleanup of partially bound domains after vtax was killed.

use vtax_journal::{Batch, BatchState, Journal};
use vtax_model::topology::Name;

use crate::{error::BindError, locked::LockedDomains, step::DomainStep};

impl LockedDomains<'_> {
    /// Undoes interrupted batches. If the first one is among them, the domain is inactive.
    pub(crate) fn mend(&self, domain: &Name) -> Result<(), BindError> {
        let mut journal = Journal::<DomainStep>::open(&self.journals(), domain.as_str())?;
        let mut site = self.site();
        let is_whole = |batch: Batch<'_, DomainStep>| batch.state() == BatchState::Done && batch.is_kept();
        let first_is_whole = journal.batches().next().is_some_and(is_whole);
        if !first_is_whole && self.is_renewed(domain) {
            // It is bound again; the files of its console and supervisor stay.
            journal.undo(&mut site).map_err(Box::new)?;
            return Ok(());
        }
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
