//! A small synchronous rtnetlink client, with only the requests that labs need, and the few of nftables that virtual
//! switches need.
//!
//! Requests are written with the types of `netlink-packet-route`. These change with every release of that crate, so
//! this interface doesn't expose them. Answers are read attribute by attribute, and only the attributes that we use.
//! That crate's own parsers reject a whole message because of one attribute that a newer kernel added.
//!
//! Each change requests an acknowledgement and waits for it. Sequence number, port and sender of each answer are
//! checked. An error contains the operation, the object and the kernel's own text (`NETLINK_EXT_ACK`).
//!
//! ```no_run
//! use vtax_sys::netlink::{LinkChange, LinkKind, NewLink, Rtnl};
//! use vtax_sys::netns::NetNs;
//!
//! # fn main() -> vtax_sys::Result<()> {
//! let (left, right) = (NetNs::scratch()?, NetNs::scratch()?);
//! let mut rtnl = Rtnl::open_in(&left)?;
//! let peer_ns = Some(&right);
//! let kind = LinkKind::Veth { peer: "w1".parse()?, peer_ns, peer_mtu: None };
//! rtnl.create_link(&NewLink::new("w0".parse()?, kind))?;
//! let name = "w0".parse()?;
//! rtnl.set_link(&name, &LinkChange { up: Some(true), ..LinkChange::default() })?;
//! # Ok(())
//! # }
//! ```

mod address;
mod bridge;
mod change;
mod create;
mod fdb;
#[cfg(test)]
mod fuzz;
mod link;
mod macvtap;
mod name;
mod nft;
mod owner;
mod probe;
mod qdisc;
mod redirect;
mod reply;
mod request;
mod route;
mod socket;
mod tun;
mod vf;

pub use address::InterfaceAddress;
pub use bridge::{BridgeSettings, NewVlanBridge, PortVlans, VlanEnd, VlanMembership, probe_vlan_bridge};
pub use change::LinkChange;
pub use create::{LinkKind, NewLink};
pub use fdb::{FdbEntry, FdbOrigin};
pub use link::Link;
pub use macvtap::{NewMacvtap, open_macvtap, probe_macvtap};
pub(crate) use name::ioctl_request;
pub use name::{IfIndex, IfName, LinkRef, MacAddr};
pub use nft::{Dropped, MacChange, MacFilter, Nft, SwitchName, probe_mac_filter};
pub use owner::{UserId, owner_of_peer};
pub use probe::probe_kind;
pub use qdisc::{Qdisc, QdiscStats, Tbf, probe_tbf};
pub use redirect::probe_redirection;
pub use route::{NewRoute, NextHop, Route};
pub use socket::Rtnl;
pub use tun::{NewTap, open_tap, probe_tap};
pub use vf::{Vf, VfChange, VfLinkState};
