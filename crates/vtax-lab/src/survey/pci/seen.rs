//! Raw data from sysfs, procfs and rtnetlink, before it becomes facts.

mod files;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::IpAddr,
    path::Path,
};

use vtax_guest::launch::AGENT_PORT;
use vtax_model::method::Unsupported;
use vtax_step::VFIO;
use vtax_sys::{
    SysError,
    netlink::{self, IfIndex, Rtnl, Vf},
    pci::{Device, PciAddress, PciSlot, PciTree},
};

use crate::facts::Netdev;

/// This machine as sysfs, procfs and rtnetlink show it.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) devices: Vec<Device>,
    pub(super) slots: Vec<PciSlot>,
    pub(super) links: Vec<SeenLink>,
    /// The settings of virtual functions, for each physical function whose link is here.
    pub(super) vfs: BTreeMap<PciAddress, Vec<Vf>>,
    pub(super) default_routes: BTreeSet<IfIndex>,
    /// Own addresses of ssh sessions.
    pub(super) sessions: BTreeSet<IpAddr>,
    /// Devices that the host needs, with the reason.
    pub(super) in_use: Vec<(PciAddress, String)>,
    pub(super) iommu: bool,
    pub(super) vfio_loaded: bool,
    /// There is a module vfio-pci for the running kernel.
    pub(super) vfio_module: bool,
}

#[derive(Debug, Clone)]
pub(super) struct SeenLink {
    pub(super) index: IfIndex,
    /// Its upper link is not filled in.
    pub(super) netdev: Netdev,
    pub(super) master: Option<IfIndex>,
    /// Lower link, in the same namespace.
    pub(super) parent: Option<IfIndex>,
    pub(super) device: Option<PciAddress>,
}

impl Seen {
    pub(super) fn gather(tree: &PciTree) -> Result<Seen, SysError> {
        let mut rtnl = Rtnl::open()?;
        let addresses = rtnl.addresses()?;
        let links = rtnl.links()?.into_iter();
        let links: Vec<SeenLink> = links.map(|link| SeenLink::of(link, &addresses, tree)).collect();
        let devices = tree.devices()?;
        let mut vfs = BTreeMap::new();
        for device in devices.iter().filter(|device| !device.virtfns.is_empty()) {
            if let Some(link) = links.iter().find(|link| link.device == Some(device.address)) {
                vfs.insert(device.address, rtnl.vfs(link.index)?);
            }
        }
        Ok(Seen {
            default_routes: rtnl.default_route_links()?,
            sessions: files::sessions(),
            in_use: in_use(tree),
            iommu: ["/sys/class/iommu", "/sys/kernel/iommu_groups"].into_iter().any(has_entries),
            vfio_loaded: Path::new("/sys/bus/pci/drivers").join(VFIO).exists(),
            vfio_module: files::has_module(VFIO),
            slots: tree.slots(),
            devices,
            links,
            vfs,
        })
    }

    pub(super) fn link(&self, index: IfIndex) -> Option<&SeenLink> {
        self.links.iter().find(|link| link.index == index)
    }

    pub(super) fn netdev(&self, device: PciAddress) -> Option<Netdev> {
        let link = self.links.iter().find(|link| link.device == Some(device))?;
        let on_it = self.links.iter().find(|other| other.parent == Some(link.index));
        let upper = link.master.and_then(|master| self.link(master)).or(on_it);
        Some(Netdev { upper: upper.map(|upper| upper.netdev.name.clone()), ..link.netdev.clone() })
    }

    pub(super) fn vf(&self, pf: PciAddress, vf: PciAddress) -> Option<Vf> {
        let physical = self.devices.iter().find(|device| device.address == pf)?;
        let index = physical.virtfns.iter().position(|address| *address == vf)?;
        self.vfs.get(&pf)?.iter().find(|vf| usize::try_from(vf.index) == Ok(index)).cloned()
    }

    pub(super) fn vfio(&self) -> Result<(), Unsupported> {
        let (why, remedy) = match (self.iommu, self.vfio_loaded, self.vfio_module) {
            (true, true, _) => return Ok(()),
            (false, _, _) => (
                "no IOMMU is active on this machine",
                "enable it in the firmware (VT-d, AMD-Vi) and boot with intel_iommu=on or amd_iommu=on",
            ),
            (true, false, true) => ("vfio-pci is not loaded", "load it: modprobe vfio-pci"),
            (true, false, false) => ("this kernel lacks vfio-pci", "use a kernel with CONFIG_VFIO_PCI"),
        };
        Err(Unsupported::new(why, remedy))
    }
}

impl SeenLink {
    fn of(link: netlink::Link, addresses: &[netlink::InterfaceAddress], tree: &PciTree) -> SeenLink {
        SeenLink {
            // A virtual link may have the name that sysfs shows for a device's link of another namespace.
            device: if link.kind.is_none() { tree.behind_link(link.name.as_str()) } else { None },
            netdev: Netdev::of(&link, addresses),
            index: link.index,
            master: link.master,
            parent: link.parent.filter(|_| !link.parent_elsewhere),
        }
    }
}

/// The devices behind file systems, swap, shares of the machine outside, and its commands.
fn in_use(tree: &PciTree) -> Vec<(PciAddress, String)> {
    let mut found = Vec::new();
    for disk in files::disks() {
        let devices = tree.behind_block(disk.major, disk.minor);
        found.extend(devices.into_iter().map(|device| (device, disk.why.clone())));
    }
    // If a share is the root of the file system that we see, it isn't in any list of mounts. Unmounted shares are kept
    // too.
    for driver in ["9pnet_virtio", "virtiofs"] {
        let shares = tree.behind_virtio(driver);
        found.extend(shares.into_iter().map(|device| (device, "it provides the outer machine's files".to_owned())));
    }
    let port = tree.behind_port(AGENT_PORT);
    found.extend(port.map(|device| (device, "it carries commands from the outer vtax".to_owned())));
    found
}

fn has_entries(directory: &str) -> bool {
    fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some())
}
