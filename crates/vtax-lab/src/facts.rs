//! What a plan must know of this machine.

mod guests;
pub mod pci;
mod vhost_user;

use std::{collections::BTreeMap, fs};

use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Serialize};
use vtax_model::topology::Name;
use vtax_sys::{SysError, netlink::Rtnl, pci::PciAddress, userns};

pub use guests::{GuestFacts, GuestNeeds, QemuFacts, SystemFacts};
pub use pci::{Netdev, NoDevice, PciDevice, PciFacts};

use crate::{error::LabError, inventory, io, world::World};

/// Facts about this machine, as data so that every plan can be tested anywhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// For each kind of link, and for the qdisc that limits rates: `None` if one of it can be made,
    /// or why not.
    pub kinds: BTreeMap<String, Option<String>>,
    /// Address ranges that a lab must stay clear of.
    pub in_use: Vec<InUse>,
    /// Names of the labs that exist, in whatever state.
    pub labs: Vec<Name>,
    /// How many network namespaces this user may have (`user.max_net_namespaces`).
    pub most_namespaces: u64,
    /// PCI devices, which could be handed over.
    #[serde(default)]
    pub pci: PciFacts,
    /// Those that labs have, each with its owner: `LAB/DOMAIN`.
    #[serde(default)]
    pub lent: BTreeMap<PciAddress, String>,
    /// Whether this process has the privilege of a user namespace only. PCI devices are out of its reach.
    #[serde(default)]
    pub ordinary_user: bool,
    /// What there is for guests; nothing if nobody has looked ([`Facts::with_guests`]).
    #[serde(default)]
    pub guests: Option<GuestFacts>,
}

/// An address range and what uses it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InUse {
    /// The range.
    pub net: Ipv4Net,
    /// The object, as "address 192.0.2.1/24 of eth0".
    pub by: String,
}

impl Facts {
    /// The kinds of links that labs are made of.
    pub const KINDS: [&'static str; 5] = ["veth", "bridge", "macvlan", "ipvlan", "vxlan"];
    /// The qdisc that limits what a wire carries.
    pub const RATE_LIMIT: &'static str = "tbf";

    /// Looks at this machine. Kinds of links are found out by making one of each in
    /// namespaces that vanish at once.
    ///
    /// # Errors
    /// The kernel doesn't tell which addresses are in use, or the labs can't be listed.
    pub fn gather(world: &World) -> Result<Facts, LabError> {
        let labs = inventory::list(world)?;
        let mut in_use = own_networks().map_err(LabError::kernel("this machine"))?;
        in_use.extend(
            labs.iter().filter_map(|lab| Some(InUse { net: lab.addresses?, by: format!("lab `{}`", lab.name) })),
        );
        let rate_limit = vtax_sys::netlink::probe_tbf().err().map(|error| error.to_string());
        let kinds = Self::KINDS.into_iter().map(|kind| (kind.to_owned(), why_not(kind)));
        Ok(Facts {
            kinds: kinds.chain([(Self::RATE_LIMIT.to_owned(), rate_limit)]).collect(),
            in_use,
            labs: labs.into_iter().map(|lab| lab.name).collect(),
            most_namespaces: number("/proc/sys/user/max_net_namespaces").unwrap_or(u64::MAX),
            pci: PciFacts::gather()?,
            lent: io::lent(world)?,
            ordinary_user: !userns::is_initial(),
            guests: None,
        })
    }

    /// Why links of this kind can't be made here.
    pub(crate) fn lacks(&self, kind: &str) -> Option<&str> {
        self.kinds.get(kind)?.as_deref()
    }

    /// What uses addresses of this range, if anything does.
    pub(crate) fn user_of(&self, range: Ipv4Net) -> Option<&InUse> {
        self.in_use.iter().find(|used| used.net.contains(&range) || range.contains(&used.net))
    }
}

fn why_not(kind: &str) -> Option<String> {
    vtax_sys::netlink::probe_kind(kind).err().map(|error| match error {
        // Its remedy is the planner's to tell, for the method and not for the link.
        SysError::NoSuchKind { kind } => format!("this kernel has no link kind {kind}"),
        error => format!("no {kind} link can be made here: {error}"),
    })
}

/// Addresses and routes of the namespace that we were started in. The default route is no
/// use of an address.
fn own_networks() -> Result<Vec<InUse>, SysError> {
    let mut rtnl = Rtnl::open()?;
    let links = rtnl.links()?;
    let name = |index| links.iter().find(|link| link.index == index).map_or("?", |link| link.name.as_str());
    let mut used = Vec::new();
    for address in rtnl.addresses()? {
        if let IpNet::V4(net) = address.net {
            used.push(InUse { net: net.trunc(), by: format!("address {net} of {}", name(address.link)) });
        }
    }
    for route in rtnl.routes()? {
        match (route.dest, route.link) {
            (IpNet::V4(net), Some(link)) if net.prefix_len() > 0 => {
                used.push(InUse { net, by: format!("route to {net} on {}", name(link)) });
            }
            (IpNet::V4(net), None) if net.prefix_len() > 0 => used.push(InUse { net, by: format!("route to {net}") }),
            _ => {}
        }
    }
    Ok(used)
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
