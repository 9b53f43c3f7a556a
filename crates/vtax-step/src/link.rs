//! Links in named namespaces. Each is removed with its namespace.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;
use vtax_guest::LinkName;
use vtax_model::{guest::Mac, topology::Name, units::Mtu};
use vtax_sys::{
    netlink::{LinkChange, LinkKind, MacAddr, NewLink, NewMacvtap, NewRoute, NewTap, NextHop, Tbf},
    sysctl,
};

use crate::{
    error::StepError,
    part::{PartStep, StepReceipt},
    place::Place,
    site::StepSite,
};

/// Creates a link; for a veth pair, both ends, each in its namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateLink {
    pub at: Place,
    pub kind: LinkRecipe,
    /// MTU of the link. Both ends of a veth pair have the same.
    pub mtu: Mtu,
}

impl PartStep for CreateLink {
    fn describe(&self) -> String {
        let CreateLink { at, kind, mtu } = self;
        format!("link {at}: {kind}, mtu {mtu}")
    }

    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError> {
        self.kind.make(&self.at, self.mtu, site).map(|()| StepReceipt::default())
    }
}

/// Marks a link as the lab's, adds it to its bridge and enables it, in one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnableLink {
    pub at: Place,
    pub bridge: Option<LinkName>,
    pub mark: String,
}

impl PartStep for EnableLink {
    fn describe(&self) -> String {
        let EnableLink { at, bridge, mark } = self;
        let port = bridge.as_ref().map(|bridge| format!(", port of {bridge}")).unwrap_or_default();
        format!("up {at}{port}, marked {mark}")
    }

    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError> {
        let EnableLink { at, bridge, mark } = self;
        let stack = site.at(at)?;
        let master = bridge.as_ref().map(|bridge| stack.index(bridge.as_str()).map(Some)).transpose()?;
        let change = LinkChange { up: Some(true), master, alias: Some(mark.clone()), ..LinkChange::default() };
        stack.change(at.link.as_str(), &change).map(|()| StepReceipt::default())
    }
}

/// Assigns an address to a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddAddress {
    pub at: Place,
    pub address: IpNet,
}

impl PartStep for AddAddress {
    fn describe(&self) -> String {
        format!("address {} on {}", self.address, self.at)
    }

    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError> {
        let AddAddress { at, address } = self;
        site.at(at)?.add_address(at.link.as_str(), *address).map(|()| StepReceipt::default())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddRoute {
    pub namespace: Name,
    /// Destination; `0.0.0.0/0` and `::/0` are default routes.
    pub to: IpNet,
    pub via: IpAddr,
}

impl PartStep for AddRoute {
    fn describe(&self) -> String {
        let AddRoute { namespace, to, via } = self;
        match to.prefix_len() {
            0 => format!("default route of {namespace} via {via}"),
            _ => format!("route of {namespace} to {to} via {via}"),
        }
    }

    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError> {
        let next_hop = NextHop::Via(self.via);
        let route = NewRoute { dest: self.to, next_hop, source: None, congestion: None };
        let added = site.stack(Some(&self.namespace))?.rtnl().add_route(&route);
        added.map(|()| StepReceipt::default()).map_err(StepError::kernel(&self.namespace))
    }
}

/// Changes a kernel setting of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetSysctl {
    pub namespace: Name,
    pub key: String,
    pub value: String,
}

impl PartStep for SetSysctl {
    fn describe(&self) -> String {
        let SetSysctl { namespace, key, value } = self;
        format!("sysctl of {namespace}: {key} = {value}")
    }

    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError> {
        let inside = site.namespace(&self.namespace)?;
        let written = self.key.parse().and_then(|key| sysctl::write(&inside, &key, &self.value));
        written.map(|_| StepReceipt::default()).map_err(StepError::kernel(&self.namespace))
    }
}

/// Limits the send rate of a link by a token bucket at its root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitRate {
    pub at: Place,
    pub limit: Tbf,
}

impl PartStep for LimitRate {
    fn describe(&self) -> String {
        let Tbf { rate, burst, queue } = self.limit;
        format!("limit of {}: {rate}, burst {burst}, queue {queue}", self.at)
    }

    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError> {
        let stack = site.at(&self.at)?;
        let index = stack.index(self.at.link.as_str())?;
        let set = stack.rtnl().set_tbf(index, &self.limit);
        set.map(|()| StepReceipt::default()).map_err(StepError::kernel(&self.at))
    }

    fn read_back(&self, site: &mut StepSite) -> Result<(), StepError> {
        let found = site.at(&self.at)?.qdisc(self.at.link.as_str())?.and_then(|qdisc| qdisc.tbf);
        match found.is_some_and(|tbf| tbf.is(&self.limit)) {
            true => Ok(()),
            false => Err(StepError::Rate { place: self.at.clone() }),
        }
    }
}

