//! Privilege, and where labs live.
//!
//! Root's labs live in the machine's own mount namespace, pinned below `/run/vtax`. An unprivileged user's labs live in
//! a user namespace, and so in one of its mount namespaces, which is invisible to others and ends with its last
//! process. For labs that outlive the command that created them, a process of the user, the *keeper*, holds these
//! namespaces, and every later command joins them. Inside, everything works as for root: there is one way to build a
//! lab.
//!
//! `/run` (or the user's run-time directory) is the right place for journals too: a reboot empties it, and ends
//! everything that they describe.

mod keeper;
mod run_directory;

use std::{fs, path::PathBuf};

use vtax_model::topology::Name;
use vtax_step::{DeviceClaims, StopFlag};
use vtax_sys::{process::ProcessId, userns};

pub(crate) use keeper::lives;
use run_directory::Admission;

use crate::error::LabError;

/// Lifetime of a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifetime {
    /// As long as the [`Lab`](crate::Lab), or until the next `clean` if the process is killed. Also for inspecting
    /// labs.
    Ephemeral,
    /// From [`Lab::keep`](crate::Lab::keep) on until it is removed by name; before, as an ephemeral one.
    Kept,
}

/// Place where this process builds and finds labs, with the required privilege.
#[derive(Debug, Clone)]
pub struct World {
    run: PathBuf,
    keeper: Option<ProcessId>,
    /// Flag that stops building in this world.
    stopped: StopFlag,
}

impl World {
    /// Acquires the privilege to build labs: root already has it; otherwise this joins the user's keeper if it is
    /// alive, and if not, starts it ([`Lifetime::Kept`]) or enters a user namespace for this process alone.
    ///
    /// Call this before any thread is started: a process with threads can't change its user
    /// namespace (setns(2), unshare(2)).
    pub fn enter(lifetime: Lifetime) -> Result<World, LabError> {
        if userns::have_net_admin() {
            return Ok(World::below(run_directory::of_root()?));
        }
        let run = run_directory::of_user()?;
        let keeper = match (keeper::living(&run)?, lifetime) {
            (Some(keeper), _) => Some(keeper),
            (None, Lifetime::Kept) => Some(keeper::start(&run)?),
            (None, Lifetime::Ephemeral) => None,
        };
        let entered = match keeper {
            Some(keeper) => userns::join(keeper.pid),
            None => userns::enter_own(),
        };
        entered.map_err(|error| LabError::Privilege(Box::new(error)))?;
        Ok(World::of(run, keeper))
    }

    /// For operations without privilege on the user's files. No namespace is entered.
    pub fn without_privilege() -> Result<World, LabError> {
        let run = if userns::have_net_admin() { run_directory::of_root() } else { run_directory::of_user() };
        Ok(World::below(run?))
    }

    /// The place whose files are below this directory. Nothing is entered.
    pub fn below(run: PathBuf) -> World {
        World::of(run, None)
    }

    fn of(run: PathBuf, keeper: Option<ProcessId>) -> World {
        World { run, keeper, stopped: StopFlag::default() }
    }

    pub(crate) fn stopped(&self) -> &StopFlag {
        &self.stopped
    }

    /// Becomes the keeper, and remains it until `is_needed` reports that no lab needs one.
    pub(crate) fn keep(is_needed: impl Fn(&World) -> Result<bool, LabError>) -> Result<(), LabError> {
        let (run, own) = keeper::begin()?;
        let world = World::of(run, Some(own));
        keeper::stay(&world.run, || is_needed(&world))
    }

    /// Directory of these labs, domains and servers.
    pub fn directory(&self) -> PathBuf {
        self.run.clone()
    }

    pub(crate) fn journals(&self) -> PathBuf {
        self.run.join("journals")
    }

    /// A custom directory next to those of labs. It need not exist.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.run.join(name)
    }

    /// The devices that domains of this machine have.
    pub fn device_claims(&self) -> DeviceClaims {
        DeviceClaims::below(self.folder("devices"))
    }

    /// The names of all directories next to those of labs.
    pub fn folders(&self) -> Result<Vec<String>, LabError> {
        let entries = fs::read_dir(&self.run).map_err(LabError::file("read", &self.run))?;
        Ok(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
    }

    /// Parent directory of labs.
    pub(crate) fn labs(&self) -> PathBuf {
        self.run.join("labs")
    }

    /// The names of the directories of labs.
    pub(crate) fn lab_names(&self) -> Result<Vec<Name>, LabError> {
        let labs = self.labs();
        let entries = fs::read_dir(&labs).map_err(LabError::file("read", &labs))?;
        let mut names: Vec<Name> =
            entries.flatten().filter_map(|entry| Name::try_from(entry.file_name().into_string().ok()?).ok()).collect();
        names.sort();
        Ok(names)
    }

    /// Directory of a lab's pinned namespaces and its guests' sockets.
    pub(crate) fn lab_directory(&self, lab: &Name) -> PathBuf {
        self.labs().join(lab.as_str())
    }

    /// Waits until no other vtax of this user is taking a name or addresses.
    pub(crate) fn admission(&self) -> Result<Admission, LabError> {
        run_directory::lock(&self.run)
    }

    /// The keeper. It is an error if it has exited, since a kept lab needs it.
    pub(crate) fn living_keeper(&self) -> Result<Option<ProcessId>, LabError> {
        match self.keeper {
            Some(keeper) if !keeper::lives(keeper) => Err(LabError::Keeper { why: "has just exited".to_owned() }),
            keeper => Ok(keeper),
        }
    }
}
