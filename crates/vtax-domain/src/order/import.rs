//! Order that adds a domain with the constraints of one of libvirt's.

mod carry;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use vtax_libvirt::{LibvirtMachine, LibvirtName};
use vtax_model::{foreign::ForeignText, topology::Name};

use self::carry::{Carried, carry};
use crate::{error::BindError, ldm_host::LdmHost};

/// Imported domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainImport {
    /// Name in libvirt.
    pub source: ForeignText,
    pub domain: Name,
    /// Imported settings.
    pub kept: Vec<ForeignText>,
    /// Settings that were not imported, each with a reason.
    pub lost: Vec<ForeignText>,
}

impl LdmHost {
    /// libvirt is asked before the lock is taken, because its daemon may hang.
    pub(super) fn import(&self, source: &LibvirtName, name: Option<Name>) -> Result<DomainImport, BindError> {
        let machine = vtax_libvirt::machine(source).map_err(Box::new)?;
        self.import_machine(machine, name)
    }

    fn import_machine(&self, machine: LibvirtMachine, name: Option<Name>) -> Result<DomainImport, BindError> {
        let own = || machine.name.raw().parse::<Name>().map_err(|error| BindError::ImportName { error });
        let domain: Name = name.map_or_else(own, Ok)?;
        let mut carried = Carried::default();
        self.edit(|all| {
            carried = carry(&machine, &domain, all)?;
            Ok(())
        })?;
        Ok(DomainImport { source: machine.name, domain, kept: carried.kept, lost: carried.lost })
    }
}
