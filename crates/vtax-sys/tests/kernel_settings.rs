//! Settings of links, in namespaces that end with the test. Requires root.

use vtax_sys::ethtool::{DriverSetting, Ethtool};
use vtax_sys::netlink::{IfName, LinkChange, LinkKind, NewLink, NewTap, Rtnl};
use vtax_sys::netns::NetNs;
use vtax_sys::tree::FileTree;

fn name(text: &str) -> IfName {
    text.parse().unwrap()
}

fn veth() -> (NetNs, Rtnl) {
    let ns = NetNs::scratch().expect("these tests need root");
    let mut rtnl = Rtnl::open_in(&ns).unwrap();
    let kind = LinkKind::Veth { peer: name("set1"), peer_ns: None, peer_mtu: None };
    rtnl.create_link(&NewLink::new(name("set0"), kind)).unwrap();
    (ns, rtnl)
}

#[test]
fn features_are_switched_off_and_on() {
    let (ns, _rtnl) = veth();
    let link = ns.run(|| Ethtool::open(&name("set0"))).unwrap().unwrap();
    for feature in ["rx-gro", "tx-tcp-segmentation", "tx-generic-segmentation"] {
        assert!(link.feature(feature).unwrap().is_some(), "{feature}");
        for on in [false, true, false] {
            link.set_feature(feature, on).unwrap();
            assert_eq!(link.feature(feature).unwrap(), Some(on), "{feature}");
        }
    }
    assert_eq!(link.feature("no-such-feature").unwrap(), None);
    let error = link.set_feature("no-such-feature", true).unwrap_err().to_string();
    assert!(error.contains("no-such-feature") && error.contains("ethtool -k"), "{error}");
}

/// veth has channels, of which it accepts as many as it has queues, and neither rings nor delays: only real NICs have
/// those.
#[test]
fn channels_are_set_and_unsupported_settings_are_refused() {
    let (ns, _rtnl) = veth();
    let link = ns.run(|| Ethtool::open(&name("set0"))).unwrap().unwrap();
    assert_eq!(link.setting(DriverSetting::RxChannels).unwrap(), Some(1));
    link.set(DriverSetting::RxChannels, 1).unwrap();
    assert!(link.set(DriverSetting::RxChannels, 77).is_err());
    for setting in [DriverSetting::RxRing, DriverSetting::RxUsecs, DriverSetting::AdaptiveTx] {
        assert_eq!(link.setting(setting).unwrap(), None);
        let error = link.set(setting, 1).unwrap_err();
        assert!(error.errno() == Some(libc::EOPNOTSUPP) && error.to_string().contains(&format!("{setting} of set0")));
    }
}

/// The driver of taps has a delay of one kind, and accepts at most 64 packets.
#[test]
fn a_number_that_a_driver_keeps_is_read_back_and_its_others_stay() {
    let ns = NetNs::scratch().expect("these tests need root");
    NewTap { name: name("tap0"), multi_queue: false }.create_in(&ns).unwrap();
    let link = ns.run(|| Ethtool::open(&name("tap0"))).unwrap().unwrap();
    for (told, kept) in [(16, 16), (100, 64), (0, 0)] {
        link.set(DriverSetting::RxFrames, told).unwrap();
        assert_eq!(link.setting(DriverSetting::RxFrames).unwrap(), Some(kept));
        assert_eq!(link.setting(DriverSetting::RxUsecs).unwrap(), Some(0));
    }
    assert!(link.set(DriverSetting::RxUsecs, 10).is_err());
}

#[test]
fn the_length_of_a_queue_is_set() {
    let (_ns, mut rtnl) = veth();
    let link = name("set0");
    assert_eq!(rtnl.existing_link(&link).unwrap().tx_queue_length, Some(1000));
    rtnl.set_link(&link, &LinkChange { tx_queue_length: Some(500), ..LinkChange::default() }).unwrap();
    assert_eq!(rtnl.existing_link(&link).unwrap().tx_queue_length, Some(500));
}

#[test]
fn the_sysfs_of_a_namespace_shows_its_links() {
    let (ns, mut rtnl) = veth();
    let index = rtnl.existing_link(&name("set0")).unwrap().index;
    let tree = FileTree::sysfs_of(&ns).unwrap();
    assert_eq!(tree.read("class/net/set0/ifindex").unwrap(), Some(index.to_string()));
    let cpus = "class/net/set0/queues/rx-0/rps_cpus";
    tree.write(cpus, "1").unwrap();
    assert_eq!(tree.read(cpus).unwrap().map(|mask| mask.ends_with('1')), Some(true));
    let own = FileTree::open("/sys".as_ref()).unwrap();
    assert_eq!(own.read("class/net/set0/ifindex").unwrap(), None);
}

#[test]
fn the_cookie_of_a_namespace_is_its_own() {
    let [one, other] = [(); 2].map(|()| NetNs::scratch().expect("these tests need root"));
    let cookie = |ns: &NetNs| ns.cookie().unwrap();
    assert!(cookie(&one).is_some() && cookie(&one) == cookie(&one) && cookie(&one) != cookie(&other));
    let old = cookie(&one);
    drop(one);
    // The kernel assigns this one the smallest free number, often that of the previous one.
    assert!(cookie(&NetNs::scratch().unwrap()) != old);
}
