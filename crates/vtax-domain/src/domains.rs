//! Operations on domains: bind, start, stop, unbind.
//!
//! [`LockedDomains`] changes them, so that two simultaneous commands run one after another. A domain's resources are
//! claimed through its journal: all of them, or none.

use std::{
    env,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use vtax_guest::{
    image,
    launch::{Boot, DOMAIN_DRIVERS, Launch},
    process::Qemu,
    qmp::PATIENCE,
    threads::GuestPins,
};
use vtax_journal::{Journal, JournalError, Snapshot};
use vtax_lab::{Facts, GuestNeeds, World};
use vtax_model::{
    domain::{Configuration, DomainError, DomainState, PRIMARY, Variable},
    guest::VirtioNic,
    topology::Name,
};
use vtax_step::{StartGuest, StepSite};
use vtax_sys::directory;

use crate::{
    bindings::{Bindings, ServedSwitch},
    bound::{BoundDomain, Started},
    capacity::HostCapacity,
    damaged::{self, KeptRecord},
    disk,
    error::BindError,
    host::HostNet,
    host_io::HostIo,
    locked::{LockedDomains, WantedDomains},
    plan::{self, BindRequest, DomainEngine},
    renewal::AfterRenewal,
    step::{BeginDomain, DomainStep},
    supervisor_process,
    switch::SwitchAbilities,
};

const KIND: &str = "domain";
/// Directory of QEMU's files in the domain's directory.
pub(crate) const QEMU: &str = "qemu";

/// Bound domains of this host.
#[derive(Debug, Clone)]
pub struct Domains {
    world: World,
    folder: PathBuf,
    net: HostNet,
    ldm: Vec<OsString>,
}

/// Way of stopping a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopMode {
    /// Requests a shutdown, and stops the domain after this time.
    Orderly(Duration),
    /// Requests a shutdown. If the system hasn't shut down after this time, it keeps running.
    Shutdown(Duration),
    /// Stops immediately.
    Hard,
}

impl StopMode {
    /// Default time that a system has to shut down.
    pub const PATIENCE: Duration = Duration::from_secs(60);
}

impl Domains {
    /// Opens the bound domains of the host whose run-time files are in `name` below the user's. `ldm` are the
    /// command-line words that make this program act on the same host; the verb follows.
    pub(crate) fn new(world: &World, name: &str, net: HostNet, ldm: Vec<OsString>) -> Domains {
        Domains { world: world.clone(), folder: world.folder(name), net, ldm }
    }

    pub(crate) fn net(&self) -> &HostNet {
        &self.net
    }

    pub(crate) fn site(&self) -> StepSite {
        self.net.site()
    }

    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    /// Returns this program with a verb of `ldm` on the same host.
    pub(crate) fn command(&self, verb: &[&str]) -> io::Result<Command> {
        let mut command = Command::new(env::current_exe()?);
        command.args(&self.ldm).args(verb);
        self.net.mark(&mut command);
        Ok(command)
    }

    /// Starts a supervisor, and with it the domain.
    pub(crate) fn start_supervisor(&self, domain: &Name) -> Result<(), BindError> {
        supervisor_process::start(domain, self.command(&["supervise", domain.as_str()]))
    }

