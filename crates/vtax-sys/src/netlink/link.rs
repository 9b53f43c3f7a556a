//! Links as the kernel reports them.

use netlink_packet_route::link::{LinkFlags, LinkHeader};

use super::name::{IfIndex, IfName, LinkRef, MacAddr};
use super::reply::{attribute, number32, text};
use super::request::{LinkRequest, text_attribute};
use super::socket::{CHANGE, Rtnl, Subject};
use crate::error::{Result, SysError};

/// Length of `struct ifinfomsg`, after which the attributes begin.
pub(super) const HEADER: usize = 16;
/// From `linux/if_link.h`.
const IFLA_INFO_KIND: u16 = 1;

/// Current state of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub index: IfIndex,
    pub name: IfName,
    /// Kind of a virtual link, such as `veth`; none for a NIC or `lo`.
    pub kind: Option<String>,
    /// Size of the largest packet in bytes, without the Ethernet header.
    pub mtu: u32,
    /// The largest MTU that the driver accepts, if it reports one.
    pub max_mtu: Option<u32>,
    /// True if the administrator has set it up (`IFF_UP`).
    pub up: bool,
    /// True if it is up and can carry packets (`IFF_RUNNING`).
    pub running: bool,
    /// True if there is a carrier (`IFF_LOWER_UP`).
    pub lower_up: bool,
    /// Bridge, bond or VRF of which the link is a port.
    pub master: Option<IfIndex>,
    /// The link below, or the other end of a veth. The index may belong to *another* namespace, see `parent_elsewhere`.
    pub parent: Option<IfIndex>,
    /// True if `parent` is in another namespace (`IFLA_LINK_NETNSID`).
    pub parent_elsewhere: bool,
    /// A free text; ownership marks are stored in it.
    pub alias: Option<String>,
    /// The hardware address, for Ethernet.
    pub mac: Option<MacAddr>,
    /// Limit on the packets waiting to be sent, if the qdisc takes its limit from it (`txqueuelen`).
    pub tx_queue_length: Option<u32>,
    pub tx_queues: Option<u32>,
    pub rx_queues: Option<u32>,
    /// The root qdisc, such as `noqueue`.
    pub qdisc: Option<String>,
}

impl Rtnl {
    /// Returns all links of the namespace.
    pub fn links(&mut self) -> Result<Vec<Link>> {
        let subject = Subject { operation: "list links", object: &"of this network namespace" };
        let all = LinkRequest::default().request(libc::RTM_GETLINK);
        self.dump(&all, subject, |body| Link::parse(body).map(Some).ok_or("a link without a name or MTU"))
    }

    /// Returns the link with this name or index, if there is one.
    pub fn link(&mut self, link: impl Into<LinkRef>) -> Result<Option<Link>> {
        let link = link.into();
        let subject = Subject { operation: "look up link", object: &link };
        let message = addressed_to(&link).request(libc::RTM_GETLINK);
        self.get(&message, subject, Link::parse)
    }

    /// Like [`Rtnl::link`], but a link that does not exist is an error: [`SysError::NoSuchLink`].
    pub fn existing_link(&mut self, link: impl Into<LinkRef>) -> Result<Link> {
        let link = link.into();
        self.link(link.clone())?.ok_or_else(|| SysError::NoSuchLink { name: link.to_string() })
    }

    /// Deletes a link; of a veth pair, both ends.
    pub fn delete_link(&mut self, link: impl Into<LinkRef>) -> Result<()> {
        let link = link.into();
        let subject = Subject { operation: "delete link", object: &link };
        let message = addressed_to(&link).request(libc::RTM_DELLINK);
        self.change(&message, CHANGE, subject)
    }
}

/// Returns a message that names an existing link and requests nothing yet.
pub(super) fn addressed_to(link: &LinkRef) -> LinkRequest {
    let mut message = LinkRequest::default();
    match link {
        LinkRef::Index(index) => message.header.index = index.0,
        LinkRef::Name(name) => message.push(&text_attribute(libc::IFLA_IFNAME, name.as_str())),
    }
    message
}

