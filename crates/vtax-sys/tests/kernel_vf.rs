//! The kernel's report of virtual functions and hardware addresses, on links that every machine supports. The emulated
//! server covers the answers of a NIC with virtual functions.

use vtax_sys::netlink::{IfName, LinkChange, LinkKind, MacAddr, NewLink, Rtnl, VfChange};
use vtax_sys::netns::NetNs;

fn veth() -> (Rtnl, IfName) {
    let mut rtnl = Rtnl::open_in(&NetNs::scratch().unwrap()).unwrap();
    let name: IfName = "v0".parse().unwrap();
    let kind = LinkKind::Veth { peer: "v1".parse().unwrap(), peer_ns: None, peer_mtu: None };
    rtnl.create_link(&NewLink::new(name.clone(), kind)).unwrap();
    (rtnl, name)
}

#[test]
fn a_link_takes_another_address() {
    let (mut rtnl, name) = veth();
    let mac = MacAddr([2, 0, 0, 0, 0, 7]);
    rtnl.set_link(&name, &LinkChange { mac: Some(mac), ..LinkChange::default() }).unwrap();
    assert_eq!(rtnl.existing_link(&name).unwrap().mac, Some(mac));
}

#[test]
fn a_link_without_virtual_functions_is_reported_as_such() {
    let (mut rtnl, name) = veth();
    assert_eq!(rtnl.vfs(&name).unwrap(), []);
    let change = VfChange { vlan: Some((5, 0)), ..VfChange::default() };
    let error = rtnl.set_vf(&name, 0, &change).unwrap_err();
    assert_eq!(error.errno(), Some(libc::EOPNOTSUPP), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("set the VLAN of VF 0 of link v0") && text.contains("not supported by this driver"),
        "{text}"
    );
    let gone: IfName = "v9".parse().unwrap();
    assert!(rtnl.vfs(&gone).unwrap_err().to_string().contains("v9"));
}
