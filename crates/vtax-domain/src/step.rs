//! Steps that give domains and switches their resources, and how they are undone.

use std::{collections::BTreeSet, fmt, path::PathBuf};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use vtax_change::pci::VfSettings;
use vtax_guest::{
    launch::{Launch, NicLaunch},
    threads::GuestPins,
};
use vtax_journal::{Step, Undone};
use vtax_lab::io::{DeviceClaim, DeviceClaims};
use vtax_model::{domain::LinkProp, guest::Mac, topology::Name, units::Mtu, vf::Vlan};
use vtax_sys::{netlink::Tbf, pci::PciAddress};

use crate::{bindings::BoundDisk, devices, disk_plug, error::BindError, site::DomainSite};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub(crate) enum DomainStep {
    /// Creates the domain's own directory, which is removed last.
    Begin { directory: PathBuf },
    /// Creates a switch, marks it, and sets it up.
    CreateSwitch {
        link: String,
        mac: Option<Mac>,
        mtu: Mtu,
        mark: String,
        /// VLANs of the host itself, if the switch isolates VLANs.
        vlans: Option<PortVlanSet>,
        /// True if its ports may only send from their own addresses.
        #[serde(default)]
        guards_addresses: bool,
    },
    /// Makes a link of the host a port of a switch.
    TakeUplink { link: String, switch: String, was_up: bool, vlans: Option<PortVlanSet> },
    /// Creates the host side of a virtual NIC, marks it, makes it a port of a switch, and sets it up.
    CreateTap {
        vnet: Name,
        link: String,
        switch: String,
        mtu: Mtu,
        mark: String,
        /// Its VLANs, if the switch isolates VLANs.
        vlans: Option<PortVlanSet>,
        /// Addresses that it may send from, if the switch checks them.
        #[serde(default)]
        macs: Vec<Mac>,
        /// Uplink of the switch, which is part of the same VLANs.
        uplink: Option<String>,
        /// Propagation of that link's carrier to the domain.
        #[serde(default)]
        linkprop: LinkProp,
    },
    /// Limits a virtual NIC: reception by a bucket on the tap, and sending by a bucket on a link that the tap's frames
    /// pass through.
    LimitTap { tap: String, through: String, mark: String, limit: Tbf },
    /// Plugs a virtual NIC into a running domain.
    PlugNic {
        launch: Box<Launch>,
        /// QEMU's process.
        process: String,
        /// Empty slot that it gets.
        port: u32,
        nic: Box<NicLaunch>,
    },
    /// Assigns an address to a link of the host for a measurement.
    LendAddress { link: String, net: IpNet },
    /// Claims a PCI function, configures it, and binds it to vfio-pci.
    AssignFunction { claims: DeviceClaims, claim: Box<DeviceClaim>, set: VfSettings },
    /// Plugs a PCI function that vfio-pci has into a running domain.
    PlugDevice {
        launch: Box<Launch>,
        /// QEMU's process.
        process: String,
        /// Empty slot that it gets.
        port: u32,
        /// Name of the device in `list-io`.
        name: String,
        device: PciAddress,
    },
    /// Unplugs a PCI function that the domain was started with while it runs, and returns it. It needs no undoing: the
    /// step that took it finds it returned.
    ReturnFunction {
        launch: Box<Launch>,
        /// QEMU's process.
        process: String,
        /// Its slot.
        port: u32,
        /// Name of the device in `list-io`.
        name: String,
        claims: DeviceClaims,
        claim: Box<DeviceClaim>,
    },
    /// Plugs a virtual disk into a running domain.
    PlugDisk {
        launch: Box<Launch>,
        /// QEMU's process.
        process: String,
        disk: Box<BoundDisk>,
    },
    /// Unplugs a virtual disk that the domain was started with while it runs. It needs no undoing: it ends with QEMU.
    PullDisk {
        launch: Box<Launch>,
        /// QEMU's process.
        process: String,
        disk: Box<BoundDisk>,
    },
    /// Starts QEMU with its CPUs stopped, and pins its threads.
    StartGuest {
        launch: Box<Launch>,
        #[serde(flatten)]
        pins: GuestPins,
    },
}

/// VLANs of a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PortVlanSet {
    /// VLAN of untagged frames.
    pub(crate) pvid: Vlan,
    /// VLANs of tagged frames.
    pub(crate) vids: BTreeSet<Vlan>,
}

/// Kernel's identifier of a step's result: the index of a link, or a process.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct StepReceipt(pub(crate) Option<String>);

impl Step for DomainStep {
    type World = DomainSite;
    type Receipt = StepReceipt;
    type Error = BindError;

    fn describe(&self) -> String {
        self.to_string()
    }

