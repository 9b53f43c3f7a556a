//! The host whose domains a command is about: this machine, or a host of a lab.

use std::{cell::Cell, env, ffi::OsString, path::PathBuf, process::Command};

use miette::miette;
use vtax_domain::{
    BindError, BoundDomain, ChangeEffect, DomainHost, DomainStore, DomainSurvey, Domains, EditError, LockedStore,
    StoredState, Supervisor,
};
use vtax_lab::{LabEndpoint, Lifetime, World};
use vtax_model::{
    domain::{Configuration, DomainDevice, DomainError},
    endpoint::LabHost,
    method::DomainKind,
    topology::Name,
};
use vtax_run::{Locations, labs};
use vtax_sys::userns;

use crate::{
    called_as,
    exit::{Blamed, Exit, Stop},
    terminal::print,
};

/// Set where the network namespace is that of the host that is meant.
const INSIDE: &str = "VTAX_LDM_INSIDE";

/// What is said of a change that waits for the host's next boot.
const NOTICE: &str = "\
------------------------------------------------------------------------------
Notice: The primary domain is in the process of a delayed reconfiguration.
Any changes made to the primary domain will only take effect after it reboots.
------------------------------------------------------------------------------
";

/// The host, and where it keeps what domains are to have.
#[derive(Debug)]
pub(super) struct LdmHost {
    places: Locations,
    host: DomainHost,
    store: DomainStore,
    id: String,
    has_warned: Cell<bool>,
}

/// Runs this command again in the network namespace of a host of a lab. It returns only if that fails.
fn enter(within: &LabHost) -> Result<(), Stop> {
    let world = World::enter(Lifetime::Ephemeral).or_infrastructure()?;
    let lab = labs::open(&world, &within.lab)?;
    let host = |it: &&LabEndpoint| it.kind == DomainKind::Primary && it.name == within.host;
    let endpoint = lab.endpoints().iter().find(host).ok_or_else(|| {
        let LabHost { lab, host } = within;
        Stop::input(miette!(code = "no-such-object", "lab {lab} has no host `{host}` that is an end of a wire"))
    })?;
    let mut command = own_program()?;
    command.args(called_as::words().into_iter().skip(1)).env(INSIDE, "1");
    Err(Stop::infrastructure(lab.exec(endpoint, command)))
}

/// Takes back what domains of the lab's hosts have, before the lab goes down.
pub(in crate::cli) fn release_hosts(world: &World, lab: &Name) -> Result<(), Stop> {
    let begin = DomainHost::folders_of(lab);
    for folder in world.folders().or_infrastructure()? {
        let Some(host) = folder.strip_prefix(&begin) else { continue };
        let within = format!("{lab}/{host}");
        let status = own_program()?.args(["ldm", "--in", &within, "release"]).status();
        if !status.is_ok_and(|status| status.success()) {
            return Err(Stop::infrastructure(miette!(
                code = "not-unbound",
                "the domains of {within} can't be taken back, so the lab stays"
            )));
        }
    }
    Ok(())
}

pub(super) fn own_program() -> Result<Command, Stop> {
    let program = env::current_exe()
        .map_err(|error| Stop::infrastructure(miette!(code = "file", "vtax doesn't find itself: {error}")))?;
    Ok(Command::new(program))
}

impl LdmHost {
    pub(super) fn new(places: &Locations, within: Option<LabHost>) -> Result<LdmHost, Stop> {
        if let Some(host) = within.as_ref().filter(|_| env::var_os(INSIDE).is_none()) {
            enter(host)?;
        }
        let host = DomainHost { within };
        let store = host.store(&places.state_dir()?);
        let id = host.id();
        Ok(LdmHost { places: places.clone(), host, store, id, has_warned: Cell::new(false) })
    }

