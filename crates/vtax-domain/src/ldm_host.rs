//! A host with its domains, and everything that an order to it requires.

use std::{
    ffi::OsString,
    fmt,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
};

use vtax_guest::locate;
use vtax_lab::{Lifetime, World};
use vtax_model::{endpoint::LabHost, topology::Name};
use vtax_sys::userns;

use crate::{
    domains::Domains,
    error::BindError,
    host::{DomainHost, HostNet},
    notice::DomainNotice,
    store::{DomainStore, StoredState},
    supervisor::Supervisor,
};

/// Files that a host's domains use.
#[derive(Debug, Clone)]
pub struct HostFiles {
    /// Directory of the user's results, with the constraints of the domains.
    pub state: PathBuf,
    /// The program vtax-agent, if the user has named it.
    pub agent: Option<PathBuf>,
}

/// Opens the directory of the domains' run-time files; none for an unprivileged user, who has no bound domains.
type WorldDoor = Box<dyn Fn() -> Result<Option<World>, BindError> + Send + Sync>;

/// Host and the store of its constraints. It shows the current state without a lock, so no later change may be based on
/// it; [`LdmHost::change`] makes changes.
pub struct LdmHost {
    host: DomainHost,
    net: HostNet,
    store: DomainStore,
    id: String,
    files: HostFiles,
    world: WorldDoor,
    has_warned: AtomicBool,
    hear: Box<dyn Fn(DomainNotice) + Send + Sync>,
}

impl LdmHost {
    /// Opens a host. `hear` receives a notice of each event while its domains change.
    pub fn new(
        host: DomainHost,
        net: HostNet,
        files: HostFiles,
        hear: impl Fn(DomainNotice) + Send + Sync + 'static,
    ) -> LdmHost {
        let world = || is_root().then(|| Ok(World::enter(Lifetime::Ephemeral)?)).transpose();
        LdmHost::in_world(host, net, files, Box::new(world), hear)
    }

    /// Opens a host whose domains' run-time files are in `world`.
    pub(crate) fn in_world(
        host: DomainHost,
        net: HostNet,
        files: HostFiles,
        world: WorldDoor,
        hear: impl Fn(DomainNotice) + Send + Sync + 'static,
    ) -> LdmHost {
        let (store, id, has_warned) = (host.store(&files.state), host.id(), AtomicBool::new(false));
        LdmHost { host, net, store, id, files, world, has_warned, hear: Box::new(hear) }
    }

    /// Runs `work` in the network namespace of the host, where domains and their programs start.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, BindError> {
        self.net.run(work).map_err(BindError::kernel("the host's network"))
    }

    /// Returns the host's identifier.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn net(&self) -> &HostNet {
        &self.net
    }

    pub fn store(&self) -> &DomainStore {
        &self.store
    }

    pub fn read(&self) -> Result<StoredState, BindError> {
        Ok(self.store.read(&self.id)?)
    }

    /// Returns the program that a domain without an image boots.
    pub fn agent(&self) -> Result<PathBuf, BindError> {
        Ok(locate::agent_program(self.files.agent.as_deref())?)
    }

    /// Returns the lab's host, if it is one.
    pub fn within(&self) -> Option<&LabHost> {
        self.host.within.as_ref()
    }

    /// Returns the bound domains. Requires root: cores and memory belong to the whole machine.
    pub fn domains(&self) -> Result<Domains, BindError> {
        self.domains_of_root()?.ok_or(BindError::NotRoot)
    }

    /// The same; none for an unprivileged user, who has no bound domains.
    pub(crate) fn domains_of_root(&self) -> Result<Option<Domains>, BindError> {
        let Some(world) = (self.world)()? else { return Ok(None) };
        let domains = Domains::new(&world, &self.host.folder(), self.net.clone(), self.words());
        self.warn_once(&domains)?;
        Ok(Some(domains))
    }

    /// Reports unreadable records once, whatever the order does.
    fn warn_once(&self, domains: &Domains) -> Result<(), BindError> {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            for unreadable in domains.unreadable()? {
                self.tell(DomainNotice::Unreadable(BindError::from(unreadable).to_string()));
            }
            if let Err(error) = domains.service() {
                self.tell(DomainNotice::Unreadable(error.to_string()));
            }
            for error in self.store.unreadable_migrations()? {
                self.tell(DomainNotice::Unreadable(error.to_string()));
            }
        }
        Ok(())
    }

    /// Watches a domain while it runs; [`LockedDomains::start`](crate::LockedDomains::start) launches the process that
    /// does this.
    pub fn supervise(&self, domain: &Name) -> Result<(), BindError> {
        let (domains, agent) = (&self.domains()?, &self.agent()?);
        Supervisor { domains, store: &self.store, host: &self.id, agent }.supervise(domain)
    }

    pub(crate) fn tell(&self, notice: DomainNotice) {
        (self.hear)(notice);
    }

    /// Reports an error that doesn't end what is being done.
    pub(crate) fn tell_trouble(&self, error: &BindError) {
        self.tell(DomainNotice::Trouble(error.to_string()));
    }

    /// Returns the command-line words that make this program act on the same host.
    fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["--state".into(), self.files.state.clone().into()];
        if let Some(agent) = &self.files.agent {
            words.extend(["--agent".into(), agent.into()]);
        }
        words.push("ldm".into());
        if let Some(host) = &self.host.within {
            words.extend(["--in".into(), host.to_string().into()]);
        }
        words
    }
}

impl fmt::Debug for LdmHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LdmHost").field("host", &self.host).field("net", &self.net).finish_non_exhaustive()
    }
}

fn is_root() -> bool {
    userns::is_initial() && userns::have_net_admin()
}
