//! Delayed reconfiguration of `primary`: its changes are saved, and take effect from the host's next boot.
//!
//! Nothing needs to be done at that boot. A process that reads the store afterwards sees by the boot ID that the
//! changes are in effect, and the next one that writes it removes the pending state.

use std::fs;

use serde::{Deserialize, Serialize};
use vtax_model::domain::{Configuration, DomainError};

use super::StoredState;

/// Changes of `primary` that take effect from the next boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelayedReconfiguration {
    /// Boot during which it was started.
    boot: String,
    /// Complete configuration from the next boot.
    pub configuration: Configuration,
}

/// Pending change in a delayed reconfiguration of `primary`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrimaryChange {
    /// It releases a device.
    Release(String),
    /// It has a device again.
    Return(String),
    /// Devices below a root complex become available to domains, or unavailable.
    Iov {
        /// Root complex.
        bus: String,
        /// True if they become available.
        on: bool,
    },
    /// Anything else: switches, console services, settings of functions.
    Others,
}

/// Returns the ID of this boot of the host (random(4)).
pub(crate) fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

impl StoredState {
    /// Starts a delayed reconfiguration.
    pub fn start_reconfiguration(&mut self) -> Result<(), DomainError> {
        self.no_pending()?;
        self.pending = Some(DelayedReconfiguration { boot: boot(), configuration: self.configuration.clone() });
        Ok(())
    }

    /// Checks that nothing is pending, before the whole configuration is replaced.
    pub fn no_pending(&self) -> Result<(), DomainError> {
        if self.pending.is_some() { Err(DomainError::Reconfiguring) } else { Ok(()) }
    }

    /// Discards the pending changes.
    pub fn cancel_reconfiguration(&mut self) -> Result<(), DomainError> {
        self.pending.take().map(drop).ok_or(DomainError::NotReconfiguring)
    }

    /// Changes the configuration, or the pending one if there is one. In that case only `primary`'s resources can
    /// change.
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

    /// Returns the pending changes, in order.
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

    /// Applies the pending changes now, except these, which wait for the boot.
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

    /// Returns the state at this boot: changes pending at an earlier one are in effect.
    pub(super) fn at_boot(mut self, boot: &str) -> StoredState {
        if let Some(pending) = self.pending.take_if(|pending| pending.boot != boot) {
            self.configuration = pending.configuration;
        }
        self
    }
}
