//! Properties of a device, read from its directory.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::address::{PciAddress, Root, place};
use super::sysfs::{entries, number, target_name, text};

/// Current state of a PCI function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Address at this boot.
    pub address: PciAddress,
    /// Vendor number, assigned by the PCI-SIG.
    pub vendor: u16,
    /// The vendor's own number for this kind of device.
    pub device: u16,
    /// Class, subclass and programming interface: `0x020000` for Ethernet.
    pub class: u32,
    pub driver: Option<String>,
    /// Only driver that may take the device, if one is set (`driver_override`).
    pub driver_override: Option<String>,
    /// IOMMU group. Its devices can only be assigned together. The number may differ at each boot.
    pub iommu_group: Option<u32>,
    /// NUMA node. None if the machine has only one node, or doesn't report it.
    pub numa_node: Option<u32>,
    pub root: Root,
    /// Device and function at each level below the root complex, its own last. Unlike bus numbers, they are the same at
    /// every boot.
    pub path: Vec<(u8, u8)>,
    /// Slot that it is in, if the firmware or the board names slots. A virtual function is in the slot of its physical
    /// function.
    pub slot: Option<String>,
    /// Network link, as found by [`PciTree::netdev`](super::PciTree::netdev).
    pub netdev: Option<String>,
    /// Physical function that a virtual function belongs to.
    pub physfn: Option<PciAddress>,
    pub virtfns: Vec<PciAddress>,
    pub sriov: Option<Sriov>,
    pub link: Option<PciLink>,
}

/// SR-IOV properties of a physical function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sriov {
    /// Maximum number of virtual functions.
    pub total: u32,
    /// Current number of virtual functions.
    pub num: u32,
    /// True if the kernel probes drivers for new ones.
    pub autoprobe: bool,
    /// Device number of its virtual functions.
    pub vf_device: u16,
    /// Distance from the physical function to its first virtual one, counted in functions. 0 if the device reports it
    /// only once there are some.
    pub offset: u32,
    /// Distance from each virtual function to the next.
    pub stride: u32,
}

/// A PCI Express link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciLink {
    /// In the kernel's notation: `8.0 GT/s PCIe`.
    pub speed: String,
    /// Lanes.
    pub width: u32,
}

/// A slot for a card, with a name that is printed on the board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PciSlot {
    /// Name of the slot's directory in `/sys/bus/pci/slots`.
    pub name: String,
    /// Root complex above it, if the bus is known.
    pub root: Option<Root>,
    /// Bus of its card.
    pub bus: Root,
    /// Device number on that bus; none if the slot has all of them.
    pub device: Option<u8>,
}

impl Device {
    /// Returns whether it is a bridge between buses, or the root complex's own device.
    pub fn is_bridge(&self) -> bool {
        self.class >> 16 == 0x06
    }

    /// Returns whether it is a network controller of any kind.
    pub fn is_nic(&self) -> bool {
        self.class >> 16 == 0x02
    }

    /// Reads a device. None if the directory lacks what every device has.
    pub(super) fn read(address: PciAddress, directory: &Path, slots: &[PciSlot]) -> Option<Self> {
        let (root, path) = way(directory)?;
        let of = |name: &str| directory.join(name);
        let physfn = target_name(&of("physfn")).and_then(|name| name.parse().ok());
        Some(Self {
            address,
            vendor: u16::try_from(number(&of("vendor"))?).ok()?,
            device: u16::try_from(number(&of("device"))?).ok()?,
            class: number(&of("class"))?,
            driver: target_name(&of("driver")),
            driver_override: driver_override(directory),
            iommu_group: target_name(&of("iommu_group")).and_then(|group| group.parse().ok()),
            // A machine with one node reports -1.
            numa_node: number(&of("numa_node")),
            root,
            path,
            slot: slots.iter().find(|slot| slot.holds(physfn.unwrap_or(address))).map(|slot| slot.name.clone()),
            netdev: netdev(directory),
            physfn,
            virtfns: virtfns(directory),
            sriov: Sriov::read(directory),
            link: PciLink::read(directory),
        })
    }
}

