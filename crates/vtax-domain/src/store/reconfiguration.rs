//! The delayed reconfiguration of `primary`: its changes are kept, and in force from the next boot of the host on.
//!
//! Nothing has to be done at that boot. Whoever reads the store afterwards sees by the boot's number that the changes are
//! in force, and whoever writes it next forgets that they were ever pending.

use std::fs;

use serde::{Deserialize, Serialize};
use vtax_model::domain::{Configuration, DomainError};

use super::StoredState;

/// The changes of `primary` that are in force from the next boot on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelayedReconfiguration {
    /// The boot at which it was begun.
    boot: String,
    /// All as it is to be then.
    pub configuration: Configuration,
}

/// Pending change in a delayed reconfiguration of `primary`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PrimaryChange {
    /// It gives a device up.
    Release(String),
    /// It has a device again.
    Return(String),
    /// Domains may have what is below a root complex, or may not.
    Iov {
        /// The root complex.
        bus: String,
        /// Whether they may.
        on: bool,
    },
    /// Anything else: switches, console services, settings of functions.
    Others,
}

/// The number of this boot of the host (random(4)).
pub(super) fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

impl StoredState {
    /// Begins a delayed reconfiguration.
    pub fn start_reconfiguration(&mut self) -> Result<(), DomainError> {
        self.no_pending()?;
        self.pending = Some(DelayedReconfiguration { boot: boot(), configuration: self.configuration.clone() });
        Ok(())
    }

    /// What replaces the whole configuration waits until nothing is pending.
    pub fn no_pending(&self) -> Result<(), DomainError> {
        if self.pending.is_some() { Err(DomainError::Reconfiguring) } else { Ok(()) }
    }

    /// Forgets what is pending.
    pub fn cancel_reconfiguration(&mut self) -> Result<(), DomainError> {
        self.pending.take().map(drop).ok_or(DomainError::NotReconfiguring)
    }

    /// Makes a change of the configuration; of the pending one, if there is one. Then only what is `primary`'s can change.
    pub fn change(
        &mut self,
        change: impl FnOnce(&mut Configuration) -> Result<(), DomainError>,
    ) -> Result<(), DomainError> {
        let Some(pending) = &mut self.pending else { return change(&mut self.configuration) };
        let mut next = pending.configuration.clone();
        change(&mut next)?;
        if next.domains != self.configuration.domains {
            return Err(DomainError::OthersWait);
        }
        pending.configuration = next;
        Ok(())
    }

    /// What is pending, in order.
    pub fn pending_changes(&self) -> Vec<PrimaryChange> {
        let Some(DelayedReconfiguration { configuration: next, .. }) = &self.pending else { return Vec::new() };
        let (was, now) = (&self.configuration.devices, &next.devices);
        let released = now.released.difference(&was.released).cloned().map(PrimaryChange::Release);
        let returned = was.released.difference(&now.released).cloned().map(PrimaryChange::Return);
        let iov = now.iov.iter().filter(|(bus, on)| was.iov.get(*bus) != Some(*on));
        let iov = iov.map(|(bus, on)| PrimaryChange::Iov { bus: bus.clone(), on: *on });
        let mut rest = next.clone();
        rest.devices.released.clone_from(&was.released);
        rest.devices.iov.clone_from(&was.iov);
        let others = (rest != self.configuration).then_some(PrimaryChange::Others);
        released.chain(returned).chain(iov).chain(others).collect()
    }

    /// Brings what is pending into force now, but for these changes, which wait for the boot.
    pub fn apply_pending(&mut self, but: &[PrimaryChange]) {
        let Some(pending) = self.pending.clone() else { return };
        let was = std::mem::replace(&mut self.configuration, pending.configuration);
        for change in but {
            let devices = &mut self.configuration.devices;
            match change {
                PrimaryChange::Release(name) => drop(devices.released.remove(name)),
                PrimaryChange::Return(name) => drop(devices.released.insert(name.clone())),
                PrimaryChange::Iov { bus, .. } => match was.devices.iov.get(bus) {
                    Some(on) => drop(devices.iov.insert(bus.clone(), *on)),
                    None => drop(devices.iov.remove(bus)),
                },
                PrimaryChange::Others => {}
            }
        }
        if but.is_empty() {
            self.pending = None;
        }
    }

    /// As it is at this boot: what was pending at an earlier one is in force.
    pub(super) fn at_boot(mut self, boot: &str) -> StoredState {
        if let Some(pending) = self.pending.take_if(|pending| pending.boot != boot) {
            self.configuration = pending.configuration;
        }
        self
    }
}
