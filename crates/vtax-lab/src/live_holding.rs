//! Contents of a live journal: a lab, an emulated server, or virtual functions.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use vtax_guest::process::Qemu;
use vtax_journal::{ExecuteError, Journal, JournalState, Snapshot};
use vtax_model::topology::Name;

use crate::{
    error::LabError,
    holding::{Holding, HoldingRecord},
    inventory,
    site::{self, Site},
    step::LabStep,
    world::{Lifetime, World},
};

/// An object that is up and has a journal. When this is dropped, it is removed unless it is kept. [`LiveHolding::down`]
/// reports failures.
#[derive(Debug)]
pub struct LiveHolding {
    world: World,
    name: Name,
    site: Mutex<Site>,
    /// Present until the object is kept. The journal's lock shows that a living process owns it.
    journal: Option<Journal<LabStep>>,
}

impl LiveHolding {
    /// Takes the steps. If one fails, the steps before it are undone, and the error reports every failure of that.
    pub(crate) fn up(
        world: &World,
        name: &Name,
        holding: Holding,
        steps: Vec<LabStep>,
        lifetime: Lifetime,
    ) -> Result<LiveHolding, LabError> {
        let mut site = Site::new(name, &world.lab_directory(name)).until(world.stopped());
        if let Holding::Lab(blueprint) = &holding {
            site = site.building(&Arc::new((**blueprint).clone()));
        }
        let journal = register(world, name, holding, lifetime)?;
        if let Err(error) = site.make_directory().and_then(|()| site.check_empty()) {
            journal.discard_if_empty()?;
            return Err(error);
        }
        let built = build(journal, steps, &mut site);
        let journal = built.map_err(|error| LabError::Build { lab: name.clone(), error })?;
        Ok(LiveHolding { world: world.clone(), name: name.clone(), site: Mutex::new(site), journal: Some(journal) })
    }

    /// Stops another thread from building: the thread takes no further step, and its guests are killed, so that it
    /// waits for none. What it has built is removed as after a failed step. Nothing can be built in this world
    /// afterwards.
    pub fn stop_building(world: &World, name: &Name) -> Result<(), LabError> {
        // First, because the thread checks this after it has started a guest: so it doesn't wait for one that is
        // started too late to be found here.
        world.stopped().set();
        Site::new(name, &world.lab_directory(name)).kill_guests()
    }

    /// Opens an object that is up, to inspect or remove it.
    pub fn open(world: &World, name: &Name) -> Result<LiveHolding, LabError> {
        LiveHolding::open_as(world, name).map(|(held, _)| held)
    }

    /// Like [`LiveHolding::open`], with its kind.
    pub(crate) fn open_as(world: &World, name: &Name) -> Result<(LiveHolding, Holding), LabError> {
        let snapshot = Snapshot::<LabStep>::read(&world.journals(), name.as_str())?;
        let record = HoldingRecord::read(name.as_str(), &snapshot.header)?;
        if record.state(snapshot.state) == JournalState::Abandoned {
            let remedy = "remove it with vtax lab clean";
            return Err(LabError::State { lab: name.clone(), state: JournalState::Abandoned, remedy });
        }
        let mut site = Site::new(name, &world.lab_directory(name));
        site.recall(&snapshot.records);
        let held = LiveHolding { world: world.clone(), name: name.clone(), site: Mutex::new(site), journal: None };
        Ok((held, record.holding))
    }

    /// Makes it permanent until it is removed by name. Call this once it is complete, guests included: before, `clean`
    /// removes the objects of a killed process. If the journal can't be written, nothing has changed.
    pub fn keep(&mut self) -> Result<(), LabError> {
        if let Some(journal) = &mut self.journal {
            journal.keep()?;
            self.journal = None;
            self.site().release();
        }
        Ok(())
    }

    /// Removes it and ends the processes that were started in it. [`LabError::Remove`] lists what could not be removed;
    /// the next `clean` or `down` retries. An unkept object of another living process stays.
    pub fn down(mut self) -> Result<(), LabError> {
        let journal = match self.journal.take() {
            Some(journal) => journal,
            None => Journal::open(&self.world.journals(), self.name.as_str())?,
        };
        site::undo(journal, &mut self.site()).map(drop)
    }

    /// The QEMU of one of its guests. Each call returns a separate handle, so that several guests can be waited for
    /// concurrently.
    pub fn guest(&self, guest: &Name) -> Result<Qemu, LabError> {
        let site = self.site();
        let found = site.guest(guest).map(|qemu| Qemu::attach(qemu.launch().clone(), qemu.process()));
        found.ok_or_else(|| LabError::NoGuest { lab: self.name.clone(), guest: guest.clone() })
    }

    /// If a thread panicked while it held the lock, at worst the index of a link is unknown.
    pub(crate) fn site(&self) -> MutexGuard<'_, Site> {
        self.site.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LiveHolding {
    fn drop(&mut self) {
        if let Some(journal) = self.journal.take() {
            // Steps that could not be undone stay in the journal for the next `clean`.
            let _ = site::undo(journal, &mut self.site());
        }
    }
}

/// Reserves the name and the addresses. No other vtax of this user can reserve any at the same time.
fn register(world: &World, name: &Name, holding: Holding, lifetime: Lifetime) -> Result<Journal<LabStep>, LabError> {
    let _admission = world.admission()?;
    if let Some(range) = holding.addresses() {
        let clash = |other: &IpNet| range.contains(other) || other.contains(&range);
        let others = inventory::list(world)?.into_iter().filter(|other| other.name != *name);
        if let Some(other) = others.into_iter().find(|other| other.addresses().as_ref().is_some_and(clash)) {
            return Err(LabError::RangeTaken { range, by: other.name });
        }
    }
    let keeper = match lifetime {
        Lifetime::Kept => world.living_keeper()?,
        Lifetime::Ephemeral => None,
    };
    let kind = holding.kind();
    Ok(Journal::create(&world.journals(), name.as_str(), kind, &HoldingRecord::new(holding, keeper))?)
}

/// Executes the steps. If one fails, all are undone; those that could not be undone stay in the journal for the next
/// `clean`.
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
