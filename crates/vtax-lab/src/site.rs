//! The kernel as seen by a lab's steps: its namespaces, each with an open netlink connection, and its guests.

mod apply;
mod devices;
mod files;
mod guests;
mod sweep;

use std::{
    fs::{self, File, TryLockError},
    io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use vtax_journal::{JournalError, LockHolder, Record, Undone};
use vtax_model::{options::CongestionControl, topology::Name};
use vtax_step::{NetStack, Place, StartGuest, StepReceipt, StepSite, StopFlag};
use vtax_sys::{
    SysError, directory,
    netlink::{IfIndex, LinkChange, NewRoute, NextHop, Rtnl},
    netns::{NetNs, NsId},
};

pub(crate) use apply::undo;

use crate::{
    blueprint::Blueprint,
    error::LabError,
    mark::mark,
    processes::{self, Census},
    step::LabStep,
};

/// `lo` is the first link of every namespace (`LOOPBACK_IFINDEX`).
const LOOPBACK: IfIndex = IfIndex(1);

/// The namespaces and guests of one lab. The steps of the lab work on it.
#[derive(Debug)]
pub struct Site {
    lab: Name,
    /// [`LabStep::Verify`] compares the kernel with it. It is not needed to remove a lab.
    blueprint: Option<Arc<Blueprint>>,
    directory: PathBuf,
    /// The lock of the lab's directory, held while this process builds, exclusively owns or removes the lab. It
    /// distinguishes a living lab from an abandoned one even without the journal.
    lock: Option<File>,
    /// Its namespaces and guests, on which most steps operate.
    parts: StepSite,
    census: Option<Census>,
}

/// The directory in a lab's directory where its namespaces are pinned.
pub(crate) const PINS: &str = "netns";

impl Site {
    /// `directory` is the lab's own. It needn't exist.
    pub(crate) fn new(lab: &Name, directory: &Path) -> Site {
        let parts = StepSite::of_lab(lab, directory, PINS);
        let (lab, directory) = (lab.clone(), directory.to_owned());
        Site { lab, blueprint: None, directory, lock: None, parts, census: None }
    }

    pub(crate) fn building(mut self, blueprint: &Arc<Blueprint>) -> Site {
        self.blueprint = Some(Arc::clone(blueprint));
        self
    }

    /// Executes steps until `stopped` is set.
    pub(crate) fn until(mut self, stopped: &StopFlag) -> Site {
        self.parts.until(stopped);
        self
    }

    /// Takes over the namespaces and guests that a journal recorded.
    pub(crate) fn recall(&mut self, records: &[Record<LabStep>]) {
        for record in records {
            let Some(receipt) = record.progress.receipt() else { continue };
            match &record.step {
                LabStep::CreateNamespace { namespace } => self.parts.recall(namespace, receipt),
                LabStep::StartGuest(StartGuest { launch, .. }) => self.parts.recall_guest(launch, receipt),
                LabStep::StartRelay(step) => step.recall(receipt, &mut self.parts),
                _ => {}
            }
        }
    }

    pub(crate) fn make_directory(&mut self) -> Result<(), LabError> {
        directory::create_private(self.parts.pins()).map_err(LabError::file("create", self.parts.pins()))?;
        self.claim()
    }

    /// Locks the lab's directory. It is an error if a living process holds it.
    pub(crate) fn claim(&mut self) -> Result<(), LabError> {
        if self.lock.is_some() {
            return Ok(());
        }
        let directory = match File::open(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            directory => directory.map_err(LabError::file("open", &self.directory))?,
        };
        match directory.try_lock() {
            Ok(()) => self.lock = Some(directory),
            Err(TryLockError::WouldBlock) => {
                return Err(JournalError::Busy { id: self.lab.to_string(), by: LockHolder::of(&self.directory) }.into());
            }
            Err(TryLockError::Error(error)) => return Err(LabError::file("lock", &self.directory)(error)),
        }
        Ok(())
    }

    /// A lab that is kept belongs to no process.
    pub(crate) fn release(&mut self) {
        self.lock = None;
    }

    /// Removes the lab's directory if it is empty. Otherwise the failed steps have reported the remains.
    pub(crate) fn remove_directory(&self) {
        self.remove_drafts();
        let _ = fs::remove_dir(self.parts.pins());
        let _ = fs::remove_dir(self.device_marks());
        let _ = fs::remove_dir(&self.directory);
    }

    /// The namespaces and guests of the lab.
    pub(crate) fn parts(&mut self) -> &mut StepSite {
        &mut self.parts
    }

    fn create_namespace(&mut self, name: &Name) -> Result<StepReceipt, LabError> {
        let mark = mark(&self.lab, name);
        let made = NetNs::create_at(&self.parts.pin(name), || furnish(&mark));
        let (namespace, rtnl) = made.map_err(LabError::kernel(name))?;
        let id = namespace.id().to_string();
        self.parts.insert(name, NetStack::connected(Some(name), Arc::new(namespace), rtnl));
        Ok(StepReceipt(Some(id)))
    }

    fn remove_namespace(&mut self, name: &Name, receipt: Option<&StepReceipt>) -> Result<Undone, LabError> {
        self.parts.close(name);
        let path = self.parts.pin(name);
        let recorded = receipt.and_then(|receipt| receipt.0.as_deref());
        let expected: Option<NsId> = recorded.map(str::parse).transpose().map_err(LabError::kernel(name))?;
        self.evict(name, &path, expected)?;
        let removed = NetNs::remove_at(&path, expected).map_err(LabError::kernel(name))?;
        Ok(if removed { Undone::Reverted } else { Undone::AlreadyGone })
    }

    /// Ends the processes in a namespace. Objects that the lab didn't create stay: `remove_at` reports them.
    fn evict(&mut self, name: &Name, path: &Path, expected: Option<NsId>) -> Result<(), LabError> {
        let Ok(namespace) = NetNs::open(path) else { return Ok(()) };
        let ours = expected.is_none_or(|id| id == namespace.id());
        if !ours || !self.census.get_or_insert_with(Census::take).is_occupied(namespace.id()) {
            return Ok(());
        }
        let holders = processes::evict(&namespace, &self.lab).map_err(LabError::kernel(name))?;
        if holders.is_empty() { Ok(()) } else { Err(LabError::Occupied { namespace: name.clone(), holders }) }
    }

    /// Makes the kernel notice a wire's carrier immediately.
    ///
    /// The kernel delays events that are not urgent by up to a second. Until then the link counts as down, and as a
    /// bridge's port it forwards nothing. The first links of two namespaces have the same index. So the kernel
    /// considers a veth link to be its own lower link, and its event as not urgent unless its queue is about to change
    /// (`linkwatch_urgent_event`). When a link is opened for the second time, its queue changes.
    fn hasten(&mut self, at: &Place) -> Result<(), LabError> {
        let wires = self.blueprint.iter().flat_map(|blueprint| &blueprint.wires);
        if !wires.into_iter().any(|wire| wire.ends.contains(at)) {
            return Ok(());
        }
        let (name, stack) = (at.link.as_str(), self.parts.at(at)?);
        let (index, link) = (stack.index(name)?, stack.existing(name)?);
        if link.lower_up && !link.running && link.parent == Some(index) {
            for up in [false, true] {
                stack.change(name, &LinkChange { up: Some(up), ..LinkChange::default() })?;
            }
        }
        Ok(())
    }

    /// Adds a route to one address. The kernel prefers it to the route to the network.
    pub(crate) fn set_congestion(&mut self, by: &Place, to: IpAddr, name: CongestionControl) -> Result<(), LabError> {
        let stack = self.parts.at(by)?;
        let next_hop = NextHop::Link(stack.index(by.link.as_str())?);
        let route = NewRoute { dest: to.into(), next_hop, source: None, congestion: Some(name) };
        stack.rtnl().add_route(&route).map_err(LabError::kernel(by))
    }
}

/// Prepares and marks a new namespace, and opens the connection to it.
///
/// Disables IPv6 for all later links; labs with IPv6 enable it where they use it. Otherwise, the kernel would greet all
/// neighbours from each new link: on a bridge of n zones these are n² packets in the middle of a measurement. A kernel
/// without IPv6 has nothing to disable.
fn furnish(mark: &str) -> Result<Rtnl, SysError> {
    let failed = |setting: &'static str| move |error| SysError::plain("set", setting, error);
    let setting = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
    match fs::write(setting, "1") {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(setting)(error)),
        _ => {}
    }
    // Allows the root of the namespace to open ICMP sockets. Initially nobody may, not even root.
    let range = "/proc/sys/net/ipv4/ping_group_range";
    fs::write(range, "0 0").map_err(failed(range))?;
    let mut rtnl = Rtnl::open()?;
    let change = LinkChange { up: Some(true), alias: Some(mark.to_owned()), ..LinkChange::default() };
    rtnl.set_link(LOOPBACK, &change)?;
    Ok(rtnl)
}
