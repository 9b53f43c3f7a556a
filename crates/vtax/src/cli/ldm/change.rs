//! Common path of all verbs that change domains.
//!
//! A verb sees the host only under its lock, together with everything its decisions depend on. Before the verb acts,
//! what runs is reconciled with what should run; afterwards, even if the verb fails, the console service runs if there
//! is a console.

use std::{path::PathBuf, slice};

use miette::miette;
use vtax_domain::{
    BindError, BoundDomain, ChangeEffect, Domains, LiveObject, LockedDomains, LockedStore, StoredState, WantedDomains,
};
use vtax_model::{
    domain::{Configuration, DomainError},
    endpoint::LabHost,
    topology::Name,
};

use super::host::{LdmHost, blamed, is_root};
use crate::{
    exit::{Blamed, Exit, Stop},
    terminal::print,
};

/// Printed after a change that waits for the host's next boot.
const NOTICE: &str = "\
------------------------------------------------------------------------------
Notice: The primary domain is in the process of a delayed reconfiguration.
Any changes made to the primary domain will only take effect after it reboots.
------------------------------------------------------------------------------
";

/// Host for verbs that change something. It exposes nothing that a verb could base a decision on before the lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChangingHost<'a> {
    host: &'a LdmHost,
}

/// Host while this command alone changes it.
pub(super) struct HostChange<'a> {
    host: &'a LdmHost,
    locked: &'a LockedStore,
    /// State when the lock was taken.
    state: StoredState,
    /// None for an unprivileged user, who has no bound domains.
    domains: Option<&'a Domains>,
}

impl<'a> ChangingHost<'a> {
    pub(super) fn new(host: &'a LdmHost) -> ChangingHost<'a> {
        ChangingHost { host }
    }

    /// Returns the lab's host, if there is one.
    pub(super) fn within(self) -> Option<&'a LabHost> {
        self.host.within()
    }

    /// Changes the host under its lock.
    pub(super) fn change<T>(self, verb: impl FnOnce(&HostChange<'_>) -> Result<T, Stop>) -> Result<T, Stop> {
        let domains = if is_root() { Some(self.host.domains()?) } else { None };
        let locked = self.host.store().lock().or_infrastructure()?;
        let state = locked.read(self.host.id()).or_infrastructure()?;
        let mut change = HostChange { host: self.host, locked: &locked, state, domains: domains.as_ref() };
        change.reconcile();
        // This includes a change that was completed by the reconciliation.
        change.state = locked.read(self.host.id()).or_infrastructure()?;
        let done = verb(&change);
        change.keep_service();
        done
    }

    /// Changes the configuration and saves it.
    pub(super) fn edit(self, edit: impl FnOnce(&mut Configuration) -> Result<(), DomainError>) -> Result<(), Stop> {
        self.change(|change| change.edit(edit))
    }

    /// Changes a switch, on the host too.
    pub(super) fn edit_switch(
        self,
        switch: &Name,
        edit: impl FnOnce(&mut Configuration) -> Result<(), DomainError>,
    ) -> Result<Exit, Stop> {
        self.change(|change| change.edit_live(LiveObject::Switch(switch.clone()), edit))
    }

    /// Changes a domain's virtual NIC, on the host too.
    pub(super) fn edit_vnet(
        self,
        domain: &Name,
        vnet: &Name,
        edit: impl FnOnce(&mut Configuration) -> Result<(), DomainError>,
    ) -> Result<Exit, Stop> {
        let object = LiveObject::Vnet { domain: domain.clone(), vnet: vnet.clone() };
        self.change(|change| change.edit_live(object, edit))
    }

    /// Changes a domain's virtual disk, in the domain too.
    pub(super) fn edit_disk(
        self,
        domain: &Name,
        disk: &Name,
        edit: impl FnOnce(&mut Configuration) -> Result<(), DomainError>,
    ) -> Result<Exit, Stop> {
        let object = LiveObject::Disk { domain: domain.clone(), disk: disk.clone() };
        self.change(|change| change.edit_live(object, edit))
    }
}

impl HostChange<'_> {
    /// Returns the host's identifier.
    pub(super) fn id(&self) -> &str {
        self.host.id()
    }

    /// Returns the stored state.
    pub(super) fn state(&self) -> &StoredState {
        &self.state
    }

    /// Returns all domains' constraints.
    pub(super) fn configuration(&self) -> &Configuration {
        &self.state.configuration
    }

