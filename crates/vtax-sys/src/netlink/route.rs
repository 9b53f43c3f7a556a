//! Routes.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use vtax_model::options::CongestionControl;

use super::address::{family, ip};
use super::name::IfIndex;
use super::reply::{attribute, number32};
use super::request::NetlinkRequest;
use super::socket::{CREATE, Rtnl, Subject};
use crate::error::{Result, SysError};

/// Length of `struct rtmsg`, after which the attributes begin.
const HEADER: usize = 12;
/// `lo` is the first link of every namespace (`LOOPBACK_IFINDEX`).
const LOOPBACK: IfIndex = IfIndex(1);
const MALFORMED: &str = "a malformed route";

/// A route to add to the main table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewRoute {
    pub dest: IpNet,
    pub next_hop: NextHop,
    /// Source address for programs that don't choose one.
    pub source: Option<IpAddr>,
    /// TCP congestion control of all connections that use this route and don't choose their own.
    pub congestion: Option<CongestionControl>,
}

/// Target of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextHop {
    /// Through this router, which must be on a directly connected network.
    Via(IpAddr),
    /// Directly on this link.
    Link(IfIndex),
}

/// A route of the namespace, or the route of one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    pub dest: IpNet,
    /// Next router, if there is one of the same family.
    pub via: Option<IpAddr>,
    /// The link. None for a multipath route or a route that drops packets.
    pub link: Option<IfIndex>,
    pub source: Option<IpAddr>,
    /// The table: 254 is the main one.
    pub table: u32,
}

impl Rtnl {
    /// Adds a route to the main table.
    ///
    /// # Errors
    /// [`SysError::Invalid`] if IPv4 and IPv6 addresses are mixed; `EEXIST` if the route exists; `ENETUNREACH` if the
    /// router is on none of our networks; `EINVAL` if this kernel has no such congestion control.
    pub fn add_route(&mut self, route: &NewRoute) -> Result<()> {
        route.check()?;
        let subject = Subject { operation: "add route", object: &format_args!("to {}", route.dest) };
        self.change(&NetlinkRequest::new(libc::RTM_NEWROUTE, &route.message()), CREATE, subject)
    }

    /// Returns the routes to other machines, from *all* tables: VPNs and policy routing use tables other than the main
    /// one, and their address ranges are also in use. The kernel's own routes for our addresses, broadcast and
    /// multicast are omitted.
    pub fn routes(&mut self) -> Result<Vec<Route>> {
        self.dump_routes(Route::parse)
    }

    /// Returns the links of all default routes, of both families and all tables, including every link of a multipath
    /// route.
    pub fn default_route_links(&mut self) -> Result<BTreeSet<IfIndex>> {
        let found = self.dump_routes(|body, family| {
            let route = Route::parse(body, family)?.filter(|route| route.dest.prefix_len() == 0);
            Ok(route.map(|route| route.link.into_iter().chain(next_hops(body)).collect::<Vec<_>>()))
        })?;
        Ok(found.into_iter().flatten().collect())
    }

    fn dump_routes<T>(
        &mut self,
        parse: impl Fn(&[u8], AddressFamily) -> Result<Option<T>, &'static str>,
    ) -> Result<Vec<T>> {
        let subject = Subject { operation: "list routes", object: &"of this network namespace" };
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            let all = NetlinkRequest::new(libc::RTM_GETROUTE, &message);
            routes.extend(self.dump(&all, subject, |body| parse(body, family))?);
        }
        Ok(routes)
    }

    /// Returns the route that the kernel takes *now* for a packet to `to`, according to all its rules and tables
    /// (`RTM_GETROUTE`). None if there is no route, or if `from` is an IPv4 address that this namespace doesn't have.
    /// The route to one of its own addresses is over `lo`.
    ///
    /// `from` is the address to which the sender is bound. The answer's `source` is that address, or the one that the
    /// kernel would choose. The request has no ports or other fields by which the kernel spreads flows over a multipath
    /// route. `link` is the one to which the sender is bound; without it a link-local `to` is ambiguous.
    ///
    /// # Errors
    /// [`SysError::Invalid`] if IPv4 and IPv6 addresses are mixed; `EACCES` or `EINVAL` if a route forbids or drops the
    /// packet.
    pub fn route_to(&mut self, from: Option<IpAddr>, to: IpAddr, link: Option<IfIndex>) -> Result<Option<Route>> {
        one_family(to, from)?;
        let subject = Subject { operation: "look up the route", object: &format_args!("to {to}") };
        let request = NetlinkRequest::new(libc::RTM_GETROUTE, &lookup(from, to, link));
        let found = self.get(&request, subject, Route::taken);
        match found {
            Err(error) if matches!(error.errno(), Some(libc::ENETUNREACH | libc::EHOSTUNREACH)) => Ok(None),
            other => Ok(other?.map(|route| Route { source: from.or(route.source), ..route })),
        }
    }
}

