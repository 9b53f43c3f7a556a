//! Machine facts for a plan with guests.

use std::{collections::BTreeSet, path::PathBuf};

use serde::{Deserialize, Serialize};
use vtax_guest::launch::{Boot, GuestEngine, QemuProgram};
use vtax_model::{
    guest::{Accelerator, System},
    method::Unsupported,
    units::ByteSize,
};

use super::DiskFacts;

/// Guest facilities of this machine. Missing ones have a reason and a remedy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestFacts {
    pub qemu: Result<QemuFacts, Unsupported>,
    pub tap: Result<(), Unsupported>,
    /// Ok if macvtaps can be created and opened.
    pub macvtap: Result<(), Unsupported>,
    /// Ok if the kernel serves rings of virtio-net; otherwise the reason.
    pub vhost: Result<(), Unsupported>,
    /// Programs that serve rings of virtio-net, each with the reason why a lab can't use it.
    pub vhost_user: Vec<String>,
    /// The agent's program, which goes into guests.
    pub agent: PathBuf,
    /// Bootable systems: one entry per system and driver required by a plan.
    pub systems: Vec<SystemFacts>,
    /// Memory that programs can get without swapping (`MemAvailable`).
    pub memory: ByteSize,
    /// Free huge pages of the usual size.
    pub huge_pages: ByteSize,
    pub cpus: Vec<u32>,
    pub nodes: Vec<u32>,
    pub labs: PathBuf,
    #[serde(default)]
    pub disks: DiskFacts,
}

/// QEMU on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QemuFacts {
    pub program: QemuProgram,
    pub devices: BTreeSet<String>,
    pub accel: Accelerator,
    pub no_kvm: Option<String>,
}

impl QemuFacts {
    /// Hypervisor for a guest that boots this.
    pub fn engine(&self, boot: Boot) -> GuestEngine {
        GuestEngine { qemu: self.program.clone(), accel: self.accel, boot }
    }
}

/// A system for guests with a certain NIC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemFacts {
    /// The system requested by the user.
    pub system: System,
    /// The module that drives the NIC, or several with commas between them.
    pub driver: String,
    /// Boot source of such a guest, or why there is none.
    pub boot: Result<Boot, Unsupported>,
}

impl GuestFacts {
    /// Boot source of a guest.
    pub fn boot(&self, system: &System, driver: &str) -> Result<Boot, Unsupported> {
        let found = self.systems.iter().find(|facts| facts.system == *system && facts.driver == driver);
        let why = || format!("no search was made for a system with the driver `{driver}`");
        let unknown = || Err(Unsupported::new(why(), "request guests by their method's name"));
        found.map_or_else(unknown, |facts| facts.boot.clone())
    }
}
