//! Fuzz targets for answers of the kernel, or of a process that writes to the socket in its place.

use std::net::Ipv4Addr;

use netlink_packet_core::Emitable;
use netlink_packet_route::{
    AddressFamily,
    address::{AddressAttribute, AddressMessage},
    link::{
        AfSpecBridge, BridgeVlanInfo, BridgeVlanInfoFlags, InfoKind, LinkAttribute, LinkInfo, LinkMessage, LinkVfInfo,
        VfInfo, VfInfoMac, VfInfoVlan,
    },
    route::{RouteAttribute, RouteMessage},
};

use super::{
    address::InterfaceAddress,
    bridge::{BridgeSettings, PortVlans},
    fdb::FdbEntry,
    link::Link,
    nft::{self, MacFilter},
    owner,
    qdisc::Qdisc,
    redirect::redirection,
    reply::{Expected, NetlinkReply, each_attribute, replies, text},
    route::{Route, next_hops},
    vf::Vf,
};

const OURS: Expected = Expected { sequence: 7, port: 99 };

fn datagram(kind: u16, body: &impl Emitable) -> Vec<u8> {
    let mut bytes = (16 + body.buffer_len() as u32).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(0_u16.to_ne_bytes());
    bytes.extend(OURS.sequence.to_ne_bytes());
    bytes.extend(OURS.port.to_ne_bytes());
    bytes.resize(16 + body.buffer_len(), 0);
    body.emit(&mut bytes[16..]);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn link() -> LinkMessage {
    let vf = |number| {
        let mac = [2, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        LinkVfInfo(vec![VfInfo::Mac(VfInfoMac::new(number, &mac)), VfInfo::Vlan(VfInfoVlan::new(number, 100, 3))])
    };
    let mut message = LinkMessage::default();
    message.attributes = vec![
        LinkAttribute::IfName("br0".into()),
        LinkAttribute::Mtu(9000),
        LinkAttribute::Address(vec![2, 0, 0, 0, 0, 1]),
        LinkAttribute::IfAlias("vtax:1".into()),
        LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]),
        LinkAttribute::VfInfoList(vec![vf(0), vf(1)]),
    ];
    message
}

fn address() -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.prefix_len = 24;
    message.attributes = vec![AddressAttribute::Local([10, 0, 0, 1].into())];
    message
}

fn route() -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet6;
    message.attributes = vec![RouteAttribute::Gateway(Ipv4Addr::new(10, 0, 0, 1).into()), RouteAttribute::Oif(3)];
    message
}

fn bridge_port() -> LinkMessage {
    let range = |flags, vid| AfSpecBridge::VlanInfo(BridgeVlanInfo { flags, vid });
    let range = vec![range(BridgeVlanInfoFlags::RangeBegin, 11), range(BridgeVlanInfoFlags::RangeEnd, 13)];
    let mut message = LinkMessage::default();
    message.header.interface_family = AddressFamily::Bridge;
    message.attributes = vec![LinkAttribute::Controller(3), LinkAttribute::AfSpecBridge(range)];
    message
}

/// Every object of a datagram is parsed as each kind: only the request determines the kind.
#[test]
fn fuzz_netlink() {
    let status = [17_u32, 2, 7, 99, u32::MAX - 16, 36, 0, 0, 0].map(u32::to_ne_bytes).concat();
    let seeds = [
        datagram(16, &link()),
        datagram(20, &address()),
        datagram(24, &route()),
        datagram(16, &bridge_port()),
        datagram(20, &owner::seed().0),
        nft::seeds(OURS).concat(),
        [datagram(24, &route()), datagram(3, &address()), status].concat(),
    ];
    vtax_fuzz::fuzz("netlink", &seeds, |bytes| {
        let mut understood = None;
        for reply in replies(bytes, OURS) {
            let Ok(NetlinkReply::Object { body, .. }) = reply else { continue };
            assert!(each_attribute(body).map(|(_, value)| value.len() + 4).sum::<usize>() <= body.len());
            each_attribute(body).for_each(|(_, value)| drop(text(value)));
            let _ = (Qdisc::parse(body), InterfaceAddress::parse(body), Vf::parse_all(body), Link::parse(body));
            let _ = (Route::parse(body, AddressFamily::Inet), Route::parse(body, AddressFamily::Inet6));
            let _ = (BridgeSettings::parse(body), redirection(body));
            if let Some((_, Some(port))) = PortVlans::parse(body) {
                assert!(port.vlans.is_sorted_by(|a, b| a.vlan < b.vlan));
            }
            let _ = (MacFilter::parse(body), nft::report::owners(body), nft::report::counters(body));
            let _ = FdbEntry::parse(body);
            let _ = owner::owner(body, &owner::seed().1);
            assert!(next_hops(body).len() <= body.len() / 8);
            let _ = Route::taken(body);
            understood = Some(());
        }
        understood
    });
}