impl Link {
    /// Parses a link. None if the message lacks what every link has: a name and an MTU.
    pub(super) fn parse(body: &[u8]) -> Option<Self> {
        let header = LinkHeader::parse(body).ok()?;
        let attributes = body.get(HEADER..)?;
        let find = |kind| attribute(attributes, kind);
        let number = |kind| find(kind).and_then(number32);
        let flag = |flag| header.flags.contains(flag);
        Some(Self {
            index: IfIndex(header.index),
            name: IfName::reported(find(libc::IFLA_IFNAME)?),
            kind: find(libc::IFLA_LINKINFO).and_then(|info| attribute(info, IFLA_INFO_KIND)).and_then(text),
            mtu: number(libc::IFLA_MTU)?,
            max_mtu: number(libc::IFLA_MAX_MTU).filter(|mtu| *mtu > 0),
            up: flag(LinkFlags::Up),
            running: flag(LinkFlags::Running),
            lower_up: flag(LinkFlags::LowerUp),
            master: number(libc::IFLA_MASTER).map(IfIndex),
            parent: number(libc::IFLA_LINK).filter(|parent| *parent > 0).map(IfIndex),
            parent_elsewhere: find(libc::IFLA_LINK_NETNSID).is_some(),
            alias: find(libc::IFLA_IFALIAS).and_then(text),
            mac: find(libc::IFLA_ADDRESS).and_then(|address| address.try_into().ok()).map(MacAddr),
            tx_queue_length: number(libc::IFLA_TXQLEN),
            tx_queues: number(libc::IFLA_NUM_TX_QUEUES),
            rx_queues: number(libc::IFLA_NUM_RX_QUEUES),
            qdisc: find(libc::IFLA_QDISC).and_then(text),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::Emitable;
    use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo, LinkMessage};
    use proptest::prelude::*;

    fn bytes(attributes: Vec<LinkAttribute>) -> Vec<u8> {
        let mut message = LinkMessage::default();
        message.header.index = 5;
        message.header.flags = LinkFlags::Up | LinkFlags::LowerUp;
        message.attributes = attributes;
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        bytes
    }

    #[test]
    fn a_report_is_read() {
        let link = Link::parse(&bytes(vec![
            LinkAttribute::IfName("br0".into()),
            LinkAttribute::Mtu(9000),
            LinkAttribute::MaxMtu(0),
            LinkAttribute::IfAlias("vtax:1".into()),
            LinkAttribute::Controller(3),
            LinkAttribute::TxQueueLen(0),
            LinkAttribute::Address(vec![2, 0, 0, 0, 0, 1]),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]),
        ]))
        .unwrap();
        assert_eq!((link.index, link.name.as_str(), link.mtu), (IfIndex(5), "br0", 9000));
        assert_eq!((link.up, link.running, link.lower_up), (true, false, true));
        assert_eq!((link.master, link.max_mtu), (Some(IfIndex(3)), None));
        assert_eq!((link.tx_queue_length, link.tx_queues), (Some(0), None));
        assert_eq!(link.kind.as_deref(), Some("bridge"));
        assert_eq!(link.alias.as_deref(), Some("vtax:1"));
        assert_eq!(link.mac.unwrap().to_string(), "02:00:00:00:00:01");
    }

    #[test]
    fn a_link_must_have_a_name_and_an_mtu() {
        assert_eq!(Link::parse(&bytes(vec![LinkAttribute::Mtu(1500)])), None);
        assert_eq!(Link::parse(&[0; 15]), None);
    }

    #[test]
    fn an_infiniband_address_is_not_an_ethernet_address() {
        let link = Link::parse(&bytes(vec![
            LinkAttribute::IfName("ib0".into()),
            LinkAttribute::Mtu(2044),
            LinkAttribute::Address(vec![0; 20]),
        ]));
        assert_eq!(link.unwrap().mac, None);
    }

    proptest! {
        #[test]
        fn hostile_reports_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Link::parse(&bytes);
        }
    }
}
