//! A lab that is up.

use std::{
    path::PathBuf,
    process::{Child, Command},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use vtax_guest::process::Qemu;
use vtax_journal::{ExecuteError, Journal, JournalState, Snapshot};
use vtax_model::{options::CongestionControl, run::Hop, topology::Name, units::Mtu};
use vtax_sys::{netlink::QdiscStats, netns::Outlive};

use crate::{
    blueprint::{Blueprint, LabEndpoint, PlannedGuest},
    error::LabError,
    inventory, path,
    place::Place,
    plan::Plan,
    processes,
    record::LabRecord,
    site::{self, Site},
    step::LabStep,
    verify,
    world::{Lifetime, World},
};

/// A lab that is up. When this is dropped, it is taken down unless it is kept. [`Lab::down`] tells of failures.
#[derive(Debug)]
pub struct Lab {
    world: World,
    blueprint: Arc<Blueprint>,
    site: Mutex<Site>,
    /// Held until the lab is kept. The journal's lock says that a living process owns the lab.
    journal: Option<Journal<LabStep>>,
}

/// Descriptors that vtax needs beside the two for each namespace.
const OTHER_FILES: u64 = 256;

impl Lab {
    /// Builds a lab. If a step fails, the steps before it are undone, and the error tells of every failure of that.
    pub fn up(world: &World, plan: Plan, lifetime: Lifetime) -> Result<Lab, LabError> {
        let Plan { blueprint, steps } = plan;
        let journal = register(world, &blueprint, lifetime)?;
        let blueprint = Arc::new(blueprint);
        let mut site = Site::new(&blueprint.lab, &world.lab_directory(&blueprint.lab)).building(&blueprint);
        reserve_files(&blueprint);
        if let Err(error) = site.make_directory().and_then(|()| site.check_empty()) {
            journal.discard_if_empty()?;
            return Err(error);
        }
        let built = build(journal, steps, &mut site);
        let journal = built.map_err(|error| LabError::Build { lab: blueprint.lab.clone(), error })?;
        Ok(Lab { world: world.clone(), blueprint, site: Mutex::new(site), journal: Some(journal) })
    }

    /// Kills the guests of a lab that another thread is building, so that it waits for none of them.
    pub fn end_guests(world: &World, lab: &Name) -> Result<(), LabError> {
        let site = Site::new(lab, &world.lab_directory(lab));
        site.end_guests().map(drop)
    }

    /// Makes the lab permanent until somebody takes it down by name. Call this once everything in it is there, its
    /// guests too: before, `clean` removes the lab of a killed process. If the journal can't be written, nothing has
    /// changed.
    pub fn keep(&mut self) -> Result<(), LabError> {
        if let Some(journal) = &mut self.journal {
            journal.keep()?;
            self.journal = None;
            self.site().release();
        }
        Ok(())
    }

    /// Opens a lab that is up, to run programs in it, to look at it or to take it down.
    pub fn open(world: &World, name: &Name) -> Result<Lab, LabError> {
        let snapshot = Snapshot::<LabStep>::read(&world.journals(), name.as_str())?;
        let record = LabRecord::read(name.as_str(), snapshot.header.as_ref())?;
        if record.state(snapshot.state) == JournalState::Abandoned {
            let remedy = "remove it with vtax lab clean";
            return Err(LabError::State { lab: name.clone(), state: JournalState::Abandoned, remedy });
        }
        let blueprint = Arc::new(record.blueprint);
        let mut site = Site::new(name, &world.lab_directory(name));
        site.recall(&snapshot.records);
        reserve_files(&blueprint);
        Ok(Lab { world: world.clone(), blueprint, site: Mutex::new(site), journal: None })
    }

    /// Takes the lab down and ends the processes that were started in it. [`LabError::Remove`] has all that could not
    /// be removed; the next `clean` or `down` tries it again. An ephemeral lab of another living process stays.
    pub fn down(mut self) -> Result<(), LabError> {
        let journal = match self.journal.take() {
            Some(journal) => journal,
            None => Journal::open(&self.world.journals(), self.blueprint.lab.as_str())?,
        };
        site::undo(journal, &mut self.site()).map(drop)
    }

    /// What the lab consists of.
    pub fn blueprint(&self) -> &Blueprint {
        &self.blueprint
    }

    /// All endpoints: first the hosts on their wires, then the zones and guests.
    pub fn endpoints(&self) -> &[LabEndpoint] {
        &self.blueprint.endpoints
    }

    /// The guests, with the address that each should have.
    pub fn guests(&self) -> &[PlannedGuest] {
        &self.blueprint.guests
    }

    /// A guest's QEMU. Each call gives a handle of its own, so that several guests can be waited for at once.
    pub fn guest(&self, guest: &Name) -> Result<Qemu, LabError> {
        let site = self.site();
        let found = site.guest(guest).map(|qemu| Qemu::attach(qemu.launch().clone(), qemu.process()));
        found.ok_or_else(|| LabError::NoGuest { lab: self.blueprint.lab.clone(), guest: guest.clone() })
    }

    /// Whether every guest still runs. The error has the last messages of the first that doesn't.
    pub fn check_guests(&self) -> Result<(), LabError> {
        for guest in self.guests() {
            if let Some(death) = self.guest(&guest.name)?.death(Duration::ZERO) {
                return Err(death.into());
            }
        }
        Ok(())
    }

    /// Whether the lab's links between two endpoints carry packets. [`LabError::Link`] has the first that doesn't.
    pub fn check_links(&self, from: &LabEndpoint, to: &LabEndpoint) -> Result<(), LabError> {
        let places = self.blueprint.path(from, to).unwrap_or_default();
        verify::carriers(&mut self.site(), &self.blueprint, &places)
    }

    /// The links from one endpoint to the other, as they are now.
    pub fn path(&self, from: &LabEndpoint, to: &LabEndpoint) -> Result<Vec<Hop>, LabError> {
        path::hops(&mut self.site(), &self.blueprint, from, to)
    }

    /// Gives the wires this MTU and every other link of the lab the MTU that follows from it, and reads all of them
    /// back. It is an error if a link has another MTU afterwards, or if a guest doesn't run any more.
    pub fn set_mtu(&self, mtu: Mtu) -> Result<(), LabError> {
        self.check_guests()?;
        let set = verify::set_mtu(&mut self.site(), &self.blueprint, mtu);
        // A tap has no carrier after its guest has ended. The end of the guest is the better message.
        set.or_else(|error| self.check_guests().and(Err(error)))
    }

    /// Makes all TCP connections between two hosts on a wire use this congestion control, whichever program
    /// opens them. It is done by routes: `net.ipv4.tcp_congestion_control` of a namespace takes only what the
    /// machine allows to everybody (`tcp_allowed_congestion_control`), and cubic need not be among that. Call
    /// this once for a pair of hosts.
    pub fn set_congestion(&self, ends: [&LabEndpoint; 2], name: CongestionControl) -> Result<(), LabError> {
        let mut site = self.site();
        for (from, to) in [(ends[0], ends[1]), (ends[1], ends[0])] {
            let by = Place { namespace: from.namespace.clone(), link: from.interface.clone() };
            site.set_congestion(&by, to.address, name)?;
        }
        Ok(())
    }

    /// What the root qdisc of a link has let through and dropped since the lab is up: at a limited wire's end (see
    /// [`LabEndpoint::wire_end`]) every lost packet. It is an error if no qdisc counts, as on a link without a rate.
    pub fn qdisc_drops(&self, link: &Place) -> Result<QdiscStats, LabError> {
        let qdisc = self.site().qdisc(link)?.filter(|qdisc| qdisc.kind != "noqueue");
        let (lab, place) = (self.blueprint.lab.clone(), link.clone());
        qdisc.map(|qdisc| qdisc.stats).ok_or(LabError::Uncounted { lab, place })
    }

    /// Starts a program where the endpoint's processes live.
    ///
    /// The kernel kills the program when the *thread* that calls this ends. So call it from a thread that
    /// lives as long as the program should. Whatever the program starts ends with the lab.
    pub fn spawn(&self, endpoint: &LabEndpoint, mut command: Command) -> Result<Child, LabError> {
        processes::mark(&mut command, &self.blueprint.lab);
        let namespace = self.site().namespace(&endpoint.namespace)?;
        namespace.spawn(command, Outlive::No).map_err(LabError::kernel(&endpoint.name))
    }

    /// Where the endpoint's namespace is pinned as long as the lab is up.
    pub fn namespace_path(&self, endpoint: &LabEndpoint) -> PathBuf {
        self.site().pin(&endpoint.namespace)
    }

    /// Replaces this process by a program in the endpoint's namespace. If it returns, that failed: end the process.
    pub fn exec(&self, endpoint: &LabEndpoint, mut command: Command) -> LabError {
        processes::mark(&mut command, &self.blueprint.lab);
        let namespace = self.site().namespace(&endpoint.namespace);
        match namespace {
            Ok(namespace) => LabError::kernel(&endpoint.name)(namespace.exec(command)),
            Err(error) => error,
        }
    }

    /// If a thread panicked while it held the lock, at worst the index of a link is unknown.
    fn site(&self) -> MutexGuard<'_, Site> {
        self.site.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Some(journal) = self.journal.take() {
            // What could not be undone stays in the journal for the next `clean`.
            let _ = site::undo(journal, &mut self.site());
        }
    }
}

