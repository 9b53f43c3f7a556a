//! Which kinds of links this kernel has: found out by making one.
//!
//! A list of modules would not tell: a driver may be built in, be missing though
//! listed, or be kept from loading.

use netlink_packet_route::link::{InfoData, InfoKind, InfoVxlan, LinkAttribute, LinkInfo};

use super::create::{LinkKind, NewLink};
use super::name::{IfIndex, IfName};
use super::socket::{Rtnl, Subject};
use crate::error::Result;
use crate::netns::NetNs;

/// Makes a link of this kind, such as `ipvlan`, in a namespace that goes at once.
/// The kernel may load a module for it.
///
/// A kind that stands on another link gets a veth to stand on, so on a kernel
/// without veth the answer for those is that veth is missing.
///
/// # Errors
/// [`SysError::NoSuchKind`](crate::SysError::NoSuchKind) if this kernel does not have it. Any other error
/// says nothing about the kind: the privilege is missing, or the kind wants settings that we don't know.
pub fn probe_kind(kind: &str) -> Result<()> {
    let scratch = NetNs::scratch()?;
    let mut rtnl = Rtnl::open_in(&scratch)?;
    let mut attributes = Vec::new();
    if ["macvlan", "macvtap", "ipvlan", "ipvtap"].contains(&kind) {
        attributes.push(LinkAttribute::Link(parent(&mut rtnl)?.0));
    }
    let name: IfName = "probe".parse()?;
    let mut info = vec![LinkInfo::Kind(InfoKind::Other(kind.into()))];
    if kind == "vxlan" {
        // Without a number and a port it is refused before it is looked at.
        let data = vec![InfoVxlan::Id(1), InfoVxlan::Port(4789)];
        info.push(LinkInfo::Data(InfoData::Vxlan(data)));
    }
    attributes.push(LinkAttribute::IfName(name.as_str().into()));
    attributes.push(LinkAttribute::LinkInfo(info));
    let subject = Subject { operation: "try link kind", object: &name };
    rtnl.create(kind, subject, IfIndex(0), attributes)
}

/// A link for others to stand on.
pub(super) fn parent(rtnl: &mut Rtnl) -> Result<IfIndex> {
    let kind = LinkKind::Veth { peer: "other".parse()?, peer_ns: None, peer_mtu: None };
    let name: IfName = "parent".parse()?;
    rtnl.create_link(&NewLink::new(name.clone(), kind))?;
    Ok(rtnl.existing_link(&name)?.index)
}
