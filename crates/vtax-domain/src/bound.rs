//! The domains that have something of this host, as their journals tell.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use vtax_guest::{
    launch::{Launch, NicLaunch},
    process::Qemu,
    vdisk::DiskLaunch,
};
use vtax_journal::{Batch, BatchId, BatchState, JournalError, JournalState, Snapshot};
use vtax_model::{domain::DomainState, topology::Name, units::BitRate};
use vtax_sys::{
    clock::boottime_ns,
    process::ProcessId,
    record::{self, RecordError},
};

use crate::{
    bindings::{Bindings, BoundDevice, BoundNic},
    carrier::TapCarrier,
    disk,
    disk_moves::{self, PluggedDisk},
    draft::FileDraft,
    error::BindError,
    step::DomainStep,
    supervisor_process,
};

/// A domain that is bound, or was while a vtax that bound or unbound it was killed.
#[derive(Debug)]
pub struct BoundDomain {
    /// Resources that the domain holds, as recorded in its journal.
    pub bindings: Bindings,
    /// Whether a vtax that bound or unbound it was killed on the way.
    pub(crate) is_abandoned: bool,
    /// Its QEMU as it was started last.
    pub(crate) guest: Option<RecordedGuest>,
    /// Since when it runs.
    pub(crate) started: Option<Started>,
    /// The virtual NICs that were plugged in while it ran.
    pub(crate) plugged: Vec<PluggedNic>,
    /// Which links of the host its virtual NICs follow.
    pub(crate) carriers: Vec<TapCarrier>,
    /// The PCI devices that were plugged in while it ran.
    pub(crate) plugged_devices: Vec<PluggedDevice>,
    /// The virtual disks that were plugged in while it ran.
    pub(crate) plugged_disks: Vec<PluggedDisk>,
    /// Whether PCI devices or disks have come or gone since it was bound.
    pub(crate) devices_moved: bool,
    /// Its supervisor, which may have ended.
    pub(crate) supervisor: Option<ProcessId>,
    /// Whether it was stopped because its system rebooted again and again.
    pub(crate) is_in_reboot_loop: bool,
}

/// A PCI device that was plugged into a running domain.
#[derive(Debug, Clone)]
pub(crate) struct PluggedDevice {
    /// Its name in `list-io`.
    pub(crate) name: String,
    pub(crate) batch: BatchId,
}

/// A virtual NIC that was plugged into a running domain.
#[derive(Debug, Clone)]
pub(crate) struct PluggedNic {
    pub(crate) nic: BoundNic,
    pub(crate) launch: NicLaunch,
    /// The limit in force.
    pub(crate) maxbw: Option<BitRate>,
    pub(crate) port: u32,
    pub(crate) batch: BatchId,
}

/// QEMU as the journal has it.
#[derive(Debug, Clone)]
pub(crate) struct RecordedGuest {
    pub(crate) launch: Launch,
    pub(crate) process: Option<ProcessId>,
}

/// What is written down when a domain is started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Started {
    /// The time since the host's boot.
    pub(crate) at: Duration,
    /// Whether the system in it has spoken up.
    pub(crate) is_up: bool,
}

impl BoundDomain {
    /// How its QEMU was started and what process that is, as steps of its journal have it; none if it has none.
    pub(crate) fn running_guest(&self) -> Option<(Box<Launch>, String)> {
        let RecordedGuest { launch, process } = self.guest.as_ref()?;
        Some((Box::new(launch.clone()), process.as_ref()?.to_string()))
    }

