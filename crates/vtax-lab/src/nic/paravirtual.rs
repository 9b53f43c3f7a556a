//! `paravirtual`: virtio-net on a switch's tap or a macvtap, with rings served by the host's kernel or by QEMU.

use vtax_model::{
    guest::{Backend, VirtioNic},
    method::Unsupported,
};

use crate::facts::GuestFacts;

impl GuestFacts {
    /// Returns the requested backend, or the best one of this machine.
    pub fn backend(&self, nic: &VirtioNic) -> Result<Backend, Unsupported> {
        match nic.backend {
            None if self.vhost.is_ok() => Ok(Backend::Vhost),
            None | Some(Backend::Userspace) => Ok(Backend::Userspace),
            Some(Backend::Vhost) => self.vhost.clone().map(|()| Backend::Vhost),
            Some(Backend::VhostUser) => Err(vhost_user(self)),
        }
    }
}

/// vhost-user replaces tap and switch. No known backend can be connected to a lab's wire yet.
fn vhost_user(machine: &GuestFacts) -> Unsupported {
    let lacking = match machine.vhost_user.as_slice() {
        [] => "none is installed (looked for passt and ovs-vswitchd)".to_owned(),
        found => found.join(", and "),
    };
    let why = format!("vtax cannot connect a vhost-user backend to a wire; {lacking}");
    Unsupported::new(why, "use backend = \"vhost\" or \"userspace\"")
}
