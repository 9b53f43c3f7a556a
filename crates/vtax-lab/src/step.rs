//! The steps that a lab is built of, as data.
//!
//! `site` carries them out. Links that a plan makes are in namespaces that the same plan makes. So undoing
//! means to remove the namespaces: the kernel removes what is in them. Guests are stopped before that.
//! Devices of the machine are given back as they were.

mod pci;

use std::{fmt, net::Ipv4Addr, path::PathBuf};

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;
use vtax_change::pci::{DriverState, LinkState, VfSettings};
use vtax_guest::{
    LinkName,
    arguments::{arguments, open_files},
    launch::Launch,
    threads::GuestPins,
};
use vtax_model::{
    guest::Mac,
    topology::Name,
    units::{ByteSize, Mtu},
};
use vtax_sys::{netlink::Tbf, pci::PciAddress};

pub use pci::{LentVf, VfState};

use crate::{facts::VFIO, place::Place};

/// Step of a plan, as a lab's journal stores it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum LabStep {
    /// Makes a network namespace, pins it, and switches its `lo` on and IPv6 off.
    CreateNamespace { namespace: Name },
    /// Makes a link; for a veth pair, both ends, each where it belongs.
    CreateLink {
        at: Place,
        kind: LinkRecipe,
        /// Its MTU. Both ends of a veth pair have the same.
        mtu: Mtu,
    },
    /// Marks a link as the lab's, puts it on its bridge and switches it on, in one request.
    EnableLink { at: Place, bridge: Option<LinkName>, mark: String },
    /// Gives a link an address.
    AddAddress { at: Place, address: Ipv4Net },
    AddRoute {
        namespace: Name,
        /// Destination; `0.0.0.0/0` is the default route.
        to: Ipv4Net,
        via: Ipv4Addr,
    },
    /// Sets a kernel setting of a namespace.
    SetSysctl { namespace: Name, key: String, value: String },
    /// Limits what a link sends, by a token bucket at its root.
    LimitRate { at: Place, limit: Tbf },
    /// Moves the link of a NIC or of a virtual function into a namespace, and renames it as the lab names links.
    TakeNic {
        device: PciAddress,
        at: Place,
        mtu: Mtu,
        /// The link's state in this machine's own namespace. Absent for a virtual function, whose link goes
        /// with its driver.
        was: Option<LinkState>,
    },
    /// Makes virtual functions, none of which gets a driver automatically.
    CreateVfs {
        device: PciAddress,
        /// Location of its link, if not in this machine's own namespace. The link is up.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Place>,
        count: u32,
        /// The addresses that they will have, if the plan relies on them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        functions: Option<Vec<PciAddress>>,
        /// True if the kernel gave new functions a driver before (`sriov_drivers_autoprobe`).
        autoprobe: bool,
    },
    /// Lets the machine's drivers take all virtual functions of a NIC, as the kernel itself does with new ones.
    ProbeVfs { device: PciAddress, mtu: Option<Mtu> },
    /// Tells a NIC the settings of a virtual function that the same plan makes.
    ConfigureVf {
        /// The NIC, whose link is in this machine's own namespace.
        device: PciAddress,
        index: u32,
        set: VfSettings,
    },
    /// Tells a NIC the settings of a virtual function, and then gives the function to a driver. The driver
    /// reads the function's address when it takes the function.
    LendVf { at: Place, function: Box<LentVf> },
    /// Gives a device to vfio-pci, for a guest.
    AssignDevice { device: PciAddress, was: DriverState },
    /// Makes a file of this size that has no data, where none is.
    MakeFile { path: PathBuf, size: ByteSize },
    /// Starts a guest, which opens its tap. Its threads are pinned as soon as they exist.
    StartGuest {
        host: Name,
        launch: Box<Launch>,
        #[serde(flatten)]
        pins: GuestPins,
    },
    /// Checks that every link of the lab has its mark and its MTU, and carries packets.
    Verify,
}

/// Kind of a new link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum LinkRecipe {
    /// One end of a wire.
    Veth { peer: Place },
    /// A virtual switch.
    Bridge,
    /// A link whose other end is a guest's NIC.
    #[strum(serialize = "tun")]
    Tap {
        /// Pairs of queues, at least 1.
        queues: u32,
    },
    /// A link with its own MAC address on another.
    Macvlan { parent: Place },
    /// A link on another whose other end is a guest's NIC.
    Macvtap {
        /// The link below, in the same namespace.
        parent: Place,
        /// The address of the guest's NIC, which is the link's as well.
        mac: Mac,
    },
    /// A link with the MAC address of the one below.
    Ipvlan { parent: Place },
    /// One end of a tunnel.
    Vxlan { parent: Place, vni: u32, local: Ipv4Addr, remote: Ipv4Addr },
}

impl LabStep {
    /// Returns whether it changes a PCI device of the machine in a way that has to be undone.
    pub(crate) fn changes_device(&self) -> bool {
        matches!(
            self,
            LabStep::TakeNic { .. } | LabStep::CreateVfs { .. } | LabStep::LendVf { .. } | LabStep::AssignDevice { .. }
        )
    }
}

