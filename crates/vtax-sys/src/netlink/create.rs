//! Making links.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use netlink_packet_route::link::{
    BridgeStpState, InfoBridge, InfoData, InfoIpVlan, InfoKind, InfoMacVlan, InfoMacVtap, InfoVeth, InfoVxlan,
    IpVlanMode, LinkAttribute, LinkInfo, LinkMessage, MacVlanMode, MacVtapMode,
};
use strum::IntoStaticStr;

use super::name::{IfIndex, IfName, MacAddr};
use super::request::RtnlRequest;
use super::socket::{CREATE, Rtnl, Subject};
use crate::error::{Result, SysError};
use crate::netns::NetNs;

/// The largest VXLAN network identifier: 24 bits, RFC 7348.
const LARGEST_VNI: u32 = (1 << 24) - 1;

/// A link to make. It comes without addresses and switched off.
///
/// The kernel takes no alias at creation, so the ownership mark must be set by
/// [`Rtnl::set_link`] right afterwards.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the names say it")]
pub struct NewLink<'a> {
    pub name: IfName,
    pub kind: LinkKind<'a>,
    /// Bytes; the kind's own default otherwise.
    pub mtu: Option<u32>,
    /// The hardware address; a random one otherwise.
    pub mac: Option<MacAddr>,
    /// Its number, which is taken from 1 up otherwise. `EBUSY` if another link has it.
    pub index: Option<IfIndex>,
    /// Make it in this namespace instead of the one of the connection. The
    /// kernel does it in one step: the link never shows up here.
    pub into_ns: Option<&'a NetNs>,
}

/// The kinds of links that a lab is made of. A `parent` is a link in the
/// namespace of the *connection*, wherever the new link goes.
#[derive(Debug, Clone, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum LinkKind<'a> {
    /// A wire: two links, each receiving what the other sends.
    Veth {
        peer: IfName,
        /// Where the other end goes; the namespace of the connection otherwise.
        peer_ns: Option<&'a NetNs>,
        /// Bytes; 1500 otherwise.
        peer_mtu: Option<u32>,
    },
    /// A switch, without spanning tree, so that a port forwards at once.
    Bridge,
    /// A link with a MAC address of its own on a parent (bridge mode: those on
    /// one parent reach each other, but not the parent's own stack).
    Macvlan { parent: IfIndex },
    /// The same for a program, see [`NewMacvtap`](super::NewMacvtap).
    Macvtap { parent: IfIndex },
    /// A link with an IP address of its own on a parent whose MAC address it shares (mode l2).
    Ipvlan { parent: IfIndex },
    /// An Ethernet link in UDP datagrams to one remote end.
    Vxlan {
        vni: u32,
        local: IpAddr,
        remote: IpAddr,
        /// UDP port at both ends; 4789 is the registered one.
        port: u16,
        /// The link that carries the datagrams. It gives the default MTU: its
        /// own less 50 bytes (70 over IPv6).
        parent: Option<IfIndex>,
        /// Learn where addresses are from what is received.
        learning: bool,
    },
    /// A link that drops what is sent to it.
    Dummy,
}

impl<'a> NewLink<'a> {
    /// With the kernel's own MTU and hardware address, in the namespace of the connection.
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
    /// As the kernel and `ip -d link` call it.
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
            Self::Dummy => return None,
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
            // A unicast "group" is the one remote end.
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
                Err(SysError::invalid("VXLAN network identifier", vni, "it has 24 bits, so 16777215 is the largest"))
            }
            _ => Ok(()),
        }
    }
}

impl Rtnl {
    /// Makes a link.
    ///
    /// # Errors
    /// `EEXIST` if the name, or a veth peer's, is taken;
    /// [`SysError::NoSuchKind`] if this kernel has no such links.
    pub fn create_link(&mut self, link: &NewLink<'_>) -> Result<()> {
        link.kind.check()?;
        let (kind, name) = (link.kind.name(), &link.name);
        let what = if kind == "bridge" { "" } else { "link " };
        let subject = Subject { operation: "create", object: &format_args!("{kind} {what}{name}") };
        self.create(kind, subject, link.index.unwrap_or(IfIndex(0)), link.attributes())
    }

    /// Index 0 leaves the choice to the kernel.
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
        let made = self.change(&RtnlRequest::new(libc::RTM_NEWLINK, &message), CREATE, subject);
        made.map_err(|error| match error.errno() {
            // What `rtnl_newlink` answers to a kind that nobody registered.
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
