use serde::{Deserialize, Serialize};
use vtax_model::{foreign::ForeignText, topology::Name, units::ByteSize};

use super::{MigrationNames, ObstacleText, after};

/// Cores, CPUs and memory that the target lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ResourceObstacle {
    Memory {
        wanted: ByteSize,
        available: ByteSize,
        who: ForeignText,
    },
    Cores {
        wanted: u32,
        free: u32,
        who: ForeignText,
    },
    Vcpus {
        wanted: u32,
        free: u32,
        who: ForeignText,
    },
    NoCore {
        id: u32,
        last: u32,
    },
    CoreTaken {
        id: u32,
        other: Name,
    },
    /// Its cores would have another number of hardware threads, which a running system cannot adapt to.
    Threads {
        vcpus: u32,
        there: u32,
    },
}

impl ResourceObstacle {
    pub(super) fn text(&self, names: &MigrationNames) -> ObstacleText {
        let MigrationNames { domain, target } = names;
        match self {
            ResourceObstacle::Memory { wanted, available, who } => ObstacleText::new(
                "memory",
                format!("{domain} has {wanted}, and {target} has {available} available{}", after(": ", who)),
                "unbind a domain there, or choose another host".to_owned(),
            ),
            ResourceObstacle::Cores { wanted, free, who } => cpus(names, *wanted, *free, "cores", who),
            ResourceObstacle::Vcpus { wanted, free, who } => cpus(names, *wanted, *free, "CPUs", who),
            ResourceObstacle::NoCore { id, last } => ObstacleText::new(
                format!("core {id}"),
                format!("{target} has cores 0 to {last}"),
                format!("choose other cores, or any (vtax ldm set-core {domain})"),
            ),
            ResourceObstacle::CoreTaken { id, other } => ObstacleText::new(
                format!("core {id}"),
                format!("{other} has it at {target}"),
                format!("choose other cores, or any (vtax ldm set-core), or unbind {other}"),
            ),
            ResourceObstacle::Threads { vcpus, there } => ObstacleText::new(
                "CPU",
                format!(
                    "{domain} runs with {vcpus} virtual CPUs, and its cores would have {there} threads at {target}"
                ),
                format!("give it virtual CPUs (vtax ldm set-vcpu {vcpus} {domain}), and stop and start it"),
            ),
        }
    }
}

fn cpus(names: &MigrationNames, wanted: u32, free: u32, unit: &str, who: &ForeignText) -> ObstacleText {
    let MigrationNames { domain, target } = names;
    ObstacleText::new(
        "CPU",
        format!("{domain} has {wanted} {unit}, and {target} has {free} available{}", after(": ", who)),
        "unbind a domain there, or choose another host".to_owned(),
    )
}
