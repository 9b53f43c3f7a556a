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
    /// There is no evidence that both sides have the same blocks.
    Unproven {
        disk: Name,
        path: ForeignText,
    },
    /// It would have to be copied, which vtax cannot do.
    NotCopied {
        disk: Name,
        why: CopyObstacle,
    },
    /// It would be copied to a file that has data.
    Written {
        disk: Name,
        path: ForeignText,
        size: ByteSize,
    },
    /// Disks would be copied to a file system without enough space for all of them.
    NoRoom {
        disk: Name,
        path: ForeignText,
        wanted: ByteSize,
        free: ByteSize,
    },
}

/// Reason why a disk cannot be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopyObstacle {
    /// The domain doesn't run, so no QEMU has the disk.
    AtRest,
    ReadOnly,
    Qcow2,
    Slice,
    /// It is a block device, or would be one at the target.
    Device,
    /// It has several paths, each with a storage daemon.
    Paths,
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
                format!("copy it (--copy-disks), or remove the disk from {domain}"),
            ),
            DiskObstacle::NotCopied { disk, why } => {
                let (reason, remedy) = why.text(domain);
                ObstacleText::new(disk, reason, remedy)
            }
            DiskObstacle::Written { disk, path, size } => ObstacleText::new(
                disk,
                format!("{path} at {target} has data, which the copy would overwrite"),
                format!("export a file without data there (truncate -s {} FILE)", size.0),
            ),
            DiskObstacle::NoRoom { disk, path, wanted, free } => ObstacleText::new(
                disk,
                format!(
                    "the disks to copy to the file system of {path} at {target} have {wanted}, and {free} are free"
                ),
                "free space there, or export a file on another file system".to_owned(),
            ),
        }
    }
}

impl CopyObstacle {
    /// Returns the reason and the remedy.
    fn text(self, domain: &Name) -> (String, String) {
        let remove = || format!("use storage that both hosts have, or remove the disk from {domain}");
        let copies = |what: &str| (format!("{what}, which vtax does not copy"), remove());
        match self {
            CopyObstacle::AtRest => (
                format!("{domain} is not active, and vtax copies disks only while their domain runs"),
                format!("start it first (vtax ldm start-domain {domain}), or use storage that both hosts have"),
            ),
            CopyObstacle::ReadOnly => copies("it is read-only"),
            CopyObstacle::Qcow2 => copies("it is a qcow2 image"),
            CopyObstacle::Slice => copies("it is a part of its backend (slice)"),
            CopyObstacle::Device => copies("it is a block device at one of the hosts"),
            CopyObstacle::Paths => copies("it has several paths (mpgroup)"),
        }
    }
}
