//! What libvirt tells of its domains: it is asked by `virsh`, and its XML is read. Nothing of a domain is changed.

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

/// What the domain of this name is made of.
pub fn machine(name: &str) -> Result<LibvirtMachine, Stop> {
    Ok(DomainQuery { virsh: &VirshProgram::user(), name }.described()?.machine)
}
