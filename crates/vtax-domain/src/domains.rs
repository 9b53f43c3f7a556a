//! What is done with domains: bind, start, stop, unbind.
//!
//! [`LockedDomains`] changes them, so that two commands at once take turns. What a domain gets is
//! claimed through its journal: all of it, or nothing.

use std::{
    env,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

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

use crate::{
    bindings::{Bindings, ServedSwitch},
    bound::{BoundDomain, Started},
    capacity::HostCapacity,
    damaged::{self, KeptRecord},
    disk,
    error::BindError,
    host_io::HostIo,
    locked::{LockedDomains, WantedDomains},
    plan::{self, BindRequest, DomainEngine},
    renewal::AfterRenewal,
    site::DomainSite,
    step::DomainStep,
    supervisor_process,
    switch::SwitchAbilities,
};

const KIND: &str = "domain";
/// The folder of QEMU's files in that of a domain.
pub(crate) const QEMU: &str = "qemu";

/// The domains of this host that are bound.
#[derive(Debug, Clone)]
pub struct Domains {
    world: World,
    folder: PathBuf,
    ldm: Vec<OsString>,
}

/// How a domain is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Its system is asked to shut down, and has so much time for it. Then it is stopped.
    Orderly(Duration),
    /// Its system is asked to shut down. If it hasn't after so much time, it runs on.
    Shutdown(Duration),
    /// At once.
    Hard,
}

impl StopMode {
    /// Time that a system has to shut down, if nobody says otherwise.
    pub const PATIENCE: Duration = Duration::from_secs(60);
}

impl Domains {
    /// The bound domains of the host whose run-time files are in `name` below the user's. `ldm` are the words
    /// by which this program acts on the same host; the verb follows.
    pub fn new(world: &World, name: &str, ldm: Vec<OsString>) -> Domains {
        Domains { world: world.clone(), folder: world.folder(name), ldm }
    }

    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    /// This program with a verb of `ldm` on the same host.
    pub(crate) fn command(&self, verb: &[&str]) -> io::Result<Command> {
        let mut command = Command::new(env::current_exe()?);
        command.args(&self.ldm).args(verb);
        Ok(command)
    }

    /// Starts a supervisor, and with it the domain.
    pub(crate) fn start_supervisor(&self, domain: &Name) -> Result<(), BindError> {
        supervisor_process::start(domain, self.command(&["supervise", domain.as_str()]))
    }

    /// The folder of all run-time files.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn journals(&self) -> PathBuf {
        self.folder.join("journals")
    }

    pub(crate) fn switches(&self) -> PathBuf {
        self.folder.join("switches")
    }

    /// Where the files of a domain are.
    pub(crate) fn directory(&self, domain: &Name) -> PathBuf {
        self.folder.join(domain.as_str())
    }

    /// All domains that are bound, by name. It is an error if what one of them has isn't known; [`Domains::survey`] leaves it
    /// out.
    pub fn bound(&self) -> Result<Vec<BoundDomain>, BindError> {
        self.survey()?.whole()
    }

    /// When a domain was bound or unbound the last time. None if none ever was.
    pub fn changed(&self) -> Option<SystemTime> {
        fs::metadata(self.journals()).and_then(|found| found.modified()).ok()
    }

    /// Where what a domain prints on its console is kept.
    pub fn console_log(&self, domain: &Name) -> PathBuf {
        self.directory(domain).join("console.log")
    }

    /// The bound domain of this name.
    pub fn find(&self, domain: &Name) -> Result<Option<BoundDomain>, BindError> {
        if !self.journals().exists() {
            return Ok(None);
        }
        let snapshot = Snapshot::read(&self.journals(), domain.as_str());
        match snapshot.and_then(|snapshot| BoundDomain::of(snapshot, &self.folder)) {
            Ok(bound) => Ok(Some(bound)),
            Err(JournalError::Missing { .. }) => Ok(None),
            Err(error) => Err(BindError::Unreadable { object: domain.clone(), error }),
        }
    }

    /// The domain, which must be bound.
    pub fn existing(&self, domain: &Name) -> Result<BoundDomain, BindError> {
        self.find(domain)?.ok_or_else(|| BindError::State {
            domain: domain.clone(),
            state: DomainState::Inactive,
            remedy: "bind it first (vtax ldm bind)",
        })
    }

    /// The domain, which must run, and its QEMU.
    pub fn active(&self, domain: &Name) -> Result<(BoundDomain, Qemu), BindError> {
        let found = self.find(domain)?;
        let state = found.as_ref().map_or(DomainState::Inactive, BoundDomain::state);
        let running = found.filter(|_| state == DomainState::Active).and_then(|bound| Some((bound.qemu()?, bound)));
        let remedy = match state {
            DomainState::Active => "its system reboots; try again in a moment",
            DomainState::Inactive => "bind and start it first (vtax ldm bind, vtax ldm start)",
            _ => "start it first (vtax ldm start)",
        };
        let (qemu, bound) = running.ok_or_else(|| BindError::State { domain: domain.clone(), state, remedy })?;
        Ok((bound, qemu))
    }

    /// Lets the CPUs of a domain run whose QEMU has just been started. The supervisor calls this.
    pub(crate) fn run(&self, domain: &Name) -> Result<(), BindError> {
        let bound = self.existing(domain)?;
        let Some(mut qemu) = bound.qemu() else {
            return Err(BindError::Supervisor { domain: domain.clone(), why: "finds no QEMU that runs".to_owned() });
        };
        let mut monitor = qemu.monitor(PATIENCE)?;
        if monitor.status()?.is_starting() {
            // If vtax is killed here, the next supervisor finds that the domain is to run.
            Started::now().write(&self.directory(domain))?;
            let _ = fs::remove_file(supervisor_process::reboot_loop(&self.directory(domain)));
            monitor.resume()?;
        }
        Ok(())
    }
}

