//! Hardware of the machine that methods divide among guests.

use crate::method::{MethodVariant, Unsupported};

/// Free hardware. `None` is unknown, and never counts as enough or as too little.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Inventory {
    /// Virtual functions that can still be assigned, including those that can still be created.
    pub functions: Option<u32>,
    /// Devices that can be assigned separately: IOMMU groups with devices that the host can spare.
    pub devices: Option<u32>,
    /// Root complexes that the host can spare.
    pub root_complexes: Option<u32>,
    /// Wires that can be moved into zones.
    pub wires: Option<u32>,
    /// Driver of the NIC, or of the only type of NIC with virtual functions.
    pub driver: Option<String>,
    /// Set if the guests' kernels have `net_failover`, so that a virtio NIC takes over from a virtual function.
    pub failover: Option<bool>,
    /// Methods that cannot be used here, with the planner's reasons.
    pub unavailable: Vec<(MethodVariant, Unsupported)>,
}
