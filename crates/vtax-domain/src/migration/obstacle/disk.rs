use serde::{Deserialize, Serialize};
use vtax_model::{domain::VolumeName, foreign::ForeignText, topology::Name, units::ByteSize};

use super::{MigrationNames, ObstacleText};

/// Reason why the target cannot use a disk's storage, or the file that the domain boots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum DiskObstacle {
    /// The target exports no volume of this name.
    NoVolume {
        disk: Name,
        volume: VolumeName,
    },
    /// Its file or device cannot be used.
    Missing {
        disk: Name,
        why: ForeignText,
    },
    /// Another domain there uses it.
    InUse {
        disk: Name,
        why: ForeignText,
    },
    Size {
        disk: Name,
        path: ForeignText,
        here: ByteSize,
        there: ByteSize,
    },
    /// It is read-only on one side.
    Access {
        disk: Name,
        volume: VolumeName,
    },
    /// Nothing shows that both sides have the same blocks.
    Unproven {
        disk: Name,
        path: ForeignText,
    },
}

impl DiskObstacle {
    pub(super) fn text(&self, names: &MigrationNames) -> ObstacleText {
        let MigrationNames { domain, target } = names;
        match self {
            DiskObstacle::NoVolume { disk, volume } => ObstacleText::new(
                disk,
                format!("{target} exports no volume {volume}"),
                format!(
                    "export the same storage there (vtax ldm add-vds {} primary, vtax ldm add-vdsdev BACKEND {volume})",
                    volume.service
                ),
            ),
            DiskObstacle::Missing { disk, why } => ObstacleText::new(
                disk,
                format!("at {target}, {why}"),
                "use storage that both hosts have under the same name".to_owned(),
            ),
            DiskObstacle::InUse { disk, why } => ObstacleText::new(
                disk,
                format!("at {target}, {why}"),
                format!("export the storage of {domain} under this name there"),
            ),
            DiskObstacle::Size { disk, path, here, there } => ObstacleText::new(
                disk,
                format!("it has {here}, and {path} at {target} has {there}, so it is not the same storage"),
                "export the same storage there (vtax ldm add-vdsdev)".to_owned(),
            ),
            DiskObstacle::Access { disk, volume } => ObstacleText::new(
                disk,
                format!("the volume {volume} is read-only at one of the hosts only"),
                format!("set the same options at both (vtax ldm set-vdsdev options=… {volume})"),
            ),
            DiskObstacle::Unproven { disk, path } => ObstacleText::new(
                disk,
                format!("{path} at {target} is not shown to be the same storage"),
                format!("remove the disk from {domain}, or copy it by hand: vtax moves no data of disks yet"),
            ),
        }
    }
}
