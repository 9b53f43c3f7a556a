//! Virtual switches with the running kernel, in namespaces that end with the test: real frames of guests, which the
//! test emulates. Requires root and `/dev/net/tun`. The emulated server covers VLANs.

use std::collections::{BTreeMap, BTreeSet};

use vtax_model::units::{BitRate, ByteSize};
use vtax_sys::SysError;
use vtax_sys::netlink::{
    Dropped, IfIndex, IfName, LinkChange, LinkKind, MacAddr, MacChange, MacFilter, NewLink, NewVlanBridge, Nft, Rtnl,
    SwitchName, Tbf, VlanEnd, VlanMembership, probe_mac_filter, probe_redirection, probe_vlan_bridge,
};
use vtax_sys::{Feature, netns::NetNs};

use port::{Port, silent};

#[path = "../../../tests/port.rs"]
#[allow(dead_code, reason = "the test of VLANs uses more of it")]
mod port;

const MINE: MacAddr = MacAddr([0, 0x14, 0x4f, 0xf9, 0xc4, 0x13]);
const OTHER: MacAddr = MacAddr([0, 0x14, 0x4f, 0xf9, 0xc4, 0x14]);
const RANDOM: MacAddr = MacAddr([2, 0x5e, 0x77, 1, 2, 3]);

fn name(text: &str) -> IfName {
    text.parse().unwrap()
}

fn up() -> LinkChange<'static> {
    LinkChange { up: Some(true), ..LinkChange::default() }
}

fn made(rtnl: &mut Rtnl, link: &str, kind: LinkKind<'_>, mtu: u32) -> IfIndex {
    rtnl.create_link(&NewLink { mtu: Some(mtu), ..NewLink::new(name(link), kind) }).unwrap();
    rtnl.set_link(&name(link), &up()).unwrap();
    rtnl.existing_link(&name(link)).unwrap().index
}

/// A switch without VLANs, with an uplink and two guests.
struct Switch {
    ns: NetNs,
    rtnl: Rtnl,
    wire: Port,
    venus: Port,
    mars: Port,
}

fn switch() -> Switch {
    let ns = silent();
    let mut rtnl = Rtnl::open_in(&ns).unwrap();
    let bridge = made(&mut rtnl, "vsw0", LinkKind::Bridge, 9000);
    let [wire, venus, mars] = ["wire", "venus", "mars"].map(|name| Port::of(&ns, bridge, name, 9000));
    Switch { ns, rtnl, wire, venus, mars }
}

/// Creates a table for the switch, which restricts venus to one address.
fn restricted(switch: &Switch) -> (Nft, SwitchName) {
    let (mut nft, vsw) = (Nft::open_in(&switch.ns).unwrap(), "admin-vsw".parse().unwrap());
    nft.create_mac_filter(&vsw, "vtax:planets").unwrap();
    let port = || switch.venus.name.clone();
    nft.change_mac_filter(&vsw, &[MacChange::Allow(port(), MINE), MacChange::Restrict(port())]).unwrap();
    (nft, vsw)
}

#[test]
fn a_guest_sends_from_its_own_addresses_only() {
    let switch = switch();
    let (mut nft, vsw) = restricted(&switch);
    let Switch { wire, venus, mars, .. } = &switch;
    venus.broadcast(MINE, None, "venus, own");
    venus.broadcast(MINE, Some(7), "venus, own, tagged");
    venus.broadcast(RANDOM, None, "venus, random");
    venus.broadcast(RANDOM, Some(7), "venus, random, tagged");
    mars.broadcast(RANDOM, None, "mars isn't restricted");
    wire.broadcast(OTHER, None, "neither is the wire");
    wire.expect(&["mars isn't restricted", "venus, own", "venus, own, tagged"]);
    let dropped = nft.dropped(&vsw).unwrap();
    assert_eq!(dropped.keys().collect::<Vec<_>>(), [&venus.name]);
    let bytes = ["venus, random", "venus, random, tagged"].map(str::len).iter().sum::<usize>() as u64;
    assert_eq!(dropped[&venus.name], Dropped { frames: 2, bytes });
}

