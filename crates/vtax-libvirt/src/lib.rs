//! Information about libvirt's domains, queried with `virsh` and read from its XML. Domains are never changed.

#![forbid(unsafe_code)]

mod error;
mod machine;
mod name;
mod query;
mod virsh;
mod xml;

pub use self::{
    error::LibvirtError,
    machine::{LibvirtBoot, LibvirtBootDevice, LibvirtDisk, LibvirtLink, LibvirtMachine, LibvirtVlans},
    name::{BadLibvirtName, LibvirtName},
    query::DomainQuery,
    virsh::{AddressSource, Lease, Question, Virsh, VirshProgram, VirshRefusal, leases, qemu_version, words},
    xml::{Described, XmlError, XmlNic},
};

/// Returns the configuration of the domain with this name.
pub fn machine(name: &LibvirtName) -> Result<LibvirtMachine, LibvirtError> {
    Ok(DomainQuery { virsh: &VirshProgram::user(), name: name.as_str() }.described()?.machine)
}
