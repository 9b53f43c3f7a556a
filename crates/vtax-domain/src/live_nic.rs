//! The virtual NICs that a domain has at the moment.

use vtax_guest::launch::{NicKind, NicLaunch};
use vtax_model::{guest::Backend, topology::Name, units::Mtu};
use vtax_sys::netlink::MacAddr;

use crate::{bindings::BoundNic, bound::BoundDomain};

/// A virtual NIC as the domain has it. What was changed since and takes a boot isn't in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveNic {
    /// The host's end.
    pub bound: BoundNic,
    /// Its address, by which the domain finds it.
    pub mac: MacAddr,
    /// The MTU that the domain was told.
    pub mtu: Option<Mtu>,
    /// What serves its rings.
    pub backend: Option<Backend>,
}

impl BoundDomain {
    /// Its virtual NICs, those that it was started with first.
    pub fn nics(&self) -> Vec<LiveNic> {
        let launched = self.guest.iter().flat_map(|guest| &guest.launch.nics);
        let started = self.bindings.nics.iter().zip(launched).map(|(bound, launch)| LiveNic::of(bound, launch));
        let plugged = self.plugged.iter().map(|plugged| LiveNic::of(&plugged.nic, &plugged.launch));
        started.chain(plugged).collect()
    }

    /// The virtual NIC of this name.
    pub fn nic(&self, vnet: &Name) -> Option<LiveNic> {
        self.nics().into_iter().find(|nic| nic.bound.vnet == *vnet)
    }
}

impl LiveNic {
    fn of(bound: &BoundNic, launch: &NicLaunch) -> LiveNic {
        let backend = match &launch.kind {
            NicKind::Virtio { nic, .. } => nic.backend,
            _ => None,
        };
        LiveNic { bound: bound.clone(), mac: launch.mac, mtu: launch.host_mtu, backend }
    }
}
