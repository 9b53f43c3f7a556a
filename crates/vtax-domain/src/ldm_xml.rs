//! Domains' constraints as XML: a document like that of Oracle's `ldm list-constraints -x`.
//!
//! An `LDM_interface` has a `Content` for each domain. In it, each resource is an `Item` with its type
//! (`rasd:OtherResourceType`), its amount (`rasd:AllocationUnits`), its Ethernet address (`rasd:Address`), and
//! everything else in `gprop:GenericProperty key="…"`. The switches and console services are items of `primary`.
//! Properties without an equivalent on Linux are omitted: LDC numbers, `hvuart`, bindings.
//!
//! The reader accepts the writer's output. It identifies elements by their names without prefixes, and refuses unknown
//! ones with their line, so that nothing is silently lost.

mod item;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use self::{read::read, write::write};

/// Maximum length of a file with constraints: 512 domains with 16 vnets each take about 10 MB of XML.
pub const LONGEST: u64 = 32 << 20;
/// Maximum number of nodes in a document: those domains take about 350,000.
const NODES_MOST: u32 = 1_000_000;

/// Reason why a text isn't such a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct LdmXmlError {
    pub line: u32,
    /// Description of the error.
    pub why: String,
}

/// Types of items, as named in `rasd:OtherResourceType`.
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
    /// Those of `primary` only.
    pub(super) const OF_HOST: [&str; 7] = [SWITCH, CONSOLE_SERVICE, DISK_SERVICE, VOLUME, RELEASED, BUS_IOV, FUNCTION];
}