impl LinkRecipe {
    /// The UDP port of VXLAN (RFC 7348).
    pub const VXLAN_PORT: u16 = 4789;
}

impl fmt::Display for LabStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabStep::CreateNamespace { namespace } => write!(f, "namespace {namespace}"),
            LabStep::CreateLink { at, kind, mtu } => write!(f, "link {at}: {kind}, mtu {mtu}"),
            LabStep::EnableLink { at, bridge: Some(bridge), mark } => {
                write!(f, "up {at}, port of {bridge}, marked {mark}")
            }
            LabStep::EnableLink { at, bridge: None, mark } => write!(f, "up {at}, marked {mark}"),
            LabStep::AddAddress { at, address } => write!(f, "address {address} on {at}"),
            LabStep::AddRoute { namespace, to, via } if to.prefix_len() == 0 => {
                write!(f, "default route of {namespace} via {via}")
            }
            LabStep::AddRoute { namespace, to, via } => write!(f, "route of {namespace} to {to} via {via}"),
            LabStep::SetSysctl { namespace, key, value } => write!(f, "sysctl of {namespace}: {key} = {value}"),
            LabStep::LimitRate { at, limit } => {
                let Tbf { rate, burst, queue } = limit;
                write!(f, "limit of {at}: {rate}, burst {burst}, queue {queue}")
            }
            LabStep::TakeNic { device, at, mtu, was } => {
                let name = was.as_ref().map(|was| format!(" ({})", was.name)).unwrap_or_default();
                write!(f, "link {at}: NIC {device}{name}, mtu {mtu}")
            }
            LabStep::CreateVfs { device, functions: Some(functions), .. } => {
                let list: Vec<String> = functions.iter().map(PciAddress::to_string).collect();
                write!(f, "virtual functions of {device}: {}", list.join(" "))
            }
            LabStep::CreateVfs { device, count, functions: None, .. } => {
                write!(f, "virtual functions of {device}: {count}")
            }
            LabStep::ProbeVfs { device, mtu: None } => write!(f, "drivers of the virtual functions of {device}"),
            LabStep::ProbeVfs { device, mtu: Some(mtu) } => {
                write!(f, "drivers of the virtual functions of {device}, mtu {mtu}")
            }
            LabStep::ConfigureVf { device, index, set, .. } => write!(f, "function {index} of {device}: {set}"),
            LabStep::LendVf { function, .. } => write!(f, "{function}"),
            LabStep::AssignDevice { device, was } => write!(f, "driver of {device}: {VFIO}{}", InPlaceOf(was)),
            LabStep::StartGuest { host, launch, pins } => {
                write!(f, "guest {} in {host}{pins}: {}", launch.name, launch.qemu.path.display())?;
                arguments(launch).iter().try_for_each(|argument| write!(f, " {}", Quoted(argument)))?;
                // As a shell writes it.
                open_files(launch).try_for_each(|(number, name)| write!(f, " {number}<{}", Quoted(&name)))
            }
            LabStep::MakeFile { path, size } => write!(f, "file {} of {size}", path.display()),
            LabStep::Verify => f.write_str("verify that every link is marked, carries packets and has its mtu"),
        }
    }
}

impl fmt::Display for LinkRecipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkRecipe::Veth { peer } => write!(f, "veth to {peer}"),
            LinkRecipe::Bridge => f.write_str("bridge"),
            LinkRecipe::Tap { queues: 1 } => f.write_str("tap"),
            LinkRecipe::Tap { queues } => write!(f, "tap of {queues} queues"),
            LinkRecipe::Macvlan { parent } => write!(f, "macvlan (bridge mode) on {parent}"),
            LinkRecipe::Macvtap { parent, mac } => write!(f, "macvtap (bridge mode) on {parent}, address {mac}"),
            LinkRecipe::Ipvlan { parent } => write!(f, "ipvlan (l2) on {parent}"),
            LinkRecipe::Vxlan { parent, vni, local, remote } => {
                write!(f, "vxlan {vni} on {parent} from {local} to {remote} port {}", LinkRecipe::VXLAN_PORT)
            }
        }
    }
}

impl fmt::Display for LentVf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LentVf { pf, index, device, driver, set, was } = self;
        write!(f, "function {index} of {pf}: {set}; driver of {device}: {driver}")?;
        was.as_ref().map_or(Ok(()), |was| write!(f, "{}", InPlaceOf(&was.driver)))
    }
}

/// The driver that has the device now, if one has it.
struct InPlaceOf<'a>(&'a DriverState);

impl fmt::Display for InPlaceOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.driver.as_ref().map_or(Ok(()), |driver| write!(f, " in place of {driver}"))
    }
}

/// An argument as a shell takes it.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
        match !self.0.is_empty() && self.0.chars().all(plain) {
            true => f.write_str(self.0),
            false => write!(f, "'{}'", self.0.replace('\'', "'\\''")),
        }
    }
}

#[cfg(test)]
mod tests;
