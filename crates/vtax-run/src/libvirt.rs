//! Information about libvirt's domains, queried with `virsh` and read from its XML. Domains are never changed.

mod error;
mod machine;
mod query;
mod virsh;
mod xml;

pub use self::machine::{LibvirtBoot, LibvirtBootDevice, LibvirtDisk, LibvirtLink, LibvirtMachine, LibvirtVlans};
pub(crate) use self::{
    error::LibvirtError,
    query::DomainQuery,
    virsh::{AddressSource, Lease, Question, Virsh, VirshProgram, VirshRefusal, leases, qemu_version, words},
    xml::{Described, XmlNic},
};
use crate::stop::Stop;

/// Returns the configuration of the domain with this name.
pub fn machine(name: &str) -> Result<LibvirtMachine, Stop> {
    Ok(DomainQuery { virsh: &VirshProgram::user(), name }.described()?.machine)
}
