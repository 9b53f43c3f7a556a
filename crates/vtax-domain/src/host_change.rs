//! Common path of all orders that change domains.
//!
//! An order sees the host only under its lock, together with everything its decisions depend on. Before the order acts,
//! what runs is reconciled with what should run; afterwards, even if the order fails, the console service runs if there
//! is a console.

use std::slice;

use vtax_model::domain::{Configuration, DomainError};

use crate::{
    bound::BoundDomain,
    domains::Domains,
    error::BindError,
    hot_plug::ChangeEffect,
    ldm_host::LdmHost,
    live_change::LiveObject,
    locked::{LockedDomains, WantedDomains},
    notice::DomainNotice,
    store::{LockedStore, StoredState},
};

/// Host while this order alone changes it.
#[derive(Debug)]
pub struct HostChange<'a> {
    host: &'a LdmHost,
    locked: &'a LockedStore,
    /// State when the lock was taken.
    state: StoredState,
    /// None for an unprivileged user, who has no bound domains.
    domains: Option<&'a Domains>,
}

impl LdmHost {
    /// Changes the host under its lock.
    pub fn change<T, E: From<BindError>>(&self, order: impl FnOnce(&HostChange<'_>) -> Result<T, E>) -> Result<T, E> {
        let domains = self.domains_of_root()?;
        let locked = self.store().lock().map_err(BindError::from)?;
        let read = || locked.read(self.id()).map_err(BindError::from);
        let mut change = HostChange { host: self, locked: &locked, state: read()?, domains: domains.as_ref() };
        change.reconcile();
        // This includes a change that was completed by the reconciliation.
        change.state = read()?;
        let done = order(&change);
        change.keep_service();
        done
    }

    /// Changes the configuration and saves it.
    pub fn edit(&self, edit: impl FnOnce(&mut Configuration) -> Result<(), DomainError>) -> Result<(), BindError> {
        self.change(|change| change.edit(edit).map(drop))
    }

    /// Makes a change that the host follows immediately.
    pub fn edit_live(
        &self,
        object: &LiveObject,
        edit: impl FnOnce(&mut Configuration) -> Result<(), DomainError>,
    ) -> Result<(), BindError> {
        self.change(|change| change.edit_live(object, edit))
    }
}

impl HostChange<'_> {
    pub(crate) fn host(&self) -> &LdmHost {
        self.host
    }

    pub(crate) fn id(&self) -> &str {
        self.host.id()
    }

    pub fn state(&self) -> &StoredState {
        &self.state
    }

    /// Returns all domains' constraints.
    pub fn configuration(&self) -> &Configuration {
        &self.state.configuration
    }

    /// Returns the store, to save and remove configurations.
    pub fn store(&self) -> &LockedStore {
        self.locked
    }

    /// Returns the bound domains; an unprivileged user has none. Fails if the bindings of one of them are unknown.
    pub fn bound(&self) -> Result<Vec<BoundDomain>, BindError> {
        self.domains.map_or(Ok(Vec::new()), Domains::bound)
    }

    /// Returns the domains, to bind, start, stop and unbind them.
    pub fn domains(&self) -> Result<LockedDomains<'_>, BindError> {
        Ok(self.domains.ok_or(BindError::NotRoot)?.under(self.locked))
    }

    /// Runs an action on the domains with their constraints.
    pub fn with_wanted<T, E: From<BindError>>(
        &self,
        act: impl FnOnce(LockedDomains<'_>, WantedDomains<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let (domains, agent) = (self.domains()?, self.host.agent()?);
        act(domains, WantedDomains { configuration: self.configuration(), agent: &agent })
    }

    /// Saves another state.
    pub fn write(&self, state: &StoredState) -> Result<(), BindError> {
        Ok(self.locked.write(state)?)
    }

    /// Changes the configuration and saves it. Returns the host with the new constraints.
    pub fn edit(
        &self,
        edit: impl FnOnce(&mut Configuration) -> Result<(), DomainError>,
    ) -> Result<HostChange<'_>, BindError> {
        let state = self.edited(edit)?;
        self.write(&state)?;
        self.tell_pending(&state);
        Ok(HostChange { host: self.host, locked: self.locked, state, domains: self.domains })
    }

    /// Makes a change that the host follows immediately: all of it, or nothing. For an unprivileged user, only the
    /// stored state changes.
    pub fn edit_live(
        &self,
        object: &LiveObject,
        edit: impl FnOnce(&mut Configuration) -> Result<(), DomainError>,
    ) -> Result<(), BindError> {
        let state = self.edited(edit)?;
        if state.pending.is_some() {
            self.write(&state)?;
            self.tell_pending(&state);
        } else if self.follow(slice::from_ref(object), &state)? == ChangeEffect::AtBoot {
            self.tell_at_boot(object, &state.configuration);
        }
        Ok(())
    }

    /// Saves another state, which the host follows.
    pub fn follow(&self, objects: &[LiveObject], state: &StoredState) -> Result<ChangeEffect, BindError> {
        match self.domains {
            Some(domains) => domains.under(self.locked).change(objects, &self.state, state),
            None => self.write(state).map(|()| ChangeEffect::Now),
        }
    }

    pub fn tell(&self, notice: DomainNotice) {
        self.host.tell(notice);
    }

    /// Returns the state with a change, or the error why it is refused.
    pub fn edited(
        &self,
        edit: impl FnOnce(&mut Configuration) -> Result<(), DomainError>,
    ) -> Result<StoredState, BindError> {
        let mut state = self.state.clone();
        state.change(edit)?;
        Ok(state)
    }

    fn tell_pending(&self, state: &StoredState) {
        if state.pending.is_some() {
            self.tell(DomainNotice::Reconfiguring);
        }
    }

    fn tell_at_boot(&self, object: &LiveObject, now: &Configuration) {
        match object {
            LiveObject::Device { domain, device }
                if now.domain(domain).is_ok_and(|it| it.io.iter().all(|own| own.name != *device)) =>
            {
                self.tell(DomainNotice::KeptUntilBoot { domain: domain.clone(), device: device.clone() });
            }
            LiveObject::Device { domain, .. } | LiveObject::Vnet { domain, .. } | LiveObject::Disk { domain, .. } => {
                self.tell(DomainNotice::AtBoot(domain.clone()));
            }
            LiveObject::Switch(_) => {}
        }
    }

    /// Reports what cannot be repaired now; the order still does everything it can.
    fn reconcile(&self) {
        let Some(domains) = self.domains else { return };
        let agent = self.host.agent().unwrap_or_default();
        let wanted = WantedDomains { configuration: self.configuration(), agent: &agent };
        domains.under(self.locked).reconcile(wanted).iter().for_each(|error| self.tell_trouble(error));
    }

    fn keep_service(&self) {
        let state = self.locked.read(self.host.id());
        if let (Some(domains), Ok(state)) = (self.domains, state)
            && let Err(error) = domains.keep_service(&state.configuration)
        {
            self.tell_trouble(&error);
        }
    }

    /// Reports an error that doesn't end the order.
    pub fn tell_trouble(&self, error: &BindError) {
        self.tell(DomainNotice::Trouble(error.to_string()));
    }
}
