//! Creation of links.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use netlink_packet_route::link::{
    BridgeStpState, InfoBridge, InfoData, InfoIpVlan, InfoKind, InfoMacVlan, InfoMacVtap, InfoVeth, InfoVxlan,
    IpVlanMode, LinkAttribute, LinkInfo, LinkMessage, MacVlanMode, MacVtapMode,
};
use strum::IntoStaticStr;

use super::name::{IfIndex, IfName, MacAddr};
use super::request::NetlinkRequest;
use super::socket::{CREATE, Rtnl, Subject};
use crate::error::{Result, SysError};
use crate::netns::NetNs;

/// The largest VXLAN network identifier: 24 bits, RFC 7348.
const LARGEST_VNI: u32 = (1 << 24) - 1;

/// A link to create. It has no addresses and is down.
///
/// The kernel accepts no alias when it creates a link, so the caller must set the ownership mark with
/// [`Rtnl::set_link`] right afterwards.
#[derive(Debug, Clone)]
pub struct NewLink<'a> {
    pub name: IfName,
    pub kind: LinkKind<'a>,
    /// In bytes; `None` for the kind's default.
    pub mtu: Option<u32>,
    /// The hardware address; `None` for a random one.
    pub mac: Option<MacAddr>,
    /// The link's index; `None` for the kernel's choice, from 1 up. `EBUSY` if another link has it.
    pub index: Option<IfIndex>,
    /// Creates the link in this namespace instead of that of the connection. The kernel does this in one step, so the
    /// link is never visible here.
    pub into_ns: Option<&'a NetNs>,
}

/// The kinds of links in a lab. A `parent` is a link in the namespace of the *connection*, wherever the new link is
/// made.
#[derive(Debug, Clone, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum LinkKind<'a> {
    /// A wire: two links, each receiving what the other sends.
    Veth {
        peer: IfName,
        /// The namespace for the other end; `None` for that of the connection.
        peer_ns: Option<&'a NetNs>,
        /// In bytes; `None` for 1500.
        peer_mtu: Option<u32>,
    },
    /// A switch without spanning tree, so that a port forwards immediately.
    Bridge,
    /// A link with its own MAC address on a parent. In bridge mode, such links on one parent reach each other, but not
    /// the parent's own stack.
    Macvlan { parent: IfIndex },
    /// The same, for a program: see [`NewMacvtap`](super::NewMacvtap).
    Macvtap { parent: IfIndex },
    /// A link with its own IP address on a parent whose MAC address it shares (mode l2).
    Ipvlan { parent: IfIndex },
    /// An Ethernet link carried in UDP datagrams to one remote end.
    Vxlan {
        vni: u32,
        local: IpAddr,
        remote: IpAddr,
        /// UDP port at both ends; 4789 is the registered one.
        port: u16,
        /// The link that carries the datagrams. The default MTU is its MTU minus 50 bytes (70 over IPv6).
        parent: Option<IfIndex>,
        /// True if it learns the locations of addresses from received frames.
        learning: bool,
    },
    /// A link that drops what is sent to it.
    Dummy,
    /// A detour for what another link receives: see [`Rtnl::redirect_received`].
    Ifb,
}

impl<'a> NewLink<'a> {
    /// Returns a link with the kernel's default MTU and hardware address, in the namespace of the connection.
    pub fn new(name: IfName, kind: LinkKind<'a>) -> Self {
        Self { name, kind, mtu: None, mac: None, index: None, into_ns: None }
    }

    fn attributes(&self) -> Vec<LinkAttribute> {
        let mut attributes = placed(&self.name, self.mtu, self.into_ns);
        if let Some(mac) = self.mac {
            attributes.push(LinkAttribute::Address(mac.0.to_vec()));
        }
        if let LinkKind::Macvlan { parent } | LinkKind::Macvtap { parent } | LinkKind::Ipvlan { parent } = self.kind {
            attributes.push(LinkAttribute::Link(parent.0));
        }
        let mut info = vec![LinkInfo::Kind(InfoKind::Other(self.kind.name().into()))];
        info.extend(self.kind.info_data().map(LinkInfo::Data));
        attributes.push(LinkAttribute::LinkInfo(info));
        attributes
    }
}

