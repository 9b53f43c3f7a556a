//! Attachment of a host disk to a guest.

use std::{fmt, str::FromStr};

use serde_with::{DeserializeFromStr, SerializeDisplay};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

use crate::spelling::available;

/// The device in a guest's PCI slot, and the process that does its I/O on the host.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Display, EnumString, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "kebab-case")]
pub enum DiskDevice {
    /// virtio-blk of the guest's QEMU.
    VirtioBlk,
    /// virtio-scsi of the guest's QEMU.
    VirtioScsi,
    /// virtio-blk whose queues a storage daemon serves itself, over vhost-user.
    VhostUserBlk,
    /// virtio-blk of the guest's QEMU, which gets the blocks from a storage daemon, over NBD.
    Nbd,
    /// An emulated NVMe controller.
    Nvme,
    /// An emulated AHCI controller (SATA).
    Ahci,
    /// An emulated IDE controller.
    Ide,
    /// An NVMe controller of the host, assigned to the guest by VFIO.
    AssignedNvme,
}

/// Asynchronous I/O of the host's program (`aio=` of QEMU).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Display, EnumString, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub enum HostAio {
    /// By threads that wait for one I/O each.
    #[default]
    Threads,
    /// By io_submit(2).
    Native,
    /// By io_uring(7).
    IoUring,
}

/// A disk attachment: `virtio-blk`, `virtio-blk:aio=io_uring,iothread,queues=4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, SerializeDisplay, DeserializeFromStr)]
pub struct DiskAttach {
    /// The guest's device.
    pub device: DiskDevice,
    /// Asynchronous I/O of the host's program.
    pub aio: HostAio,
    /// True if a dedicated QEMU thread serves this disk, instead of QEMU's main thread.
    pub iothread: bool,
    /// The number of queues that the guest has.
    pub queues: u32,
}

/// Invalid disk attachment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
pub enum DiskAttachError {
    #[error("unknown guest disk `{_0}`; {}", available(_0, &DiskDevice::ALL.map(<&str>::from)))]
    #[diagnostic(code("unknown-name"))]
    Device(String),
    #[error("unknown aio `{_0}`; {}", available(_0, &HostAio::ALL.map(<&str>::from)))]
    #[diagnostic(code("unknown-name"))]
    Aio(String),
    #[error("unknown setting `{0}` of a guest disk; use aio=threads, aio=native, aio=io_uring, iothread or queues=N")]
    #[diagnostic(code("bad-disk-attach"))]
    Key(String),
    #[error("{0} queues: must be 1 to {most}", most = DiskAttach::QUEUES_MOST)]
    #[diagnostic(code("bad-disk-attach"))]
    Queues(String),
    #[error("`{setting}` does not apply to {device}: {why}; omit it")]
    #[diagnostic(code("bad-disk-attach"))]
    NotFor { setting: &'static str, device: DiskDevice, why: &'static str },
}

impl DiskDevice {
    const COUNT: usize = DiskDevice::VARIANTS.len();
    /// All of them.
    pub const ALL: [DiskDevice; DiskDevice::COUNT] = *DiskDevice::VARIANTS.as_array().expect("as many");

    /// Returns true if a storage daemon owns the blocks, rather than the guest's QEMU.
    pub fn is_served(self) -> bool {
        matches!(self, DiskDevice::VhostUserBlk | DiskDevice::Nbd)
    }

    fn has_iothread(self) -> bool {
        matches!(self, DiskDevice::VirtioBlk | DiskDevice::VirtioScsi | DiskDevice::Nbd)
    }

    fn has_queues(self) -> bool {
        self.has_iothread() || self == DiskDevice::VhostUserBlk
    }
}

impl HostAio {
    const COUNT: usize = HostAio::VARIANTS.len();
    /// All of them.
    pub const ALL: [HostAio; HostAio::COUNT] = *HostAio::VARIANTS.as_array().expect("as many");
}

impl DiskAttach {
    /// Maximum number of queues: more than one per vCPU are useless, and no guest of a study has
    /// more vCPUs.
    pub const QUEUES_MOST: u32 = 16;

