//! Which Ethernet addresses there are, and which a new NIC gets.

use super::{Configuration, DomainError, PRIMARY};
use crate::{guest::Mac, topology::Name};

/// Who has an address: a NIC by its name, and its domain.
type MacOwner<'a> = (&'a str, &'a str);

impl Configuration {
    /// The virtual NIC or virtual function that has this address, and its domain.
    fn mac_owner(&self, mac: Mac) -> Option<MacOwner<'_>> {
        for (domain, constraints) in &self.domains {
            let vnet = constraints.vnets.iter().find(|vnet| vnet.macs().any(|other| other == mac));
            let device = constraints.io.iter().find(|device| device.settings.mac_addr == Some(mac));
            let nic = vnet.map(|vnet| vnet.name.as_str()).or(device.map(|device| device.name.as_str()));
            if let Some(nic) = nic {
                return Some((nic, domain.as_str()));
            }
        }
        let mut functions = self.devices.functions.iter();
        let (function, _) = functions.find(|(_, settings)| settings.mac_addr == Some(mac))?;
        Some((function, PRIMARY))
    }

    /// Checks that no NIC but this one has the address.
    pub(super) fn check_mac(&self, mac: Mac, nic: &str, domain: &Name) -> Result<Mac, DomainError> {
        match self.mac_owner(mac) {
            Some((other, of)) if (other, of) != (nic, domain.as_str()) => {
                Err(DomainError::MacTaken { mac, nic: other.to_owned(), domain: of.to_owned() })
            }
            _ => Ok(mac),
        }
    }

    /// An address that nobody has. A NIC of the same name in the same domain gets the same again, even after it was
    /// removed, unless somebody has taken it meanwhile. So what knows the domain by its address, such as a DHCP
    /// server, goes on to know it.
    pub(super) fn free_mac(&self, nic: &str, domain: &Name, also_taken: &[Mac]) -> Mac {
        let numbered = |number: u32| {
            let number = number.to_string();
            Mac::of(&["domain", &self.host, domain.as_str(), nic, &number])
        };
        let is_free = |mac: &Mac| self.check_mac(*mac, nic, domain).is_ok() && !also_taken.contains(mac);
        (0..).map(numbered).find(is_free).expect("there are more addresses than NICs")
    }
}
