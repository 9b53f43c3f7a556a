//! Current NICs of a domain: virtual ones, and virtual functions of the host's NICs.

use vtax_guest::launch::{NicKind, NicLaunch};
use vtax_lab::facts::PciFacts;
use vtax_model::{
    domain::{Constraints, DomainDevice},
    guest::Backend,
    topology::Name,
    units::Mtu,
};
use vtax_sys::{netlink::MacAddr, pci::PciAddress};

use crate::{
    bindings::{BoundDevice, BoundNic},
    bound::BoundDomain,
};

/// NIC as the domain currently has it, without pending changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveNic {
    /// Name of the vnet, or `vf0`, `vf1` and so on for virtual functions, as numbered by `list-bindings`.
    pub name: Name,
    /// Its address, which identifies it in the domain.
    pub mac: MacAddr,
    /// MTU announced to the domain.
    pub mtu: Option<Mtu>,
    /// Either a virtual NIC or an assigned virtual function.
    pub kind: LiveNicKind,
}

/// Kind of a domain's NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LiveNicKind {
    Virtual {
        /// Host side of the NIC.
        bound: BoundNic,
        /// Backend that serves its rings.
        backend: Option<Backend>,
    },
    /// Virtual function.
    Function(LiveFunction),
}

/// Virtual function of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveFunction {
    /// Constraint that assigns it: the one wanted now or, if that was removed, the one at the time of binding.
    pub device: DomainDevice,
    /// Its PCI address on the host.
    pub address: PciAddress,
    pub physical: String,
    /// Link of its physical function.
    pub link: String,
}

impl BoundDomain {
    /// Returns its virtual NICs, with those that it was started with first.
    pub fn vnets(&self) -> Vec<LiveNic> {
        let launched = self.guest.iter().flat_map(|guest| &guest.launch.nics);
        // They are followed by those of the switches that it serves.
        let vnets = self.bindings.nics.iter().take(self.bindings.constraints.vnets.len());
        let started = vnets.zip(launched).map(|(bound, launch)| LiveNic::of(bound, launch));
        let plugged = self.plugged.iter().map(|plugged| LiveNic::of(&plugged.nic, &plugged.launch));
        started.chain(plugged).collect()
    }

    /// Returns its virtual functions, each with the domain's constraint. Functions whose physical function has no link
    /// are omitted.
    pub fn functions(&self, wanted: &Constraints, facts: &PciFacts) -> Vec<LiveNic> {
        let known = |name: &str| {
            wanted.io.iter().chain(&self.bindings.constraints.io).find(|device| device.name == name).cloned()
        };
        let live = |(name, bound): (Name, &BoundDevice)| {
            let (device, address) = (known(&bound.name)?, *bound.functions.first()?);
            let physical = facts.device(facts.device(address)?.physfn?)?;
            let link = physical.netdev.as_ref()?.name.clone();
            Some(LiveNic {
                name,
                mac: MacAddr(device.settings.mac_addr?.octets()),
                mtu: device.settings.mtu,
                kind: LiveNicKind::Function(LiveFunction { device, address, physical: physical.name.clone(), link }),
            })
        };
        self.bindings.functions().filter_map(live).collect()
    }
}

impl LiveNic {
    fn of(bound: &BoundNic, launch: &NicLaunch) -> LiveNic {
        let backend = match &launch.kind {
            NicKind::Virtio { nic, .. } => nic.backend,
            _ => None,
        };
        let kind = LiveNicKind::Virtual { bound: bound.clone(), backend };
        LiveNic { name: bound.vnet.clone(), mac: launch.mac, mtu: launch.host_mtu, kind }
    }

    /// Returns the host link that was created for it. A virtual function has none.
    pub fn tap(&self) -> Option<&str> {
        match &self.kind {
            LiveNicKind::Virtual { bound, .. } => Some(&bound.tap),
            LiveNicKind::Function(_) => None,
        }
    }
}
