//! Changes of PCI devices: their drivers, their links and their virtual functions.
//!
//! They are not a [`Change`](crate::Change): a device is moved from one driver to another in several steps, and a
//! killed process leaves it in between. It is therefore restored from whatever state it is in. The journal step that
//! takes a device contains its previous state in the form of these types.

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

/// Time limit for a driver, whose firmware may take seconds to answer.
pub const DRIVER_PATIENCE: Duration = Duration::from_secs(30);