impl LinkKind<'_> {
    /// Returns the name used by the kernel and `ip -d link`.
    pub fn name(&self) -> &'static str {
        self.into()
    }

    fn info_data(&self) -> Option<InfoData> {
        Some(match self {
            Self::Veth { peer, peer_ns, peer_mtu } => {
                let mut message = LinkMessage::default();
                message.attributes = placed(peer, *peer_mtu, *peer_ns);
                InfoData::Veth(InfoVeth::Peer(message))
            }
            Self::Bridge => InfoData::Bridge(vec![InfoBridge::StpState(BridgeStpState::Disabled)]),
            Self::Macvlan { .. } => InfoData::MacVlan(vec![InfoMacVlan::Mode(MacVlanMode::Bridge)]),
            Self::Macvtap { .. } => InfoData::MacVtap(vec![InfoMacVtap::Mode(MacVtapMode::Bridge)]),
            Self::Ipvlan { .. } => InfoData::IpVlan(vec![InfoIpVlan::Mode(IpVlanMode::L2)]),
            Self::Vxlan { .. } => InfoData::Vxlan(self.vxlan_data()),
            Self::Dummy | Self::Ifb => return None,
        })
    }

    fn vxlan_data(&self) -> Vec<InfoVxlan> {
        let Self::Vxlan { vni, local, remote, port, parent, learning } = self else {
            return Vec::new();
        };
        let mut data = vec![
            InfoVxlan::Id(*vni),
            InfoVxlan::Port(*port),
            InfoVxlan::Learning(*learning),
            match local {
                IpAddr::V4(local) => InfoVxlan::Local(*local),
                IpAddr::V6(local) => InfoVxlan::Local6(*local),
            },
            // If the "group" is a unicast address, it is the only remote end.
            match remote {
                IpAddr::V4(remote) => InfoVxlan::Group(*remote),
                IpAddr::V6(remote) => InfoVxlan::Group6(*remote),
            },
        ];
        data.extend(parent.map(|parent| InfoVxlan::Link(parent.0)));
        data
    }

    fn check(&self) -> Result<()> {
        match self {
            Self::Vxlan { vni, .. } if *vni > LARGEST_VNI => {
                Err(SysError::invalid("VXLAN network identifier", vni, "it has 24 bits: at most 16777215"))
            }
            _ => Ok(()),
        }
    }
}

impl Rtnl {
    /// Creates a link.
    ///
    /// # Errors
    /// `EEXIST` if the name, or a veth peer's, is taken; [`SysError::NoSuchKind`] if this kernel has no such links.
    pub fn create_link(&mut self, link: &NewLink<'_>) -> Result<()> {
        link.kind.check()?;
        let (kind, name) = (link.kind.name(), &link.name);
        let what = if kind == "bridge" { "" } else { "link " };
        let subject = Subject { operation: "create", object: &format_args!("{kind} {what}{name}") };
        self.create(kind, subject, link.index.unwrap_or(IfIndex(0)), link.attributes())
    }

    /// Creates a link. Index 0 lets the kernel choose.
    pub(super) fn create(
        &mut self,
        kind: &str,
        subject: Subject<'_>,
        index: IfIndex,
        attributes: Vec<LinkAttribute>,
    ) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index.0;
        message.attributes = attributes;
        let made = self.change(&NetlinkRequest::new(libc::RTM_NEWLINK, &message), CREATE, subject);
        made.map_err(|error| match error.errno() {
            // `rtnl_newlink` returns this if no driver has registered the kind.
            Some(libc::EOPNOTSUPP) => SysError::NoSuchKind { kind: kind.into() },
            _ => error,
        })
    }
}

fn placed(name: &IfName, mtu: Option<u32>, namespace: Option<&NetNs>) -> Vec<LinkAttribute> {
    let mut attributes = vec![LinkAttribute::IfName(name.as_str().into())];
    attributes.extend(mtu.map(LinkAttribute::Mtu));
    attributes.extend(namespace.map(|ns| LinkAttribute::NetNsFd(ns.as_fd().as_raw_fd())));
    attributes
}
