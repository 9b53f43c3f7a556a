//! What is done with domains: bind, start, stop, unbind.
//!
//! Whoever changes something holds the lock of the store, so that two commands at once take turns. What a domain gets is
//! claimed through its journal: all of it, or nothing.

use std::{
    ffi::OsString,
    fs::{self, File, TryLockError},
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use vtax_guest::{
    home::remove_of,
    launch::{Boot, Launch},
    process::{Qemu, end_below},
};
use vtax_journal::{Batch, BatchState, Journal, JournalError, Opened, Snapshot, scan};
use vtax_lab::{Facts, GuestNeeds, World};
use vtax_model::{
    domain::{Configuration, Constraints, DomainState, PRIMARY, Switch, Variable},
    guest::{Backend, System},
    topology::Name,
    units::Mtu,
};

use vtax_sys::process::{Pid, ProcessId, Signal};

use crate::{
    bindings::Bindings,
    bound::{BoundDomain, Started},
    capacity::HostCapacity,
    error::BindError,
    plan::{self, BindRequest, GuestEngine},
    site::DomainSite,
    step::{DomainStep, PortVlanSet},
    supervisor::{self, SuperviseWords},
    switch::{self, SwitchAbilities},
};

const KIND: &str = "domain";
/// The folder of QEMU's files in that of a domain.
const QEMU: &str = "qemu";
/// The file with the process of the console service, which holds its lock.
const SERVICE: &str = "vntsd";
/// The module of a virtio NIC.
const DRIVER: &str = "virtio_net";
/// QEMU answers at its monitor within this time.
const ANSWER: Duration = Duration::from_secs(10);
/// A guest's system shuts down within this time, or is stopped hard.
const SHUTDOWN: Duration = Duration::from_secs(60);

/// The domains of this host that are bound.
#[derive(Debug, Clone)]
pub struct Domains {
    world: World,
    folder: PathBuf,
    supervise: SuperviseWords,
}

/// How a domain is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Its system is asked to shut down.
    Orderly,
    /// At once.
    Hard,
}

impl Domains {
    /// The bound domains of the host whose run-time files are in `name` below the user's. `supervise` are the words
    /// by which this program supervises a domain, whose name follows.
    pub fn new(world: &World, name: &str, supervise: Vec<OsString>) -> Domains {
        Domains { world: world.clone(), folder: world.folder(name), supervise }
    }

    pub(crate) fn supervise(&self) -> &SuperviseWords {
        &self.supervise
    }

    pub(crate) fn journals(&self) -> PathBuf {
        self.folder.join("journals")
    }

    fn switches(&self) -> PathBuf {
        self.folder.join("switches")
    }

    /// Where the files of a domain are.
    pub(crate) fn directory(&self, domain: &Name) -> PathBuf {
        self.folder.join(domain.as_str())
    }

    /// All domains that are bound, by name.
    pub fn bound(&self) -> Result<Vec<BoundDomain>, BindError> {
        if !self.journals().exists() {
            return Ok(Vec::new());
        }
        let found = scan::<DomainStep>(&self.journals())?;
        Ok(found.into_iter().filter_map(|(_, snapshot)| BoundDomain::of(snapshot.ok()?, &self.folder)).collect())
    }

    /// When a domain was bound or unbound the last time. None if none ever was.
    pub fn changed(&self) -> Option<SystemTime> {
        fs::metadata(self.journals()).and_then(|found| found.modified()).ok()
    }

    /// Where what a domain prints on its console is kept.
    pub fn console_log(&self, domain: &Name) -> PathBuf {
        self.directory(domain).join("console.log")
    }