    /// Returns the directory of all run-time files.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn journals(&self) -> PathBuf {
        self.folder.join("journals")
    }

    pub(crate) fn switches(&self) -> PathBuf {
        self.folder.join("switches")
    }

    /// Returns the directory of a domain's files.
    pub(crate) fn directory(&self, domain: &Name) -> PathBuf {
        self.folder.join(domain.as_str())
    }

    /// Returns all bound domains, by name. Fails if the bindings of one of them are unknown; [`Domains::survey`] omits
    /// such a domain.
    pub fn bound(&self) -> Result<Vec<BoundDomain>, BindError> {
        self.survey()?.whole()
    }

    /// Returns the time at which a domain was last bound or unbound. None if none ever was.
    pub fn changed(&self) -> Option<SystemTime> {
        fs::metadata(self.journals()).and_then(|found| found.modified()).ok()
    }

    /// Returns the path of a domain's console log.
    pub fn console_log(&self, domain: &Name) -> PathBuf {
        self.directory(domain).join("console.log")
    }

    pub fn find(&self, domain: &Name) -> Result<Option<BoundDomain>, BindError> {
        if !self.journals().exists() {
            return self.check_not_lost(domain).map(|()| None);
        }
        let snapshot = Snapshot::read(&self.journals(), domain.as_str());
        match snapshot.and_then(|snapshot| BoundDomain::of(snapshot, &self.folder)) {
            Ok(bound) => Ok(Some(bound)),
            Err(JournalError::Missing { .. }) => self.check_not_lost(domain).map(|()| None),
            Err(error) => Err(BindError::Unreadable { object: domain.clone(), error }),
        }
    }

    /// Returns the domain, which must be bound.
    pub fn existing(&self, domain: &Name) -> Result<BoundDomain, BindError> {
        self.find(domain)?.ok_or_else(|| BindError::State {
            domain: domain.clone(),
            state: DomainState::Inactive,
            remedy: "bind it first (vtax ldm bind)",
        })
    }

    /// Returns the domain, which must run, and its QEMU.
    pub fn active(&self, domain: &Name) -> Result<(BoundDomain, Qemu), BindError> {
        let found = self.find(domain)?;
        let state = found.as_ref().map_or(DomainState::Inactive, BoundDomain::state);
        let running = found.filter(|_| state == DomainState::Active).and_then(|bound| Some((bound.qemu()?, bound)));
        let remedy = match state {
            DomainState::Active => "its system is rebooting; try again in a moment",
            DomainState::Inactive => "bind and start it first (vtax ldm bind, vtax ldm start)",
            _ => "start it first (vtax ldm start)",
        };
        let (qemu, bound) = running.ok_or_else(|| BindError::State { domain: domain.clone(), state, remedy })?;
        Ok((bound, qemu))
    }

    /// Lets the CPUs of a domain run whose QEMU has just been started. Called by the supervisor.
    pub(crate) fn run(&self, domain: &Name) -> Result<(), BindError> {
        let bound = self.existing(domain)?;
        let Some(mut qemu) = bound.qemu() else {
            return Err(BindError::Supervisor { domain: domain.clone(), why: "finds no running QEMU".to_owned() });
        };
        let mut monitor = qemu.monitor(PATIENCE)?;
        if monitor.status()?.is_starting() {
            // If vtax is killed here, the next supervisor finds that the domain should run.
            Started::now().write(&self.directory(domain))?;
            let _ = fs::remove_file(supervisor_process::reboot_loop(&self.directory(domain)));
            monitor.resume()?;
        }
        Ok(())
    }
}

