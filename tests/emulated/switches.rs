//! A virtual switch with VLANs, in the kernel of the server: that of most machines here does not support them.
//!
//! The switch is that of the source's article about networking: venus has VLAN 33 untagged and 44 tagged, mars has 1
//! untagged and 11, 22 and 33 tagged, and the wire has all of them. This program takes the place of the guests.

use std::{collections::BTreeSet, net::UdpSocket};

use rustix::event::Timespec;
use vtax_model::vf::Vlan;
use vtax_sys::{
    netlink::{
        BridgeSettings, Dropped, IfIndex, LinkChange, MacAddr, MacChange, NewVlanBridge, Nft, PortVlans, Rtnl,
        SwitchName, VlanEnd, VlanMembership, probe_mac_filter, probe_redirection, probe_vlan_bridge,
    },
    netns::NetNs,
};

use super::{
    Server,
    port::{Frame, Port, silent},
};

/// Set in the environment of this program in the server to test a switch.
pub(crate) const TRY: &str = "VTAX_TRY_SWITCH";

/// The emulator may be slow.
const SILENCE: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };
const MTU: u32 = 9000;
/// LLDP address, whose frames bridges do not forward.
const LLDP: MacAddr = MacAddr([1, 0x80, 0xc2, 0, 0, 0x0e]);
const WIRE: MacAddr = mac(1);
const VENUS: MacAddr = mac(2);
const MARS: MacAddr = mac(3);

const fn mac(last: u8) -> MacAddr {
    MacAddr([0x02, 0x14, 0x4f, 0, 0, last])
}

pub(crate) fn separated(server: &Server) {
    let program = std::env::current_exe().expect("this program");
    let told = server.shell(&format!("{TRY}=1 {}", program.display()));
    assert!(told.contains("the switch is as it should be"), "{told}");
}

/// Runs in the server.
pub(crate) fn try_switch() {
    for probe in [probe_vlan_bridge, probe_mac_filter, probe_redirection] {
        probe().expect("the server's kernel has it");
    }
    let mut switch = Switch::new();
    switch.vlans_are_read_back();
    switch.frames_come_where_they_should();
    switch.the_host_takes_part();
    switch.nothing_is_learnt_from_lldp();
    switch.addresses_are_owned();
    switch.vlans_go();
    println!("the switch is as it should be");
}

struct Switch {
    ns: NetNs,
    rtnl: Rtnl,
    bridge: IfIndex,
    wire: Port,
    venus: Port,
    mars: Port,
}

impl Switch {
    fn new() -> Switch {
        let ns = silent();
        let mut rtnl = Rtnl::open_in(&ns).expect("a socket");
        let name = "admin-vsw".parse().expect("a name");
        let bridge = NewVlanBridge { name, mtu: MTU, mac: Some(mac(9)), multicast_snooping: false };
        let bridge = rtnl.create_vlan_bridge(&bridge).expect("a bridge");
        let expected = BridgeSettings { vlan_filtering: true, default_pvid: None, multicast_snooping: false };
        assert_eq!(rtnl.bridge_settings(bridge).expect("it is read"), Some(expected));
        rtnl.set_link(bridge, &LinkChange { up: Some(true), ..LinkChange::default() }).expect("it is switched on");

        let [wire, venus, mars] =
            [("wire", MTU), ("venus", MTU), ("mars", 1500)].map(|(name, mtu)| Port::of(&ns, bridge, name, mtu));
        assert_eq!(rtnl.existing_link(bridge).expect("it is there").mtu, MTU, "a port doesn't change it");
        venus.broadcast(VENUS, None, "no port takes part in a VLAN yet");
        for (port, vlans) in [
            (&wire, &[native(1), tagged(11), tagged(22), tagged(33), tagged(44)][..]),
            (&venus, &[native(33), tagged(44)]),
            (&mars, &[native(1), tagged(11), tagged(22), tagged(33)]),
        ] {
            rtnl.add_vlans(VlanEnd::Port(port.index), vlans).expect("VLANs");
        }
        Switch { ns, rtnl, bridge, wire, venus, mars }
    }

    fn vlans_are_read_back(&mut self) {
        let mut ports = self.rtnl.bridge_vlans(self.bridge).expect("they are read");
        ports.sort_by_key(|port| port.link);
        let port = |link, vlans: &[VlanMembership]| PortVlans { link, vlans: vlans.to_vec() };
        let expected = [
            port(self.bridge, &[]),
            port(self.wire.index, &[native(1), tagged(11), tagged(22), tagged(33), tagged(44)]),
            port(self.venus.index, &[native(33), tagged(44)]),
            port(self.mars.index, &[native(1), tagged(11), tagged(22), tagged(33)]),
        ];
        assert_eq!(ports, expected);
        // VLANs with the same settings, which the kernel reports as a range.
        let all: Vec<_> = (100..=400).map(tagged).collect();
        self.rtnl.add_vlans(VlanEnd::Port(self.wire.index), &all).expect("VLANs");
        let ports = self.rtnl.bridge_vlans(self.bridge).expect("they are read");
        let wire = ports.iter().find(|port| port.link == self.wire.index).expect("it is a port");
        assert_eq!(wire.vlans[5..], all);
        let all: Vec<_> = all.iter().map(|membership| membership.vlan).collect();
        self.rtnl.remove_vlans(VlanEnd::Port(self.wire.index), &all).expect("they are gone");
    }

