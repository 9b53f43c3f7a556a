//! Logical domains of this host.
//!
//! The [`DomainStore`] keeps what the user has asked for, from boot to boot. [`Domains`] binds, starts, stops and unbinds
//! them. A [`DomainRow`] says how a domain is at the moment.

#![forbid(unsafe_code)]

mod bindings;
mod bound;
mod capacity;
mod clean;
mod devices;
mod domains;
mod error;
mod host_io;
mod hot_plug;
mod plan;
mod row;
mod service;
mod site;
mod step;
mod store;
mod supervisor;
mod switch;
mod switches;

pub use bindings::{Bindings, BoundConsole, BoundDevice, BoundNic};
pub use bound::BoundDomain;
pub use capacity::HostCapacity;
pub use domains::{Domains, StopMode};
pub use error::BindError;
pub use hot_plug::ChangeEffect;
pub use row::{ConsolePlace, DomainFlags, DomainRow, RunningSystem};
pub use store::{
    BadConfigName, ConfigName, DelayedReconfiguration, DomainStore, DomainStoreError, EditError, LockedStore,
    PrimaryChange, StoredState,
};
pub use supervisor::Supervisor;