    /// What tells it from other hosts.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn store(&self) -> &DomainStore {
        &self.store
    }

    pub(super) fn lock(&self) -> Result<LockedStore, Stop> {
        self.store.lock().or_infrastructure()
    }

    pub(super) fn read(&self) -> Result<StoredState, Stop> {
        self.store.read(&self.id).or_infrastructure()
    }

    pub(super) fn agent(&self) -> Result<PathBuf, Stop> {
        self.places.agent_program()
    }

    /// Makes a change of the configuration, and keeps it.
    pub(super) fn edit(&self, change: impl FnOnce(&mut Configuration) -> Result<(), DomainError>) -> Result<(), Stop> {
        let state = self.lock()?.edit(&self.id, change).map_err(|error| match error {
            EditError::Domain(error) => Stop::input(error),
            EditError::Store(error) => Stop::infrastructure(error),
        })?;
        if state.pending.is_some() { print(NOTICE) } else { Ok(()) }
    }

    /// Makes a change of a switch, on the host too.
    pub(super) fn edit_switch(
        &self,
        switch: &Name,
        change: impl FnOnce(&mut Configuration) -> Result<(), DomainError>,
    ) -> Result<Exit, Stop> {
        let is_there = |configuration: &Configuration| configuration.switches.contains_key(switch);
        self.edit_live(is_there, change, |domains, was, now| domains.follow_switch(switch, was, now))
    }

    /// Makes a change of a domain's virtual NIC, on the host too.
    pub(super) fn edit_vnet(
        &self,
        domain: &Name,
        vnet: &Name,
        change: impl FnOnce(&mut Configuration) -> Result<(), DomainError>,
    ) -> Result<Exit, Stop> {
        let is_there = |configuration: &Configuration| configuration.vnet(domain, vnet).is_ok();
        self.edit_live(is_there, change, |domains, was, now| {
            if domains.follow_vnet(domain, vnet, was, now)? == ChangeEffect::AtBoot {
                tell!("{domain} gets this when it is started or boots again");
            }
            Ok(())
        })
    }

    /// Makes a change of a domain's virtual disk, in the domain too.
    pub(super) fn edit_disk(
        &self,
        domain: &Name,
        disk: &Name,
        change: impl FnOnce(&mut Configuration) -> Result<(), DomainError>,
    ) -> Result<Exit, Stop> {
        let is_there = |configuration: &Configuration| configuration.disk(domain, disk).is_ok();
        self.edit_live(is_there, change, |domains, was, now| {
            if domains.follow_disk(domain, disk, was, now)? == ChangeEffect::AtBoot {
                tell!("{domain} gets this when it is started or boots again");
            }
            Ok(())
        })
    }

    /// Makes a change of what devices a domain is to have, on the host too.
    pub(super) fn edit_device(
        &self,
        domain: &Name,
        device: &str,
        change: impl FnOnce(&mut Configuration) -> Result<(), DomainError>,
    ) -> Result<Exit, Stop> {
        let has = |own: &DomainDevice| own.name == device;
        let is_there =
            |configuration: &Configuration| configuration.domain(domain).is_ok_and(|domain| domain.io.iter().any(has));
        self.edit_live(is_there, change, |domains, was, now| {
            let keeps = now.domain(domain)?.io.iter().all(|own| own.name != device);
            match domains.follow_device(domain, device, was, now)? {
                ChangeEffect::AtBoot if keeps => tell!("{domain} keeps {device} until it is started or boots again"),
                ChangeEffect::AtBoot => tell!("{domain} gets this when it is started or boots again"),
                ChangeEffect::Now => {}
            }
            Ok(())
        })
    }

    /// Whether this user can have bound domains.
    pub(super) fn has_domains(&self) -> bool {
        is_root()
    }

    /// The host of a lab, if it is one.
    pub(super) fn within(&self) -> Option<&LabHost> {
        self.host.within.as_ref()
    }

    /// Makes a change that the host follows at once. If the host refuses it, all stays as it was. For an ordinary user,
    /// who has no bound domains, only the configuration is changed.
    ///
    /// What is new is written before the host has it, and what goes is written when it is gone. So a domain has nothing that
    /// the configuration doesn't have, whenever vtax is killed.
    fn edit_live(
        &self,
        is_there: impl Fn(&Configuration) -> bool,
        change: impl FnOnce(&mut Configuration) -> Result<(), DomainError>,
        follow: impl FnOnce(&Domains, &Configuration, &Configuration) -> Result<(), BindError>,
    ) -> Result<Exit, Stop> {
        let domains = if is_root() { Some(self.domains()?) } else { None };
        let locked = self.lock()?;
        let was = locked.read(&self.id).or_infrastructure()?;
        let mut state = was.clone();
        state.change(change).or_input()?;
        if state.pending.is_some() {
            locked.write(&state).or_infrastructure()?;
            print(NOTICE)?;
            return Ok(Exit::Done);
        }
        let is_new = !is_there(&was.configuration);
        if is_new {
            locked.write(&state).or_infrastructure()?;
        }
        if let Some(domains) = domains {
            let followed = domains.clean().and_then(|()| follow(&domains, &was.configuration, &state.configuration));
            if followed.is_err() && is_new {
                locked.write(&was).or_infrastructure()?;
            }
            followed.map_err(blamed)?;
        }
        if !is_new {
            locked.write(&state).or_infrastructure()?;
        }
        Ok(Exit::Done)
    }

    /// The domains that are bound, to change something. That takes root: cores and memory are the whole host's.
    pub(super) fn domains(&self) -> Result<Domains, Stop> {
        if !is_root() {
            return Err(Stop::infrastructure(miette!(
                code = "not-root",
                "domains are bound, started, stopped and unbound by root; run this command with sudo"
            )));
        }
        let world = World::enter(Lifetime::Ephemeral).or_infrastructure()?;
        let supervise = self.words()?.into_iter().chain(["supervise".into()]).collect();
        let domains = Domains::new(&world, &self.host.folder(), supervise);
        self.warn_once(&domains)?;
        Ok(domains)
    }

    /// Every verb reports the records that can't be read, whatever it does.
    fn warn_once(&self, domains: &Domains) -> Result<(), Stop> {
        if !self.has_warned.replace(true) {
            for unreadable in domains.unreadable().map_err(blamed)? {
                tell!("warning: {}", BindError::from(unreadable));
            }
        }
        Ok(())
    }

    /// The bound domains. An ordinary user has none. It is an error if what one of them has isn't known.
    pub(super) fn bound(&self) -> Result<Vec<BoundDomain>, Stop> {
        if is_root() { self.domains()?.bound().map_err(blamed) } else { Ok(Vec::new()) }
    }

    /// The bound domains, to show them, and those whose records can't be read.
    pub(super) fn survey(&self) -> Result<DomainSurvey, Stop> {
        match is_root() {
            true => self.domains()?.survey().map_err(blamed),
            false => Ok(DomainSurvey { bound: Vec::new(), unreadable: Vec::new() }),
        }
    }

    pub(super) fn supervisor<'a>(&'a self, domains: &'a Domains, agent: &'a std::path::Path) -> Supervisor<'a> {
        Supervisor { domains, store: &self.store, host: &self.id, agent }
    }

    /// The words by which this program acts on the same host.
    pub(super) fn words(&self) -> Result<Vec<OsString>, Stop> {
        let mut words: Vec<OsString> = vec!["--state".into(), self.places.state_dir()?.into()];
        if let Some(agent) = &self.places.agent {
            words.extend(["--agent".into(), agent.into()]);
        }
        words.push("ldm".into());
        if let Some(host) = &self.host.within {
            words.extend(["--in".into(), host.to_string().into()]);
        }
        Ok(words)
    }
}

fn is_root() -> bool {
    userns::is_initial() && userns::have_net_admin()
}

/// Says who can mend it.
pub(super) fn blamed(error: BindError) -> Stop {
    Stop::from(error)
}
