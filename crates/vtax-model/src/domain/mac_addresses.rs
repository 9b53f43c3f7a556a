//! Ethernet addresses in use, and the choice of new ones.

use std::collections::BTreeMap;

use super::DomainError;
use crate::{guest::Mac, topology::Name};

/// Owners of addresses. A change looks up a few addresses among the hundreds of thousands of a large configuration, and
/// rebuilding a configuration looks up all of them, so they are sorted once.
pub(super) struct MacOwners {
    host: String,
    owners: BTreeMap<Mac, MacOwner>,
}

/// A NIC by its name, and its domain.
type MacOwner = (String, Name);

impl MacOwners {
    /// Returns an empty map for this host.
    pub(super) fn new(host: &str) -> MacOwners {
        MacOwners { host: host.to_owned(), owners: BTreeMap::new() }
    }

    /// Records that a NIC has this address.
    pub(super) fn insert(&mut self, mac: Mac, nic: &str, domain: &Name) {
        self.owners.insert(mac, (nic.to_owned(), domain.clone()));
    }

    /// Returns the NIC that has this address, and its domain.
    pub(super) fn owner(&self, mac: Mac) -> Option<(String, Name)> {
        self.owners.get(&mac).cloned()
    }

    /// Checks that no NIC but this one has the address.
    pub(super) fn check(&self, mac: Mac, nic: &str, domain: &Name) -> Result<Mac, DomainError> {
        match self.owners.get(&mac) {
            Some((other, of)) if (other.as_str(), of) != (nic, domain) => {
                Err(DomainError::MacTaken { mac, nic: other.clone(), domain: of.to_string() })
            }
            _ => Ok(mac),
        }
    }

    /// Returns an unused address. A NIC of the same name in the same domain gets the same address again, even after it
    /// was removed, unless someone else has it by then. So anything that knows the domain by its address, such as a
    /// DHCP server, still does.
    pub(super) fn free(&self, nic: &str, domain: &Name, also_taken: &[Mac]) -> Mac {
        let numbered = |number: u32| {
            let number = number.to_string();
            Mac::of(&["domain", &self.host, domain.as_str(), nic, &number])
        };
        let is_free = |mac: &Mac| self.check(*mac, nic, domain).is_ok() && !also_taken.contains(mac);
        (0..).map(numbered).find(is_free).expect("there are more addresses than NICs")
    }
}