impl LockedDomains<'_> {
    /// Takes back all that a domain has, and removes its files.
    pub(crate) fn undo_all(
        &self,
        journal: Journal<DomainStep>,
        site: &mut DomainSite,
        domain: &Name,
    ) -> Result<(), BindError> {
        let directory = self.directory(domain);
        journal.undo(site).map_err(Box::new)?;
        remove_folder(&directory)
    }

    /// Gives a domain all that it is to have. If something can't be had, it gets nothing.
    pub fn bind(&self, domain: &Name, wanted: WantedDomains<'_>) -> Result<(), BindError> {
        wanted.configuration.domain(domain)?;
        if domain.as_str() == PRIMARY {
            return Err(DomainError::Primary.into());
        }
        if let Some(bound) = self.find(domain)? {
            let (state, remedy) = (bound.state(), "there is nothing to do");
            return Err(BindError::State { domain: domain.clone(), state, remedy });
        }
        let (bindings, launch) = self.plan(domain, wanted)?;
        self.claim(&bindings, wanted.configuration, launch)
    }

    /// What the domain gets, beside what others have, and how it is started. Its switches are there afterwards.
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
        let disks = disk::bound_disks(domain, constraints, configuration, known, &others)?;
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

    /// Two batches: what stays while the domain is stopped and started, and QEMU.
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
        // It is removed with the journal, so it is there only if that is.
        fs::create_dir_all(&directory).map_err(BindError::file("create", &directory))?;
        let mut site = DomainSite::open()?;
        let begin = vec![DomainStep::Begin { directory: directory.clone() }].into_iter().chain(parts).collect();
        let mut built = journal.execute(begin, &mut site).map(drop);
        if built.is_ok() {
            built = journal.execute(vec![start_step(launch, bindings)], &mut site).map(drop);
        }
        if let Err(error) = built {
            // What could not be undone stays in the journal; the next command that changes something tries it again.
            self.undo_all(journal, &mut site, domain)?;
            return Err(BindError::Build { object: domain.clone(), error: Box::new(error) });
        }
        journal.keep()?;
        Ok(())
    }

    /// What takes its devices.
    fn device_steps(&self, bindings: &Bindings) -> Result<Vec<DomainStep>, BindError> {
        let devices = &bindings.constraints.io;
        if devices.is_empty() {
            return Ok(Vec::new());
        }
        let host = HostIo::look(&self.world)?;
        let steps = devices.iter().map(|device| host.steps(&bindings.domain, device));
        Ok(steps.collect::<Result<Vec<_>, BindError>>()?.into_iter().flatten().collect())
    }

    /// Takes back all that a domain has. It must not run.
    pub fn unbind(&self, domain: &Name) -> Result<(), BindError> {
        let bound = self.existing(domain)?;
        if bound.state() == DomainState::Active {
            let remedy = "stop it first (vtax ldm stop)";
            return Err(BindError::State { domain: domain.clone(), state: DomainState::Active, remedy });
        }
        supervisor_process::end(&self.directory(domain));
        self.end_renewal(domain);
        let journal = Journal::open(&self.journals(), domain.as_str())?;
        self.undo_all(journal, &mut DomainSite::open()?, domain)
    }

    /// Starts a domain that is bound.
    pub fn start(&self, domain: &Name, wanted: WantedDomains<'_>) -> Result<(), BindError> {
        let bound = self.existing(domain)?;
        if bound.state() == DomainState::Active {
            let remedy = "there is nothing to do";
            return Err(BindError::State { domain: domain.clone(), state: DomainState::Active, remedy });
        }
        let is_changed = wanted.configuration.domain(domain)? != &bound.bindings.constraints;
        if is_changed {
            // Who starts it can mend what can't be had. A domain that boots again has to go on with what it has.
            self.plan(domain, wanted)?;
        }
        if bound.qemu().is_none() || is_changed {
            // It has ended by itself while nobody watched it, or is to have something else than it has.
            self.renew(domain, wanted, AfterRenewal::Stopped)?;
        }
        self.start_supervisor(domain)
    }

    /// Stops a domain that runs; it stays bound.
    pub fn stop(&self, domain: &Name, mode: StopMode, wanted: WantedDomains<'_>) -> Result<(), BindError> {
        let bound = self.existing(domain)?;
        if bound.state() == DomainState::Bound {
            let remedy = "there is nothing to do";
            return Err(BindError::State { domain: domain.clone(), state: bound.state(), remedy });
        }
        // The supervisor would take the end for the domain's own.
        supervisor_process::end(&self.directory(domain));
        if let (StopMode::Orderly(patience) | StopMode::Shutdown(patience), Some(mut qemu)) =
            (mode, bound.qemu().filter(has_something_to_save))
        {
            // If the system or QEMU doesn't listen, it is stopped hard.
            let is_asked = qemu.monitor(PATIENCE).and_then(|mut monitor| monitor.power_down()).is_ok();
            let is_down = is_asked && qemu.death(patience).is_some();
            if !is_down && mode == StopMode::Shutdown(patience) {
                self.supervise_again(&bound)?;
                return Err(BindError::NotShutDown { domain: domain.clone(), seconds: patience.as_secs() });
            }
        }
        self.renew(domain, wanted, AfterRenewal::Stopped)
    }

    /// Sends a domain that runs a non-maskable interrupt, at which its kernel panics.
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

    /// Takes back all that domains have, whatever they do at the moment, and the links of all switches. A domain that
    /// can't be taken back keeps no other from it. Damaged records are kept under other names.
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

    /// Takes back all that one domain has, whatever it does at the moment, or the link of a switch whose record is damaged.
    pub fn release_one(&self, object: &Name) -> Result<Vec<KeptRecord>, BindError> {
        let kept = self.release_damaged(Some(object))?;
        if kept.is_empty() {
            self.existing(object)?;
            self.take_back(object)?;
        }
        Ok(kept)
    }

    fn take_back(&self, domain: &Name) -> Result<(), BindError> {
        supervisor_process::end(&self.directory(domain));
        self.end_renewal(domain);
        self.end_qemu(domain)?;
        let journal = Journal::open(&self.journals(), domain.as_str())?;
        self.undo_all(journal, &mut DomainSite::open()?, domain)
    }
}

/// The folder that a domain sees if it has no programs of its own: what is carried into it later is there. A domain is bound
/// without it too.
fn carried(boot: &Boot) -> Option<PathBuf> {
    let is_bare = matches!(boot, Boot::Kernel { .. });
    is_bare.then(|| image::carried().ok()).flatten()
}

/// It is no error if there is none.
pub(crate) fn remove_folder(folder: &Path) -> Result<(), BindError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(BindError::file("remove", folder)(error)),
        _ => Ok(()),
    }
}

pub(crate) fn start_step(launch: Launch, bindings: &Bindings) -> DomainStep {
    DomainStep::StartGuest { launch: Box::new(launch), pins: GuestPins::of(&bindings.size()) }
}

/// A domain without an image has only memory, and no power button either.
fn has_something_to_save(qemu: &Qemu) -> bool {
    matches!(qemu.launch().boot, Boot::Disk { .. })
}

/// Adds the parameters that the user has given the kernel, and those by which the agent knows the switches that the domain
/// serves.
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