/// Kind of a new link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum LinkRecipe {
    /// One end of a wire.
    Veth { peer: Place },
    /// Virtual switch.
    Bridge {
        /// Set if multicast frames are forwarded only to ports that have joined the group; the kernel's default if
        /// `None`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        snooping: Option<bool>,
    },
    /// Link whose other end is a guest's NIC.
    #[strum(serialize = "tun")]
    Tap {
        /// Number of queue pairs, at least 1.
        queues: u32,
    },
    /// Link with its own MAC address on top of another.
    Macvlan { parent: Place },
    /// Link on top of another, whose other end is a guest's NIC.
    Macvtap {
        /// Lower link, in the same namespace.
        parent: Place,
        /// Address of the guest's NIC and of the link.
        mac: Mac,
    },
    /// Link with the MAC address of the lower one.
    Ipvlan { parent: Place },
    /// One end of a tunnel.
    Vxlan { parent: Place, vni: u32, local: IpAddr, remote: IpAddr },
}

impl LinkRecipe {
    /// UDP port of VXLAN (RFC 7348).
    pub const VXLAN_PORT: u16 = 4789;

    /// Creates the link in the namespace of `at`, from the namespace of its lower link.
    fn make(&self, at: &Place, mtu: Mtu, site: &mut StepSite) -> Result<(), StepError> {
        let index = |parent: &Place, site: &mut StepSite| site.at(parent)?.index(parent.link.as_str());
        match self {
            LinkRecipe::Veth { peer } => {
                let peer_ns = site.namespace(&peer.namespace)?;
                let peer = site.at(peer)?.if_name(peer.link.as_str())?;
                let kind = LinkKind::Veth { peer, peer_ns: Some(&peer_ns), peer_mtu: Some(mtu.get()) };
                make_by(&at.namespace, at, kind, mtu, site)
            }
            LinkRecipe::Bridge { snooping } => make_bridge(at, *snooping, mtu, site),
            LinkRecipe::Tap { queues } => make_tap(at, *queues, mtu, site),
            LinkRecipe::Macvlan { parent } => {
                let kind = LinkKind::Macvlan { parent: index(parent, site)? };
                make_by(&parent.namespace, at, kind, mtu, site)
            }
            LinkRecipe::Macvtap { parent, mac } => make_macvtap(at, parent, *mac, mtu, site),
            LinkRecipe::Ipvlan { parent } => {
                let kind = LinkKind::Ipvlan { parent: index(parent, site)? };
                make_by(&parent.namespace, at, kind, mtu, site)
            }
            LinkRecipe::Vxlan { parent, vni, local, remote } => {
                let kind = LinkKind::Vxlan {
                    vni: *vni,
                    local: *local,
                    remote: *remote,
                    port: LinkRecipe::VXLAN_PORT,
                    parent: Some(index(parent, site)?),
                    learning: false,
                };
                make_by(&parent.namespace, at, kind, mtu, site)
            }
        }
    }
}

fn make_by(home: &Name, at: &Place, kind: LinkKind<'_>, mtu: Mtu, site: &mut StepSite) -> Result<(), StepError> {
    let target = site.namespace(&at.namespace)?;
    let into_ns = (*home != at.namespace).then_some(&*target);
    let stack = site.stack(Some(home))?;
    let link = NewLink { mtu: Some(mtu.get()), into_ns, ..NewLink::new(stack.if_name(at.link.as_str())?, kind) };
    stack.rtnl().create_link(&link).map_err(StepError::kernel(at))
}

fn make_bridge(at: &Place, snooping: Option<bool>, mtu: Mtu, site: &mut StepSite) -> Result<(), StepError> {
    make_by(&at.namespace, at, LinkKind::Bridge, mtu, site)?;
    let Some(on) = snooping else { return Ok(()) };
    let (name, stack) = (at.link.as_str(), site.at(at)?);
    let bridge = stack.index(name)?;
    stack.rtnl().set_multicast_snooping(bridge, on).map_err(stack.wrong(name))
}

fn make_tap(at: &Place, queues: u32, mtu: Mtu, site: &mut StepSite) -> Result<(), StepError> {
    let (name, stack) = (at.link.as_str(), site.at(at)?);
    let tap = NewTap { name: stack.if_name(name)?, multi_queue: queues > 1 };
    tap.create_in(stack.namespace()).map_err(stack.wrong(name))?;
    stack.set_mtu(name, mtu.get())
}

/// Creates the link with an index whose device file belongs to it.
fn make_macvtap(at: &Place, parent: &Place, mac: Mac, mtu: Mtu, site: &mut StepSite) -> Result<(), StepError> {
    let parent = site.at(parent)?.index(parent.link.as_str())?;
    let (name, stack) = (at.link.as_str(), site.at(at)?);
    let link = NewMacvtap { name: stack.if_name(name)?, parent, mac: MacAddr(mac.octets()), mtu: mtu.get() };
    let index = link.create(stack.rtnl()).map_err(stack.wrong(name))?;
    stack.remember(name, index);
    Ok(())
}

impl fmt::Display for LinkRecipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkRecipe::Veth { peer } => write!(f, "veth to {peer}"),
            LinkRecipe::Bridge { snooping: None } => f.write_str("bridge"),
            LinkRecipe::Bridge { snooping: Some(true) } => f.write_str("bridge with multicast snooping"),
            LinkRecipe::Bridge { snooping: Some(false) } => f.write_str("bridge without multicast snooping"),
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
