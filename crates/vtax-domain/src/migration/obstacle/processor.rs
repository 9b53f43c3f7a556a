use serde::{Deserialize, Serialize};
use vtax_guest::launch::Version;
use vtax_model::{foreign::ForeignText, guest::Accelerator};

use super::{MigrationNames, ObstacleText, listed};

/// Differences of the processors and of QEMU that a domain cannot cope with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ProcessorObstacle {
    /// The target's CPUs lack features that the running system sees.
    Features {
        missing: Vec<ForeignText>,
    },
    /// The target's QEMU is older than the machine type.
    Machine {
        needs: Version,
        has: Version,
    },
    /// The firmware in the domain's memory, qboot, is not among the files of the target's QEMU.
    Firmware,
    Accelerator {
        here: Accelerator,
        there: Accelerator,
    },
    /// The target cannot run guests.
    NoGuests {
        why: ForeignText,
    },
}

impl ProcessorObstacle {
    pub(super) fn text(&self, names: &MigrationNames) -> ObstacleText {
        let MigrationNames { domain, target } = names;
        let stop = format!("stop it first (vtax ldm stop-domain {domain})");
        match self {
            ProcessorObstacle::Features { missing } => ObstacleText::new(
                "CPU",
                format!("{target} lacks {}, which is exposed to {domain}", listed(missing)),
                format!("{stop}, or choose another host"),
            ),
            ProcessorObstacle::Machine { needs, has } => ObstacleText::new(
                "QEMU",
                format!("the machine type of {domain}, pc-q35-{needs}, requires QEMU {needs}, and {target} has {has}"),
                "update QEMU there".to_owned(),
            ),
            ProcessorObstacle::Firmware => ObstacleText::new(
                "QEMU",
                format!("the firmware of {domain}, qboot, is not installed with QEMU at {target}"),
                format!("install it there (share/qemu/qboot.rom, beside the bin of QEMU), or {stop}"),
            ),
            ProcessorObstacle::Accelerator { here, there } => ObstacleText::new(
                "QEMU",
                format!("{domain} runs under {here}, and would run under {there} at {target}"),
                format!("{stop}, or enable KVM on both hosts"),
            ),
            ProcessorObstacle::NoGuests { why } => ObstacleText::new(
                "QEMU",
                format!("{target} cannot run domains: {why}"),
                "fix this there, or choose another host".to_owned(),
            ),
        }
    }
}
