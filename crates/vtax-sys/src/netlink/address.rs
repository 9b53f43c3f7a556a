//! IP addresses of links.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeader, AddressHeaderFlags, AddressMessage,
};

use super::name::IfIndex;
use super::reply::attribute;
use super::request::NetlinkRequest;
use super::socket::{CHANGE, CREATE, Rtnl, Subject};
use crate::error::Result;

/// Length of `struct ifaddrmsg`, after which the attributes begin.
const HEADER: usize = 8;

/// An address of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceAddress {
    pub link: IfIndex,
    pub net: IpNet,
}

impl Rtnl {
    /// Adds an address to a link; the kernel adds the route to its network when the link is up.
    ///
    /// An IPv6 address can be used immediately, because it is added without duplicate address detection, which takes a
    /// second or more.
    ///
    /// # Errors
    /// `EEXIST` if the link already has it.
    pub fn add_address(&mut self, link: IfIndex, address: IpNet) -> Result<()> {
        let mut message = of_link(link, address);
        if address.addr().is_ipv6() {
            message.header.flags = AddressHeaderFlags::Nodad;
            message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        let subject = Subject { operation: "add address", object: &format_args!("{address} to link number {link}") };
        self.change(&NetlinkRequest::new(libc::RTM_NEWADDR, &message), CREATE, subject)
    }

    /// Removes an address from a link.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL` if the link doesn't have it; `ENODEV` if there is no such link.
    pub fn delete_address(&mut self, link: IfIndex, address: IpNet) -> Result<()> {
        let subject = Subject { operation: "delete address", object: &format_args!("{address} of link number {link}") };
        self.change(&NetlinkRequest::new(libc::RTM_DELADDR, &of_link(link, address)), CHANGE, subject)
    }

    /// Returns all addresses of all links of the namespace.
    pub fn addresses(&mut self) -> Result<Vec<InterfaceAddress>> {
        let subject = Subject { operation: "list addresses", object: &"of this network namespace" };
        let all = NetlinkRequest::new(libc::RTM_GETADDR, &AddressMessage::default());
        self.dump(&all, subject, InterfaceAddress::parse)
    }
}

fn of_link(link: IfIndex, address: IpNet) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(address.addr());
    message.header.prefix_len = address.prefix_len();
    message.header.index = link.0;
    message.attributes = vec![AddressAttribute::Local(address.addr()), AddressAttribute::Address(address.addr())];
    message
}

impl InterfaceAddress {
    /// Parses an address. None for a family other than IP.
    pub(super) fn parse(body: &[u8]) -> Result<Option<Self>, &'static str> {
        let malformed = "a malformed address";
        let header = AddressHeader::parse(body).map_err(|_| malformed)?;
        if !matches!(header.family, AddressFamily::Inet | AddressFamily::Inet6) {
            return Ok(None);
        }
        let attributes = &body[HEADER..];
        // On a point-to-point link, IFA_ADDRESS is the address of the *other* end. Elsewhere, IPv6 has no IFA_LOCAL.
        let own = attribute(attributes, libc::IFA_LOCAL).or_else(|| attribute(attributes, libc::IFA_ADDRESS));
        let net = own.and_then(ip).and_then(|address| IpNet::new(address, header.prefix_len).ok()).ok_or(malformed)?;
        let link = IfIndex(header.index);
        Ok(Some(Self { link, net }))
    }
}

pub(super) fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

/// Parses an address in network byte order. Its length determines the family.
pub(super) fn ip(value: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(value) {
        return Some(octets.into());
    }
    <[u8; 16]>::try_from(value).ok().map(IpAddr::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::Emitable;
    use proptest::prelude::*;

    fn bytes(prefix: u8, attributes: Vec<AddressAttribute>) -> Vec<u8> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.prefix_len = prefix;
        message.header.index = 4;
        message.attributes = attributes;
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        bytes
    }

    #[test]
    fn the_own_end_of_a_point_to_point_link_is_reported() {
        let own = AddressAttribute::Local([10, 0, 0, 1].into());
        let other = AddressAttribute::Address([10, 0, 0, 2].into());
        let address = InterfaceAddress::parse(&bytes(24, vec![other, own])).unwrap().unwrap();
        assert_eq!(address.link, IfIndex(4));
        assert_eq!(address.net, "10.0.0.1/24".parse().unwrap());
    }

    #[test]
    fn a_prefix_longer_than_its_address_is_malformed() {
        let own = AddressAttribute::Local([10, 0, 0, 1].into());
        assert!(InterfaceAddress::parse(&bytes(33, vec![own])).is_err());
        assert!(InterfaceAddress::parse(&bytes(24, vec![])).is_err());
    }

    proptest! {
        #[test]
        fn hostile_reports_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = InterfaceAddress::parse(&bytes);
        }
    }
}
