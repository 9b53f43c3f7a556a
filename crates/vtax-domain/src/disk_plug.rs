//! Steps that plug virtual disks into a running domain and unplug them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use vtax_guest::{launch::Launch, paths, qmp::PATIENCE};
use vtax_journal::Undone;
use vtax_step::{PartStep, StepError, StepReceipt, StepSite, recorded_qemu};

use crate::{bindings::BoundDisk, disk};

/// Time within which a domain's system releases a disk: its driver waits for five seconds, in case the request is
/// withdrawn.
const RELEASED: Duration = Duration::from_secs(30);

/// Plugs a virtual disk into a running domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlugDisk {
    pub(crate) launch: Box<Launch>,
    /// QEMU's process.
    pub(crate) process: String,
    pub(crate) disk: Box<BoundDisk>,
}

impl PartStep for PlugDisk {
    fn describe(&self) -> String {
        format!("disk {} of {}", self.disk.disk.name, self.launch.name)
    }

    fn apply(&self, _: &mut StepSite) -> Result<StepReceipt, StepError> {
        recorded_qemu(&self.launch, &self.process)?.plug_disk(&disk::launch(&self.disk), PATIENCE)?;
        Ok(StepReceipt::default())
    }

    fn undo(&self, _: Option<&StepReceipt>, _: &mut StepSite) -> Result<Undone, StepError> {
        unplug(&self.launch, &self.process, &self.disk)
    }
}

/// Unplugs a virtual disk that the domain was started with while it runs. It needs no undoing: it ends with QEMU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PullDisk {
    pub(crate) launch: Box<Launch>,
    /// QEMU's process.
    pub(crate) process: String,
    pub(crate) disk: Box<BoundDisk>,
}

impl PartStep for PullDisk {
    fn describe(&self) -> String {
        format!("disk {} back from {}", self.disk.disk.name, self.launch.name)
    }

    fn apply(&self, _: &mut StepSite) -> Result<StepReceipt, StepError> {
        unplug(&self.launch, &self.process, &self.disk).map(|_| StepReceipt::default())
    }

    fn undo(&self, _: Option<&StepReceipt>, _: &mut StepSite) -> Result<Undone, StepError> {
        Ok(Undone::AlreadyGone)
    }
}

fn unplug(launch: &Launch, process: &str, disk: &BoundDisk) -> Result<Undone, StepError> {
    let mut qemu = recorded_qemu(launch, process)?;
    let disk = disk::launch(disk);
    let was_there = qemu.is_alive() && qemu.unplug_disk(&disk, RELEASED)?;
    paths::end(launch, &disk)?;
    Ok(if was_there { Undone::Reverted } else { Undone::AlreadyGone })
}