#[test]
fn the_table_changes_while_the_switch_runs() {
    let switch = switch();
    let (mut nft, vsw) = restricted(&switch);
    let Switch { wire, venus, mars, .. } = &switch;
    let port = || venus.name.clone();
    venus.broadcast(OTHER, None, "not yet its own");
    nft.change_mac_filter(&vsw, &[MacChange::Allow(port(), OTHER)]).unwrap();
    venus.broadcast(OTHER, None, "its own now");
    nft.change_mac_filter(&vsw, &[MacChange::Forbid(port(), MINE), MacChange::Restrict(mars.name.clone())]).unwrap();
    venus.broadcast(MINE, None, "no more");
    mars.broadcast(OTHER, None, "the address of another port");
    wire.expect(&["its own now"]);
    let counted = |frames: [u64; 2]| frames.map(|frames| (frames, true));
    let dropped = nft.dropped(&vsw).unwrap();
    let frames = [&venus.name, &mars.name].map(|port| (dropped[port].frames, dropped.contains_key(port)));
    assert_eq!(frames, counted([2, 1]));
    assert_eq!(nft.owners(&vsw).unwrap(), BTreeSet::from([(port(), OTHER)]));

    // If one of several changes cannot be made, none is.
    let changes = [MacChange::Allow(port(), MINE), MacChange::Forbid(port(), RANDOM)];
    assert!(nft.change_mac_filter(&vsw, &changes).unwrap_err().is_missing());
    assert_eq!(nft.owners(&vsw).unwrap().len(), 1);
    nft.change_mac_filter(&vsw, &[MacChange::Free(port())]).unwrap();
    assert_eq!(nft.dropped(&vsw).unwrap(), BTreeMap::from([(mars.name.clone(), dropped[&mars.name])]));
    nft.delete_mac_filter(&vsw).unwrap();
    mars.broadcast(RANDOM, None, "free");
    wire.expect(&["free"]);
}

#[test]
fn our_tables_are_found_by_name_and_mark() {
    let mut nft = Nft::open_in(&silent()).unwrap();
    assert_eq!(nft.mac_filters().unwrap(), []);
    let names = ["a.b-c_0", "vsw1"].map(|name| name.parse::<SwitchName>().unwrap());
    for (number, vsw) in names.iter().enumerate() {
        nft.create_mac_filter(vsw, &format!("vtax:{number}")).unwrap();
    }
    let filter = |number: usize| MacFilter { switch: names[number].clone(), mark: Some(format!("vtax:{number}")) };
    let mut found = nft.mac_filters().unwrap();
    found.sort_by_key(|filter| filter.switch.clone());
    assert_eq!(found, [filter(0), filter(1)]);
    assert_eq!(nft.dropped(&names[0]).unwrap(), BTreeMap::<IfName, Dropped>::new());

    let twice = nft.create_mac_filter(&names[0], "").unwrap_err();
    assert_eq!(twice.errno(), Some(libc::EEXIST), "{twice}");
    nft.delete_mac_filter(&names[0]).unwrap();
    assert_eq!(nft.mac_filters().unwrap(), [filter(1)]);
    for gone in [nft.delete_mac_filter(&names[0]), nft.dropped(&names[0]).map(drop)] {
        let error = gone.unwrap_err();
        assert!(error.is_missing() && error.to_string().contains("nftables table vtax-a.b-c_0"), "{error}");
    }
    probe_mac_filter().unwrap();
}

