//! Devices of the machine. They are taken, and given back as they were: the previous state is part of the step, so it is on
//! the disk before the first step is taken.
//!
//! sysfs shows a device's link only to a reader in the link's own namespace. So a link that is in a named namespace is
//! looked for there.

mod assigned;
mod claims;
mod function;
mod nic;

pub use assigned::{AssignDevice, AssignFunction, PlugDevice, ReturnFunction};
pub use claims::{DeviceClaim, DeviceClaims, checked};
pub use function::{ConfigureVf, CreateVfs, LendVf, LentVf, ProbeVfs, VfState};
pub use nic::TakeNic;

/// The driver that hands devices to programs, such as QEMU.
pub const VFIO: &str = "vfio-pci";
