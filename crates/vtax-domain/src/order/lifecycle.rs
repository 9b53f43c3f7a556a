//! Orders that bind, start, stop and unbind domains.

use vtax_model::{
    domain::{Configuration, DomainState, PRIMARY},
    topology::Name,
};

use super::{AddedDomains, ChosenDomains};
use crate::{
    damaged::KeptRecord,
    domains::StopMode,
    error::BindError,
    host_change::HostChange,
    locked::{LockedDomains, WantedDomains},
    notice::DomainNotice,
};

impl HostChange<'_> {
    pub(super) fn bind(&self, names: &[Name]) -> Result<(), BindError> {
        self.with_wanted(|domains, wanted| self.for_each(names, |name| domains.bind(name, wanted)))
    }

    pub(super) fn unbind(&self, which: ChosenDomains) -> Result<(), BindError> {
        let domains = self.domains()?;
        self.for_each(&chosen(which, domains, DomainState::Bound)?, |name| domains.unbind(name))
    }

    pub(super) fn start(&self, which: ChosenDomains) -> Result<(), BindError> {
        self.with_wanted(|domains, wanted| {
            let names = chosen(which, domains, DomainState::Bound)?;
            self.for_each(&names, |name| self.start_one(domains, name, wanted))
        })
    }

    fn start_one(&self, domains: LockedDomains<'_>, name: &Name, wanted: WantedDomains<'_>) -> Result<(), BindError> {
        domains.start(name, wanted)?;
        self.tell(DomainNotice::Started(name.clone()));
        Ok(())
    }

    pub(super) fn stop(&self, which: ChosenDomains, mode: StopMode, reboot: bool) -> Result<(), BindError> {
        self.with_wanted(|domains, wanted| {
            self.for_each(&chosen(which, domains, DomainState::Active)?, |name| {
                domains.stop(name, mode, wanted)?;
                self.tell(DomainNotice::Stopped(name.clone()));
                if reboot { self.start_one(domains, name, wanted) } else { Ok(()) }
            })
        })
    }

    /// Binds or starts domains that were just added: all, or the first error.
    pub(super) fn lead(&self, names: &[Name], until: AddedDomains) -> Result<(), BindError> {
        if until == AddedDomains::Inactive {
            return Ok(());
        }
        self.with_wanted(|domains, wanted| {
            names.iter().try_for_each(|name| domains.bind(name, wanted))?;
            match until {
                AddedDomains::Started => names.iter().try_for_each(|name| self.start_one(domains, name, wanted)),
                AddedDomains::Bound | AddedDomains::Inactive => Ok(()),
            }
        })
    }

    /// Releases and removes domains that were added by an order that failed.
    pub(super) fn take_back(&self, names: &[Name]) -> Result<(), BindError> {
        self.with_wanted(|domains, wanted| {
            names.iter().try_for_each(|name| {
                let Some(bound) = domains.find(name)? else { return Ok(()) };
                if bound.state() == DomainState::Active {
                    domains.stop(name, StopMode::Hard, wanted)?;
                }
                domains.unbind(name)
            })
        })?;
        self.edit(|all| all.remove_domains(names)).map(drop)
    }

    pub(super) fn autostart(&self) -> Result<(), BindError> {
        self.with_wanted(|domains, wanted| {
            let none = Configuration::new(self.id());
            let mut failed = Vec::new();
            for name in wanted.configuration.switches.keys() {
                let made = domains.follow_switch(name, &none, wanted.configuration);
                failed.extend(made.err().map(|error| format!("the switch {name}: {error}")));
            }
            for name in wanted.configuration.autostarted() {
                let started = self.start_if_needed(domains, name, wanted);
                failed.extend(started.err().map(|error| error.to_string()));
            }
            if failed.is_empty() { Ok(()) } else { Err(BindError::NotAllStarted { failed: failed.join("; ") }) }
        })
    }

    fn start_if_needed(
        &self,
        domains: LockedDomains<'_>,
        name: &Name,
        wanted: WantedDomains<'_>,
    ) -> Result<(), BindError> {
        match domains.find(name)?.map(|bound| bound.state()) {
            Some(DomainState::Active) => return Ok(()),
            Some(_) => {}
            None => domains.bind(name, wanted)?,
        }
        self.start_one(domains, name, wanted)
    }

    pub(super) fn panic(&self, names: &[Name]) -> Result<(), BindError> {
        if names.iter().any(|name| name.as_str() == PRIMARY) {
            return Err(BindError::PanicOfPrimary);
        }
        let domains = self.domains()?;
        names.iter().try_for_each(|name| self.configuration().domain(name).map(drop))?;
        self.for_each(names, |name| {
            domains.panic(name)?;
            self.tell(DomainNotice::Interrupted(name.clone()));
            Ok(())
        })
    }

    pub(super) fn release(&self, names: &[Name]) -> Result<(), BindError> {
        let domains = self.domains()?;
        match names {
            [] => self.tell_kept(domains.release()?),
            names => self.for_each(names, |name| {
                self.tell_kept(domains.release_one(name)?);
                Ok(())
            })?,
        }
        Ok(())
    }

    fn tell_kept(&self, kept: Vec<KeptRecord>) {
        for KeptRecord { object, error, path } in kept {
            self.tell(DomainNotice::SetAside { object, error: error.to_string(), path });
        }
    }

    /// Acts on each domain, even if another one fails. Reports all failures but the last, which is returned.
    fn for_each(&self, names: &[Name], mut act: impl FnMut(&Name) -> Result<(), BindError>) -> Result<(), BindError> {
        let mut failed: Option<BindError> = None;
        for name in names {
            if let Err(error) = act(name)
                && let Some(earlier) = failed.replace(error)
            {
                self.tell_trouble(&earlier);
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Returns the named domains, or all in this state. The state of a domain with an unreadable record is unknown.
pub(super) fn chosen(
    which: ChosenDomains,
    domains: LockedDomains<'_>,
    state: DomainState,
) -> Result<Vec<Name>, BindError> {
    match which {
        ChosenDomains::Named(names) => Ok(names),
        ChosenDomains::All => {
            let bound = domains.survey()?.bound.into_iter().filter(|bound| bound.state() == state);
            Ok(bound.map(|bound| bound.name().clone()).collect())
        }
    }
}
