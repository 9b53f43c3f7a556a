//! Changing and restoring single values of the machine.

pub(crate) mod cpuset;
pub(crate) mod driver;
pub(crate) mod irq;
pub(crate) mod kept;
pub(crate) mod link;
pub(crate) mod sysctl;
pub(crate) mod sysfs;
pub(crate) mod thread;

use std::fmt;

use serde::{Deserialize, Serialize};
use vtax_journal::Undone;

use crate::{error::ChangeError, host::HostAccess};

/// One value of the machine. Its printed form is its name, such as "sysctl net.ipv4.tcp_rmem of this machine": two
/// knobs that print the same are the same.
pub trait Knob: fmt::Display {
    /// Type of the value, e.g. a number, a set of CPUs or the text of a sysctl.
    type Value: Clone + PartialEq + fmt::Display;

    /// Returns the current value. None if its object no longer exists.
    fn read(&self, host: &mut HostAccess) -> Result<Option<Self::Value>, ChangeError>;

    /// Writes a value, which the kernel may adjust.
    fn write(&self, host: &mut HostAccess, value: &Self::Value) -> Result<(), ChangeError>;

    /// True if a value survives a reboot.
    const STAYS: bool = false;

    /// Returns true if this certainly identifies the same object as before the reboot.
    fn is_known_after_restart(&self, _: &mut HostAccess) -> Result<bool, ChangeError> {
        Ok(false)
    }
}

/// A new value for a knob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueChange<K: Knob> {
    #[serde(flatten)]
    pub knob: K,
    /// The new value.
    pub value: K::Value,
    /// The previous value.
    pub was: K::Value,
    /// The kernel's ID of the boot in which the change was planned. If the current one differs, the kernel has lost the
    /// change: the value found was set by someone else, even if it is equal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
}

/// The value read back after writing the new one. It belongs to the change, even if it differs from the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ChangeReceipt(String);

impl<K: Knob> ValueChange<K> {
    /// Reads the current value.
    pub(crate) fn plan(knob: K, host: &mut HostAccess, value: K::Value) -> Result<ValueChange<K>, ChangeError> {
        let was = knob.read(host)?.ok_or_else(|| missing(&knob))?;
        let boot = host.boot().filter(|_| !K::STAYS).map(str::to_owned);
        Ok(ValueChange { knob, value, was, boot })
    }

    fn is_forgotten(&self, host: &HostAccess) -> bool {
        self.boot.as_deref().is_some_and(|boot| host.boot() != Some(boot))
    }

    fn read(&self, host: &mut HostAccess) -> Result<K::Value, ChangeError> {
        self.knob.read(host)?.ok_or_else(|| missing(&self.knob))
    }

    fn not_taken(&self, wrote: &K::Value, found: &K::Value) -> ChangeError {
        let what = self.knob.to_string();
        ChangeError::NotTaken { what, wrote: wrote.to_string(), found: found.to_string() }
    }

    /// Restores the previous value.
    fn restore(&self, host: &mut HostAccess) -> Result<Undone, ChangeError> {
        let written = self.knob.write(host, &self.was);
        match self.knob.read(host)? {
            None => Ok(Undone::AlreadyGone),
            Some(now) if now == self.was => Ok(Undone::Reverted),
            Some(now) => written.and(Err(self.not_taken(&self.was, &now))),
        }
    }
}

fn missing(knob: &impl Knob) -> ChangeError {
    ChangeError::Missing { what: knob.to_string() }
}

/// The operations of a journal step, independent of its value's type.
pub(crate) trait AnyValueChange: fmt::Display {
    fn name(&self) -> String;
    /// The new value.
    fn value(&self) -> String;
    fn changes_nothing(&self) -> bool;
    fn apply(&self, host: &mut HostAccess) -> Result<ChangeReceipt, ChangeError>;
    fn read_back(&self, host: &mut HostAccess) -> Result<(), ChangeError>;
    fn undo(&self, receipt: Option<&ChangeReceipt>, host: &mut HostAccess) -> Result<Undone, ChangeError>;
    /// Returns true if the machine was rebooted since, so the kernel has lost the change.
    fn is_forgotten(&self, host: &HostAccess) -> bool;
    /// Returns true if the setting has the new value again after a reboot.
    fn is_there_again(&self, host: &mut HostAccess) -> Result<bool, ChangeError>;
    /// Restores the previous value, if vtax's own files have set the new one again at boot.
    fn undo_again(&self, host: &mut HostAccess) -> Result<(), ChangeError>;
    fn found(&self, host: &mut HostAccess) -> Result<FoundValue, ChangeError>;
}

/// The current value of a changed setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundValue {
    /// None if its object no longer exists.
    pub value: Option<String>,
    /// True if it is still the value that vtax has set.
    pub is_ours: bool,
}

impl<K: Knob> AnyValueChange for ValueChange<K> {
    fn name(&self) -> String {
        self.knob.to_string()
    }

    fn value(&self) -> String {
        self.value.to_string()
    }

    fn changes_nothing(&self) -> bool {
        self.value == self.was
    }

    fn apply(&self, host: &mut HostAccess) -> Result<ChangeReceipt, ChangeError> {
        let found = self.read(host)?;
        if found != self.was {
            let (what, was, found) = (self.knob.to_string(), self.was.to_string(), found.to_string());
            return Err(ChangeError::Meanwhile { what, was, found });
        }
        self.knob.write(host, &self.value)?;
        Ok(ChangeReceipt(self.read(host)?.to_string()))
    }

    fn read_back(&self, host: &mut HostAccess) -> Result<(), ChangeError> {
        let found = self.read(host)?;
        if found == self.value { Ok(()) } else { Err(self.not_taken(&self.value, &found)) }
    }

    fn found(&self, host: &mut HostAccess) -> Result<FoundValue, ChangeError> {
        let found = self.knob.read(host)?;
        let is_ours = found.as_ref() == Some(&self.value) && !self.is_forgotten(host);
        Ok(FoundValue { value: found.map(|found| found.to_string()), is_ours })
    }

    fn undo(&self, receipt: Option<&ChangeReceipt>, host: &mut HostAccess) -> Result<Undone, ChangeError> {
        let Some(found) = self.knob.read(host)? else { return Ok(Undone::AlreadyGone) };
        if found == self.was {
            return Ok(Undone::AlreadyGone);
        }
        let made = found == self.value || receipt.is_some_and(|receipt| receipt.0 == found.to_string());
        match made && !self.is_forgotten(host) {
            true => self.restore(host),
            false => Ok(Undone::Foreign { found: found.to_string() }),
        }
    }

    fn is_forgotten(&self, host: &HostAccess) -> bool {
        self.is_forgotten(host)
    }

    fn is_there_again(&self, host: &mut HostAccess) -> Result<bool, ChangeError> {
        let known = self.is_forgotten(host) && self.knob.is_known_after_restart(host)?;
        Ok(known && self.knob.read(host)?.as_ref() == Some(&self.value))
    }

    fn undo_again(&self, host: &mut HostAccess) -> Result<(), ChangeError> {
        if self.is_there_again(host)? {
            self.restore(host)?;
        }
        Ok(())
    }
}

impl<K: Knob> fmt::Display for ValueChange<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} -> {}", self.knob, self.was, self.value)
    }
}