    /// Sends a frame with each tag from each port, and checks who receives it with which tag. No other frame may
    /// arrive.
    fn frames_come_where_they_should(&self) {
        let tags = [None, Some(11), Some(22), Some(33), Some(44)];
        for (from, mac, port) in [("wire", WIRE, &self.wire), ("venus", VENUS, &self.venus), ("mars", MARS, &self.mars)]
        {
            tags.iter().for_each(|tag| port.broadcast(mac, *tag, &sent(from, *tag)));
        }
        let frame = |tag: u16, from: &str, sent_tag: u16| {
            let some = |tag: u16| (tag > 0).then_some(tag);
            Frame { tag: some(tag), text: sent(from, some(sent_tag)) }
        };
        let seen = [&self.wire, &self.venus, &self.mars].map(|port| port.received(SILENCE));
        let wire = [
            frame(33, "venus", 0),
            frame(33, "venus", 33),
            frame(44, "venus", 44),
            frame(0, "mars", 0),
            frame(11, "mars", 11),
            frame(22, "mars", 22),
            frame(33, "mars", 33),
        ];
        let venus = [frame(0, "wire", 33), frame(44, "wire", 44), frame(0, "mars", 33)];
        let mars = [
            frame(0, "wire", 0),
            frame(11, "wire", 11),
            frame(22, "wire", 22),
            frame(33, "wire", 33),
            frame(33, "venus", 0),
            frame(33, "venus", 33),
        ];
        let expected = [wire.to_vec(), venus.to_vec(), mars.to_vec()].map(|mut frames| {
            frames.sort();
            frames
        });
        assert_eq!(seen, expected);
    }

    /// Checks that the host sends through the bridge itself once the bridge is a member of a VLAN.
    fn the_host_takes_part(&mut self) {
        self.rtnl.add_address(self.bridge, "192.0.2.1/24".parse().expect("an address")).expect("it is added");
        let send = |switch: &Switch, what: &str| {
            let sent = switch.ns.run(|| {
                let socket = UdpSocket::bind("192.0.2.1:0").expect("a port");
                socket.set_broadcast(true).expect("it may");
                socket.send_to(what.as_bytes(), "192.0.2.255:9").map(drop)
            });
            sent.expect("a namespace").expect("it is sent");
        };
        send(self, "nobody sees this");
        self.rtnl.add_vlans(VlanEnd::Bridge(self.bridge), &[native(33)]).expect("VLANs");
        send(self, "from the host");
        let seen = [&self.wire, &self.venus, &self.mars].map(|port| port.datagrams(SILENCE));
        let from_host = |tag| vec![Frame { tag, text: "from the host".to_owned() }];
        assert_eq!(seen, [from_host(Some(33)), from_host(None), from_host(Some(33))]);
        self.rtnl.remove_vlans(VlanEnd::Bridge(self.bridge), &[vlan(33)]).expect("VLANs");
    }

    /// Mars cannot divert frames for venus to itself by a frame to the LLDP address, which no rule sees before the
    /// bridge learns from it.
    fn nothing_is_learnt_from_lldp(&self) {
        self.venus.broadcast(VENUS, None, "this is where I am");
        self.mars.send(LLDP, VENUS, Some(33), b"no, here");
        self.wire.send(VENUS, WIRE, Some(33), b"for venus");
        let seen = [&self.venus, &self.mars].map(|port| port.received(SILENCE));
        let only = |tag, text: &str| vec![Frame { tag, text: text.to_owned() }];
        assert_eq!(seen, [only(None, "for venus"), only(Some(33), "this is where I am")]);
        self.wire.received(SILENCE);
    }

    /// Checks that an address has the same owner with any tag.
    fn addresses_are_owned(&self) {
        let mut nft = Nft::open_in(&self.ns).expect("a socket");
        let vsw: SwitchName = "admin-vsw".parse().expect("a name");
        nft.create_mac_filter(&vsw, "vtax:test").expect("a table");
        let name = || self.mars.name.clone();
        let changes = [MacChange::Allow(name(), MARS), MacChange::Restrict(name())];
        nft.change_mac_filter(&vsw, &changes).expect("it is changed");
        for tag in [None, Some(11), Some(33)] {
            self.mars.broadcast(MARS, tag, "own");
            self.mars.broadcast(VENUS, tag, "of venus");
        }
        let seen: BTreeSet<_> = self.wire.received(SILENCE).into_iter().map(|frame| (frame.text, frame.tag)).collect();
        assert_eq!(seen, [None, Some(11), Some(33)].map(|tag| ("own".to_owned(), tag)).into());
        let dropped = Dropped { frames: 3, bytes: 3 * "of venus".len() as u64 };
        assert_eq!(nft.dropped(&vsw).expect("they are read"), [(name(), dropped)].into());
        nft.delete_mac_filter(&vsw).expect("it is deleted");
        self.venus.received(SILENCE);
    }

    fn vlans_go(&mut self) {
        self.rtnl.remove_vlans(VlanEnd::Port(self.mars.index), &[vlan(1), vlan(11)]).expect("they are removed");
        for tag in [None, Some(11), Some(22)] {
            self.mars.broadcast(MARS, tag, "still there");
        }
        let seen = self.wire.received(SILENCE);
        assert_eq!(seen, [Frame { tag: Some(22), text: "still there".to_owned() }]);
    }
}

/// Returns the text of a frame with this tag from this port.
fn sent(from: &str, tag: Option<u16>) -> String {
    format!("{from} {tag:?}")
}

fn vlan(number: u16) -> Vlan {
    i64::from(number).try_into().expect("a VLAN")
}

fn native(number: u16) -> VlanMembership {
    VlanMembership::native(vlan(number))
}

fn tagged(number: u16) -> VlanMembership {
    VlanMembership::tagged(vlan(number))
}