    /// A device with QEMU's default settings and one queue.
    pub const fn plain(device: DiskDevice) -> DiskAttach {
        DiskAttach { device, aio: HostAio::Threads, iothread: false, queues: 1 }
    }

    fn set(mut self, setting: &str) -> Result<DiskAttach, DiskAttachError> {
        let device = self.device;
        let not_for = |setting, why| Err(DiskAttachError::NotFor { setting, device, why });
        match setting.split_once('=') {
            Some(("aio", _)) if device == DiskDevice::AssignedNvme => not_for("aio", "the guest owns the controller"),
            Some(("aio", word)) => {
                self.aio = word.parse().map_err(|_| DiskAttachError::Aio(word.to_owned()))?;
                Ok(self)
            }
            None if setting == "iothread" && !device.has_iothread() => {
                not_for("iothread", "only virtio-blk, virtio-scsi and nbd have one")
            }
            None if setting == "iothread" => Ok(DiskAttach { iothread: true, ..self }),
            Some(("queues", _)) if !device.has_queues() => not_for("queues", "only virtio has several"),
            Some(("queues", number)) => match number.parse() {
                Ok(queues @ 1..=DiskAttach::QUEUES_MOST) => Ok(DiskAttach { queues, ..self }),
                _ => Err(DiskAttachError::Queues(number.to_owned())),
            },
            _ => Err(DiskAttachError::Key(setting.to_owned())),
        }
    }
}

impl FromStr for DiskAttach {
    type Err = DiskAttachError;

    fn from_str(text: &str) -> Result<DiskAttach, DiskAttachError> {
        let (device, settings) = text.split_once(':').map_or((text, None), |(device, rest)| (device, Some(rest)));
        let device = device.parse().map_err(|_| DiskAttachError::Device(device.to_owned()))?;
        let settings = settings.into_iter().flat_map(|settings| settings.split(','));
        { settings }.try_fold(DiskAttach::plain(device), DiskAttach::set)
    }
}

impl fmt::Display for DiskAttach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let aio = (self.aio != HostAio::default()).then(|| format!("aio={}", self.aio));
        let iothread = self.iothread.then(|| "iothread".to_owned());
        let queues = (self.queues != 1).then(|| format!("queues={}", self.queues));
        let settings: Vec<String> = [aio, iothread, queues].into_iter().flatten().collect();
        match settings.is_empty() {
            true => f.pad(<&str>::from(self.device)),
            false => f.pad(&format!("{}:{}", self.device, settings.join(","))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_to_attach_a_disk_is_read_back_as_written() {
        for device in DiskDevice::ALL {
            assert_eq!(device.to_string().parse(), Ok(DiskAttach::plain(device)));
            assert_eq!(DiskAttach::plain(device).to_string(), device.to_string());
        }
        for text in ["virtio-blk:aio=io_uring,iothread,queues=4", "nbd:iothread", "ahci:aio=native"] {
            assert_eq!(text.parse::<DiskAttach>().map(|attach| attach.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("virtio-blk:aio=threads".parse(), Ok(DiskAttach::plain(DiskDevice::VirtioBlk)));
    }

    #[test]
    fn a_setting_that_a_device_lacks_is_refused() {
        let refused = |text: &str| text.parse::<DiskAttach>().expect_err(text).to_string();
        assert_eq!(
            refused("virtio-bkl"),
            "unknown guest disk `virtio-bkl`; did you mean `virtio-blk`? (available: \
            virtio-blk, virtio-scsi, vhost-user-blk, nbd, nvme, ahci, ide, assigned-nvme)"
        );
        assert!(refused("ahci:iothread").contains("does not apply to ahci"));
        assert!(refused("ide:queues=2").contains("does not apply to ide"));
        assert!(refused("assigned-nvme:aio=native").contains("the guest owns the controller"));
        assert_eq!(refused("virtio-blk:queues=0"), "0 queues: must be 1 to 16");
        assert!(refused("virtio-blk:aio=iouring").contains("did you mean `io_uring`?"));
        assert!(refused("virtio-blk:").contains("unknown setting ``"));
    }
}
