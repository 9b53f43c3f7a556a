//! Parts of a bound domain according to its journal: its QEMU, and what was plugged in or unplugged since it was bound.

use vtax_guest::launch::{Launch, NicLaunch};
use vtax_journal::{Batch, BatchId, BatchState, Record, Snapshot};
use vtax_model::{topology::Name, units::BitRate};
use vtax_step::{PlugNic, StepReceipt};
use vtax_sys::process::ProcessId;

use crate::{
    bindings::{Bindings, BoundDevice, BoundNic},
    carrier::TapCarrier,
    step::DomainStep,
};

/// PCI device that was plugged into a running domain.
#[derive(Debug, Clone)]
pub(crate) struct PluggedDevice {
    /// Its name in `list-io`.
    pub(crate) name: String,
    pub(crate) batch: BatchId,
}

/// Virtual NIC that was plugged into a running domain.
#[derive(Debug, Clone)]
pub(crate) struct PluggedNic {
    pub(crate) nic: BoundNic,
    pub(crate) launch: NicLaunch,
    /// Current limit.
    pub(crate) maxbw: Option<BitRate>,
    pub(crate) port: u32,
    pub(crate) batch: BatchId,
}

/// QEMU according to the journal.
#[derive(Debug, Clone)]
pub(crate) struct RecordedGuest {
    pub(crate) launch: Launch,
    pub(crate) process: Option<ProcessId>,
}

/// Virtual disk that was plugged into a running domain.
#[derive(Debug, Clone)]
pub(crate) struct PluggedDisk {
    pub(crate) name: Name,
    pub(crate) batch: BatchId,
}

/// Parts that a journal describes. What was undone is not among them.
#[derive(Debug, Default)]
pub(crate) struct RecordedParts {
    pub(crate) guest: Option<RecordedGuest>,
    pub(crate) nics: Vec<PluggedNic>,
    pub(crate) carriers: Vec<TapCarrier>,
    pub(crate) devices: Vec<PluggedDevice>,
    pub(crate) disks: Vec<PluggedDisk>,
    /// True if PCI devices or disks were added or removed.
    pub(crate) devices_moved: bool,
}

impl RecordedParts {
    /// Reads a domain's parts, and applies them to its bindings, in this order.
    pub(crate) fn follow(snapshot: &Snapshot<DomainStep>, bindings: &mut Bindings) -> RecordedParts {
        let mut parts = RecordedParts::default();
        for batch in snapshot.batches().filter(|batch| batch.state() != BatchState::Undone) {
            batch.records.iter().for_each(|record| parts.take(record, &batch, bindings));
        }
        bindings.nics.extend(parts.nics.iter().map(|plugged| plugged.nic.clone()));
        parts
    }

    fn take(&mut self, record: &Record<DomainStep>, batch: &Batch<'_, DomainStep>, bindings: &mut Bindings) {
        match &record.step {
            DomainStep::StartGuest(step) => {
                let process = record.progress.receipt().and_then(StepReceipt::process);
                self.guest = Some(RecordedGuest { launch: (*step.launch).clone(), process });
            }
            DomainStep::CreateTap(step) => {
                let (tap, uplink) = (step.link.clone(), step.uplink.clone());
                self.carriers.push(TapCarrier { tap, uplink, linkprop: step.linkprop });
            }
            DomainStep::PlugNic(step) => self.nics.extend(plugged_nic(step, batch)),
            DomainStep::PlugDevice(step) => {
                let (name, functions, port) = (step.name.clone(), vec![step.device], Some(step.port));
                self.devices.push(PluggedDevice { name: name.clone(), batch: batch.id });
                bindings.devices.push(BoundDevice { name, functions, port });
                self.devices_moved = true;
            }
            DomainStep::ReturnFunction(step) => {
                bindings.devices.retain(|device| device.name != step.name);
                self.devices_moved = true;
            }
            DomainStep::PlugDisk(step) => {
                self.disks.push(PluggedDisk { name: step.disk.disk.name.clone(), batch: batch.id });
                bindings.disks.push((*step.disk).clone());
                self.devices_moved = true;
            }
            DomainStep::PullDisk(step) => {
                bindings.disks.retain(|own| own.disk.name != step.disk.disk.name);
                self.devices_moved = true;
            }
            _ => {}
        }
    }
}

/// A batch that plugs a NIC has its tap, its limit if it has one, and then the NIC.
fn plugged_nic(step: &PlugNic, batch: &Batch<'_, DomainStep>) -> Option<PluggedNic> {
    let (mut nic, mut maxbw) = (None, None);
    for record in batch.records {
        match &record.step {
            DomainStep::CreateTap(tap) => {
                let (vnet, tap, switch) = (tap.vnet.clone(), tap.link.clone(), tap.switch.clone());
                nic = Some(BoundNic { vnet, tap, switch });
            }
            DomainStep::LimitTap(step) => maxbw = Some(step.limit.rate),
            _ => {}
        }
    }
    Some(PluggedNic { nic: nic?, launch: (*step.nic).clone(), maxbw, port: step.port, batch: batch.id })
}
