//! Live migration of virtual functions, by the driver of the NIC.

/// Driver that saves the state of a NIC's virtual functions, so that a guest migrates with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VfMigration {
    /// Variant driver of VFIO that must have the function in place of `vfio-pci`.
    pub vfio: &'static str,
    /// Drivers of the NIC, as `vtax io list` has them.
    nic: &'static [&'static str],
}

/// All such drivers for NICs. [`Capabilities::live_migration`](super::Capabilities) of a virtual function names them.
const SAVED: [VfMigration; 3] = [
    VfMigration { vfio: "mlx5_vfio_pci", nic: &["mlx5_core", "mlx5_vfio_pci"] },
    VfMigration { vfio: "pds_vfio_pci", nic: &["ionic", "pds_core", "pds_vfio_pci"] },
    VfMigration { vfio: "virtio_vfio_pci", nic: &["virtio-pci", "virtio_net", "virtio_vfio_pci"] },
];

impl VfMigration {
    /// Returns how the virtual functions of a NIC with this driver migrate; `None` if they don't.
    pub fn of(driver: &str) -> Option<VfMigration> {
        SAVED.into_iter().find(|saved| saved.nic.contains(&driver))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::{Ability, DomainKind, IoMethod, MethodVariant};

    #[test]
    fn the_table_names_the_same_drivers() {
        let guest = MethodVariant { method: IoMethod::SrIov, domain: DomainKind::Guest, virtio: None };
        let Ability::Depends { reason } = guest.capabilities().live_migration else {
            panic!("it depends on the driver")
        };
        let named: Vec<&str> = reason.split([' ', ',']).filter(|word| word.ends_with("_vfio_pci")).collect();
        assert_eq!(named, SAVED.map(|saved| saved.vfio), "{reason}");
    }

    #[test]
    fn a_driver_is_known_by_its_name() {
        assert_eq!(VfMigration::of("mlx5_core").map(|saved| saved.vfio), Some("mlx5_vfio_pci"));
        for driver in ["igb", "igbvf", "ixgbe", "i40e", "iavf", "vfio-pci", "", "mlx5"] {
            assert_eq!(VfMigration::of(driver), None, "{driver}");
        }
    }
}