/// Returns the links of a multipath route. Each `struct rtnexthop` begins with its own length; the link's index starts
/// at its fifth byte.
pub(super) fn next_hops(route: &[u8]) -> Vec<IfIndex> {
    let mut links = Vec::new();
    let mut rest = route.get(HEADER..).and_then(|attributes| attribute(attributes, libc::RTA_MULTIPATH)).unwrap_or(&[]);
    while let Some((length, link)) = rest.first_chunk().map(|length| u16::from_ne_bytes(*length)).zip(rest.get(4..8)) {
        links.extend(number32(link).map(IfIndex));
        let length = usize::from(length).max(8).next_multiple_of(4);
        rest = rest.get(length..).unwrap_or(&[]);
    }
    links
}

/// Returns the request for the route of one packet. A strict kernel refuses anything else in it
/// (`inet_rtm_valid_getroute_req`).
fn lookup(from: Option<IpAddr>, to: IpAddr, link: Option<IfIndex>) -> RouteMessage {
    let length = IpNet::from(to).max_prefix_len();
    let mut message = RouteMessage::default();
    message.header.address_family = family(to);
    message.header.destination_prefix_length = length;
    message.attributes.push(RouteAttribute::Destination(to.into()));
    if let Some(from) = from {
        message.header.source_prefix_length = length;
        message.attributes.push(RouteAttribute::Source(from.into()));
    }
    message.attributes.extend(link.map(|IfIndex(index)| RouteAttribute::Oif(index)));
    message
}

fn one_family(dest: IpAddr, others: impl IntoIterator<Item = IpAddr>) -> Result<()> {
    match others.into_iter().find(|other| other.is_ipv4() != dest.is_ipv4()) {
        None => Ok(()),
        Some(other) => {
            Err(SysError::invalid("address in a route", other, "all addresses of a route must be of one family"))
        }
    }
}

impl NewRoute {
    fn check(&self) -> Result<()> {
        let via = match self.next_hop {
            NextHop::Via(router) => Some(router),
            NextHop::Link(_) => None,
        };
        one_family(self.dest.addr(), via.into_iter().chain(self.source))
    }

    fn message(&self) -> RouteMessage {
        let mut message = RouteMessage::default();
        let direct = matches!(self.next_hop, NextHop::Link(_));
        message.header.address_family = family(self.dest.addr());
        message.header.destination_prefix_length = self.dest.prefix_len();
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.kind = RouteType::Unicast;
        // In IPv4, link scope means that the destination needs no router.
        message.header.scope = match direct && self.dest.addr().is_ipv4() {
            true => RouteScope::Link,
            false => RouteScope::Universe,
        };
        // The kernel refuses a destination with bits set beyond its prefix.
        let dest = self.dest.network();
        message.attributes.push(RouteAttribute::Destination(dest.into()));
        message.attributes.push(match self.next_hop {
            NextHop::Via(router) => RouteAttribute::Gateway(router.into()),
            NextHop::Link(link) => RouteAttribute::Oif(link.0),
        });
        let source = self.source.map(|source| RouteAttribute::PrefSource(source.into()));
        message.attributes.extend(source);
        let congestion = self.congestion.map(|name| RouteMetric::CcAlgo(name.to_string()));
        message.attributes.extend(congestion.map(|metric| RouteAttribute::Metrics(vec![metric])));
        message
    }
}

