//! Notices about the execution of an order.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use vtax_model::{foreign::ForeignText, topology::Name, units::ByteSize};

use crate::store::PrimaryChange;

/// An event during the execution of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DomainNotice {
    /// The domain was started.
    Started(Name),
    /// The domain was stopped.
    Stopped(Name),
    /// The domain was sent a non-maskable interrupt.
    Interrupted(Name),
    /// A delayed reconfiguration of `primary` has begun.
    ReconfigurationStarted,
    /// The change waits for the host's next boot.
    Reconfiguring,
    /// A pending change of `primary` is now in effect.
    Applied(PrimaryChange),
    /// It stays pending.
    NeedsBoot { change: PrimaryChange, why: String },
    /// The change takes effect when the domain is started or reboots.
    AtBoot(Name),
    /// The domain has lost a device, which it keeps until it is started or reboots.
    KeptUntilBoot { domain: Name, device: String },
    /// The memory of a domain was rounded up.
    Rounded { domain: Name, wanted: ByteSize, size: ByteSize },
    /// A virtual function was created.
    FunctionCreated { name: ForeignText, has_driver: bool },
    /// A virtual function was removed.
    FunctionRemoved(ForeignText),
    /// The change may interrupt what uses a device.
    MayInterrupt { device: ForeignText, why: ForeignText },
    /// A damaged record was set aside, after the resources of its object were found by their marks. It has no path if the
    /// record was missing.
    SetAside { object: Name, error: String, path: Option<PathBuf> },
    /// A bound domain has no constraints: they were removed from the stored state.
    NoConstraints(Name),
    /// A cancelled migration waits for the process that moves the domain.
    AwaitsMover { domain: Name, mover: u32 },
    /// A record can't be read.
    Unreadable(String),
    /// An error that doesn't end the order.
    Trouble(String),
}
