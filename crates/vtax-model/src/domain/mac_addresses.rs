//! Which Ethernet addresses there are, and which a new NIC gets.

use super::{Configuration, DomainError};
use crate::{guest::Mac, topology::Name};

/// Who has an address: the vnet and its domain.
type MacOwner<'a> = (&'a Name, &'a Name);

impl Configuration {
    /// The vnet that has this address, and its domain.
    pub(super) fn mac_owner(&self, mac: Mac) -> Option<MacOwner<'_>> {
        let of_domain = |(domain, constraints): (&'_ Name, &'_ super::Constraints)| {
            let vnet = constraints.vnets.iter().find(|vnet| vnet.macs().any(|other| other == mac))?;
            Some((vnet.name.clone(), domain.clone()))
        };
        let (vnet, domain) = self.domains.iter().find_map(of_domain)?;
        let (domain, constraints) = self.domains.get_key_value(&domain)?;
        Some((&constraints.vnet(&vnet)?.name, domain))
    }

    /// Checks that nobody but this vnet has the address.
    pub(super) fn check_mac(&self, mac: Mac, vnet: &Name, domain: &Name) -> Result<Mac, DomainError> {
        match self.mac_owner(mac) {
            Some((other, of)) if (other, of) != (vnet, domain) => {
                Err(DomainError::MacTaken { mac, vnet: other.clone(), domain: of.clone() })
            }
            _ => Ok(mac),
        }
    }

    /// An address that nobody has. A vnet of the same name in the same domain gets the same again, even after it was
    /// removed, unless somebody has taken it meanwhile. So what knows the domain by its address, such as a DHCP
    /// server, goes on to know it.
    pub(super) fn free_mac(&self, vnet: &Name, domain: &Name, also_taken: &[Mac]) -> Mac {
        let numbered = |number: u32| {
            let number = number.to_string();
            Mac::of(&["domain", &self.host, domain.as_str(), vnet.as_str(), &number])
        };
        let is_free = |mac: &Mac| self.check_mac(*mac, vnet, domain).is_ok() && !also_taken.contains(mac);
        (0..).map(numbered).find(is_free).expect("there are more addresses than vnets")
    }
}
