//! Disks beside the one that a guest boots, and the ports that they are in.

use super::DeviceOptions;
use crate::vdisk::DiskLaunch;

/// The functions of a slot, each of which is a port.
const PORTS_OF_SLOT: u32 = 8;
/// Other ports have lower numbers.
const FIRST_CHASSIS: u32 = 200;

/// The guest's side of a disk.
pub(crate) fn disk_device(disk: &DiskLaunch) -> DeviceOptions {
    let device = DeviceOptions::new("virtio-blk-pci").with("id", disk.id()).with("drive", disk.node());
    let device = device.with("bus", disk_port_id(disk.port)).with("serial", disk.serial.as_str());
    // The guest hears of errors, also of a full disk of the host. Otherwise QEMU would stop its processors then.
    device.with("werror", "report").with("rerror", "report").with("disable-legacy", "on")
}

/// The name of a port for a disk.
pub(super) fn disk_port_id(port: u32) -> String {
    format!("disks{port}")
}

/// A port for a disk. It needs no I/O ports, of which there are few.
pub(super) fn disk_port(port: u32) -> DeviceOptions {
    let (slot, function) = (DiskLaunch::SLOTS.start + port / PORTS_OF_SLOT, port % PORTS_OF_SLOT);
    let number = FIRST_CHASSIS + port;
    let device = DeviceOptions::new("pcie-root-port").with("id", disk_port_id(port)).with("bus", "pcie.0");
    let device = device.with("addr", format!("{slot:#x}.{function}")).with("multifunction", true);
    device.with("chassis", number).with("slot", number).with("io-reserve", 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use vtax_model::units::ByteSize;

    use super::*;
    use crate::{
        launch::DiskFormat,
        vdisk::{DiskFile, DiskSource},
    };

    fn disk(file: DiskFile) -> DiskLaunch {
        DiskLaunch { port: 9, serial: "data".to_owned(), read_only: false, source: DiskSource::File(file) }
    }

    fn file(path: &std::path::Path) -> DiskFile {
        DiskFile { path: path.to_owned(), format: DiskFormat::Raw, is_device: false, slice: None, exclusive: false }
    }

    #[test]
    fn a_disk_is_told_in_json() {
        let slice = Some((ByteSize(1 << 20), ByteSize(512)));
        let disk = disk(DiskFile { slice, ..file("/d/x".as_ref()) });
        let told = disk.blocks(Some("/dev/fdset/3"));
        assert_eq!((&told["offset"], &told["size"]), (&json!(1 << 20), &json!(512)));
        assert_eq!((&told["file"]["filename"], &told["node-name"]), (&json!("/dev/fdset/3"), &json!("blocks9")));
        assert!(
            disk_device(&disk)
                .to_string()
                .starts_with("virtio-blk-pci,id=vdisk9,drive=blocks9,bus=disks9,serial=data,")
        );
        assert!(disk_port(9).to_string().contains("addr=0xa.1,multifunction=on,chassis=209"));
    }
}
