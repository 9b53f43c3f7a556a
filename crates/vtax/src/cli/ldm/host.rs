//! Host whose domains a command acts on: this machine, or a host of a lab.

use std::{cell::Cell, env, ffi::OsString, path::PathBuf, process::Command};

use miette::miette;
use vtax_domain::{
    BindError, BoundDomain, DomainHost, DomainStore, DomainSurvey, Domains, Down, StoredState, Supervisor,
};
use vtax_lab::{LabEndpoint, Lifetime, World};
use vtax_model::{endpoint::LabHost, method::DomainKind, topology::Name};
use vtax_run::{Locations, labs};
use vtax_sys::userns;

use crate::{
    called_as,
    exit::{Blamed, Stop},
};

/// Set if the network namespace is already that of the intended host.
const INSIDE: &str = "VTAX_LDM_INSIDE";

/// Host and the store of its constraints. It shows the current state without a lock, so no later change may be based on
/// it. [`ChangingHost`](super::change::ChangingHost) makes changes.
#[derive(Debug)]
pub(super) struct LdmHost {
    places: Locations,
    host: DomainHost,
    store: DomainStore,
    id: String,
    has_warned: Cell<bool>,
}

/// Runs this command again in the network namespace of a lab's host. Returns only on failure.
fn enter(within: &LabHost) -> Result<(), Stop> {
    let world = World::enter(Lifetime::Ephemeral).or_infrastructure()?;
    let lab = labs::open(&world, &within.lab)?;
    let host = |it: &&LabEndpoint| it.kind == DomainKind::Primary && it.name == within.host;
    let endpoint = lab.endpoints().iter().find(host).ok_or_else(|| {
        let LabHost { lab, host } = within;
        Stop::input(miette!(code = "no-such-object", "lab {lab} has no host `{host}` at an end of a wire"))
    })?;
    let mut command = own_program()?;
    command.args(called_as::words().into_iter().skip(1)).env(INSIDE, "1");
    Err(Stop::infrastructure(lab.exec(endpoint, command)))
}

/// Releases the resources of the lab hosts' domains before the lab goes down.
pub(in crate::cli) fn release_hosts(world: &World, lab: &Name) -> Result<(), Stop> {
    let begin = DomainHost::folders_of(lab);
    for folder in world.folders().or_infrastructure()? {
        let Some(host) = folder.strip_prefix(&begin) else { continue };
        let within = format!("{lab}/{host}");
        let status = own_program()?.args(["ldm", "--in", &within, "release"]).status();
        if !status.is_ok_and(|status| status.success()) {
            return Err(Stop::infrastructure(miette!(
                code = "not-unbound",
                "cannot release the domains of {within}, so the lab stays up"
            )));
        }
    }
    Ok(())
}

fn own_program() -> Result<Command, Stop> {
    let program = env::current_exe()
        .map_err(|error| Stop::infrastructure(miette!(code = "file", "cannot find vtax's own program: {error}")))?;
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

    /// Returns the host's identifier.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn store(&self) -> &DomainStore {
        &self.store
    }

    pub(super) fn read(&self) -> Result<StoredState, Stop> {
        self.store.read(&self.id).or_infrastructure()
    }

    pub(super) fn agent(&self) -> Result<PathBuf, Stop> {
        self.places.agent_program()
    }

    /// Returns the lab's host, if there is one.
    pub(super) fn within(&self) -> Option<&LabHost> {
        self.host.within.as_ref()
    }

    /// Returns the bound domains. Requires root: cores and memory belong to the whole host.
    pub(super) fn domains(&self) -> Result<Domains, Stop> {
        if !is_root() {
            return Err(Stop::infrastructure(miette!(
                code = "not-root",
                "binding, starting, stopping and unbinding domains requires root; run this command with sudo"
            )));
        }
        let world = World::enter(Lifetime::Ephemeral).or_infrastructure()?;
        let domains = Domains::new(&world, &self.host.folder(), self.words()?);
        self.warn_once(&domains)?;
        Ok(domains)
    }

    /// Reports unreadable records once, whatever the verb does.
    fn warn_once(&self, domains: &Domains) -> Result<(), Stop> {
        if !self.has_warned.replace(true) {
            for unreadable in domains.unreadable().map_err(blamed)? {
                tell!("warning: {}", BindError::from(unreadable));
            }
        }
        Ok(())
    }

    /// Returns the bound domains, for display, and those with unreadable records.
    pub(super) fn survey(&self) -> Result<DomainSurvey, Stop> {
        match is_root() {
            true => self.domains()?.survey().map_err(blamed),
            false => Ok(DomainSurvey { bound: Vec::new(), unreadable: Vec::new() }),
        }
    }

    /// Returns the processes that should run for these domains, but don't.
    pub(super) fn down(&self, bound: &[BoundDomain]) -> Result<Vec<Down>, Stop> {
        if bound.is_empty() { Ok(Vec::new()) } else { Ok(self.domains()?.down(bound)) }
    }

    pub(super) fn supervisor<'a>(&'a self, domains: &'a Domains, agent: &'a std::path::Path) -> Supervisor<'a> {
        Supervisor { domains, store: &self.store, host: &self.id, agent }
    }

    /// Returns the command-line words that make this program act on the same host.
    fn words(&self) -> Result<Vec<OsString>, Stop> {
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

pub(super) fn is_root() -> bool {
    userns::is_initial() && userns::have_net_admin()
}

/// Converts the error, keeping whether the input or the host is at fault.
pub(super) fn blamed(error: BindError) -> Stop {
    Stop::from(error)
}
