//! Detection of the link kinds that this kernel supports, by creating one.
//!
//! A list of modules isn't enough: a driver may be built in, missing although it is listed, or not allowed to load.

use netlink_packet_route::link::{InfoData, InfoKind, InfoVxlan, LinkAttribute, LinkInfo};

use super::create::{LinkKind, NewLink};
use super::name::{IfIndex, IfName};
use super::socket::{Rtnl, Subject};
use crate::error::Result;
use crate::netns::NetNs;

/// Creates a link of this kind, such as `ipvlan`, in a temporary namespace. The kernel may load a module for it.
///
/// A kind that needs a parent link gets a veth as its parent. So on a kernel without veth, the error for such a kind is
/// that veth is missing.
///
/// # Errors
/// [`SysError::NoSuchKind`](crate::SysError::NoSuchKind) if this kernel doesn't have the kind. Any other error says
/// nothing about the kind: the privilege is missing, or the kind needs settings unknown to us.
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
        // Without an identifier and a port, the kernel refuses the request before it checks the kind.
        let data = vec![InfoVxlan::Id(1), InfoVxlan::Port(4789)];
        info.push(LinkInfo::Data(InfoData::Vxlan(data)));
    }
    attributes.push(LinkAttribute::IfName(name.as_str().into()));
    attributes.push(LinkAttribute::LinkInfo(info));
    let subject = Subject { operation: "try link kind", object: &name };
    rtnl.create(kind, subject, IfIndex(0), attributes)
}

/// Creates a link that can be the parent of others.
pub(super) fn parent(rtnl: &mut Rtnl) -> Result<IfIndex> {
    let kind = LinkKind::Veth { peer: "other".parse()?, peer_ns: None, peer_mtu: None };
    let name: IfName = "parent".parse()?;
    rtnl.create_link(&NewLink::new(name.clone(), kind))?;
    Ok(rtnl.existing_link(&name)?.index)
}