#[test]
fn a_thousand_addresses_are_taken_and_read_back() {
    let mut nft = Nft::open_in(&silent()).unwrap();
    let vsw = "vsw0".parse().unwrap();
    nft.create_mac_filter(&vsw, "").unwrap();
    let all: BTreeSet<_> = (0..1000_u16)
        .map(|number| {
            let [high, low] = number.to_be_bytes();
            (name(&format!("vnet{}", number % 100)), MacAddr([2, 0, 0, 0, high, low]))
        })
        .collect();
    let changes: Vec<_> = all.iter().map(|(port, mac)| MacChange::Allow(port.clone(), *mac)).collect();
    nft.change_mac_filter(&vsw, &changes).unwrap();
    assert_eq!(nft.owners(&vsw).unwrap(), all);
    let error = nft.change_mac_filter(&vsw, &[changes, vec![MacChange::Free(name("v"))]].concat()).unwrap_err();
    assert!(matches!(error, SysError::Invalid { .. }), "{error}");
}

fn limit() -> Tbf {
    Tbf { rate: BitRate::new(8_000_000).unwrap(), burst: ByteSize(5_000), queue: ByteSize(20_000) }
}

/// Sends all frames in one burst. The burst and the queue take the first ones, and the others are dropped.
fn assert_limited(rtnl: &mut Rtnl, by: IfIndex, from: &Port, to: &Port) {
    const SENT: usize = 200;
    for _ in 0..SENT {
        from.send(MacAddr([0xff; 6]), MINE, None, &[b'x'; 1000]);
    }
    let received = to.texts(1).len();
    let stats = rtnl.root_qdisc(by).unwrap().unwrap().stats;
    assert!((10..SENT / 2).contains(&received), "{received} arrived: {stats:?}");
    // The host itself joins a group of multicast routers: a frame or two.
    assert!((received..received + 3).contains(&(stats.packets as usize)), "{received} arrived: {stats:?}");
    assert!((SENT - received..SENT - received + 3).contains(&(stats.drops as usize)), "{received} arrived: {stats:?}");
}

#[test]
fn a_port_is_limited_in_both_directions() {
    let Switch { ns: _ns, mut rtnl, wire, venus, mars } = switch();
    let ifb = made(&mut rtnl, "ifb-venus", LinkKind::Ifb, 9000);
    assert_eq!(rtnl.redirected_to(venus.index).unwrap(), None);
    for link in [ifb, venus.index] {
        rtnl.set_tbf(link, &limit()).unwrap();
    }
    rtnl.redirect_received(venus.index, ifb).unwrap();
    assert_eq!(rtnl.redirected_to(venus.index).unwrap(), Some(ifb));
    let twice = rtnl.redirect_received(venus.index, ifb).unwrap_err();
    assert_eq!(twice.errno(), Some(libc::EEXIST), "{twice}");

    assert_limited(&mut rtnl, ifb, &venus, &wire);
    mars.texts(0);
    assert_limited(&mut rtnl, venus.index, &wire, &venus);

    rtnl.stop_redirecting(venus.index).unwrap();
    rtnl.delete_link(ifb).unwrap();
    rtnl.remove_tbf(venus.index).unwrap();
    assert!(rtnl.remove_tbf(venus.index).is_err());
    assert_eq!(rtnl.redirected_to(venus.index).unwrap(), None);
    venus.broadcast(MINE, None, "at once");
    wire.expect(&["at once"]);
    probe_redirection().unwrap();
}

/// The limit is before the table: frames that a guest sends from foreign addresses use up its own bandwidth.
#[test]
fn a_limited_port_is_still_restricted() {
    let switch = switch();
    let (mut nft, vsw) = restricted(&switch);
    let Switch { ns: _ns, mut rtnl, wire, venus, .. } = switch;
    let ifb = made(&mut rtnl, "ifb-venus", LinkKind::Ifb, 9000);
    rtnl.set_tbf(ifb, &limit()).unwrap();
    rtnl.redirect_received(venus.index, ifb).unwrap();
    for (mac, text) in [(MINE, "own"), (RANDOM, "random")] {
        venus.broadcast(mac, Some(7), text);
    }
    wire.expect(&["own"]);
    assert_eq!(nft.dropped(&vsw).unwrap()[&venus.name].frames, 1);
}