impl LockedDomains<'_> {
    /// Releases all of a domain's resources, and removes its files.
    pub(crate) fn undo_all(
        &self,
        journal: Journal<DomainStep>,
        site: &mut StepSite,
        domain: &Name,
    ) -> Result<(), BindError> {
        let directory = self.directory(domain);
        journal.undo(site).map_err(Box::new)?;
        remove_folder(&directory)
    }

    /// Gives a domain all resources in its constraints. If one is unavailable, it gets none.
    pub fn bind(&self, domain: &Name, wanted: WantedDomains<'_>) -> Result<(), BindError> {
        wanted.configuration.domain(domain)?;
        if domain.as_str() == PRIMARY {
            return Err(DomainError::Primary.into());
        }
        if let Some(bound) = self.find(domain)? {
            let (state, remedy) = (bound.state(), "there is nothing to do");
            return Err(BindError::State { domain: domain.clone(), state, remedy });
        }
        self.check_settled(domain)?;
        let (bindings, launch) = self.plan(domain, wanted)?;
        self.claim(&bindings, wanted.configuration, launch)
    }

    /// Returns the resources that the domain gets, next to those of the others, and how it is started. Its switches
    /// exist afterwards.
    pub(crate) fn plan(&self, domain: &Name, wanted: WantedDomains<'_>) -> Result<(Bindings, Launch), BindError> {
        let configuration = wanted.configuration;
        let (own, others): (Vec<Bindings>, Vec<Bindings>) =
            self.survey()?.holdings()?.into_iter().partition(|bindings| bindings.domain == *domain);
        let capacity = HostCapacity::look();
        let own = own.first();
        let constraints = configuration.domain(domain)?;
        let devices = match constraints.io.is_empty() {
            true => Vec::new(),
            false => HostIo::look(&self.world)?.devices(domain, constraints)?,
        };
        let known = own.map(|own| own.disks.as_slice()).unwrap_or_default();
        let disks = disk::bound_disks(domain, constraints, configuration, (known, self.is_arriving(domain)?), &others)?;
        let request = BindRequest {
            domain,
            configuration,
            capacity: &capacity,
            others: &others,
            own,
            devices,
            disks,
            is_free: &|port| self.is_free(port),
        };
        let bindings = plan::bindings(&request)?;
        let launch = self.launch(&bindings, wanted)?;
        let served = bindings.served.iter().map(|served| &served.switch);
        for switch in bindings.constraints.vnets.iter().map(|vnet| &vnet.switch).chain(served) {
            self.realize(switch, configuration)?;
        }
        Ok((bindings, launch))
    }

    /// Two batches: resources that stay while the domain is stopped and started, and QEMU.
    pub(crate) fn claim(
        &self,
        bindings: &Bindings,
        configuration: &Configuration,
        launch: Launch,
    ) -> Result<(), BindError> {
        let domain = &bindings.domain;
        let mut parts = self.device_steps(bindings)?;
        parts.extend(plan::nic_steps(bindings, configuration, SwitchAbilities::probe(), |switch| {
            self.uplink(switch, configuration)
        })?);
        let directory = self.directory(domain);
        let mut journal = Journal::<DomainStep>::create(&self.journals(), domain.as_str(), KIND, bindings)?;
        // It is removed with the journal, so it exists only if the journal does.
        directory::create_private(&directory).map_err(BindError::file("create", &directory))?;
        let mut site = self.site();
        let begin =
            vec![DomainStep::Begin(BeginDomain { directory: directory.clone() })].into_iter().chain(parts).collect();
        let mut built = journal.execute(begin, &mut site).map(drop);
        if built.is_ok() {
            built = journal.execute(vec![start_step(launch, bindings)], &mut site).map(drop);
        }
        if let Err(error) = built {
            // Steps that could not be undone stay in the journal; the next command that changes something retries them.
            self.undo_all(journal, &mut site, domain)?;
            return Err(BindError::Build { object: domain.clone(), error: Box::new(error) });
        }
        journal.keep()?;
        Ok(())
    }

    /// Returns the steps that take its devices.
    fn device_steps(&self, bindings: &Bindings) -> Result<Vec<DomainStep>, BindError> {
        let devices = &bindings.constraints.io;
        if devices.is_empty() {
            return Ok(Vec::new());
        }
        let host = HostIo::look(&self.world)?;
        let steps = devices.iter().map(|device| host.steps(&bindings.domain, device));
        Ok(steps.collect::<Result<Vec<_>, BindError>>()?.into_iter().flatten().collect())
    }

    /// Releases all of a domain's resources. It must not run.
    pub fn unbind(&self, domain: &Name) -> Result<(), BindError> {
        let bound = self.existing(domain)?;
        if bound.state() == DomainState::Active {
            let remedy = "stop it first (vtax ldm stop)";
            return Err(BindError::State { domain: domain.clone(), state: DomainState::Active, remedy });
        }
        self.check_settled(domain)?;
        supervisor_process::end(&self.directory(domain));
        self.end_renewal(domain);
        let journal = Journal::open(&self.journals(), domain.as_str())?;
        self.undo_all(journal, &mut self.site(), domain)
    }

    /// Starts a bound domain.
    pub fn start(&self, domain: &Name, wanted: WantedDomains<'_>) -> Result<(), BindError> {
        let bound = self.existing(domain)?;
        if bound.state() == DomainState::Active {
            let remedy = "there is nothing to do";
            return Err(BindError::State { domain: domain.clone(), state: DomainState::Active, remedy });
        }
        self.check_settled(domain)?;
        let is_changed = wanted.configuration.domain(domain)? != &bound.bindings.constraints;
        if is_changed {
            // The user who starts it can fix what is unavailable. A rebooting domain must continue with its current
            // resources.
            self.plan(domain, wanted)?;
        }
        if bound.qemu().is_none() || is_changed {
            // It has exited while unsupervised, or its constraints have changed.
            self.renew(domain, wanted, AfterRenewal::Stopped)?;
        }
        self.start_supervisor(domain)
    }

    /// Stops a running domain; it stays bound.
    pub fn stop(&self, domain: &Name, mode: StopMode, wanted: WantedDomains<'_>) -> Result<(), BindError> {
        let bound = self.existing(domain)?;
        if bound.state() == DomainState::Bound {
            let remedy = "there is nothing to do";
            return Err(BindError::State { domain: domain.clone(), state: bound.state(), remedy });
        }
        self.check_settled(domain)?;
        // The supervisor would mistake this for the domain's own shutdown.
        supervisor_process::end(&self.directory(domain));
        if let (StopMode::Orderly(patience) | StopMode::Shutdown(patience), Some(mut qemu)) =
            (mode, bound.qemu().filter(has_something_to_save))
        {
            // If the system or QEMU doesn't respond, it is killed.
            let is_asked = qemu.monitor(PATIENCE).and_then(|mut monitor| monitor.power_down()).is_ok();
            let is_down = is_asked && qemu.death(patience).is_some();
            if !is_down && mode == StopMode::Shutdown(patience) {
                self.supervise_again(&bound)?;
                return Err(BindError::NotShutDown { domain: domain.clone(), seconds: patience.as_secs() });
            }
        }
        self.renew(domain, wanted, AfterRenewal::Stopped)
    }

    /// Sends a running domain a non-maskable interrupt, which makes its kernel panic.
    pub fn panic(&self, domain: &Name) -> Result<(), BindError> {
        let (_, mut qemu) = self.active(domain)?;
        Ok(qemu.monitor(PATIENCE)?.inject_nmi()?)
    }

    pub(crate) fn launch(&self, bindings: &Bindings, wanted: WantedDomains<'_>) -> Result<Launch, BindError> {
        let domain = &bindings.domain;
        let system = bindings.constraints.system();
        let facts = Facts::gather(&self.world)?;
        let bridge = (!bindings.served.is_empty()).then(|| "bridge".to_owned());
        let drivers = DOMAIN_DRIVERS.map(str::to_owned).into_iter().chain(bridge).chain(facts.pci.guest_drivers());
        let drivers = drivers.collect::<Vec<_>>().join(",");
        let needs = GuestNeeds::new(wanted.agent, None).with_driver(&system, &drivers);
        let facts = facts.with_guests(&self.world, &needs);
        let unsupported = |unsupported| BindError::Unsupported { domain: domain.clone(), unsupported };
        let guests = facts.guests.expect("they were looked for");
        guests.tap.clone().map_err(unsupported)?;
        let qemu = guests.qemu.clone().map_err(unsupported)?;
        let boot = with_arguments(guests.boot(&system, &drivers).map_err(unsupported)?, bindings);
        let backend = guests.backend(&VirtioNic::default()).map_err(unsupported)?;
        let directory = self.directory(domain).join(QEMU);
        let engine = DomainEngine { engine: qemu.engine(boot), backend, directory };
        let launch = plan::launch(bindings, wanted.configuration, engine)?;
        Ok(Launch { lent: carried(&launch.boot), lent_later: true, ..launch })
    }

    /// Releases all resources of domains, whatever their state, and the links of all switches. A domain that can't be
    /// released doesn't prevent the others. Damaged records are renamed.
    pub fn release(&self) -> Result<Vec<KeptRecord>, BindError> {
        self.end_service();
        let kept = self.release_damaged(None)?;
        let survey = self.survey()?;
        let released: Vec<_> = survey.bound.iter().map(|bound| self.take_back(bound.name())).collect();
        released.into_iter().collect::<Result<(), BindError>>()?;
        survey.whole()?;
        self.remove_switches()?;
        if !damaged::has_kept(&self.journals()) && !damaged::has_kept(&self.switches()) {
            remove_folder(self.folder())?;
        }
        Ok(kept)
    }

    /// Releases all resources of one domain, whatever its state, or the link of a switch with a damaged record.
    pub fn release_one(&self, object: &Name) -> Result<Vec<KeptRecord>, BindError> {
        let kept = self.release_damaged(Some(object))?;
        if kept.is_empty() {
            self.existing(object)?;
            self.take_back(object)?;
        }
        Ok(kept)
    }

    /// Releases all resources of a domain, whatever its state.
    pub(crate) fn take_back(&self, domain: &Name) -> Result<(), BindError> {
        supervisor_process::end(&self.directory(domain));
        self.end_renewal(domain);
        self.end_qemu(domain)?;
        let journal = Journal::open(&self.journals(), domain.as_str())?;
        self.undo_all(journal, &mut self.site(), domain)
    }
}

