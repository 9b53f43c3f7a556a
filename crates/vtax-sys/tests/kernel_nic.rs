//! Facts that links report, in namespaces that end with the test. Requires root.

use vtax_sys::netlink::{IfName, LinkKind, NewLink, Rtnl};
use vtax_sys::netns::NetNs;
use vtax_sys::nic;

fn name(text: &str) -> IfName {
    text.parse().unwrap()
}

#[test]
fn a_link_is_described_inside_its_own_namespace() {
    let ns = NetNs::scratch().expect("these tests need root");
    let kind = LinkKind::Veth { peer: name("nic1"), peer_ns: None, peer_mtu: None };
    Rtnl::open_in(&ns).unwrap().create_link(&NewLink::new(name("nic0"), kind)).unwrap();
    let facts = ns.run(|| nic::describe(&name("nic0"))).unwrap();
    assert_eq!(facts.driver, Some("veth".into()));
    assert!(facts.driver_version.is_some());
    let offloads = &facts.offloads;
    for part in ["tx-checksum-ip-generic", "tx-tcp-segmentation", "tx-udp-segmentation", "rx-gro"] {
        assert!(offloads.contains_key(&part.into()), "{part}: {offloads:?}");
    }
    assert_eq!((facts.bus, facts.numa_node, facts.irqs.len()), (None, None, 0));
    // The link is in no other namespace.
    assert_eq!(nic::describe(&name("nic0")).driver, None);
}

#[test]
fn a_vxlan_has_no_hardware_to_tell_of() {
    let ns = NetNs::scratch().expect("these tests need root");
    let kind = LinkKind::Vxlan {
        vni: 7,
        local: "192.0.2.1".parse().unwrap(),
        remote: "192.0.2.2".parse().unwrap(),
        port: 4789,
        parent: None,
        learning: false,
    };
    Rtnl::open_in(&ns).unwrap().create_link(&NewLink::new(name("vx"), kind)).unwrap();
    let facts = ns.run(|| nic::describe(&name("vx"))).unwrap();
    assert_eq!(facts.driver, Some("vxlan".into()));
    assert!(facts.rings.is_none() && facts.coalescing.is_none() && facts.irqs.is_empty(), "{facts:?}");
}
