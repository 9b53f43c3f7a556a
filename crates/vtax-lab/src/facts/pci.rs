//! The PCI devices of this machine: their names, those available to a lab, and those that must stay.

use std::{collections::BTreeSet, net::IpAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use vtax_change::pci::{DriverState, LinkState};
use vtax_model::{method::Unsupported, vf::driver_of_functions};
use vtax_step::VFIO;
use vtax_sys::{
    netlink::{InterfaceAddress, Link, MacAddr, Vf},
    pci::{PciAddress, Sriov},
};

/// The PCI devices of this machine without its bridges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciFacts {
    /// True if an IOMMU is active, so that devices can be assigned to guests.
    pub iommu: bool,
    /// Ok if vfio-pci can take devices; otherwise the reason.
    pub vfio: Result<(), Unsupported>,
    pub roots: Vec<RootComplex>,
    pub slots: Vec<SlotFacts>,
    pub devices: Vec<PciDevice>,
}

/// PCI root complex: the top of a hierarchy of buses, and of the names in `list-io`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootComplex {
    /// `pci_0`, `pci_1`, …: they are numbered in the order of their domains and first buses.
    pub name: String,
    /// The PCI domain: a set of 256 buses.
    pub domain: u32,
    /// Its first bus.
    pub bus: u8,
}

/// A slot for a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotFacts {
    /// `pci_0/slot2`, with the name that the board has for it.
    pub name: String,
    /// The root complex above.
    pub root: String,
    /// True if anything is in it.
    pub occupied: bool,
}

/// A function at a PCI address, as sysfs describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciDevice {
    pub device: PciAddress,
    /// Its name in `vtax io list`, the same at every boot.
    pub name: String,
    /// The name of the whole device that it is a function of.
    pub endpoint: String,
    pub root: String,
    /// Maker and model, by their numbers: `8086:10c9`.
    pub id: String,
    /// Class, subclass and programming interface.
    pub class: u32,
    pub driver: Option<String>,
    /// The only driver that may take it, if `driver_override` is set.
    pub driver_override: Option<String>,
    /// Its IOMMU group. The number may change at each boot.
    pub group: Option<u32>,
    /// Its NUMA node, where there are several.
    pub node: Option<u32>,
    /// Speed and lanes of its PCI Express link.
    pub link: Option<String>,
    /// Its network link, if that is in this network namespace.
    pub netdev: Option<Netdev>,
    /// For a virtual function: its physical function.
    pub physfn: Option<PciAddress>,
    pub virtfns: Vec<PciAddress>,
    pub sriov: Option<Sriov>,
    /// For a virtual function: the settings enforced by its physical function, if the link of that is in this
    /// namespace.
    pub vf: Option<Vf>,
    /// Reason why it must not be taken from the host.
    pub kept: Option<String>,
}

/// A network link of a PCI device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Netdev {
    pub name: String,
    pub mac: Option<MacAddr>,
    pub mtu: u32,
    /// The largest MTU that its driver accepts, if reported.
    pub max_mtu: Option<u32>,
    pub up: bool,
    pub addresses: Vec<IpNet>,
    /// A link on top of it: a bridge or bond that it is a port of, or a macvlan.
    pub upper: Option<String>,
}

/// Error for a name that no device has, or that several have.
#[derive(Debug, Clone, PartialEq, Eq, miette::Diagnostic, thiserror::Error)]
pub enum NoDevice {
    #[error("no PCI device `{name}` on this machine; {}", named(.nics))]
    #[diagnostic(code("no-such-device"))]
    Unknown { name: String, nics: Vec<String> },
    #[error("`{name}` is ambiguous ({} devices); name one of {}", .candidates.len(), .candidates.join(", "))]
    #[diagnostic(code("ambiguous-device"))]
    Ambiguous { name: String, candidates: Vec<String> },
}

impl PciFacts {
    /// The function with this PCI address, link, hardware address or name; a device's name if it has only one.
    pub fn find(&self, name: &str) -> Result<&PciDevice, NoDevice> {
        let address: Option<PciAddress> = name.parse().ok();
        let mac: Option<MacAddr> = name.parse().ok();
        let link = |device: &PciDevice, is_it: &dyn Fn(&Netdev) -> bool| device.netdev.as_ref().is_some_and(is_it);
        let ways: [&dyn Fn(&PciDevice) -> bool; 4] = [
            &|device| Some(device.device) == address || device.name == name,
            &|device| link(device, &|link| link.name == name),
            &|device| mac.is_some() && link(device, &|link| link.mac == mac),
            &|device| device.endpoint == name && device.physfn.is_none(),
        ];
        let found = ways.map(|way| self.devices.iter().filter(|device| way(device)).collect::<Vec<_>>());
        match found.iter().find(|found| !found.is_empty()).map(Vec::as_slice) {
            Some([only]) => Ok(only),
            Some(several) => Err(NoDevice::Ambiguous {
                name: name.to_owned(),
                candidates: several.iter().map(|device| called(device)).collect(),
            }),
            None => Err(NoDevice::Unknown { name: name.to_owned(), nics: self.nics() }),
        }
    }

