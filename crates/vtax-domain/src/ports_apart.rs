//! What keeps two ends on virtual switches apart, for an error.

use vtax_model::{topology::Name, vf::Vlan};

/// Two ports that don't reach each other.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct PortsApart {
    pub one: String,
    pub one_switch: Name,
    pub one_vlan: Vlan,
    pub other: String,
    pub other_switch: Name,
    pub other_vlan: Vlan,
    /// The command that would let them reach each other.
    pub remedy: String,
}