    /// The right to be the console service of this host, as long as the file is open. None if another process has it.
    pub fn lock_service(&self) -> Result<Option<File>, BindError> {
        fs::create_dir_all(&self.folder).map_err(BindError::file("create", &self.folder))?;
        let path = self.folder.join(SERVICE);
        let file = File::options().write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(BindError::file("open", &path))?;
        match file.try_lock() {
            Ok(()) => {
                let own = ProcessId::of(Pid::own()).map_err(BindError::kernel("the console service"))?;
                fs::write(&path, own.to_string()).map_err(BindError::file("write", &path))?;
                Ok(Some(file))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(BindError::file("lock", &path)(error)),
        }
    }

    fn end_service(&self) {
        let process = fs::read_to_string(self.folder.join(SERVICE)).ok();
        if let Some(process) = process.and_then(|text| text.trim().parse::<ProcessId>().ok()) {
            // It may have ended by itself.
            let _ = process.signal(Signal::KILL);
            let _ = process.wait_end(ANSWER);
        }
    }

    /// The bound domain of this name.
    pub fn find(&self, domain: &Name) -> Result<Option<BoundDomain>, BindError> {
        if !self.journals().exists() {
            return Ok(None);
        }
        match Snapshot::read(&self.journals(), domain.as_str()) {
            Ok(snapshot) => Ok(BoundDomain::of(snapshot, &self.folder)),
            Err(JournalError::Missing { .. }) => Ok(None),
            Err(error) => Err(error.into()),
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

    /// Removes what a killed vtax has left half done. The caller holds the store's lock, so nobody is at work.
    pub fn clean(&self) -> Result<(), BindError> {
        self.clean_damaged(&self.journals(), Domains::remove_marked_domain)?;
        self.clean_damaged(&self.switches(), |_, object, site| site.remove_marked(object))?;
        for bound in self.bound()?.into_iter().filter(|bound| bound.is_abandoned) {
            self.mend(bound.name())?;
        }
        for bound in self.bound()?.into_iter().filter(|bound| bound.state() == DomainState::Active) {
            if supervisor::living(&self.directory(bound.name())).is_none() {
                supervisor::start(self, bound.name())?;
            }
        }
        Ok(())
    }

    /// Removes by its marks what a journal says that can't be read. The journal is kept under another name.
    fn clean_damaged(
        &self,
        journals: &Path,
        remove: impl Fn(&Domains, &Name, &mut DomainSite) -> Result<(), BindError>,
    ) -> Result<(), BindError> {
        if !journals.exists() {
            return Ok(());
        }
        for (id, snapshot) in scan::<DomainStep>(journals)? {
            let (Err(JournalError::Corrupt { .. }), Ok(object)) = (snapshot, id.parse::<Name>()) else { continue };
            if let Opened::Damaged(damaged) = Journal::<DomainStep>::open_any(journals, &id)? {
                remove(self, &object, &mut DomainSite::open()?)?;
                damaged.set_aside()?;
            }
        }
        Ok(())
    }

    fn remove_marked_domain(&self, domain: &Name, site: &mut DomainSite) -> Result<(), BindError> {
        let directory = self.directory(domain);
        supervisor::end(&directory);
        end_below(&directory).map_err(BindError::kernel(domain))?;
        remove_of(domain, &directory.join(QEMU))?;
        site.remove_marked(domain)?;
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(BindError::file("remove", &directory)(error))
            }
            _ => Ok(()),
        }
    }

    /// Undoes the batches that somebody was interrupted in. If the first one is among them, the domain is inactive.
    fn mend(&self, domain: &Name) -> Result<(), BindError> {
        let mut journal = Journal::<DomainStep>::open(&self.journals(), domain.as_str())?;
        let mut site = DomainSite::open()?;
        let first_is_whole =
            journal.batches().next().is_some_and(|batch| !batch.is_abandoned() && has_ended(&batch) == Some(false));
        if !first_is_whole {
            return self.undo_all(journal, &mut site, domain);
        }
        let abandoned: Vec<_> = journal.batches().rev().filter(Batch::is_abandoned).map(|batch| batch.id).collect();
        for batch in abandoned {
            journal.undo_batch(batch, &mut site).map_err(Box::new)?;
        }
        journal.keep()?;
        Ok(())
    }

    /// Takes back all that a domain has, and removes its files.
    fn undo_all(&self, journal: Journal<DomainStep>, site: &mut DomainSite, domain: &Name) -> Result<(), BindError> {
        let directory = self.directory(domain);
        journal.undo(site).map_err(Box::new)?;
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(BindError::file("remove", &directory)(error))
            }
            _ => Ok(()),
        }
    }

    /// Gives a domain all that it is to have. If something can't be had, it gets nothing.
    pub fn bind(&self, domain: &Name, configuration: &Configuration, agent: &Path) -> Result<(), BindError> {
        configuration.domain(domain)?;
        if domain.as_str() == PRIMARY {
            return Err(vtax_model::domain::DomainError::Primary.into());
        }
        self.clean()?;
        if let Some(bound) = self.find(domain)? {
            let (state, remedy) = (bound.state(), "there is nothing to do");
            return Err(BindError::State { domain: domain.clone(), state, remedy });
        }
        let (bindings, launch) = self.plan(domain, configuration, agent)?;
        self.claim(&bindings, plan::nic_steps(&bindings, configuration, SwitchAbilities::probe())?, launch)
    }

    /// What the domain gets, beside what others have, and how it is started. Its switches are there afterwards.
    fn plan(
        &self,
        domain: &Name,
        configuration: &Configuration,
        agent: &Path,
    ) -> Result<(Bindings, Launch), BindError> {
        let (own, others): (Vec<Bindings>, Vec<Bindings>) =
            self.bound()?.into_iter().map(|bound| bound.bindings).partition(|bindings| bindings.domain == *domain);
        let capacity = HostCapacity::look();
        let own = own.first();
        let request =
            BindRequest { domain, configuration, capacity: &capacity, others: &others, own, is_free: &is_free };
        let bindings = plan::bindings(&request)?;
        let launch = self.launch(&bindings, configuration, agent)?;
        for vnet in &bindings.constraints.vnets {
            self.realize(&vnet.switch, configuration)?;
        }
        Ok((bindings, launch))
    }

    /// Two batches: what stays while the domain is stopped and started, and QEMU.
    fn claim(&self, bindings: &Bindings, nics: Vec<DomainStep>, launch: Launch) -> Result<(), BindError> {
        let domain = &bindings.domain;
        let directory = self.directory(domain);
        fs::create_dir_all(&directory).map_err(BindError::file("create", &directory))?;
        let mut journal = Journal::<DomainStep>::create(&self.journals(), domain.as_str(), KIND, bindings)?;
        let mut site = DomainSite::open()?;
        let begin = vec![DomainStep::Begin { directory: directory.clone() }].into_iter().chain(nics).collect();
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

    /// Takes back all that a domain has. It must not run.
    pub fn unbind(&self, domain: &Name) -> Result<(), BindError> {
        self.clean()?;
        let bound = self.existing(domain)?;
        if bound.state() == DomainState::Active {
            let remedy = "stop it first (vtax ldm stop)";
            return Err(BindError::State { domain: domain.clone(), state: DomainState::Active, remedy });
        }
        supervisor::end(&self.directory(domain));
        let journal = Journal::open(&self.journals(), domain.as_str())?;
        self.undo_all(journal, &mut DomainSite::open()?, domain)
    }

    /// Starts a domain that is bound.
    pub fn start(&self, domain: &Name, configuration: &Configuration, agent: &Path) -> Result<(), BindError> {
        self.clean()?;
        let bound = self.existing(domain)?;
        if bound.state() == DomainState::Active {
            let remedy = "there is nothing to do";
            return Err(BindError::State { domain: domain.clone(), state: DomainState::Active, remedy });
        }
        let is_changed = configuration.domain(domain)? != &bound.bindings.constraints;
        if bound.qemu().is_none() || is_changed {
            // It has ended by itself while nobody watched it, or is to have something else than it has.
            self.renew(domain, configuration, agent)?;
        }
        supervisor::start(self, domain)
    }

    /// Lets the CPUs of a bound domain run. The supervisor calls this.
    pub(crate) fn run(&self, domain: &Name) -> Result<(), BindError> {
        let bound = self.existing(domain)?;
        let Some(mut qemu) = bound.qemu() else {
            return Err(BindError::Supervisor { domain: domain.clone(), why: "finds no QEMU that runs".to_owned() });
        };
        Started::now().write(&self.directory(domain))?;
        qemu.monitor(ANSWER)?.resume()?;
        Ok(())
    }

    /// Stops a domain that runs; it stays bound.
    pub fn stop(
        &self,
        domain: &Name,
        mode: StopMode,
        configuration: &Configuration,
        agent: &Path,
    ) -> Result<(), BindError> {
        self.clean()?;
        let bound = self.existing(domain)?;
        if bound.state() != DomainState::Active {
            let remedy = "there is nothing to do";
            return Err(BindError::State { domain: domain.clone(), state: bound.state(), remedy });
        }
        // The supervisor would take the end for the domain's own.
        supervisor::end(&self.directory(domain));
        if let (StopMode::Orderly, Some(mut qemu)) = (mode, bound.qemu().filter(has_something_to_save)) {
            // If the system doesn't listen, it is stopped hard.
            if qemu.monitor(ANSWER)?.power_down().is_ok() {
                let _ = qemu.death(SHUTDOWN);
            }
        }
        self.renew(domain, configuration, agent)
    }

    /// Ends the domain's QEMU, and starts another one with its CPUs stopped. It has what the domain is to have now.
    pub(crate) fn renew(&self, domain: &Name, configuration: &Configuration, agent: &Path) -> Result<(), BindError> {
        let bindings = self.existing(domain)?.bindings;
        if configuration.domain(domain)? != &bindings.constraints
            && let Ok((pending, launch)) = self.plan(domain, configuration, agent)
        {
            // The files of its console and supervisor stay.
            Started::remove(&self.directory(domain));
            let journal = Journal::<DomainStep>::open(&self.journals(), domain.as_str())?;
            journal.undo(&mut DomainSite::open()?).map_err(Box::new)?;
            return self.claim(&pending, plan::nic_steps(&pending, configuration, SwitchAbilities::probe())?, launch);
        }
        let launch = self.launch(&bindings, configuration, agent)?;
        Started::remove(&self.directory(domain));
        let mut journal = Journal::<DomainStep>::open(&self.journals(), domain.as_str())?;
        let mut site = DomainSite::open()?;
        let running: Vec<_> = journal
            .batches()
            .skip(1)
            .filter(|batch| batch.state() != BatchState::Undone)
            .map(|batch| batch.id)
            .collect();
        for batch in running.into_iter().rev() {
            journal.undo_batch(batch, &mut site).map_err(Box::new)?;
        }
        let started = journal.execute(vec![start_step(launch, &bindings)], &mut site);
        started.map_err(|error| BindError::Build { object: domain.clone(), error: Box::new(error) })?;
        journal.keep()?;
        Ok(())
    }

    fn launch(&self, bindings: &Bindings, configuration: &Configuration, agent: &Path) -> Result<Launch, BindError> {
        let domain = &bindings.domain;
        let system = system(&bindings.constraints);
        let needs = GuestNeeds::new(agent, None).with_driver(&system, DRIVER);
        let facts = Facts::gather(&self.world)?.with_guests(&self.world, &needs);
        let unsupported = |unsupported| BindError::Unsupported { domain: domain.clone(), unsupported };
        let guests = facts.guests.expect("they were looked for");
        guests.tap.clone().map_err(unsupported)?;
        let qemu = guests.qemu.clone().map_err(unsupported)?;
        let boot = with_arguments(guests.boot(&system, DRIVER).map_err(unsupported)?, &bindings.constraints);
        let backend = if guests.vhost.is_ok() { Backend::Vhost } else { Backend::Userspace };
        let directory = self.directory(domain).join(QEMU);
        let engine = GuestEngine { qemu: qemu.program, accel: qemu.accel, backend, boot, directory };
        plan::launch(bindings, configuration, engine)
    }

    /// How many frames each NIC of a domain has sent from an address that isn't its own. They were dropped. Empty if this
    /// kernel's switches don't guard addresses.
    pub fn dropped(&self, bindings: &Bindings) -> Result<Vec<(Name, u64)>, BindError> {
        let mut site = DomainSite::open()?;
        let mut dropped = Vec::new();
        for nic in &bindings.nics {
            let of_switch = site.dropped(&nic.switch)?;
            let own = of_switch.into_iter().find(|(port, _)| port.as_str() == nic.tap);
            dropped.extend(own.map(|(_, dropped)| (nic.vnet.clone(), dropped.frames)));
        }
        Ok(dropped)
    }

    /// Makes the switch of the host as the configuration has it now.
    pub fn follow_switch(&self, name: &Name, was: &Configuration, now: &Configuration) -> Result<(), BindError> {
        match (was.switches.get(name), now.switches.get(name)) {
            (_, None) => self.remove_switch(name),
            (None, Some(_)) => self.realize(name, now),
            (Some(was), Some(_)) => self.change_switch(name, was, now),
        }
    }

    /// Takes back all that domains have, whatever they do at the moment, and the links of all switches.
    pub fn release(&self) -> Result<(), BindError> {
        self.end_service();
        self.clean_damaged(&self.journals(), Domains::remove_marked_domain)?;
        self.clean_damaged(&self.switches(), |_, object, site| site.remove_marked(object))?;
        for bound in self.bound()? {
            supervisor::end(&self.directory(bound.name()));
            let journal = Journal::open(&self.journals(), bound.name().as_str())?;
            self.undo_all(journal, &mut DomainSite::open()?, bound.name())?;
        }
        if self.switches().exists() {
            for (name, _) in scan::<DomainStep>(&self.switches())? {
                name.parse().map_or(Ok(()), |name| self.remove_switch(&name))?;
            }
        }
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(BindError::file("remove", &self.folder)(error))
            }
            _ => Ok(()),
        }
    }

    /// Makes the link of a switch, if it isn't there yet.
    pub(crate) fn realize(&self, name: &Name, configuration: &Configuration) -> Result<(), BindError> {
        let wanted = configuration.switch(name)?;
        let abilities = SwitchAbilities::probe();
        abilities.check(name, configuration)?;
        let link = switch::link_name(name);
        let mut site = DomainSite::open()?;
        let is_ours = self.switches().join(format!("{name}.journal")).exists();
        match site.link(&link)? {
            Some(_) if is_ours => return Ok(()),
            Some(_) => return Err(BindError::LinkName { link }),
            // It was removed by somebody else.
            None if is_ours => self.remove_switch(name)?,
            None => {}
        }
        let own = PortVlanSet { pvid: wanted.pvid, vids: wanted.vids.clone() };
        let outside =
            PortVlanSet { pvid: wanted.default_vlan, vids: own.vids.iter().copied().chain([own.pvid]).collect() };
        let mut steps = vec![DomainStep::CreateSwitch {
            link: link.clone(),
            mac: wanted.mac,
            mtu: wanted.mtu,
            mark: switch::mark(name),
            vlans: abilities.vlans.then_some(own),
            guards_addresses: abilities.guards_addresses,
        }];
        if let Some(uplink) = &wanted.net_dev {
            let was_up = site.check_uplink(uplink, wanted.mtu)?;
            let vlans = abilities.vlans.then_some(outside);
            steps.push(DomainStep::TakeUplink { link: uplink.clone(), switch: link, was_up, vlans });
        }
        let mut journal = Journal::<DomainStep>::create(&self.switches(), name.as_str(), "switch", wanted)?;
        if let Err(error) = journal.execute(steps, &mut site) {
            journal.undo(&mut site).map_err(Box::new)?;
            return Err(BindError::Build { object: name.clone(), error: Box::new(error) });
        }
        journal.keep()?;
        Ok(())
    }

    /// Removes the link of a switch, and gives the host's link back.
    fn remove_switch(&self, name: &Name) -> Result<(), BindError> {
        if !self.switches().exists() {
            return Ok(());
        }
        match Journal::<DomainStep>::open(&self.switches(), name.as_str()) {
            Ok(journal) => journal.undo(&mut DomainSite::open()?).map(drop).map_err(|errors| Box::new(errors).into()),
            Err(JournalError::Missing { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the switch as it was changed. Its link to the outside is another one, or the MTU.
    fn change_switch(&self, name: &Name, was: &Switch, configuration: &Configuration) -> Result<(), BindError> {
        let wanted = configuration.switch(name)?;
        let link = switch::link_name(name);
        let mut site = DomainSite::open()?;
        if site.link(&link)?.is_none() {
            return self.realize(name, configuration);
        }
        let same = |one: &Switch, other: &Switch| Switch { mtu: one.mtu, ..other.clone() } == *one;
        if !same(was, wanted) {
            let users =
                self.bound()?.into_iter().filter(|bound| bound.bindings.nics.iter().any(|nic| nic.switch == link));
            if let Some(user) = users.into_iter().next() {
                let remedy = "stop and unbind it first: its switch is to be made anew";
                return Err(BindError::State { domain: user.name().clone(), state: user.state(), remedy });
            }
            self.remove_switch(name)?;
            return self.realize(name, configuration);
        }
        if let Some(uplink) = &wanted.net_dev {
            site.check_mtu(uplink, wanted.mtu)?;
        }
        self.set_mtus(name, configuration, &mut site)
    }

    /// The MTU of a switch reaches the host's ends of its vnets at once, and the domains when they boot again.
    fn set_mtus(&self, name: &Name, configuration: &Configuration, site: &mut DomainSite) -> Result<(), BindError> {
        let wanted = configuration.switch(name)?;
        let link = switch::link_name(name);
        for bound in self.bound()? {
            for nic in bound.bindings.nics.iter().filter(|nic| nic.switch == link) {
                let vnet = configuration.vnet(bound.name(), &nic.vnet).ok();
                let mtu: Mtu = vnet.map_or(wanted.mtu, |vnet| vnet.mtu_on(wanted));
                site.set_mtu(&nic.tap, mtu)?;
            }
        }
        site.set_mtu(&link, wanted.mtu)
    }
}

fn start_step(launch: Launch, bindings: &Bindings) -> DomainStep {
    DomainStep::StartGuest { launch: Box::new(launch), pins: bindings.pins() }
}

/// A domain without an image has only memory, and no power button either.
fn has_something_to_save(qemu: &Qemu) -> bool {
    matches!(qemu.launch().boot, Boot::Disk { .. })
}

/// None if the batch is partly undone.
fn has_ended(batch: &Batch<'_, DomainStep>) -> Option<bool> {
    match batch.state() {
        BatchState::Done => Some(false),
        BatchState::Undone => Some(true),
        BatchState::Partial => None,
    }
}

/// What the domain boots.
fn system(constraints: &Constraints) -> System {
    let path = |variable| constraints.variables.get(&variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    match path(Variable::Image) {
        Some(image) => System::Disk { image },
        None => System::Own { kernel: path(Variable::Kernel) },
    }
}

/// Adds the parameters that the user has given the kernel.
fn with_arguments(boot: Boot, constraints: &Constraints) -> Boot {
    match (boot, constraints.variables.get(&Variable::BootArgs)) {
        (Boot::Kernel { kernel, initramfs, mut append }, Some(arguments)) => {
            append.extend(arguments.split_whitespace().map(str::to_owned));
            Boot::Kernel { kernel, initramfs, append }
        }
        (boot, _) => boot,
    }
}

/// Whether nobody listens at the port of this host.
fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