    pub fn device(&self, address: PciAddress) -> Option<&PciDevice> {
        self.devices.iter().find(|device| device.device == address)
    }

    /// Returns the other functions of its IOMMU group, which can only be assigned together with it.
    pub fn group_of(&self, address: PciAddress) -> impl Iterator<Item = &PciDevice> {
        let group = self.device(address).and_then(|device| device.group);
        self.devices.iter().filter(move |device| group.is_some() && device.group == group && device.device != address)
    }

    /// Returns all functions below the root complex with this name.
    pub fn below(&self, root: &str) -> impl Iterator<Item = &PciDevice> {
        self.devices.iter().filter(move |device| device.root == root)
    }

    fn nics(&self) -> Vec<String> {
        self.devices.iter().filter(|device| device.is_nic()).map(called).collect()
    }

    /// Checks that PCI devices can be assigned to guests here; the error gives the reason why not.
    pub fn for_guests(&self) -> Result<(), Unsupported> {
        if !self.iommu {
            return Err(Unsupported::new(
                "it cannot be assigned to a guest without an active IOMMU",
                "enable VT-d or AMD-Vi in the firmware and boot with intel_iommu=on or amd_iommu=on",
            ));
        }
        let refused =
            |vfio: Unsupported| Unsupported { why: format!("it cannot be assigned to a guest: {}", vfio.why), ..vfio };
        self.vfio.clone().map_err(refused)
    }

    /// The module that drives a NIC, or its virtual functions, in a zone or a guest.
    pub(crate) fn driver(&self, nic: &PciDevice, of_functions: bool) -> Option<String> {
        let own = nic.driver.as_deref()?;
        if !of_functions {
            return Some(own.to_owned());
        }
        let there = self.devices.iter().filter(|device| device.physfn == Some(nic.device));
        let mut bound = there.filter_map(|function| function.driver.clone()).filter(|driver| driver != VFIO);
        bound.next().or_else(|| driver_of_functions(own).map(str::to_owned))
    }
}

impl PciFacts {
    /// The modules that drive this machine's NICs and their virtual functions, if guests can have those. Each has a `-` in
    /// front: a guest's kernel may lack it.
    pub fn guest_drivers(&self) -> BTreeSet<String> {
        if self.for_guests().is_err() {
            return BTreeSet::new();
        }
        let nics = self.devices.iter().filter(|device| device.is_nic() && device.physfn.is_none());
        let drivers = nics.flat_map(|nic| [self.driver(nic, false), self.driver(nic, true).filter(|_| nic.is_pf())]);
        let drivers = drivers.flatten().filter(|driver| driver != VFIO);
        drivers.map(|driver| format!("-{driver}")).collect()
    }
}

impl Netdev {
    /// A link as the kernel describes it, with its `addresses`. Nothing is known of a link on top of it.
    pub(crate) fn of(link: &Link, addresses: &[InterfaceAddress]) -> Netdev {
        let own = addresses.iter().filter(|address| address.link == link.index);
        Netdev {
            name: link.name.to_string(),
            mac: link.mac,
            mtu: link.mtu,
            max_mtu: link.max_mtu,
            up: link.up,
            addresses: own.map(|address| address.net).collect(),
            upper: None,
        }
    }

    /// A configured address: the kernel itself gives each link an IPv6 link-local one.
    pub(crate) fn given_address(&self) -> Option<&IpNet> {
        self.addresses.iter().find(|net| !matches!(net.addr(), IpAddr::V6(address) if address.is_unicast_link_local()))
    }
}

impl PciDevice {
    /// A network controller of any kind.
    pub fn is_nic(&self) -> bool {
        self.class >> 16 == 0x02
    }

    /// Returns true if it can have virtual functions.
    pub fn is_pf(&self) -> bool {
        self.sriov.is_some()
    }
}

impl Default for PciFacts {
    /// The facts of a machine that was not inspected.
    fn default() -> PciFacts {
        let unknown = Unsupported::new("VFIO was not examined on this machine", "run `vtax io list`");
        PciFacts { iommu: false, vfio: Err(unknown), roots: Vec::new(), slots: Vec::new(), devices: Vec::new() }
    }
}

/// Returns the name that the user most likely knows.
fn called(device: &PciDevice) -> String {
    match &device.netdev {
        Some(netdev) => format!("{} ({})", netdev.name, device.name),
        None => device.name.clone(),
    }
}

fn named(nics: &[String]) -> String {
    match nics {
        [] => "it has no PCI NIC".to_owned(),
        nics => format!("name one of {} (see `vtax io list`)", nics.join(", ")),
    }
}

impl From<&PciDevice> for DriverState {
    fn from(device: &PciDevice) -> DriverState {
        DriverState {
            driver: device.driver.clone(),
            driver_override: device.driver_override.clone(),
            link: device.netdev.as_ref().map(LinkState::from),
            has_disk: false,
        }
    }
}

impl From<&Netdev> for LinkState {
    fn from(netdev: &Netdev) -> LinkState {
        LinkState { name: netdev.name.clone(), mtu: netdev.mtu, up: netdev.up, mac: netdev.mac }
    }
}
