//! Routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::address::{family, ip};
use super::name::IfIndex;
use super::reply::{attribute, number32};
use super::socket::{CREATE, Rtnl, Subject};
use crate::error::{Result, SysError};

/// Length of `struct rtmsg`, behind which the attributes begin.
const HEADER: usize = 12;

/// A route to add to the main table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewRoute {
    /// Where to.
    pub dest: IpNet,
    /// Which way.
    pub next_hop: NextHop,
    /// The source address that programs get which don't choose one.
    pub source: Option<IpAddr>,
}

/// The way of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextHop {
    /// Through this router, which must be on a network that we are on.
    Via(IpAddr),
    /// Directly on this link.
    Link(IfIndex),
}

/// A route that the namespace has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Where to; a prefix of length 0 is the default route.
    pub dest: IpNet,
    /// The next router, if there is one and it is of the same family.
    pub via: Option<IpAddr>,
    /// The link; none for a multipath route or one that drops.
    pub link: Option<IfIndex>,
    /// The preferred source address.
    pub source: Option<IpAddr>,
    /// The table: 254 is the main one.
    pub table: u32,
}

impl Rtnl {
    /// Adds a route to the main table.
    ///
    /// # Errors
    /// [`SysError::Invalid`] if addresses of IPv4 and IPv6 are mixed; `EEXIST` if
    /// the route is there; `ENETUNREACH` if the router is on no network of ours.
    pub fn add_route(&mut self, route: &NewRoute) -> Result<()> {
        route.check()?;
        let subject = Subject { operation: "add route", object: &format_args!("to {}", route.dest) };
        self.change(RouteNetlinkMessage::NewRoute(route.message()), CREATE, subject)
    }

    /// The routes to other machines, of *all* tables: VPN and policy routing keep
    /// theirs in others than the main one, and their ranges are in use as well.
    /// Left out are those that the kernel keeps for our own addresses, broadcast
    /// and multicast.
    pub fn routes(&mut self) -> Result<Vec<Route>> {
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let subject = Subject { operation: "list routes", object: &"of this network namespace" };
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            let all = RouteNetlinkMessage::GetRoute(message);
            routes.extend(self.dump(&all, subject, |body| Route::parse(body, family))?);
        }
        Ok(routes)
    }
}

impl NewRoute {
    fn check(&self) -> Result<()> {
        let via = match self.next_hop {
            NextHop::Via(router) => Some(router),
            NextHop::Link(_) => None,
        };
        let ours = |address: &IpAddr| address.is_ipv4() == self.dest.addr().is_ipv4();
        match via.iter().chain(&self.source).find(|address| !ours(address)) {
            None => Ok(()),
            Some(other) => Err(SysError::Invalid {
                what: "address in a route",
                value: other.to_string(),
                why: "all addresses of a route are of one family",
            }),
        }
    }

    fn message(&self) -> RouteMessage {
        let mut message = RouteMessage::default();
        let direct = matches!(self.next_hop, NextHop::Link(_));
        message.header.address_family = family(self.dest.addr());
        message.header.destination_prefix_length = self.dest.prefix_len();
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.kind = RouteType::Unicast;
        // For IPv4 the scope says that the destination needs no router.
        message.header.scope = match direct && self.dest.addr().is_ipv4() {
            true => RouteScope::Link,
            false => RouteScope::Universe,
        };
        // The kernel refuses a destination with bits behind its prefix.
        let dest = self.dest.network();
        message.attributes.push(RouteAttribute::Destination(dest.into()));
        message.attributes.push(match self.next_hop {
            NextHop::Via(router) => RouteAttribute::Gateway(router.into()),
            NextHop::Link(link) => RouteAttribute::Oif(link.0),
        });
        let source = self.source.map(|source| RouteAttribute::PrefSource(source.into()));
        message.attributes.extend(source);
        message
    }
}

impl Route {
    /// Nothing for another family or for a route of the kernel's own.
    fn parse(body: &[u8], wanted: AddressFamily) -> Result<Option<Self>, &'static str> {
        let malformed = "a malformed route";
        let header = RouteHeader::parse(body).map_err(|_| malformed)?;
        let own = [RouteType::Local, RouteType::Broadcast, RouteType::Anycast, RouteType::Multicast];
        if header.address_family != wanted || own.contains(&header.kind) {
            return Ok(None);
        }
        let attributes = &body[HEADER..];
        let find = |kind| attribute(attributes, kind);
        let dest = match (find(libc::RTA_DST), wanted) {
            (Some(dest), _) => ip(dest).ok_or(malformed)?,
            (None, AddressFamily::Inet6) => Ipv6Addr::UNSPECIFIED.into(),
            (None, _) => Ipv4Addr::UNSPECIFIED.into(),
        };
        let length = header.destination_prefix_length;
        Ok(Some(Self {
            dest: IpNet::new(dest, length).map_err(|_| malformed)?,
            via: find(libc::RTA_GATEWAY).and_then(ip),
            link: find(libc::RTA_OIF).and_then(number32).map(IfIndex),
            source: find(libc::RTA_PREFSRC).and_then(ip),
            // The header has room for small numbers only.
            table: find(libc::RTA_TABLE).and_then(number32).unwrap_or(header.table.into()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::Emitable;
    use proptest::prelude::*;

    fn route(dest: &str, next_hop: NextHop) -> NewRoute {
        NewRoute { dest: dest.parse().unwrap(), next_hop, source: None }
    }

    fn bytes(message: &RouteMessage) -> Vec<u8> {
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        bytes
    }

    #[test]
    fn what_is_asked_for_is_what_would_be_read() {
        let via = "10.1.0.1".parse().unwrap();
        let asked = route("10.2.3.4/16", NextHop::Via(via));
        let read = Route::parse(&bytes(&asked.message()), AddressFamily::Inet);
        let read = read.unwrap().unwrap();
        assert_eq!(read.dest, "10.2.0.0/16".parse().unwrap());
        assert_eq!((read.via, read.link, read.table), (Some(via), None, 254));
    }

    #[test]
    fn routes_for_own_addresses_are_left_out() {
        let mut message = route("10.0.0.1/32", NextHop::Link(IfIndex(1))).message();
        message.header.kind = RouteType::Local;
        assert_eq!(Route::parse(&bytes(&message), AddressFamily::Inet), Ok(None));
    }

    #[test]
    fn a_default_route_has_no_destination() {
        let mut message = route("::/0", NextHop::Link(IfIndex(2))).message();
        message.attributes.remove(0);
        let read = Route::parse(&bytes(&message), AddressFamily::Inet6).unwrap().unwrap();
        assert_eq!(read.dest, "::/0".parse().unwrap());
    }

    #[test]
    fn families_are_not_mixed() {
        let mixed = route("10.0.0.0/8", NextHop::Via("::1".parse().unwrap()));
        assert!(mixed.check().unwrap_err().to_string().contains("::1"));
    }

    proptest! {
        #[test]
        fn hostile_reports_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = Route::parse(&bytes, AddressFamily::Inet);
            let _ = Route::parse(&bytes, AddressFamily::Inet6);
        }
    }
}