#[test]
fn an_uplink_comes_and_goes_and_large_frames_pass() {
    let Switch { ns, mut rtnl, venus, .. } = switch();
    let vsw = rtnl.existing_link(&name("vsw0")).unwrap().index;
    let far = silent();
    let kind = LinkKind::Veth { peer: name("far"), peer_ns: Some(&far), peer_mtu: Some(9000) };
    let uplink = made(&mut rtnl, "uplink", kind, 9000);
    let mut outside = Rtnl::open_in(&far).unwrap();
    let other = made(&mut outside, "other", LinkKind::Bridge, 9000);
    outside.set_link(&name("far"), &LinkChange { master: Some(Some(other)), ..up() }).unwrap();
    let peer = Port::of(&far, other, "peer", 9000);

    let move_to = |rtnl: &mut Rtnl, bridge: Option<IfIndex>| {
        rtnl.set_link(uplink, &LinkChange { master: Some(bridge), ..LinkChange::default() }).unwrap();
        assert_eq!(rtnl.existing_link(uplink).unwrap().master, bridge);
    };
    let large = "x".repeat(8900);
    for (bridge, arrives) in [(None, false), (Some(vsw), true), (None, false)] {
        move_to(&mut rtnl, bridge);
        venus.broadcast(MINE, None, &large);
        assert_eq!(peer.texts(usize::from(arrives)) == [large.as_str()], arrives, "{bridge:?}");
    }
    drop(ns);
}

#[test]
fn snooping_of_a_bridge_is_set() {
    let Switch { mut rtnl, .. } = switch();
    let vsw = rtnl.existing_link(&name("vsw0")).unwrap().index;
    for on in [true, false] {
        rtnl.set_multicast_snooping(vsw, on).unwrap();
        assert_eq!(rtnl.bridge_settings(vsw).unwrap().unwrap().multicast_snooping, on);
    }
    let error = rtnl.set_multicast_snooping(IfIndex(1), true).unwrap_err();
    assert!(error.to_string().contains("set multicast snooping"), "{error}");
}

/// If the kernel lacks VLAN filtering, the error reports it and no bridge is left behind.
#[test]
fn a_kernel_without_vlan_filtering_is_reported() {
    let mut rtnl = Rtnl::open_in(&silent()).unwrap();
    let bridge = NewVlanBridge { name: name("vsw0"), mtu: 9000, mac: Some(MINE), multicast_snooping: false };
    let made = rtnl.create_vlan_bridge(&bridge);
    assert_eq!(made.is_ok(), probe_vlan_bridge().is_ok());
    let missing = |error: SysError| {
        assert!(matches!(error, SysError::NoFeature { feature: Feature::VlanFiltering }), "{error}");
        assert!(error.to_string().contains("CONFIG_BRIDGE_VLAN_FILTERING"), "{error}");
    };
    let Err(error) = made else { return };
    missing(error);
    assert_eq!(rtnl.link(&bridge.name).unwrap(), None);

    let Switch { mut rtnl, venus, .. } = switch();
    let vsw = rtnl.existing_link(&name("vsw0")).unwrap().index;
    assert!(!rtnl.bridge_settings(vsw).unwrap().unwrap().vlan_filtering);
    let vlans = [VlanMembership::native(33_i64.try_into().unwrap())];
    for end in [VlanEnd::Port(venus.index), VlanEnd::Bridge(vsw)] {
        missing(rtnl.add_vlans(end, &vlans).unwrap_err());
    }
    let ports = rtnl.bridge_vlans(vsw).unwrap();
    assert!(ports.len() == 4 && ports.iter().all(|port| port.vlans.is_empty()), "{ports:?}");
    let foreign = rtnl.add_vlans(VlanEnd::Port(IfIndex(1)), &vlans).unwrap_err();
    assert_eq!(foreign.errno(), Some(libc::EOPNOTSUPP), "lo is no port of a bridge: {foreign}");
}
