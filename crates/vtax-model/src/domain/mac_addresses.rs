//! Which Ethernet addresses there are, and which a new NIC gets.

use std::collections::BTreeMap;

use super::DomainError;
use crate::{guest::Mac, topology::Name};

/// Who has which address. A change asks for some addresses among the hundred thousands of a large configuration, and a
/// configuration that is made anew for all of them: so they are sorted once.
pub(super) struct MacOwners {
    host: String,
    owners: BTreeMap<Mac, MacOwner>,
}

/// A NIC by its name, and its domain.
type MacOwner = (String, Name);

impl MacOwners {
    /// Nobody has an address yet on this host.
    pub(super) fn new(host: &str) -> MacOwners {
        MacOwners { host: host.to_owned(), owners: BTreeMap::new() }
    }

    /// A NIC has this address from now on.
    pub(super) fn insert(&mut self, mac: Mac, nic: &str, domain: &Name) {
        self.owners.insert(mac, (nic.to_owned(), domain.clone()));
    }

    /// The NIC that has this address, and its domain.
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

    /// An unused address. A NIC of the same name in the same domain gets the same again, even after it was removed,
    /// unless someone has taken it in the meantime. So what knows the domain by its address, such as a DHCP server,
    /// continues to know it.
    pub(super) fn free(&self, nic: &str, domain: &Name, also_taken: &[Mac]) -> Mac {
        let numbered = |number: u32| {
            let number = number.to_string();
            Mac::of(&["domain", &self.host, domain.as_str(), nic, &number])
        };
        let is_free = |mac: &Mac| self.check(*mac, nic, domain).is_ok() && !also_taken.contains(mac);
        (0..).map(numbered).find(is_free).expect("there are more addresses than NICs")
    }
}