/// Takes the lab's name and addresses. No other vtax of this user can take any at the same time.
fn register(world: &World, blueprint: &Blueprint, lifetime: Lifetime) -> Result<Journal<LabStep>, LabError> {
    let _admission = world.admission()?;
    for lab in inventory::list(world)? {
        let clash = lab
            .addresses
            .is_some_and(|range| range.contains(&blueprint.addresses) || blueprint.addresses.contains(&range));
        if clash && lab.name != blueprint.lab {
            return Err(LabError::RangeTaken { range: blueprint.addresses, by: lab.name });
        }
    }
    let keeper = match lifetime {
        Lifetime::Kept => world.living_keeper()?,
        Lifetime::Ephemeral => None,
    };
    let record = LabRecord::new(blueprint, keeper);
    Ok(Journal::create(&world.journals(), blueprint.lab.as_str(), LabRecord::KIND, &record)?)
}

/// Carries out the steps of a new lab. If one fails, nothing of the lab is left. What could not be undone stays in the
/// journal for the next `clean`.
fn build(
    mut journal: Journal<LabStep>,
    steps: Vec<LabStep>,
    site: &mut Site,
) -> Result<Journal<LabStep>, Box<ExecuteError<LabError>>> {
    let Err(mut error) = journal.execute(steps, site) else { return Ok(journal) };
    if error.left.is_none() {
        error.left = journal.undo(site).err().map(Box::new);
    }
    Err(error.into())
}

/// Each open namespace takes two descriptors. A hard limit below that makes the build fail later, by name.
fn reserve_files(blueprint: &Blueprint) {
    let namespaces = blueprint.hosts.len() + blueprint.zones.len();
    let _ = vtax_sys::process::raise_open_files(OTHER_FILES + 2 * namespaces as u64);
}
