//! Kernel objects on which steps operate: network namespaces, each with an open connection, and guests.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use vtax_guest::{launch::Launch, process::Qemu};
use vtax_model::topology::Name;
use vtax_sys::netns::NetNs;

use crate::{error::StepError, part::StepReceipt, place::Place, relay_process::RelayProcess, stack::NetStack};

/// Environment variable that marks the processes of a lab; its value is the lab's name.
pub const PROCESS_MARK: &str = "VTAX_LAB";

/// Marks a program that is about to be started in a lab.
pub fn mark_process(command: &mut Command, lab: &Name) {
    command.env(PROCESS_MARK, lab.as_str());
}

/// Network namespaces of a lab or of a host of domains, by name, and their guests.
#[derive(Debug)]
pub struct StepSite {
    /// Lab with which its programs end.
    pub(crate) lab: Option<Name>,
    /// Directory of the lab: guests have their files below it, and named namespaces are pinned in `pins`.
    pub(crate) directory: Option<PathBuf>,
    pins: PathBuf,
    /// Namespace of the host; that of this thread if `None`.
    own: Option<Arc<NetNs>>,
    /// Identities of namespaces that the journal recorded.
    recorded: HashMap<Name, String>,
    stacks: HashMap<Option<Name>, NetStack>,
    /// Guests that were started, whether or not they still run.
    pub(crate) guests: HashMap<Name, Qemu>,
    /// Programs that were started for zones, whether or not they still run.
    relays: HashMap<Name, Vec<RelayProcess>>,
    stopped: StopFlag,
}

/// Flag that stops the creation of a lab. All of its clones share one value.
#[derive(Debug, Clone, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    pub fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl StepSite {
    /// Returns the site of a lab with this directory, in which its namespaces are pinned below `pins`.
    pub fn of_lab(lab: &Name, directory: &Path, pins: &str) -> StepSite {
        let (directory, pins) = (Some(directory.to_owned()), directory.join(pins));
        StepSite { directory, pins, ..StepSite::of(Some(lab), None) }
    }

    /// Returns the site of a host of domains, which has only this namespace. The host may be one of a lab.
    pub fn of_host(namespace: &Arc<NetNs>, lab: Option<&Name>) -> StepSite {
        StepSite::of(lab, Some(Arc::clone(namespace)))
    }

    fn of(lab: Option<&Name>, own: Option<Arc<NetNs>>) -> StepSite {
        let (recorded, stacks, guests, relays, stopped) = Default::default();
        let (lab, directory, pins) = (lab.cloned(), None, PathBuf::new());
        StepSite { lab, directory, pins, own, recorded, stacks, guests, relays, stopped }
    }

    /// Lets steps be executed until `stopped` is set.
    pub fn until(&mut self, stopped: &StopFlag) {
        self.stopped = stopped.clone();
    }

    /// Fails if the user has stopped the creation of the lab.
    pub fn check_goes_on(&self) -> Result<(), StepError> {
        match &self.lab {
            Some(lab) if self.stopped.is_set() => Err(StepError::Stopped { name: lab.clone() }),
            _ => Ok(()),
        }
    }

    /// Returns the directory where namespaces are pinned.
    pub fn pins(&self) -> &Path {
        &self.pins
    }

    /// Returns the path where a namespace is pinned, whether it exists or not.
    pub fn pin(&self, namespace: &Name) -> PathBuf {
        self.pins.join(namespace.as_str())
    }

    /// Takes over a namespace that a journal recorded: another one at its path is refused.
    pub fn recall(&mut self, namespace: &Name, receipt: &StepReceipt) {
        self.recorded.extend(receipt.0.clone().map(|id| (namespace.clone(), id)));
    }

    /// Adds a namespace that was just created.
    pub fn insert(&mut self, name: &Name, stack: NetStack) {
        self.stacks.insert(Some(name.clone()), stack);
    }

    /// Closes the connection to a namespace, which can then be removed.
    pub fn close(&mut self, namespace: &Name) {
        self.stacks.remove(&Some(namespace.clone()));
    }

    /// Returns the network stack of a namespace, or of the host itself.
    pub fn stack(&mut self, namespace: Option<&Name>) -> Result<&mut NetStack, StepError> {
        let key = namespace.cloned();
        if !self.stacks.contains_key(&key) {
            let stack = self.open(namespace)?;
            self.stacks.insert(key.clone(), stack);
        }
        Ok(self.stacks.get_mut(&key).expect("it has just been put there"))
    }

    /// Returns the network stack of the host itself.
    pub fn own(&mut self) -> Result<&mut NetStack, StepError> {
        self.stack(None)
    }

    /// Returns the network stack that contains a link.
    pub fn at(&mut self, place: &Place) -> Result<&mut NetStack, StepError> {
        self.stack(Some(&place.namespace))
    }

    /// Returns a namespace by its name.
    pub fn namespace(&mut self, name: &Name) -> Result<Arc<NetNs>, StepError> {
        self.stack(Some(name)).map(|stack| Arc::clone(stack.namespace()))
    }

    /// Returns a guest that was started, whether or not it still runs.
    pub fn guest(&self, guest: &Name) -> Option<&Qemu> {
        self.guests.get(guest)
    }

    /// Takes over a guest that a journal recorded.
    pub fn recall_guest(&mut self, launch: &Launch, receipt: &StepReceipt) {
        self.guests.extend(receipt.process().map(|it| (launch.name.clone(), Qemu::attach(launch.clone(), it))));
    }

    /// Returns the programs that carry the traffic of a zone, whether or not they still run.
    pub fn relays(&self, zone: &Name) -> &[RelayProcess] {
        self.relays.get(zone).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn remember_relay(&mut self, zone: &Name, relay: RelayProcess) {
        self.relays.entry(zone.clone()).or_default().push(relay);
    }

    pub(crate) fn forget_relays(&mut self, zone: &Name) {
        self.relays.remove(zone);
    }

    fn open(&self, name: Option<&Name>) -> Result<NetStack, StepError> {
        let Some(name) = name else {
            let here = || NetNs::current().map(Arc::new).map_err(StepError::kernel("the host's network"));
            return NetStack::open(None, self.own.clone().map_or_else(here, Ok)?);
        };
        let namespace = NetNs::open(&self.pin(name)).map_err(StepError::kernel(name))?;
        match self.recorded.get(name).is_some_and(|id| *id != namespace.id().to_string()) {
            true => Err(StepError::Replaced { namespace: name.clone() }),
            false => NetStack::open(Some(name), Arc::new(namespace)),
        }
    }

    /// Checks that the namespace of a receipt is still the one at its path.
    pub fn check_pinned(&self, name: &Name, receipt: &StepReceipt) -> Result<(), StepError> {
        let found = NetNs::open(&self.pin(name)).map_err(StepError::kernel(name))?.id().to_string();
        match receipt.0.as_ref() == Some(&found) {
            true => Ok(()),
            false => Err(StepError::Replaced { namespace: name.clone() }),
        }
    }
}