impl Route {
    /// Parses a route. None for another family, and for one of the kernel's own routes.
    pub(super) fn parse(body: &[u8], wanted: AddressFamily) -> Result<Option<Self>, &'static str> {
        let header = RouteHeader::parse(body).map_err(|_| MALFORMED)?;
        let own = [RouteType::Local, RouteType::Broadcast, RouteType::Anycast, RouteType::Multicast];
        if header.address_family != wanted || own.contains(&header.kind) {
            return Ok(None);
        }
        Self::read(body).map(Some)
    }

    /// Parses the answer to a lookup. Packets to ourselves go over `lo`. For IPv6 the kernel reports the link that has
    /// the address (`addrconf_f6i_alloc`), although it doesn't send over it (`ip6_rt_get_dev_rcu`).
    pub(super) fn taken(body: &[u8]) -> Option<Self> {
        let route = Self::read(body).ok()?;
        let own = RouteHeader::parse(body).ok()?.kind == RouteType::Local;
        Some(Self { link: if own { Some(LOOPBACK) } else { route.link }, ..route })
    }

    /// Parses any route to an IP address.
    fn read(body: &[u8]) -> Result<Self, &'static str> {
        let header = RouteHeader::parse(body).map_err(|_| MALFORMED)?;
        let attributes = &body[HEADER..];
        let find = |kind| attribute(attributes, kind);
        let dest = match (find(libc::RTA_DST), header.address_family) {
            (Some(dest), _) => ip(dest).ok_or(MALFORMED)?,
            (None, AddressFamily::Inet6) => Ipv6Addr::UNSPECIFIED.into(),
            (None, _) => Ipv4Addr::UNSPECIFIED.into(),
        };
        let length = header.destination_prefix_length;
        Ok(Self {
            dest: IpNet::new(dest, length).map_err(|_| MALFORMED)?,
            via: find(libc::RTA_GATEWAY).and_then(ip),
            link: find(libc::RTA_OIF).and_then(number32).map(IfIndex),
            source: find(libc::RTA_PREFSRC).and_then(ip),
            // The header has room only for small table numbers.
            table: find(libc::RTA_TABLE).and_then(number32).unwrap_or(header.table.into()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::{DefaultNla, Emitable};
    use proptest::prelude::*;

    fn route(dest: &str, next_hop: NextHop) -> NewRoute {
        NewRoute { dest: dest.parse().unwrap(), next_hop, source: None, congestion: None }
    }

    fn bytes(message: &RouteMessage) -> Vec<u8> {
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        bytes
    }

    #[test]
    fn a_requested_route_matches_the_one_read_back() {
        let via = "10.1.0.1".parse().unwrap();
        let asked = route("10.2.3.4/16", NextHop::Via(via));
        let read = Route::parse(&bytes(&asked.message()), AddressFamily::Inet);
        let read = read.unwrap().unwrap();
        assert_eq!(read.dest, "10.2.0.0/16".parse().unwrap());
        assert_eq!((read.via, read.link, read.table), (Some(via), None, 254));
    }

    #[test]
    fn routes_for_own_addresses_are_omitted() {
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
    fn a_multipath_route_has_several_links() {
        let hop = |link: u32, gateway: &[u8]| {
            let mut hop = vec![u8::try_from(8 + gateway.len()).unwrap(), 0, 0, 0];
            hop.extend(link.to_ne_bytes());
            hop.extend(gateway);
            hop
        };
        let hops = [hop(3, &[8, 0, 5, 0, 10, 0, 0, 1]), hop(7, &[])].concat();
        let mut message = route("0.0.0.0/0", NextHop::Link(IfIndex(2))).message();
        message.attributes = vec![RouteAttribute::Other(DefaultNla::new(libc::RTA_MULTIPATH, hops))];
        assert_eq!(next_hops(&bytes(&message)), [IfIndex(3), IfIndex(7)]);
    }

    #[test]
    fn families_are_not_mixed() {
        let mixed = route("10.0.0.0/8", NextHop::Via("::1".parse().unwrap()));
        assert!(mixed.check().unwrap_err().to_string().contains("::1"));
        let mut rtnl = Rtnl::open().unwrap();
        let asked = rtnl.route_to("::1".parse().ok(), "127.0.0.1".parse().unwrap(), None);
        assert!(asked.unwrap_err().to_string().contains("::1"));
    }

    #[test]
    fn a_question_names_single_addresses() {
        let (from, to) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        let asked = lookup(Some(from), to, None);
        let read = Route::read(&bytes(&asked)).unwrap();
        assert_eq!((read.dest.addr(), read.dest.prefix_len()), (to, 128));
        assert_eq!(asked.header.source_prefix_length, 128);
        let bound = lookup(None, to, Some(IfIndex(7)));
        assert_eq!(bound.header.source_prefix_length, 0);
        assert!(bound.attributes.contains(&RouteAttribute::Oif(7)));
    }

    #[test]
    fn loopback_is_reached_over_the_first_link() {
        let mut rtnl = Rtnl::open().unwrap();
        let to = "127.0.0.2".parse().unwrap();
        let found = rtnl.route_to(None, to, None).unwrap().unwrap();
        assert_eq!((found.link, found.dest), (Some(IfIndex(1)), IpNet::from(to)));
    }

    proptest! {
        #[test]
        fn hostile_reports_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = Route::parse(&bytes, AddressFamily::Inet);
            let _ = Route::parse(&bytes, AddressFamily::Inet6);
            let _ = (Route::taken(&bytes), next_hops(&bytes));
            let hops = DefaultNla::new(libc::RTA_MULTIPATH, bytes);
            let mut message = RouteMessage::default();
            message.attributes = vec![RouteAttribute::Other(hops)];
            let mut whole = vec![0; message.buffer_len()];
            message.emit(&mut whole);
            next_hops(&whole);
        }
    }
}
