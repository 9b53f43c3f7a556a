//! Domains that are bound again: their QEMU ends, and a new one starts with their current constraints.
//!
//! In between, a domain has no QEMU, or no resources at all. A record says so, and if vtax is killed there, the next
//! command that changes something completes it.

use std::{fs, path::PathBuf};

use vtax_guest::{launch::Launch, process::STOP};
use vtax_journal::{BatchState, Journal};
use vtax_model::topology::Name;
use vtax_sys::directory;

use crate::{
    bindings::Bindings,
    bound::{BoundDomain, Started},
    domains::{remove_folder, start_step},
    error::BindError,
    locked::{LockedDomains, WantedDomains},
    step::DomainStep,
};

/// Next step after a domain was bound again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterRenewal {
    /// It stays bound.
    Stopped,
    /// Its supervisor starts it, as before.
    Started,
}

impl LockedDomains<'_> {
    /// Ends the domain's QEMU, and starts another one with its CPUs stopped and with the domain's current constraints.
    pub(crate) fn renew(&self, domain: &Name, wanted: WantedDomains<'_>, then: AfterRenewal) -> Result<(), BindError> {
        let BoundDomain { bindings, devices_moved, .. } = self.existing(domain)?;
        let launch = self.launch(&bindings, wanted)?;
        let is_changed = devices_moved || wanted.configuration.domain(domain)? != &bindings.constraints;
        let pending = if is_changed { self.plan(domain, wanted).ok() } else { None };
        self.begin_renewal(domain)?;
        if then == AfterRenewal::Stopped {
            Started::remove(&self.directory(domain));
        }
        self.end_qemu(domain)?;
        match pending {
            Some(pending) => self.rebind(pending, (bindings, launch), wanted)?,
            None => self.restart(&bindings, launch)?,
        }
        self.end_renewal(domain);
        Ok(())
    }

    /// Gives a domain other resources; if those are unavailable, its previous ones.
    fn rebind(
        &self,
        (bindings, launch): (Bindings, Launch),
        (had, had_launch): (Bindings, Launch),
        wanted: WantedDomains<'_>,
    ) -> Result<(), BindError> {
        // The files of its console and supervisor stay.
        let journal = Journal::<DomainStep>::open(&self.journals(), bindings.domain.as_str())?;
        journal.undo(&mut self.site()).map_err(Box::new)?;
        let Err(error) = self.claim(&bindings, wanted.configuration, launch) else { return Ok(()) };
        match self.find(&bindings.domain)? {
            Some(_) => Err(error),
            None => self.claim(&had, wanted.configuration, had_launch).and(Err(error)),
        }
    }

    fn restart(&self, bindings: &Bindings, launch: Launch) -> Result<(), BindError> {
        let domain = &bindings.domain;
        let mut journal = Journal::<DomainStep>::open(&self.journals(), domain.as_str())?;
        let mut site = self.site();
        let of_qemu = journal.batches().skip(1).filter(|batch| batch.state() != BatchState::Undone);
        for batch in of_qemu.map(|batch| batch.id).collect::<Vec<_>>().into_iter().rev() {
            journal.undo_batch(batch, &mut site).map_err(Box::new)?;
        }
        let started = journal.execute(vec![start_step(launch, bindings)], &mut site);
        started.map_err(|error| BindError::Build { object: domain.clone(), error: Box::new(error) })?;
        journal.keep()?;
        Ok(())
    }

    /// Its system need not release what was plugged in.
    pub(crate) fn end_qemu(&self, domain: &Name) -> Result<(), BindError> {
        match self.existing(domain)?.qemu() {
            Some(mut qemu) => Ok(qemu.stop(STOP)?),
            None => Ok(()),
        }
    }

    fn begin_renewal(&self, domain: &Name) -> Result<(), BindError> {
        let (folder, path) = (self.renewals(), self.renewals().join(domain.as_str()));
        let begun = directory::create_private(&folder).and_then(|()| fs::write(&path, ""));
        begun.map_err(BindError::file("write", &path))
    }

    /// The domain is in its final state, or is no longer bound.
    pub(crate) fn end_renewal(&self, domain: &Name) {
        // If the record stays, the domain is bound once more with its current resources.
        let _ = fs::remove_file(self.renewals().join(domain.as_str()));
    }

    pub(crate) fn is_renewed(&self, domain: &Name) -> bool {
        self.renewals().join(domain.as_str()).exists()
    }

    /// Completes what a killed vtax has started: each domain that was being bound again is bound.
    pub(crate) fn finish_renewals(&self, wanted: WantedDomains<'_>, troubles: &mut Vec<BindError>) {
        let records = fs::read_dir(self.renewals()).into_iter().flatten().flatten();
        let names = records.filter_map(|record| record.file_name().to_str()?.parse().ok());
        for domain in names.collect::<Vec<Name>>() {
            troubles.extend(self.finish_renewal(&domain, wanted).err());
        }
    }

    fn finish_renewal(&self, domain: &Name, wanted: WantedDomains<'_>) -> Result<(), BindError> {
        if let Some(bound) = self.find(domain)? {
            let then = if bound.started.is_some() { AfterRenewal::Started } else { AfterRenewal::Stopped };
            return self.renew(domain, wanted, then);
        }
        let bound = self
            .plan(domain, wanted)
            .and_then(|(bindings, launch)| self.claim(&bindings, wanted.configuration, launch));
        // It is not retried: the domain is inactive, and its lists say so.
        self.end_renewal(domain);
        if bound.is_err() {
            remove_folder(&self.directory(domain))?;
        }
        bound
    }

    fn renewals(&self) -> PathBuf {
        self.folder().join("renewals")
    }
}
