//! `emulated`: a hardware NIC that QEMU emulates, on a tap that is a port of the host's virtual switch.

use vtax_model::{guest::EmulatedNic, method::Unsupported};

use crate::facts::QemuFacts;

pub(super) fn supported(nic: EmulatedNic, qemu: &QemuFacts) -> Result<(), Unsupported> {
    let device: &str = nic.into();
    if qemu.devices.contains(device) {
        return Ok(());
    }
    let why = format!("QEMU {} ({}) does not emulate {device}", qemu.program.version, qemu.program.path.display());
    Err(Unsupported::new(why, "use a newer QEMU, or another model"))
}
