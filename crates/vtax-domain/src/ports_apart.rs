//! Separation of two endpoints on virtual switches, for an error.

/// Two ports that don't reach each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortsApart {
    pub one: String,
    pub one_switch: String,
    /// `VLAN 33` or `no VLAN`.
    pub one_vlan: String,
    pub other: String,
    pub other_switch: String,
    pub other_vlan: String,
    /// Command that would let them reach each other.
    pub remedy: String,
}
