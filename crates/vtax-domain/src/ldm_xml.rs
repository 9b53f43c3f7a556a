//! What domains are to have, as XML: a document like the one of Oracle's `ldm list-constraints -x`.
//!
//! An `LDM_interface` has a `Content` for each domain. In it, each resource is an `Item` that says what it is
//! (`rasd:OtherResourceType`), how much it is (`rasd:AllocationUnits`), its Ethernet address (`rasd:Address`), and
//! everything else by `gprop:GenericProperty key="…"`. The switches and console services are items of `primary`. What
//! Linux has no such thing for isn't there: numbers of LDCs, `hvuart`, bindings.
//!
//! The reader takes what the writer writes. It knows elements by their names without prefixes, and refuses what it doesn't
//! know with the line, so that nothing is lost without a word.

mod item;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use self::{read::read, write::write};

/// No file with what domains are to have is longer: 512 domains with 16 vnets each take some 10 MB of XML.
pub const LONGEST: u64 = 32 << 20;
/// The most nodes of a document: those domains take some 350,000.
const NODES_MOST: u32 = 1_000_000;

/// Why a text isn't such a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct LdmXmlError {
    /// Where.
    pub line: u32,
    /// What is wrong.
    pub why: String,
}

/// The kinds of items, as `rasd:OtherResourceType` names them.
mod kind {
    pub(super) const DOMAIN: &str = "ldom_info";
    pub(super) const VCPUS: &str = "cpu";
    pub(super) const CORES: &str = "core";
    pub(super) const MEMORY: &str = "memory";
    pub(super) const VARIABLE: &str = "var";
    pub(super) const VNET: &str = "network";
    pub(super) const DEVICE: &str = "physio_device";
    pub(super) const CONSOLE: &str = "console";
    pub(super) const SWITCH: &str = "vsw";
    pub(super) const CONSOLE_SERVICE: &str = "vcc";
    pub(super) const DISK: &str = "disk";
    pub(super) const DISK_SERVICE: &str = "vds";
    pub(super) const VOLUME: &str = "vds_volume";
    pub(super) const RELEASED: &str = "physio_released";
    pub(super) const BUS_IOV: &str = "physio_iov";
    pub(super) const FUNCTION: &str = "physio_function";
}
