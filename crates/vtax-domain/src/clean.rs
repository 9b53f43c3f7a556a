//! What a killed vtax has left: half of a domain, a journal that can't be read.

use std::path::Path;

use vtax_guest::{home::remove_of, paths, process::end_below};
use vtax_journal::{Batch, BatchState, Journal, JournalError, JournalState, Opened, scan};
use vtax_model::topology::Name;

use crate::{
    devices,
    domains::{QEMU, remove_folder},
    error::BindError,
    locked::LockedDomains,
    site::DomainSite,
    step::DomainStep,
    supervisor_process,
};

impl LockedDomains<'_> {
    /// Removes by their marks the domains and switches whose journals can't be read. The journals are kept under other
    /// names.
    pub(crate) fn clean_damaged(&self) -> Result<(), BindError> {
        self.set_aside(&self.journals(), |domain, site| self.remove_marked_domain(domain, site))?;
        self.set_aside(&self.switches(), |switch, site| site.remove_marked(switch))
    }

    /// Removes the journals whose vtax was killed before it wrote the first line. It had done nothing, but the name is taken.
    pub(crate) fn clean_begun(&self) -> Result<(), BindError> {
        if !self.journals().exists() {
            return Ok(());
        }
        for (id, snapshot) in scan::<DomainStep>(&self.journals())? {
            let is_begun = snapshot.is_ok_and(|it| it.header.is_none() && it.state == JournalState::Abandoned);
            if let (true, Ok(domain)) = (is_begun, id.parse::<Name>()) {
                let journal = Journal::<DomainStep>::open(&self.journals(), &id)?;
                self.undo_all(journal, &mut DomainSite::open()?, &domain)?;
            }
        }
        Ok(())
    }

    fn set_aside(
        &self,
        journals: &Path,
        remove: impl Fn(&Name, &mut DomainSite) -> Result<(), BindError>,
    ) -> Result<(), BindError> {
        if !journals.exists() {
            return Ok(());
        }
        for (id, snapshot) in scan::<DomainStep>(journals)? {
            let (Err(JournalError::Corrupt { .. }), Ok(object)) = (snapshot, id.parse::<Name>()) else { continue };
            if let Opened::Damaged(damaged) = Journal::<DomainStep>::open_any(journals, &id)? {
                remove(&object, &mut DomainSite::open()?)?;
                damaged.set_aside()?;
            }
        }
        Ok(())
    }

    fn remove_marked_domain(&self, domain: &Name, site: &mut DomainSite) -> Result<(), BindError> {
        let directory = self.directory(domain);
        supervisor_process::end(&directory);
        end_below(&directory).map_err(BindError::kernel(domain))?;
        remove_of(domain, &directory.join(QEMU))?;
        paths::unmount(&directory);
        devices::give_back_all(self.world(), domain)?;
        site.remove_marked(domain)?;
        remove_folder(&directory)
    }

    /// Undoes the batches that somebody was interrupted in. If the first one is among them, the domain is inactive.
    pub(crate) fn mend(&self, domain: &Name) -> Result<(), BindError> {
        let mut journal = Journal::<DomainStep>::open(&self.journals(), domain.as_str())?;
        let mut site = DomainSite::open()?;
        let is_whole = |batch: Batch<'_, DomainStep>| batch.state() == BatchState::Done && batch.is_kept();
        let first_is_whole = journal.batches().next().is_some_and(is_whole);
        if !first_is_whole && self.is_renewed(domain) {
            // It is bound anew; the files of its console and supervisor stay.
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