    /// What a record in `folder` says.
    pub(crate) fn of(snapshot: Snapshot<DomainStep>, folder: &Path) -> Result<BoundDomain, JournalError> {
        let mut bindings = Bindings::deserialize(&snapshot.header.about).map_err(|error| {
            let path = folder.join("journals").join(format!("{}.journal", snapshot.id));
            JournalError::OtherVersion { path, line: 1, why: error.to_string() }
        })?;
        let plugged = plugged(&snapshot);
        bindings.nics.extend(plugged.iter().map(|plugged| plugged.nic.clone()));
        let plugged_devices = plugged_devices(&snapshot);
        let disks_moved = disk_moves::follow(&mut bindings.disks, &snapshot);
        let devices_moved = follow_devices(&mut bindings.devices, &snapshot) || disks_moved;
        let guest = snapshot.batches().rev().filter(|batch| batch.state() != BatchState::Undone).find_map(|batch| {
            batch.records.iter().find_map(|record| match &record.step {
                DomainStep::StartGuest { launch, .. } => {
                    let receipt = record.progress.receipt();
                    let process = receipt.and_then(|receipt| receipt.0.as_ref()?.parse().ok());
                    Some(RecordedGuest { launch: (**launch).clone(), process })
                }
                _ => None,
            })
        });
        let own = folder.join(bindings.domain.as_str());
        let started = Started::read(&own)?;
        // Whoever takes a damaged one for none starts a second supervisor.
        let supervisor = supervisor_process::recorded(&own)?;
        let is_abandoned = snapshot.state == JournalState::Abandoned || snapshot.batches().any(|it| it.is_abandoned());
        let carriers = carriers(&snapshot);
        Ok(BoundDomain {
            bindings,
            is_abandoned,
            guest,
            started,
            plugged,
            carriers,
            plugged_devices,
            plugged_disks: disk_moves::plugged(&snapshot),
            devices_moved,
            supervisor,
            is_in_reboot_loop: supervisor_process::reboot_loop(&own).exists(),
        })
    }

    /// Returns the domain's name, as recorded in its bindings.
    pub fn name(&self) -> &Name {
        &self.bindings.domain
    }

    /// Its QEMU, if that runs.
    pub fn qemu(&self) -> Option<Qemu> {
        let RecordedGuest { launch, process } = self.guest.clone()?;
        Some(Qemu::attach(launch, process?)).filter(Qemu::is_alive)
    }

    /// How its QEMU was given a virtual disk, by the disk's name; none if it has no such disk now.
    pub fn disk(&self, name: &Name) -> Option<DiskLaunch> {
        self.bindings.disks.iter().find(|bound| bound.disk.name == *name).map(disk::launch)
    }

    /// Returns true if its console has a port.
    pub(crate) fn has_console(&self) -> bool {
        self.bindings.console.is_some()
    }

    /// The socket behind its serial port.
    pub fn console_socket(&self) -> Option<PathBuf> {
        self.guest.as_ref().map(|guest| guest.launch.console_socket())
    }

    /// Returns `Active` while it is to run, which is recorded, and QEMU runs or a supervisor lives that is about to start it
    /// again; else `Bound` or `Binding`; never `Inactive`.
    pub fn state(&self) -> DomainState {
        match (&self.guest, &self.started) {
            (_, Some(_)) if self.has_supervisor() || self.qemu().is_some() => DomainState::Active,
            (None, _) => DomainState::Binding,
            _ => DomainState::Bound,
        }
    }

    /// Returns true if the process that watches the domain lives.
    pub(crate) fn has_supervisor(&self) -> bool {
        self.supervisor.is_some_and(|process| matches!(process.wait_end(Duration::ZERO), Ok(false)))
    }

    /// Returns the time since it was started, while it runs.
    pub fn uptime(&self) -> Option<Duration> {
        self.qemu()?;
        Some(since_boot().saturating_sub(self.started.as_ref()?.at))
    }

    /// Whether the system in it has spoken up.
    pub fn is_up(&self) -> bool {
        self.started.as_ref().is_some_and(|started| started.is_up)
    }
}