    /// Returns the store, to save and remove configurations.
    pub(super) fn store(&self) -> &LockedStore {
        self.locked
    }

    /// Returns the bound domains; an unprivileged user has none. Fails if the bindings of one of them are unknown.
    pub(super) fn bound(&self) -> Result<Vec<BoundDomain>, Stop> {
        self.domains.map_or(Ok(Vec::new()), |domains| domains.bound().map_err(blamed))
    }

    /// Returns the domains, to bind, start, stop and unbind them.
    pub(super) fn domains(&self) -> Result<LockedDomains<'_>, Stop> {
        let domains = self.domains.ok_or_else(|| {
            Stop::infrastructure(miette!(
                code = "not-root",
                "binding, starting, stopping and unbinding domains requires root; run this command with sudo"
            ))
        })?;
        Ok(domains.under(self.locked))
    }

    /// Returns the program that a domain without an image boots.
    pub(super) fn agent(&self) -> Result<PathBuf, Stop> {
        self.host.agent()
    }

    /// Saves another state.
    pub(super) fn write(&self, state: &StoredState) -> Result<(), Stop> {
        self.locked.write(state).or_infrastructure()
    }

    /// Changes the configuration and saves it.
    pub(super) fn edit(&self, edit: impl FnOnce(&mut Configuration) -> Result<(), DomainError>) -> Result<(), Stop> {
        let state = self.edited(edit)?;
        self.write(&state)?;
        if state.pending.is_some() { print(NOTICE) } else { Ok(()) }
    }

    /// Changes the configuration, saves it and returns the host with the new constraints.
    pub(super) fn edited_further(
        &self,
        edit: impl FnOnce(&mut Configuration) -> Result<(), DomainError>,
    ) -> Result<HostChange<'_>, Stop> {
        let state = self.edited(edit)?;
        self.write(&state)?;
        Ok(HostChange { host: self.host, locked: self.locked, state, domains: self.domains })
    }

    /// Makes a change that the host follows immediately: all of it, or nothing. For an unprivileged user, only the
    /// stored state changes.
    pub(super) fn edit_live(
        &self,
        object: LiveObject,
        edit: impl FnOnce(&mut Configuration) -> Result<(), DomainError>,
    ) -> Result<Exit, Stop> {
        let state = self.edited(edit)?;
        if state.pending.is_some() {
            self.write(&state)?;
            print(NOTICE)?;
            return Ok(Exit::Done);
        }
        if self.follow(slice::from_ref(&object), &state)? == ChangeEffect::AtBoot {
            tell_pending(&object, &state.configuration);
        }
        Ok(Exit::Done)
    }

    /// Saves another state, which the host follows.
    pub(super) fn follow(&self, objects: &[LiveObject], state: &StoredState) -> Result<ChangeEffect, Stop> {
        match self.domains {
            Some(domains) => domains.under(self.locked).change(objects, &self.state, state).map_err(blamed),
            None => self.write(state).map(|()| ChangeEffect::Now),
        }
    }

    fn edited(&self, edit: impl FnOnce(&mut Configuration) -> Result<(), DomainError>) -> Result<StoredState, Stop> {
        let mut state = self.state.clone();
        state.change(edit).or_input()?;
        Ok(state)
    }

    /// Reports what cannot be repaired now; the verb still does everything it can.
    fn reconcile(&self) {
        let Some(domains) = self.domains else { return };
        let agent = self.host.agent().unwrap_or_default();
        let wanted = WantedDomains { configuration: self.configuration(), agent: &agent };
        domains.under(self.locked).reconcile(wanted).iter().for_each(tell_trouble);
    }

    fn keep_service(&self) {
        let state = self.locked.read(self.id());
        if let (Some(domains), Ok(state)) = (self.domains, state)
            && let Err(error) = domains.keep_service(&state.configuration)
        {
            tell_trouble(&error);
        }
    }
}

fn tell_trouble(error: &BindError) {
    tell!("{error}");
}

fn tell_pending(object: &LiveObject, now: &Configuration) {
    match object {
        LiveObject::Device { domain, device }
            if now.domain(domain).is_ok_and(|it| it.io.iter().all(|own| own.name != *device)) =>
        {
            tell!("{domain} keeps {device} until it is started or reboots");
        }
        LiveObject::Device { domain, .. } | LiveObject::Vnet { domain, .. } | LiveObject::Disk { domain, .. } => {
            tell!("the change takes effect when {domain} is started or reboots");
        }
        LiveObject::Switch(_) => {}
    }
}
