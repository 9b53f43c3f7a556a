//! Steps that give domains and switches their resources, and how they are undone.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use vtax_change::pci::VfSettings;
use vtax_guest::launch::Launch;
use vtax_journal::{Step, Undone};
use vtax_lab::io::{DeviceClaim, DeviceClaims};
use vtax_step::{
    CreateSwitch, CreateTap, LendAddress, LimitTap, PartStep, PlugNic, StartGuest, StepReceipt, StepSite, TakeUplink,
};
use vtax_sys::pci::PciAddress;

use crate::{bindings::BoundDisk, devices, disk_plug, error::BindError};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub(crate) enum DomainStep {
    /// Creates the domain's own directory, which is removed last.
    Begin {
        directory: PathBuf,
    },
    CreateSwitch(CreateSwitch),
    TakeUplink(TakeUplink),
    CreateTap(CreateTap),
    LimitTap(LimitTap),
    PlugNic(PlugNic),
    LendAddress(LendAddress),
    /// Claims a PCI function, configures it, and binds it to vfio-pci.
    AssignFunction {
        claims: DeviceClaims,
        claim: Box<DeviceClaim>,
        set: VfSettings,
    },
    /// Plugs a PCI function that vfio-pci has into a running domain.
    PlugDevice {
        launch: Box<Launch>,
        /// QEMU's process.
        process: String,
        /// Empty slot that it gets.
        port: u32,
        /// Name of the device in `list-io`.
        name: String,
        device: PciAddress,
    },
    /// Unplugs a PCI function that the domain was started with while it runs, and returns it. It needs no undoing: the
    /// step that took it finds it returned.
    ReturnFunction {
        launch: Box<Launch>,
        /// QEMU's process.
        process: String,
        /// Its slot.
        port: u32,
        /// Name of the device in `list-io`.
        name: String,
        claims: DeviceClaims,
        claim: Box<DeviceClaim>,
    },
    /// Plugs a virtual disk into a running domain.
    PlugDisk {
        launch: Box<Launch>,
        /// QEMU's process.
        process: String,
        disk: Box<BoundDisk>,
    },
    /// Unplugs a virtual disk that the domain was started with while it runs. It needs no undoing: it ends with QEMU.
    PullDisk {
        launch: Box<Launch>,
        /// QEMU's process.
        process: String,
        disk: Box<BoundDisk>,
    },
    /// Starts QEMU with its CPUs stopped.
    StartGuest(StartGuest),
}

impl DomainStep {
    /// The step, if it makes a part that isn't a domain's alone.
    fn part(&self) -> Option<&dyn PartStep> {
        Some(match self {
            DomainStep::CreateSwitch(step) => step,
            DomainStep::TakeUplink(step) => step,
            DomainStep::CreateTap(step) => step,
            DomainStep::LimitTap(step) => step,
            DomainStep::PlugNic(step) => step,
            DomainStep::LendAddress(step) => step,
            DomainStep::StartGuest(step) => step,
            _ => return None,
        })
    }
}

impl Step for DomainStep {
    type World = StepSite;
    type Receipt = StepReceipt;
    type Error = BindError;

    fn describe(&self) -> String {
        match self {
            DomainStep::Begin { directory } => format!("directory {}", directory.display()),
            DomainStep::AssignFunction { claim, .. } => format!("{} for {}", claim.device, claim.owner),
            DomainStep::PlugDevice { launch, port, device, .. } => {
                format!("{device} in slot {port} of {}", launch.name)
            }
            DomainStep::PlugDisk { launch, disk, .. } => format!("disk {} of {}", disk.disk.name, launch.name),
            DomainStep::PullDisk { launch, disk, .. } => format!("disk {} back from {}", disk.disk.name, launch.name),
            DomainStep::ReturnFunction { claim, .. } => format!("{} back from {}", claim.device, claim.owner),
            _ => self.part().map(PartStep::describe).unwrap_or_default(),
        }
    }

    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, BindError> {
        match self {
            DomainStep::Begin { .. } => {}
            DomainStep::AssignFunction { claims, claim, set } => devices::assign(claims, claim, set)?,
            DomainStep::PlugDevice { launch, process, port, device, .. } => {
                devices::plug(launch, process, *port, *device)?;
            }
            DomainStep::ReturnFunction { launch, process, port, claims, claim, .. } => {
                devices::unplug(launch, process, *port, claim.device)?;
                devices::give_back(claims, claim)?;
            }
            DomainStep::PlugDisk { launch, process, disk } => disk_plug::plug(launch, process, disk)?,
            DomainStep::PullDisk { launch, process, disk } => drop(disk_plug::unplug(launch, process, disk)?),
            _ => return self.part().map_or(Ok(StepReceipt::default()), |part| Ok(part.apply(site)?)),
        }
        Ok(StepReceipt::default())
    }

    fn undo(&self, receipt: Option<&StepReceipt>, site: &mut StepSite) -> Result<Undone, BindError> {
        match self {
            DomainStep::Begin { .. } => Ok(Undone::Reverted),
            DomainStep::AssignFunction { claims, claim, .. } => devices::give_back(claims, claim),
            DomainStep::PlugDevice { launch, process, port, device, .. } => {
                devices::unplug(launch, process, *port, *device)
            }
            DomainStep::PlugDisk { launch, process, disk } => disk_plug::unplug(launch, process, disk),
            DomainStep::ReturnFunction { .. } | DomainStep::PullDisk { .. } => Ok(Undone::AlreadyGone),
            _ => self.part().map_or(Ok(Undone::AlreadyGone), |part| Ok(part.undo(receipt, site)?)),
        }
    }
}

#[cfg(test)]
mod tests;
