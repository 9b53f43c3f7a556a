//! What a plan with guests must know of this machine.

use std::{collections::BTreeSet, path::PathBuf};

use serde::{Deserialize, Serialize};
use vtax_guest::launch::{Boot, GuestEngine, QemuProgram};
use vtax_model::{
    guest::{Accelerator, System},
    method::Unsupported,
    units::ByteSize,
};

use super::DiskFacts;

/// What this machine has for guests. For what it lacks, the reason and the remedy are here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct GuestFacts {
    pub qemu: Result<QemuFacts, Unsupported>,
    pub tap: Result<(), Unsupported>,
    /// Whether macvtaps can be made, and opened.
    pub macvtap: Result<(), Unsupported>,
    /// Whether the kernel serves rings of virtio-net.
    pub vhost: Result<(), Unsupported>,
    /// Programs that serve rings of virtio-net, each with the reason why a lab can't use it.
    pub vhost_user: Vec<String>,
    /// The agent's program, which goes into guests.
    pub agent: PathBuf,
    /// What guests can boot: one entry for each system and driver that a plan needs.
    pub systems: Vec<SystemFacts>,
    /// Memory that programs can get without swapping (`MemAvailable`).
    pub memory: ByteSize,
    /// Free huge pages of the usual size.
    pub huge_pages: ByteSize,
    pub cpus: Vec<u32>,
    pub nodes: Vec<u32>,
    pub labs: PathBuf,
    /// What guests get as disks.
    #[serde(default)]
    pub disks: DiskFacts,
}

/// QEMU on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct QemuFacts {
    pub program: QemuProgram,
    pub devices: BTreeSet<String>,
    pub accel: Accelerator,
    pub no_kvm: Option<String>,
}

impl QemuFacts {
    /// What runs a guest that boots this.
    pub fn engine(&self, boot: Boot) -> GuestEngine {
        GuestEngine { qemu: self.program.clone(), accel: self.accel, boot }
    }
}

/// A system for guests with a certain NIC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemFacts {
    /// The system that the user asked for.
    pub system: System,
    /// The module that drives the NIC, or several with commas between them.
    pub driver: String,
    /// What such a guest boots, or why there is nothing to boot.
    pub boot: Result<Boot, Unsupported>,
}

impl GuestFacts {
    /// What a guest boots.
    pub fn boot(&self, system: &System, driver: &str) -> Result<Boot, Unsupported> {
        let found = self.systems.iter().find(|facts| facts.system == *system && facts.driver == driver);
        let why = || format!("no search was made for a system with the driver `{driver}`");
        let unknown = || Err(Unsupported::new(why(), "request guests by their method's name"));
        found.map_or_else(unknown, |facts| facts.boot.clone())
    }
}
