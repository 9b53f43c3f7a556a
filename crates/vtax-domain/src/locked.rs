//! Permission to change a host's domains.

use std::{ops::Deref, path::Path};

use vtax_model::domain::Configuration;

use crate::{domains::Domains, store::LockedStore};

/// The domains while no other process changes them. Only the lock's holder can change them, and inspects them under the
/// lock, so that a decision is still valid when it is executed.
#[derive(Debug, Clone, Copy)]
pub struct LockedDomains<'a> {
    domains: &'a Domains,
    pub(crate) store: &'a LockedStore,
}

/// Domains' constraints, and the program that domains without an image boot.
#[derive(Debug, Clone, Copy)]
pub struct WantedDomains<'a> {
    /// Current configuration.
    pub configuration: &'a Configuration,
    /// Program that becomes the first process in a domain without an image.
    pub agent: &'a Path,
}

impl Domains {
    /// Returns the domains under the lock of the store with their constraints.
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
