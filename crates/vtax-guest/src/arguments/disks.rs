//! Disks in addition to the boot disk, and their ports.

use vtax_model::disk::{DiskAttach, DiskDevice};

use super::{Arguments, DeviceOptions, assigned};
use crate::vdisk::{DiskLaunch, DiskSource};

/// Other ports have lower numbers.
const FIRST_CHASSIS: u32 = 200;

/// A guest's disk ports, and the disks attached at its start. `files` are those that QEMU opens itself.
pub(super) fn disks(list: &mut Arguments, ports: u32, disks: &[DiskLaunch], files: &[std::os::fd::RawFd]) {
    let is_taken = |port: &u32| disks.iter().any(|disk| disk.port == *port && takes_port(disk.device()));
    (0..ports).filter(|port| !is_taken(port)).for_each(|port| list.add("-device", disk_port(port).to_string()));
    let mut files = files.iter();
    for disk in disks {
        let file = disk.file().and_then(|_| files.next());
        let set = file.map(|file| list.file_set(&[*file]));
        if let Some(blocks) = disk.blocks(set.as_deref()) {
            list.add("-blockdev", blocks.to_string());
        }
        if let Some(thread) = disk.iothread() {
            list.add("-object", format!("iothread,id={thread}"));
        }
        if disk.is_vhost_user() {
            list.add("-chardev", format!("socket,id={},path={}", disk.node(), disk.socket()));
        }
        if let Some(controller) = controller(disk) {
            list.add("-device", controller.to_string());
        }
        list.add("-device", disk_device(disk).to_string());
    }
}

/// The guest's side of a disk. Some have a [`controller`] above them.
pub(crate) fn disk_device(disk: &DiskLaunch) -> DeviceOptions {
    let device = |kind: &str| DeviceOptions::new(kind).with("id", disk.id());
    let port = disk_port_id(disk.port);
    if let DiskSource::Controller { device } = disk.source {
        return assigned(device).with("id", disk.id()).with("bus", port);
    }
    match disk.device() {
        DiskDevice::VirtioBlk | DiskDevice::Nbd => {
            let device = device("virtio-blk-pci").with("drive", disk.node());
            let device = device.with("bus", port).with("serial", disk.serial.as_str());
            let device = reports_errors(device).with("disable-legacy", "on");
            device
                .with_some("num-queues", disk.attach.map(|attach| attach.queues))
                .with_some("iothread", disk.iothread())
        }
        DiskDevice::VhostUserBlk => {
            let queues = disk.attach.map(|attach| attach.queues);
            let device = device("vhost-user-blk-pci").with("chardev", disk.node()).with("bus", port);
            device.with("disable-legacy", "on").with_some("num-queues", queues)
        }
        DiskDevice::VirtioScsi => on_controller(disk, device("scsi-hd")),
        DiskDevice::Ahci | DiskDevice::Ide => on_controller(disk, device("ide-hd")),
        DiskDevice::Nvme | DiskDevice::AssignedNvme => {
            device("nvme").with("drive", disk.node()).with("bus", port).with("serial", disk.serial.as_str())
        }
    }
}

/// Parent of a disk that is not itself a PCI device.
fn controller(disk: &DiskLaunch) -> Option<DeviceOptions> {
    let device = |kind: &str| DeviceOptions::new(kind).with("id", controller_id(disk.port));
    match (disk.device(), disk.attach) {
        (DiskDevice::VirtioScsi, attach) => {
            let queues = attach.map_or(1, |DiskAttach { queues, .. }| queues);
            let device = device("virtio-scsi-pci").with("bus", disk_port_id(disk.port)).with("disable-legacy", "on");
            Some(device.with("num_queues", queues).with_some("iothread", disk.iothread()))
        }
        (DiskDevice::Ahci, _) => Some(in_place_of_port(disk, device("ich9-ahci"))),
        (DiskDevice::Ide, _) => Some(in_place_of_port(disk, device("piix3-ide"))),
        _ => None,
    }
}

/// Chipset controllers need I/O ports, which a disk port doesn't have. So they are attached where the port would be.
fn takes_port(device: DiskDevice) -> bool {
    matches!(device, DiskDevice::Ahci | DiskDevice::Ide)
}

fn in_place_of_port(disk: &DiskLaunch, device: DeviceOptions) -> DeviceOptions {
    let (slot, function) = disk.slot();
    device.with("bus", "pcie.0").with("addr", format!("{slot:#x}.{function}")).with("multifunction", true)
}

fn on_controller(disk: &DiskLaunch, device: DeviceOptions) -> DeviceOptions {
    let device = device.with("bus", format!("{}.0", controller_id(disk.port))).with("drive", disk.node());
    reports_errors(device.with("serial", disk.serial.as_str()))
}

fn controller_id(port: u32) -> String {
    format!("controller{port}")
}

/// The guest receives I/O errors, including those caused by a full disk of the host. Otherwise QEMU would stop its
/// processors.
fn reports_errors(device: DeviceOptions) -> DeviceOptions {
    device.with("werror", "report").with("rerror", "report")
}

fn disk_port_id(port: u32) -> String {
    format!("disks{port}")
}

/// A port for a disk. It needs no I/O ports, which are scarce.
fn disk_port(port: u32) -> DeviceOptions {
    let number = FIRST_CHASSIS + port;
    let (slot, function) = DiskLaunch::slot_of(port);
    let device = DeviceOptions::new("pcie-root-port").with("id", disk_port_id(port)).with("bus", "pcie.0");
    let device = device.with("addr", format!("{slot:#x}.{function}")).with("multifunction", true);
    device.with("chassis", number).with("slot", number).with("io-reserve", 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use vtax_model::units::ByteSize;

    use super::*;
    use crate::{launch::DiskFormat, vdisk::DiskFile};

    fn disk(file: DiskFile) -> DiskLaunch {
        DiskLaunch {
            port: 9,
            serial: "data".to_owned(),
            read_only: false,
            attach: None,
            source: DiskSource::File(file),
        }
    }

    fn file(path: &std::path::Path) -> DiskFile {
        DiskFile {
            path: path.to_owned(),
            format: DiskFormat::Raw,
            is_device: false,
            slice: None,
            exclusive: false,
            shared: false,
            direct: false,
        }
    }

    #[test]
    fn a_disk_is_described_in_json() {
        let slice = Some((ByteSize(1 << 20), ByteSize(512)));
        let disk = disk(DiskFile { slice, ..file("/d/x".as_ref()) });
        let told = disk.blocks(Some("/dev/fdset/3")).expect("it has blocks");
        assert_eq!((&told["offset"], &told["size"]), (&json!(1 << 20), &json!(512)));
        assert_eq!((&told["file"]["filename"], &told["node-name"]), (&json!("/dev/fdset/3"), &json!("blocks9")));
        assert!(
            disk_device(&disk)
                .to_string()
                .starts_with("virtio-blk-pci,id=vdisk9,drive=blocks9,bus=disks9,serial=data,")
        );
        assert!(disk_port(9).to_string().contains("addr=0x9.1,multifunction=on,chassis=209"));
    }
}
