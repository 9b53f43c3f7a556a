//! The right to change a host's domains.

use std::{ops::Deref, path::Path};

use vtax_model::domain::Configuration;

use crate::{domains::Domains, store::LockedStore};

/// The domains while no other process changes them. Only this can change them, and whoever has it looks at them under the lock:
/// what is decided here still holds when it is done.
#[derive(Debug, Clone, Copy)]
pub struct LockedDomains<'a> {
    domains: &'a Domains,
    pub(crate) store: &'a LockedStore,
}

/// What domains are to have, and what those without an image boot.
#[derive(Debug, Clone, Copy)]
pub struct WantedDomains<'a> {
    /// The configuration in force.
    pub configuration: &'a Configuration,
    /// The program that becomes the first process in a domain without an image.
    pub agent: &'a Path,
}

impl Domains {
    /// The domains under the lock of the store that has what they are to have.
    pub fn under<'a>(&'a self, store: &'a LockedStore) -> LockedDomains<'a> {
        LockedDomains { domains: self, store }
    }
}

impl Deref for LockedDomains<'_> {
    type Target = Domains;

    fn deref(&self) -> &Domains {
        self.domains
    }
}
