//! Types of devices.

use super::{AdviceRule, Candidate, Exclusion, RuleAnswer};
use crate::{
    advice::{
        relaxation::RelaxedTo,
        requirements::{RequiredDevice, Requirement},
    },
    method::{Capability, Devices},
};

pub(super) const RULE: AdviceRule = AdviceRule { requirement: Requirement::Device, judge };

fn judge(candidate: &Candidate<'_>) -> RuleAnswer {
    let answers = candidate.requirements.devices().into_iter().map(|device| of_device(candidate, device));
    let mut worst = RuleAnswer::Admits;
    for answer in answers {
        match (&worst, &answer) {
            (_, RuleAnswer::Excludes(_)) => return answer,
            (RuleAnswer::Admits, _) => worst = answer,
            _ => {}
        }
    }
    worst
}

/// QEMU gives every guest a console, whatever its other devices.
fn of_device(candidate: &Candidate<'_>, device: RequiredDevice) -> RuleAnswer {
    let excludes = || {
        let required = format!("device {device}");
        let exclusion =
            Exclusion::new(RelaxedTo::WithoutDevice(device), required, candidate.reason(Capability::Devices));
        let is_only = candidate.requirements.devices() == [device];
        RuleAnswer::Excludes(Exclusion { relaxed: exclusion.relaxed.filter(|_| !is_only), ..exclusion })
    };
    match (device, candidate.capabilities().devices) {
        (RequiredDevice::Net, _) | (_, Devices::Pci) => RuleAnswer::Admits,
        (RequiredDevice::Disk | RequiredDevice::Console, Devices::NetAndDisk) => RuleAnswer::Admits,
        (RequiredDevice::Console, Devices::Functions) => RuleAnswer::Admits,
        (RequiredDevice::Disk | RequiredDevice::Pci, Devices::Functions) => {
            RuleAnswer::Depends(format!("device {device}: {}", candidate.reason(Capability::Devices)))
        }
        (_, Devices::Net) | (RequiredDevice::Pci, Devices::NetAndDisk) => excludes(),
    }
}