/// Creates the directory that a domain sees if it has no programs: files can be put there later. A domain is bound even
/// without it.
fn carried(boot: &Boot) -> Option<PathBuf> {
    let is_bare = matches!(boot, Boot::Kernel { .. });
    is_bare.then(|| image::carried().ok()).flatten()
}

/// A missing file is not an error.
pub(crate) fn remove_folder(folder: &Path) -> Result<(), BindError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(BindError::file("remove", folder)(error)),
        _ => Ok(()),
    }
}

pub(crate) fn start_step(launch: Launch, bindings: &Bindings) -> DomainStep {
    let pins = GuestPins::of(&bindings.size());
    DomainStep::StartGuest(StartGuest { host: None, launch: Box::new(launch), pins })
}

/// A domain without an image has only memory, and no power button.
fn has_something_to_save(qemu: &Qemu) -> bool {
    matches!(qemu.launch().boot, Boot::Disk { .. })
}

/// Adds the user's kernel parameters, and those that describe the switches that the domain serves to the agent.
fn with_arguments(boot: Boot, bindings: &Bindings) -> Boot {
    match boot {
        Boot::Kernel { kernel, initramfs, mut append } => {
            let own = bindings.constraints.variables.get(&Variable::BootArgs);
            append.extend(own.iter().flat_map(|words| words.split_whitespace()).map(str::to_owned));
            append.extend(bindings.served.iter().map(ServedSwitch::for_kernel));
            Boot::Kernel { kernel, initramfs, append }
        }
        disk @ Boot::Disk { .. } => disk,
    }
}
