//! Looks at the PCI devices of this machine.

mod kept;
mod names;
mod seen;
#[cfg(test)]
pub(crate) mod tests;

use vtax_sys::pci::{Device, PciTree};

use self::{names::Names, seen::Seen};
use crate::{
    error::LabError,
    facts::{PciDevice, PciFacts},
};

impl PciFacts {
    /// Inspects this machine, as seen from the network namespace of the calling thread.
    pub fn gather() -> Result<PciFacts, LabError> {
        let seen = Seen::gather(&PciTree::live()).map_err(LabError::kernel("the PCI devices"))?;
        Ok(PciFacts::of(&seen))
    }

    fn of(seen: &Seen) -> PciFacts {
        let names = Names::of(seen);
        let kept = kept::reasons(seen);
        let device = |device: &Device| PciDevice {
            device: device.address,
            name: names.function(device),
            endpoint: names.endpoint(device),
            root: names.root(device.root),
            id: format!("{:04x}:{:04x}", device.vendor, device.device),
            class: device.class,
            driver: device.driver.clone(),
            driver_override: device.driver_override.clone(),
            group: device.iommu_group,
            node: device.numa_node,
            link: device.link.as_ref().map(|link| format!("{} x{}", link.speed, link.width)),
            netdev: seen.netdev(device.address),
            physfn: device.physfn,
            virtfns: device.virtfns.clone(),
            sriov: device.sriov,
            vf: device.physfn.and_then(|pf| seen.vf(pf, device.address)),
            kept: kept.get(&device.address).cloned(),
        };
        PciFacts {
            iommu: seen.iommu,
            vfio: seen.vfio(),
            roots: names.roots(),
            slots: names.slots(),
            devices: seen.devices.iter().filter(|device| !device.is_bridge()).map(device).collect(),
        }
    }
}
