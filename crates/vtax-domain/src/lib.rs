//! Logical domains of this host.
//!
//! The [`DomainStore`] keeps what the user has asked for, from boot to boot. A [`DomainRow`] says how a domain is at the
//! moment.

#![forbid(unsafe_code)]

mod machine;
mod row;
mod store;

pub use machine::HostCapacity;
pub use row::{ConsolePlace, DomainFlags, DomainRow, RunningSystem};
pub use store::{
    BadConfigName, ConfigName, DomainStore, DomainStoreError, EditError, LockedStore, Reconfiguration, StoredState,
};
