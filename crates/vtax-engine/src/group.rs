//! The group of a multicast stream: its address, and the sockets with which an end sends to it and receives from it.
//!
//! Both ends derive the address from the responder's, so that all samples of a path use the same group: switches that
//! snoop keep a group for minutes after its last member has left. Each flow has a separate group.
//!
//! Only the sender sends to the group. The receiver answers to the sender's own address: other members have no use for
//! the answers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use rustix::{io::Errno, net::sockopt};
use socket2::Socket;
use vtax_model::{
    station::{Station, Target},
    workload::{TestSpec, Transport},
};
use vtax_sys::netlink::{IfName, Rtnl};

use crate::{
    error::{EngineError, Result},
    options, socket,
};

/// 239.255.0.0/16, the local scope of IPv4 (RFC 2365, section 6.1).
const LOCAL_SCOPE: u32 = 0xefff_0000;

/// ff12::/16, IPv6 groups that are assigned to nobody and never leave the link (RFC 4291, section 2.7).
const LINK_SCOPE: u128 = 0xff12 << 112;

/// The group of a flow, on the link of an end that leads to the other end.
pub(crate) struct StreamGroup {
    address: SocketAddr,
    link: u32,
    station: Station,
}

impl StreamGroup {
    /// Returns the group of a flow to `responder`, as the end at `station` reaches it on its way to `peer`. It has the
    /// lower bits of the responder's address, and its port.
    ///
    /// The link isn't always the one that has the end's address: a tunnel may lead to a host that is reached at another one.
    pub(crate) fn of(responder: &Target, flow: u32, station: &Station, peer: &Target) -> Result<StreamGroup> {
        let (Target::Ip(responder), Target::Ip(peer)) = (responder, peer) else {
            return Err(mismatch(responder, station));
        };
        let link = link_to(station, peer.ip())?;
        let address = match responder {
            SocketAddr::V4(to) => {
                let low = (to.ip().to_bits() as u16).wrapping_add(flow as u16);
                SocketAddr::from((Ipv4Addr::from_bits(LOCAL_SCOPE | u32::from(low)), to.port()))
            }
            SocketAddr::V6(to) => {
                let low = (to.ip().to_bits() as u32).wrapping_add(flow);
                let group = Ipv6Addr::from_bits(LINK_SCOPE | u128::from(low));
                SocketAddrV6::new(group, to.port(), 0, link).into()
            }
        };
        Ok(StreamGroup { address, link, station: station.clone() })
    }

    pub(crate) fn target(&self) -> Target {
        Target::Ip(self.address)
    }

    /// Returns a socket that sends to the group. The hop limit is 1 by default, so that no router forwards it.
    pub(crate) fn sending(&self, spec: &TestSpec) -> Result<Socket> {
        let target = self.target();
        let socket = socket::dialling(spec, &self.station, &target)?;
        let chosen = match self.address.ip() {
            IpAddr::V4(group) => {
                let any = Ipv4Addr::UNSPECIFIED;
                sockopt::set_ip_multicast_if_with_ifindex(&socket, &group, &any, self.link)
            }
            IpAddr::V6(_) => sockopt::set_ipv6_multicast_if(&socket, self.link),
        };
        chosen.map_err(|errno| EngineError::socket("choose the link of the group", &target, errno.into()))?;
        socket.connect(&self.address.into()).map_err(|error| EngineError::connecting(&target, error))?;
        Ok(socket)
    }

    /// Returns a socket that has joined the group, and receives only what is sent to it. It isn't connected, because
    /// the sender's port is unknown: the token distinguishes the stream from other traffic to the group.
    pub(crate) fn receiving(&self, spec: &TestSpec) -> Result<Socket> {
        let target = self.target();
        let socket = socket::create(spec.transport, &self.station)?;
        options::apply(&socket, spec, &target)?;
        socket::bind(&socket, &target)?;
        let joined = match self.address.ip() {
            IpAddr::V4(group) => {
                let any = Ipv4Addr::UNSPECIFIED;
                sockopt::set_ip_add_membership_with_ifindex(&socket, &group, &any, self.link)
            }
            IpAddr::V6(group) => sockopt::set_ipv6_add_membership(&socket, &group, self.link),
        };
        joined.map_err(|errno| EngineError::socket("join the group", &target, errno.into()))?;
        Ok(socket)
    }
}

/// Returns the number of the link over which an end reaches the other one.
fn link_to(station: &Station, peer: IpAddr) -> Result<u32> {
    let mut kernel = Rtnl::open()?;
    let own = match station {
        Station::Device { device, .. } => {
            let name: IfName = device.as_str().parse()?;
            return Ok(kernel.existing_link(&name)?.index.0);
        }
        Station::Ip(own) => Some(*own).filter(|own| !own.is_unspecified()),
        Station::Unix(_) | Station::Vsock(_) => None,
    };
    let link = kernel.route_to(own, peer, None)?.and_then(|route| route.link);
    let target = Target::Ip(SocketAddr::new(peer, 0));
    link.map(|link| link.0).ok_or(EngineError::Unreachable { target, source: Errno::NETUNREACH.into() })
}

fn mismatch(target: &Target, station: &Station) -> EngineError {
    let (target, station) = (target.to_string(), station.clone());
    let why = "a group requires IP addresses at both endpoints";
    EngineError::FamilyMismatch { transport: Transport::Udp, station, target, why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(responder: &str, flow: u32, peer: &str) -> Result<String> {
        let [responder, peer] = [responder, peer].map(|address| Target::Ip(address.parse().unwrap()));
        StreamGroup::of(&responder, flow, &Station::Ip("127.0.0.1".parse().unwrap()), &peer)
            .map(|group| group.target().to_string())
    }

    #[test]
    fn each_flow_has_a_group_of_local_scope() {
        let loopback = "127.0.0.1:9";
        assert_eq!(group("10.9.8.7:4321", 0, loopback).unwrap(), "239.255.8.7:4321");
        assert_eq!(group("10.9.8.7:4321", 250, loopback).unwrap(), "239.255.9.1:4321");
        assert_eq!(group("10.9.255.255:1", 1, loopback).unwrap(), "239.255.0.0:1");
        assert_eq!(group("255.255.255.255:1", 65_535, loopback).unwrap(), "239.255.255.254:1");
        assert_eq!(group("[fd00::9:8]:5", 1, loopback).unwrap(), "[ff12::9:9%1]:5");
        assert!(group("127.0.0.1:5", 0, "[::1]:9").is_err());
        let unix = StreamGroup::of(&Target::Unix("/s".into()), 0, &Station::Unix("/".into()), &Target::NOWHERE).err();
        assert!(matches!(unix, Some(EngineError::FamilyMismatch { .. })), "{unix:?}");
    }
}
