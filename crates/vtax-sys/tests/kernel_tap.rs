//! Taps, in namespaces that end with the test. Requires root and `/dev/net/tun`.

use vtax_sys::netlink::{IfName, LinkChange, NewTap, Rtnl, probe_tap};
use vtax_sys::netns::NetNs;

fn name(text: &str) -> IfName {
    text.parse().unwrap()
}

#[test]
fn a_tap_stays_in_its_namespace_without_a_program() {
    let ns = NetNs::scratch().expect("these tests need root");
    for (tap, multi_queue) in [("one", false), ("many", true)] {
        NewTap { name: name(tap), multi_queue }.create_in(&ns).unwrap();
    }
    let mut rtnl = Rtnl::open_in(&ns).unwrap();
    for tap in ["one", "many"].map(name) {
        let change = LinkChange { up: Some(true), mtu: Some(9000), ..LinkChange::default() };
        rtnl.set_link(&tap, &change).unwrap();
        let link = rtnl.existing_link(&tap).unwrap();
        assert_eq!((link.kind.as_deref(), link.mtu, link.up), (Some("tun"), 9000, true));
        assert!(!link.running, "nobody has opened it");
    }
    let here = Rtnl::open().unwrap().links().unwrap();
    assert!(here.iter().all(|link| link.name != name("many")), "it is in no other namespace");
}

#[test]
fn a_name_in_use_is_not_taken_over() {
    let ns = NetNs::scratch().expect("these tests need root");
    let tap = NewTap { name: name("tap"), multi_queue: true };
    tap.create_in(&ns).unwrap();
    let error = tap.create_in(&ns).unwrap_err().to_string();
    assert!(error.starts_with("cannot create tap tap: ") && error.contains("another name"), "{error}");
}

#[test]
fn the_probe_leaves_nothing() {
    probe_tap().expect("these tests need /dev/net/tun");
    assert!(Rtnl::open().unwrap().links().unwrap().iter().all(|link| link.name != name("probe")));
}
