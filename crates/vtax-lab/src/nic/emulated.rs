//! `emulated`: a NIC of hardware, imitated by QEMU, on a tap that is a port of the host's virtual
//! switch.

use vtax_model::{guest::EmulatedNic, method::Unsupported};

use crate::{facts::QemuFacts, guest::launch::NicKind, place::LinkName};

pub(super) fn supported(nic: EmulatedNic, qemu: &QemuFacts) -> Result<(), Unsupported> {
    let device = nic.name();
    match qemu.devices.contains(device) {
        true => Ok(()),
        false => {
            let why = format!("QEMU {} ({}) imitates no {device}", qemu.program.version, qemu.program.path.display());
            Err(Unsupported::new(why, "use a newer QEMU, or another model"))
        }
    }
}

pub(super) fn device(nic: EmulatedNic, tap: &LinkName) -> NicKind {
    NicKind::Emulated { tap: tap.clone(), model: nic }
}
