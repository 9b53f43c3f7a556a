//! The host whose domains a command is about: this machine, or a host of a lab.

use std::{env, ffi::OsString, fmt, fs, path::PathBuf, process::Command, str::FromStr};

use miette::miette;
use vtax_domain::{
    BindError, BoundDomain, ChangeEffect, DomainStore, Domains, EditError, LockedStore, StoredState, Supervisor,
};
use vtax_lab::{LabEndpoint, Lifetime, World};
use vtax_model::{
    domain::{Configuration, DomainError},
    method::DomainKind,
    topology::Name,
};
use vtax_run::{Locations, labs};
use vtax_sys::userns;

use crate::{
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

/// The folder of the run-time files of domains.
const DOMAINS: &str = "domains";

/// A host of a lab, `LAB/HOST`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LabHost {
    lab: Name,
    host: Name,
}

/// The host, and where it keeps what domains are to have.
#[derive(Debug)]
pub(super) struct LdmHost {
    places: Locations,
    within: Option<LabHost>,
    store: DomainStore,
    id: String,
}

impl FromStr for LabHost {
    type Err = String;

    fn from_str(text: &str) -> Result<LabHost, String> {
        let parts = || {
            let (lab, host) = text.split_once('/')?;
            Some(LabHost { lab: lab.parse().ok()?, host: host.parse().ok()? })
        };
        parts().ok_or_else(|| format!("`{text}` is no host of a lab; write LAB/HOST, as rack/sut"))
    }
}

impl fmt::Display for LabHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.lab, self.host)
    }
}

impl LabHost {
    /// Names of folders: no name of a lab or host has a point.
    fn folder(&self, base: &str) -> String {
        format!("{base}.{}.{}", self.lab, self.host)
    }

    /// Runs this command again in the host's network namespace. It returns only if that fails.
    fn enter(&self) -> Result<(), Stop> {
        let world = World::enter(Lifetime::Ephemeral).or_infrastructure()?;
        let lab = labs::open(&world, &self.lab)?;
        let host = |it: &&LabEndpoint| it.kind == DomainKind::Primary && it.name == self.host;
        let endpoint = lab.endpoints().iter().find(host).ok_or_else(|| {
            let (lab, host) = (&self.lab, &self.host);
            Stop::input(miette!(code = "no-such-object", "lab {lab} has no host `{host}` that is an end of a wire"))
        })?;
        let mut command = own_program()?;
        command.args(env::args_os().skip(1)).env(INSIDE, "1");
        Err(Stop::infrastructure(lab.exec(endpoint, command)))
    }
}

/// Takes back what domains of the lab's hosts have, before the lab goes down.
pub(in crate::cli) fn release_hosts(world: &World, lab: &Name) -> Result<(), Stop> {
    let begin = format!("{DOMAINS}.{lab}.");
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
            host.enter()?;
        }
        let folder = within.as_ref().map_or("ldm".to_owned(), |host| host.folder("ldm"));
        let store = DomainStore::new(&places.state_dir()?.join(folder));
        let id = within.as_ref().map_or_else(machine_id, LabHost::to_string);
        Ok(LdmHost { places: places.clone(), within, store, id })
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
        self.edit_live(change, |domains, was, now| domains.follow_switch(switch, was, now))
    }

    /// Makes a change of a domain's virtual NIC, on the host too.
    pub(super) fn edit_vnet(
        &self,
        domain: &Name,
        vnet: &Name,
        change: impl FnOnce(&mut Configuration) -> Result<(), DomainError>,
    ) -> Result<Exit, Stop> {
        self.edit_live(change, |domains, was, now| {
            if domains.follow_vnet(domain, vnet, was, now)? == ChangeEffect::AtBoot {
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
        self.edit_live(change, |domains, was, now| {
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
        self.within.as_ref()
    }

    /// Makes a change that the host follows at once. If the host refuses it, all stays as it was. For an ordinary user,
    /// who has no bound domains, only the configuration is changed.
    fn edit_live(
        &self,
        change: impl FnOnce(&mut Configuration) -> Result<(), DomainError>,
        follow: impl FnOnce(&Domains, &Configuration, &Configuration) -> Result<(), BindError>,
    ) -> Result<Exit, Stop> {
        let domains = if is_root() { Some(self.domains()?) } else { None };
        let locked = self.lock()?;
        let mut state = locked.read(&self.id).or_infrastructure()?;
        let was = state.configuration.clone();
        state.change(change).or_input()?;
        if state.pending.is_some() {
            locked.write(&state).or_infrastructure()?;
            print(NOTICE)?;
            return Ok(Exit::Done);
        }
        if let Some(domains) = domains {
            follow(&domains, &was, &state.configuration).map_err(blamed)?;
        }
        locked.write(&state).or_infrastructure()?;
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
        let folder = self.within.as_ref().map_or(DOMAINS.to_owned(), |host| host.folder(DOMAINS));
        let supervise = self.words()?.into_iter().chain(["supervise".into()]).collect();
        Ok(Domains::new(&world, &folder, supervise))
    }

    /// The bound domains, to show them. An ordinary user has none.
    pub(super) fn bound(&self) -> Result<Vec<BoundDomain>, Stop> {
        if is_root() { self.domains()?.bound().map_err(blamed) } else { Ok(Vec::new()) }
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
        if let Some(host) = &self.within {
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
    if error.is_of_input() { Stop::input(error) } else { Stop::infrastructure(error) }
}

/// The number of this installation (machine-id(5)); its name where there is none.
fn machine_id() -> String {
    let read = |path| fs::read_to_string(path).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    read("/etc/machine-id").or_else(|| read("/proc/sys/kernel/hostname")).unwrap_or_else(|| "host".to_owned())
}
