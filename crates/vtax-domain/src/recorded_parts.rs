//! Parts of a bound domain according to its journal: its QEMU, and parts plugged in or unplugged since it was bound.

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

/// Parts that a journal describes, except those that were undone.
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

#[cfg(test)]
mod tests {
    use vtax_model::domain::{Configuration, LinkProp, VnetChange};
    use vtax_step::{DeviceClaim, DeviceClaims, PlugDevice, ReturnFunction};

    use super::*;
    use crate::{
        bound::BoundDomain,
        disk_plug::{PlugDisk, PullDisk},
        test_domains::{
            DomainJournal, QEMU_PROCESS, RecordedEnd, add_vnet, configuration, device, disk, launch, mars, plug,
        },
    };

    /// Returns a domain with a function and a disk, and all that can be plugged in and unplugged.
    fn parts() -> (Bindings, Configuration, [DomainStep; 4]) {
        let mut all = configuration();
        let mut own = mars(&all);
        (own.devices, own.disks) = (vec![device("vf0", Some(0))], vec![disk("vol1", 0)]);
        let change = VnetChange { maxbw: "1G".parse().ok(), ..VnetChange::default() };
        let change = VnetChange { linkprop: Some(LinkProp::PhysState), ..change };
        add_vnet(&mut all, "net1", change);
        let (process, launch) = (QEMU_PROCESS.to_owned(), Box::new(launch(&own, &all)));
        let claim: DeviceClaim = serde_json::from_value(serde_json::json!({
            "owner": "mars", "device": "0000:01:10.0", "function_of": null,
            "was": { "settings": { "mac": "00:00:00:00:00:00" }, "driver": "igbvf", "driver_override": null },
        }))
        .expect("a claim");
        let (claims, claim) = (DeviceClaims::below("/run/vtax/devices".into()), Box::new(claim));
        let function = device("vf1", Some(1)).functions[0];
        let steps = [
            DomainStep::PlugDevice(PlugDevice {
                launch: launch.clone(),
                process: process.clone(),
                port: 1,
                name: "vf1".to_owned(),
                device: function,
            }),
            DomainStep::ReturnFunction(ReturnFunction {
                launch: launch.clone(),
                process: process.clone(),
                port: 0,
                name: "vf0".to_owned(),
                claims,
                claim,
            }),
            DomainStep::PlugDisk(PlugDisk {
                launch: launch.clone(),
                process: process.clone(),
                disk: Box::new(disk("vol2", 1)),
            }),
            DomainStep::PullDisk(PullDisk { launch, process, disk: Box::new(disk("vol1", 0)) }),
        ];
        (own, all, steps)
    }

    fn has(bound: &BoundDomain) -> (Vec<&str>, Vec<&str>) {
        let devices = bound.bindings.devices.iter().map(|device| device.name.as_str());
        (devices.collect(), bound.bindings.disks.iter().map(|bound| bound.disk.name.as_str()).collect())
    }

    #[test]
    fn a_domain_has_plugged_parts_and_not_unplugged_ones() {
        let (own, all, steps) = parts();
        let record = DomainJournal::new(&own).started(&all);
        assert_eq!((has(&record.read()), record.read().devices_moved), ((vec!["vf0"], vec!["vol1"]), false));
        let expected: [(Vec<&str>, Vec<&str>); 4] = [
            (vec!["vf0", "vf1"], vec!["vol1"]),
            (vec![], vec!["vol1"]),
            (vec!["vf0"], vec!["vol1", "vol2"]),
            (vec!["vf0"], vec![]),
        ];
        for (step, expected) in steps.into_iter().zip(expected) {
            let bound = DomainJournal::new(&own).started(&all).batch([step.clone()]).read();
            assert_eq!((has(&bound), bound.devices_moved), (expected, true), "{step:?}");
            let bound = DomainJournal::new(&own).started(&all).ended([step], RecordedEnd::Undone).read();
            assert_eq!((has(&bound), bound.devices_moved), ((vec!["vf0"], vec!["vol1"]), false));
        }
    }

    /// The batch is undone when the part is unplugged.
    #[test]
    fn plugged_parts_are_recorded_with_their_batch() {
        let (own, all, [function, _, disk, _]) = parts();
        let bound = DomainJournal::new(&own)
            .started(&all)
            .batch([function])
            .batch([disk])
            .batch(plug(&own, &all, "net1", 2))
            .read();
        let batches = [bound.plugged_devices[0].batch, bound.plugged_disks[0].batch, bound.plugged[0].batch]
            .map(|id| id.to_string());
        assert_eq!(batches, ["3", "4", "5"]);
        assert_eq!((bound.plugged_devices[0].name.as_str(), bound.plugged_disks[0].name.as_str()), ("vf1", "vol2"));
    }

    #[test]
    fn a_plugged_vnet_has_the_tap_the_limit_and_the_carrier_of_its_own_batch() {
        let (own, mut all, _) = parts();
        add_vnet(&mut all, "net2", VnetChange::default());
        let steps = [plug(&own, &all, "net1", 0), plug(&own, &all, "net2", 1)];
        let bound = steps.into_iter().fold(DomainJournal::new(&own).started(&all), DomainJournal::batch).read();
        let plugged: Vec<(&str, Option<BitRate>, u32)> =
            bound.plugged.iter().map(|it| (it.nic.tap.as_str(), it.maxbw, it.port)).collect();
        assert_eq!(plugged, [("vnet2.1", "1G".parse().ok(), 0), ("vnet2.2", None, 1)]);
        let taps: Vec<&str> = bound.bindings.nics.iter().map(|nic| nic.tap.as_str()).collect();
        assert_eq!(taps, ["vnet2.0", "vnet2.1", "vnet2.2"], "after those that it was started with");
        let carriers: Vec<_> = bound.carriers.iter().map(|it| (it.uplink.as_deref(), it.linkprop)).collect();
        assert_eq!(carriers, [(Some("eno1"), LinkProp::PhysState), (Some("eno1"), LinkProp::None)]);
    }

    #[test]
    fn its_qemu_is_the_last_one_that_was_not_undone() {
        let (own, all, _) = parts();
        let smaller = Bindings { memory: crate::test_domains::mib(64), ..own.clone() };
        let start = |bindings: &Bindings| crate::domains::start_step(launch(bindings, &all), bindings);
        let memory =
            |record: DomainJournal| record.read().guest.map(|guest| (guest.launch.memory, guest.process.is_some()));
        let first = || DomainJournal::new(&own).started(&all);
        assert_eq!(memory(DomainJournal::new(&own)), None);
        assert_eq!(memory(first()), Some((own.memory, true)));
        assert_eq!(memory(first().batch([start(&smaller)])), Some((smaller.memory, true)));
        assert_eq!(memory(first().ended([start(&smaller)], RecordedEnd::Undone)), Some((own.memory, true)));
        assert_eq!(memory(first().ended([start(&smaller)], RecordedEnd::Cut)), Some((smaller.memory, false)));
    }
}