impl Sriov {
    fn read(directory: &Path) -> Option<Self> {
        let of = |name: &str| directory.join(name);
        Some(Self {
            total: number(&of("sriov_totalvfs")).filter(|total| *total > 0)?,
            num: number(&of("sriov_numvfs"))?,
            // Linux before 4.12 always probes.
            autoprobe: number(&of("sriov_drivers_autoprobe")) != Some(0),
            // The number is hexadecimal without `0x`.
            vf_device: text(&of("sriov_vf_device"))
                .and_then(|text| u16::from_str_radix(&text, 16).ok())
                .unwrap_or_default(),
            offset: number(&of("sriov_offset")).unwrap_or_default(),
            stride: number(&of("sriov_stride")).unwrap_or_default(),
        })
    }

    /// Returns the present or future address of the virtual function with this index of the physical function `pf`.
    pub fn virtfn(&self, pf: PciAddress, index: u32) -> Option<PciAddress> {
        if self.offset == 0 {
            return None;
        }
        // A routing ID has 8 bits for the bus, 5 for the device and 3 for the function (PCI Express 9.3.3.9, 9.3.3.10).
        let own = u32::from(pf.bus) << 8 | u32::from(pf.device) << 3 | u32::from(pf.function);
        let id = own.checked_add(self.offset)?.checked_add(index.checked_mul(self.stride)?)?;
        let [bus, low] = u16::try_from(id).ok()?.to_be_bytes();
        Some(PciAddress { domain: pf.domain, bus, device: low >> 3, function: low & 7 })
    }
}

impl PciLink {
    /// Reads a link. None for a virtual function, and for a device that isn't PCI Express or whose link is unknown.
    fn read(directory: &Path) -> Option<Self> {
        let speed = text(&directory.join("current_link_speed")).filter(|speed| !speed.starts_with("Unknown"))?;
        let width = number(&directory.join("current_link_width")).filter(|width| *width > 0)?;
        Some(Self { speed, width })
    }
}

impl PciSlot {
    pub(super) fn read(name: String, address: &str, buses: &Path) -> Option<Self> {
        let (bus, device) = place(address)?;
        let root = fs::canonicalize(buses.join(bus.to_string())).ok().and_then(|path| Some(way(&path)?.0));
        Some(Self { name, root, bus, device })
    }

    fn holds(&self, address: PciAddress) -> bool {
        (self.bus.domain, self.bus.bus) == (address.domain, address.bus)
            && self.device.is_none_or(|device| device == address.device)
    }
}

/// Returns the driver override. An empty text is not an override.
pub(super) fn driver_override(directory: &Path) -> Option<String> {
    text(&directory.join("driver_override")).filter(|name| !name.is_empty() && name != "(null)")
}

/// Returns the network link. That of a virtio NIC belongs to the virtio device below the PCI device.
pub(super) fn netdev(directory: &Path) -> Option<String> {
    let below = entries(directory).filter(|(name, _)| name.starts_with("virtio")).map(|(_, path)| path);
    let places = std::iter::once(directory.to_owned()).chain(below);
    places.filter_map(|place| entries(&place.join("net")).map(|(name, _)| name).min()).next()
}

fn virtfns(directory: &Path) -> Vec<PciAddress> {
    let numbered = entries(directory).filter_map(|(name, path)| {
        let number: u32 = name.strip_prefix("virtfn")?.parse().ok()?;
        Some((number, target_name(&path)?.parse().ok()?))
    });
    let mut found: Vec<(u32, PciAddress)> = numbered.collect();
    found.sort_unstable();
    found.into_iter().map(|(_, address)| address).collect()
}

/// Returns the root complex, and the device and function at each level, of a directory whose real path looks like
/// `…/pci0000:00/0000:00:1c.0/0000:3b:00.1`. If a complex is itself behind a device of another one (Intel's VMD), the
/// inner one counts.
fn way(directory: &Path) -> Option<(Root, Vec<(u8, u8)>)> {
    let real = fs::canonicalize(directory).ok()?;
    let (mut root, mut path) = (None, Vec::new());
    for part in real.components().filter_map(|part| part.as_os_str().to_str()) {
        if let Some(found) = Root::of_directory(part) {
            (root, path) = (Some(found), Vec::new());
        } else if let Ok(PciAddress { device, function, .. }) = part.parse::<PciAddress>() {
            path.push((device, function));
        }
    }
    Some((root?, path))
}
