//! Changes of PCI devices: their drivers, their links and their virtual functions.
//!
//! They are no [`Change`](crate::Change): a device is taken from one driver and given to another in several steps, and a
//! process that is killed leaves it in between. So it is put back from whatever state it is in. The step of a journal that
//! takes a device has the state before, as these types have it.

mod driver;
mod error;
mod functions;
mod link;
mod vf;

use std::time::Duration;

pub use driver::DriverState;
pub use error::PciChangeError;
pub use functions::{destroy_vfs, probe_vfs};
pub use link::{LinkState, PhysicalLink};
pub use vf::VfSettings;

/// A driver's firmware may take seconds to answer.
pub const DRIVER_PATIENCE: Duration = Duration::from_secs(30);
