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

    /// Its system need not release plugged-in parts.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        host_change::HostChange,
        notice::DomainNotice,
        test_domains::{DomainJournal, TestHost, configuration, mars, name},
    };

    fn renewals(host: &TestHost) -> Vec<String> {
        let records = fs::read_dir(host.domains().join("renewals")).into_iter().flatten().flatten();
        records.map(|record| record.file_name().into_string().expect("text")).collect()
    }

    #[test]
    fn a_renewal_is_recorded_from_its_beginning_to_its_end() {
        let host = TestHost::with_domains();
        host.change(|change| {
            let domains = change.domains()?;
            assert!(!domains.is_renewed(&name("mars")));
            domains.begin_renewal(&name("mars"))?;
            domains.begin_renewal(&name("mars"))?;
            assert!(domains.is_renewed(&name("mars")) && !domains.is_renewed(&name("venus")));
            domains.end_renewal(&name("mars"));
            assert!(!domains.is_renewed(&name("mars")));
            domains.end_renewal(&name("mars"));
            Ok(())
        });
    }

    /// Otherwise each later command would try it again.
    #[test]
    fn a_domain_that_cannot_be_bound_again_after_a_crash_is_inactive_and_reported_once() {
        let host = TestHost::with_domains();
        let mut all = configuration();
        all.domains.get_mut(&name("mars")).expect("it is there").memory = None;
        host.store(&all);
        host.change(|change| change.domains()?.begin_renewal(&name("mars")));
        fs::create_dir_all(host.domains().join("mars/qemu")).expect("ours");
        fs::write(host.domains().join("renewals/.hidden"), "").expect("ours");
        let bound = |change: &HostChange<'_>| Ok(change.bound()?.len());
        assert_eq!(host.change(bound), 0);
        let heard = host.heard();
        assert!(
            matches!(&heard[..], [DomainNotice::Trouble(told)] if told.contains("mars has no memory")),
            "{heard:?}"
        );
        assert_eq!(renewals(&host), [".hidden"], "what is not the name of a domain is left alone");
        assert!(!host.domains().join("mars").exists(), "its files are gone");
        assert_eq!((host.change(bound), host.heard()), (0, Vec::new()));
    }

    #[test]
    fn a_renewal_of_a_domain_whose_record_is_damaged_waits() {
        let (host, all) = (TestHost::with_domains(), configuration());
        host.store(&all);
        host.change(|change| change.domains()?.begin_renewal(&name("mars")));
        DomainJournal::new(&mars(&all)).started(&all).write(&host.domains());
        fs::write(host.domains().join("journals/mars.journal"), "damaged").expect("ours");
        host.change(|_| Ok(()));
        let heard = host.heard();
        let is_it = |notice: &DomainNotice| matches!(notice, DomainNotice::Trouble(told) if told.contains("mars"));
        assert!(heard.iter().any(is_it), "{heard:?}");
        assert_eq!(renewals(&host), ["mars"]);
    }
}