    fn apply(&self, site: &mut DomainSite) -> Result<StepReceipt, BindError> {
        match self {
            DomainStep::Begin { .. } => Ok(StepReceipt::default()),
            DomainStep::CreateSwitch { link, mac, mtu, mark, vlans, guards_addresses } => {
                site.create_switch(link, *mac, *mtu, mark, vlans.as_ref(), *guards_addresses)
            }
            DomainStep::TakeUplink { link, switch, vlans, .. } => site.take_uplink(link, switch, vlans.as_ref()),
            DomainStep::CreateTap { link, switch, mtu, mark, vlans, macs, uplink, .. } => {
                site.create_tap(link, *mtu, mark)?;
                site.guard_only(switch, link, macs)?;
                site.join(link, switch, vlans.as_ref(), uplink.as_deref())
            }
            DomainStep::LimitTap { tap, through, mark, limit } => site.limit(tap, through, mark, limit),
            DomainStep::PlugNic { launch, process, port, nic } => site.plug(launch, process, *port, nic),
            DomainStep::LendAddress { link, net } => site.add_address(link, *net),
            DomainStep::AssignFunction { claims, claim, set } => {
                devices::assign(claims, claim, set).map(|()| StepReceipt::default())
            }
            DomainStep::PlugDevice { launch, process, port, device, .. } => {
                devices::plug(launch, process, *port, *device).map(|()| StepReceipt::default())
            }
            DomainStep::ReturnFunction { launch, process, port, claims, claim, .. } => {
                devices::unplug(launch, process, *port, claim.device)?;
                devices::give_back(claims, claim).map(|_| StepReceipt::default())
            }
            DomainStep::PlugDisk { launch, process, disk } => {
                disk_plug::plug(launch, process, disk).map(|()| StepReceipt::default())
            }
            DomainStep::PullDisk { launch, process, disk } => {
                disk_plug::unplug(launch, process, disk).map(|_| StepReceipt::default())
            }
            DomainStep::StartGuest { launch, pins } => site.start_guest(launch, pins),
        }
    }

    fn undo(&self, receipt: Option<&StepReceipt>, site: &mut DomainSite) -> Result<Undone, BindError> {
        match self {
            DomainStep::Begin { .. } => Ok(Undone::Reverted),
            DomainStep::CreateSwitch { link, mark, .. } => {
                site.remove_guard(link)?;
                site.remove_link(link, "bridge", mark, receipt)
            }
            DomainStep::TakeUplink { link, switch, was_up, .. } => site.return_uplink(link, switch, *was_up),
            DomainStep::CreateTap { link, switch, mark, .. } => {
                site.unguard(switch, link)?;
                site.remove_link(link, "tun", mark, receipt)
            }
            DomainStep::LimitTap { tap, through, mark, .. } => site.remove_limit(tap, through, mark, receipt),
            DomainStep::PlugNic { launch, process, port, .. } => site.unplug(launch, process, *port),
            DomainStep::LendAddress { net, .. } => site.remove_address(*net),
            DomainStep::AssignFunction { claims, claim, .. } => devices::give_back(claims, claim),
            DomainStep::PlugDevice { launch, process, port, device, .. } => {
                devices::unplug(launch, process, *port, *device)
            }
            DomainStep::PlugDisk { launch, process, disk } => disk_plug::unplug(launch, process, disk),
            DomainStep::ReturnFunction { .. } | DomainStep::PullDisk { .. } => Ok(Undone::AlreadyGone),
            DomainStep::StartGuest { launch, .. } => site.remove_guest(launch, receipt),
        }
    }
}

impl fmt::Display for DomainStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DomainStep::Begin { directory } => write!(f, "directory {}", directory.display()),
            DomainStep::CreateSwitch { link, mtu, .. } => write!(f, "switch {link}, mtu {mtu}"),
            DomainStep::TakeUplink { link, switch, .. } => write!(f, "link {link} becomes a port of {switch}"),
            DomainStep::CreateTap { link, switch, mtu, .. } => write!(f, "tap {link}, port of {switch}, mtu {mtu}"),
            DomainStep::LimitTap { tap, limit, .. } => write!(f, "limit of {tap}: {}", limit.rate),
            DomainStep::PlugNic { launch, port, .. } => write!(f, "NIC in slot {port} of {}", launch.name),
            DomainStep::LendAddress { link, net } => write!(f, "address {net} of {link}"),
            DomainStep::AssignFunction { claim, .. } => write!(f, "{} for {}", claim.device, claim.owner),
            DomainStep::PlugDevice { launch, port, device, .. } => {
                write!(f, "{device} in slot {port} of {}", launch.name)
            }
            DomainStep::PlugDisk { launch, disk, .. } => write!(f, "disk {} of {}", disk.disk.name, launch.name),
            DomainStep::PullDisk { launch, disk, .. } => write!(f, "disk {} back from {}", disk.disk.name, launch.name),
            DomainStep::ReturnFunction { claim, .. } => write!(f, "{} back from {}", claim.device, claim.owner),
            DomainStep::StartGuest { launch, .. } => write!(f, "QEMU of {}", launch.name),
        }
    }
}
