//! Common path of all orders that change domains.
//!
//! An order sees the host only under its lock, together with everything its decisions depend on. Before the order acts,
//! the actual state is reconciled with the intended one; afterwards, even if the order fails, the console service runs
//! if there is a console.

use std::{collections::BTreeSet, slice};

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
        self.locked(|change| {
            change.reconcile();
            // This includes a change that was completed by the reconciliation.
            change.state = change.locked.read(self.id()).map_err(BindError::from)?;
            order(change)
        })
    }

    /// Changes the host under its lock without reconciling it first.
    pub(crate) fn change_as_is<T>(
        &self,
        order: impl FnOnce(&HostChange<'_>) -> Result<T, BindError>,
    ) -> Result<T, BindError> {
        self.locked(|change| order(change))
    }

    fn locked<T, E: From<BindError>>(&self, order: impl FnOnce(&mut HostChange<'_>) -> Result<T, E>) -> Result<T, E> {
        let domains = self.domains_of_root()?;
        let locked = self.store().lock().map_err(BindError::from)?;
        let state = locked.read(self.id()).map_err(BindError::from)?;
        let mut change = HostChange { host: self, locked: &locked, state, domains: domains.as_ref() };
        let done = order(&mut change);
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
        self.check_moving(state)?;
        Ok(self.locked.write(state)?)
    }

    /// Changes the configuration of a domain that migrates, which nothing else may do, and saves it. Returns the host
    /// with the new constraints.
    pub(crate) fn edit_moving(
        &self,
        edit: impl FnOnce(&mut Configuration) -> Result<(), DomainError>,
    ) -> Result<HostChange<'_>, BindError> {
        let mut state = self.locked.read(self.id())?;
        state.change(edit)?;
        self.locked.write(&state)?;
        Ok(HostChange { host: self.host, locked: self.locked, state, domains: self.domains })
    }

    /// Refuses a state that changes a migrating domain.
    fn check_moving(&self, state: &StoredState) -> Result<(), BindError> {
        let (was, now) = (&self.state.configuration.domains, &state.configuration.domains);
        let changed = was.keys().chain(now.keys()).filter(|domain| was.get(*domain) != now.get(*domain));
        for domain in changed.collect::<BTreeSet<_>>() {
            if let Some(target) = self.locked.target_of(domain)? {
                return Err(BindError::Migrates { domain: domain.clone(), target });
            }
        }
        Ok(())
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
        self.check_moving(state)?;
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

    /// Reports problems that can't be repaired now; the order still does everything it can.
    fn reconcile(&self) {
        let Some(domains) = self.domains else { return };
        let agent = self.host.agent().unwrap_or_default();
        let wanted = WantedDomains { configuration: self.configuration(), agent: &agent };
        domains.under(self.locked).reconcile(wanted).iter().for_each(|error| self.tell_trouble(error));
        if let Err(error) = self.finish_arrivals() {
            self.tell_trouble(&error);
        }
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
        self.host.tell_trouble(error);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;
    use vtax_model::{
        domain::{DeviceKind, DomainDevice, FunctionSettings, VnetChange},
        units::ByteSize,
    };

    use super::*;
    use crate::test_domains::{DomainJournal, TestHost, add_vnet, configuration, mars, mib, name};

    fn set_memory(size: ByteSize) -> impl FnOnce(&mut Configuration) -> Result<(), DomainError> {
        move |all| all.set_memory(&name("mars"), size)
    }

    fn vnet(vnet: &str) -> LiveObject {
        LiveObject::Vnet { domain: name("mars"), vnet: name(vnet) }
    }

    fn memory(host: &TestHost) -> Option<ByteSize> {
        host.stored().domain(&name("mars")).expect("it is there").memory
    }

    #[test]
    fn an_order_sees_changes_stored_before_it_acquired_the_lock() {
        let host = TestHost::of_user();
        host.store(&configuration());
        host.change(|change| change.edit(set_memory(mib(512))).map(drop));
        let seen = host.change(|change| Ok(change.configuration().domain(&name("mars"))?.memory));
        assert_eq!(seen, Some(mib(512)));
        // The host that an edit returns has the new constraints, and the one before it the previous ones.
        host.change(|change| {
            let later = change.edit(set_memory(mib(256)))?;
            let memory = |change: &HostChange<'_>| change.configuration().domain(&name("mars")).expect("there").memory;
            assert_eq!((memory(change), memory(&later)), (Some(mib(512)), Some(mib(256))));
            Ok(())
        });
    }

    #[test]
    fn a_refused_edit_leaves_the_stored_state_unchanged() {
        let host = TestHost::of_user();
        host.store(&configuration());
        let refused = host.host.edit(|all| {
            all.set_memory(&name("mars"), mib(512))?;
            all.add_domain(&name("mars"))
        });
        assert!(matches!(refused, Err(BindError::Domain(DomainError::Exists { .. }))));
        assert_eq!((memory(&host), host.heard()), (Some(mib(128)), Vec::new()));
    }

    /// It is stored as if the domain were inactive, since the user can have no bound domains.
    #[test]
    fn an_unprivileged_user_only_changes_the_stored_state() {
        let host = TestHost::of_user();
        host.store(&configuration());
        let edit = |all: &mut Configuration| all.remove_vnet(&name("mars"), &name("net0"));
        host.host.edit_live(&vnet("net0"), edit).expect("it is there");
        assert!(host.stored().domain(&name("mars")).expect("it is there").vnets.is_empty());
        assert!(host.change(|change| change.bound()).is_empty());
        assert!(matches!(host.host.change(|change| change.domains().map(drop)), Err(BindError::NotRoot)));
        assert_eq!(host.heard(), []);
    }

    #[test]
    fn a_change_that_a_bound_domain_gets_at_its_next_boot_is_stored_and_reported() {
        let (host, mut all) = (TestHost::with_domains(), configuration());
        let device = |name: &str| {
            let (kind, settings) = (DeviceKind::Vf, FunctionSettings::default());
            DomainDevice { name: name.to_owned(), kind, settings }
        };
        all.domains.get_mut(&name("mars")).expect("it is there").io = vec![device("vf0"), device("vf1")];
        host.store(&all);
        DomainJournal::new(&mars(&all)).started(&all).write(&host.domains());
        let add = |all: &mut Configuration| {
            add_vnet(all, "net1", VnetChange::default());
            Ok(())
        };
        host.host.edit_live(&vnet("net1"), add).expect("possible");
        assert_eq!(host.heard(), [DomainNotice::AtBoot(name("mars"))]);
        let object = LiveObject::Device { domain: name("mars"), device: "vf0".to_owned() };
        host.host.edit_live(&object, |all| all.remove_device(&name("mars"), "vf0")).expect("it has it");
        let kept = DomainNotice::KeptUntilBoot { domain: name("mars"), device: "vf0".to_owned() };
        assert_eq!(host.heard(), [kept]);
        let stored = host.stored();
        let mars = stored.domain(&name("mars")).expect("it is there");
        assert_eq!((mars.vnets.len(), mars.io.len()), (2, 1));
    }

    #[test]
    fn a_change_of_an_inactive_domain_is_in_effect() {
        let host = TestHost::with_domains();
        host.store(&configuration());
        host.host.edit_live(&vnet("net0"), |all| all.remove_vnet(&name("mars"), &name("net0"))).expect("it is there");
        assert_eq!(host.heard(), []);
        assert!(host.stored().domain(&name("mars")).expect("it is there").vnets.is_empty());
    }

    /// Returns the state of a host whose vtax was killed while it changed `was` to `now`, and has stored `kept`.
    fn interrupted(was: &Configuration, now: &Configuration, kept: &Configuration) -> TestHost {
        let host = TestHost::with_domains();
        let [was, now] = [was, now].map(|all| {
            host.store(all);
            host.host.read().expect("it can be read")
        });
        host.store(kept);
        fs::create_dir_all(host.domains()).expect("ours");
        let change = json!({ "objects": [vnet("net1")], "was": was, "now": now });
        fs::write(host.domains().join("change.json"), change.to_string()).expect("ours");
        host
    }

    #[test]
    fn a_killed_vtaxs_change_is_completed_before_an_order_decides() {
        let was = configuration();
        let (mut now, mut other) = (was.clone(), was.clone());
        add_vnet(&mut now, "net1", VnetChange::default());
        other.set_memory(&name("mars"), mib(512)).expect("possible");
        for (kept, vnets, why) in [
            (&was, 2, "it was killed before it stored the new state"),
            (&now, 2, "it was killed after that"),
            (&other, 1, "a later command has stored something else"),
        ] {
            let host = interrupted(&was, &now, kept);
            let seen = host.change(|change| Ok(change.configuration().domain(&name("mars"))?.vnets.len()));
            assert_eq!(seen, vnets, "{why}");
            assert!(!host.domains().join("change.json").exists(), "{why}");
            assert_eq!(host.heard(), []);
        }
    }

    #[test]
    fn an_order_does_all_that_it_can_although_a_record_is_damaged() {
        let host = interrupted(&configuration(), &configuration(), &configuration());
        fs::write(host.domains().join("change.json"), "{").expect("ours");
        host.change(|change| change.edit(set_memory(mib(512))).map(drop));
        assert_eq!(memory(&host), Some(mib(512)));
        let heard = host.heard();
        assert!(matches!(&heard[..], [DomainNotice::Trouble(told)] if told.contains("change.json")), "{heard:?}");
        assert!(host.domains().join("change.json").exists(), "it is kept for the user");
    }

    #[test]
    fn an_unreadable_domain_is_reported_once_and_hides_no_other_domain() {
        let (host, all) = (TestHost::with_domains(), configuration());
        host.store(&all);
        DomainJournal::new(&mars(&all)).started(&all).write(&host.domains());
        fs::write(host.domains().join("journals/venus.journal"), "damaged").expect("ours");
        let survey = |change: &HostChange<'_>| Ok(change.domains()?.survey()?.bound.len());
        assert_eq!([host.change(survey), host.change(survey)], [1, 1]);
        let heard = host.heard();
        let is_it = |notice: &DomainNotice| matches!(notice, DomainNotice::Unreadable(told) if told.contains("venus"));
        assert_eq!(heard.iter().filter(|notice| is_it(notice)).count(), 1, "{heard:?}");
        // What depends on all domains is refused.
        assert!(matches!(host.host.change(|change| change.bound()), Err(BindError::Unreadable { .. })));
    }

    #[test]
    fn the_lock_is_held_while_an_order_acts_and_free_afterwards() {
        let host = TestHost::of_user();
        let try_lock = || {
            let path = host.host.store().folder().join(".lock");
            fs::File::open(path).expect("it was made").try_lock().is_ok()
        };
        let seen = host.change(|_| Ok(try_lock()));
        assert_eq!((seen, try_lock()), (false, true));
        let failed: Result<(), BindError> = host.host.change(|_| Err(BindError::NoSwitch));
        assert!(failed.is_err() && try_lock(), "an order that fails releases it too");
    }
}