/// A batch that plugs a NIC has its tap, its limit if it has one, and then the NIC.
fn plugged(snapshot: &Snapshot<DomainStep>) -> Vec<PluggedNic> {
    let of_batch = |batch: Batch<'_, DomainStep>| {
        let steps = || batch.records.iter().map(|record| &record.step);
        let (port, launch) = steps().find_map(|step| match step {
            DomainStep::PlugNic { port, nic, .. } => Some((*port, (**nic).clone())),
            _ => None,
        })?;
        let nic = steps().find_map(|step| match step {
            DomainStep::CreateTap { vnet, link, switch, .. } => {
                Some(BoundNic { vnet: vnet.clone(), tap: link.clone(), switch: switch.clone() })
            }
            _ => None,
        })?;
        let maxbw = steps().find_map(|step| match step {
            DomainStep::LimitTap { limit, .. } => Some(limit.rate),
            _ => None,
        });
        (batch.state() != BatchState::Undone).then_some(PluggedNic { nic, launch, maxbw, port, batch: batch.id })
    };
    snapshot.batches().filter_map(of_batch).collect()
}

fn carriers(snapshot: &Snapshot<DomainStep>) -> Vec<TapCarrier> {
    let batches = snapshot.batches().filter(|batch| batch.state() != BatchState::Undone);
    let records = batches.flat_map(|batch| batch.records.iter());
    let of_step = |step: &DomainStep| match step {
        DomainStep::CreateTap { link, uplink, linkprop, .. } => {
            Some(TapCarrier { tap: link.clone(), uplink: uplink.clone(), linkprop: *linkprop })
        }
        _ => None,
    };
    records.filter_map(|record| of_step(&record.step)).collect()
}

fn plugged_devices(snapshot: &Snapshot<DomainStep>) -> Vec<PluggedDevice> {
    let of_batch = |batch: Batch<'_, DomainStep>| {
        let there = batch.state() != BatchState::Undone;
        batch.records.iter().filter(|_| there).find_map(|record| match &record.step {
            DomainStep::PlugDevice { name, .. } => Some(PluggedDevice { name: name.clone(), batch: batch.id }),
            _ => None,
        })
    };
    snapshot.batches().filter_map(of_batch).collect()
}

/// What has come to a domain's devices and gone from them since it was bound, in this order. Returns whether there was
/// anything.
fn follow_devices(devices: &mut Vec<BoundDevice>, snapshot: &Snapshot<DomainStep>) -> bool {
    let mut moved = false;
    let batches = snapshot.batches().filter(|batch| batch.state() != BatchState::Undone);
    for record in batches.flat_map(|batch| batch.records) {
        match &record.step {
            DomainStep::PlugDevice { name, device, port, .. } => {
                devices.push(BoundDevice { name: name.clone(), functions: vec![*device], port: Some(*port) });
            }
            DomainStep::ReturnFunction { name, .. } => devices.retain(|device| device.name != *name),
            _ => continue,
        }
        moved = true;
    }
    moved
}

impl Started {
    const FILE: &str = "started.json";

    pub(crate) fn now() -> Started {
        Started { at: since_boot(), is_up: false }
    }

    /// None if it wasn't started.
    fn read(directory: &Path) -> Result<Option<Started>, RecordError> {
        let path = directory.join(Started::FILE);
        let Some(bytes) = record::read(&path, record::SMALL)? else { return Ok(None) };
        let read = serde_json::from_slice(&bytes);
        read.map(Some).map_err(|error| RecordError::Damaged { path, why: error.to_string() })
    }

    /// Replaces the file as a whole: `list` may read it at any moment.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), BindError> {
        let written = FileDraft::write(directory, Started::FILE, "new", self).and_then(FileDraft::commit);
        written.map_err(BindError::file("write", &directory.join(Started::FILE)))
    }

    pub(crate) fn remove(directory: &Path) {
        // It needn't be there.
        let _ = fs::remove_file(directory.join(Started::FILE));
    }
}

fn since_boot() -> Duration {
    Duration::from_nanos(boottime_ns())
}
